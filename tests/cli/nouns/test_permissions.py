"""Commands for permissions against a broker with authorization: what they grant is allowed, until it is revoked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from magnetar import testing
from tests.access.keys import SECRET_SETTING, token
from tests.cli.conftest import CommandLine

TOPIC = "persistent://acme/n/t"

As = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def secured() -> Iterator[testing.TestBroker]:
    with testing.broker(
        authenticationEnabled=True,
        authenticationProviders="token",
        tokenSecretKey=SECRET_SETTING,
        authorizationEnabled=True,
        superUserRoles="root",
    ) as running:
        yield running


@pytest.fixture
def cli(secured: testing.TestBroker, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(secured.http_url, capsys)


@pytest.fixture
def as_role(tmp_path: Path) -> As:
    """The words that log a role in."""

    def words(role: str) -> list[str]:
        file = tmp_path / role
        file.touch(mode=0o600)
        file.write_bytes(token(sub=role))
        return ["--token", f"file://{file}"]

    return words


@pytest.fixture
def topic(cli: CommandLine, as_role: As) -> Iterator[str]:
    root = as_role("root")
    cli.ok("tenants", "create", "acme", "--admin-roles", "ann", *root)
    cli.ok("namespaces", "create", "acme/n", *as_role("ann"))
    cli.ok("topics", "create", TOPIC, *as_role("ann"))
    cli.ok("subscriptions", "create", TOPIC, "s", *as_role("ann"))
    yield TOPIC
    cli.ok("topics", "delete", TOPIC, "--force", *root)
    cli.ok("namespaces", "delete", "acme/n", *root)
    cli.ok("tenants", "delete", "acme", *root)


def test_permissions_in_a_namespace(cli: CommandLine, as_role: As, topic: str) -> None:
    ann, app = as_role("ann"), as_role("app")
    refused = cli.fails("topics", "stats", topic, *app)
    assert "role 'app' may not do this with persistent://acme/n/t" in refused and "HTTP 403" in refused
    assert "needs to be tenant admin" in cli.fails(
        "namespaces", "grant-permission", "acme/n", "--role", "app", "--actions", "consume", *app
    )
    cli.ok("namespaces", "grant-permission", "acme/n", "--role", "app", "--actions", "consume", *ann)
    assert cli.json("namespaces", "permissions", "acme/n", *ann) == {"app": ["consume"]}
    cli.ok("topics", "stats", topic, *app)
    cli.ok("namespaces", "revoke-permission", "acme/n", "--role", "app", *ann)
    assert cli.json("namespaces", "permissions", "acme/n", *ann) == {}
    assert "HTTP 403" in cli.fails("topics", "stats", topic, *app)


def test_permissions_on_a_topic(cli: CommandLine, as_role: As, topic: str) -> None:
    ann, app = as_role("ann"), as_role("app")
    cli.ok("topics", "grant-permission", topic, "--role", "app", "--actions", "produce", *ann)
    assert cli.json("topics", "permissions", topic, *ann) == {"app": ["produce"]}
    cli.ok("topics", "stats", topic, *app)
    assert "HTTP 403" in cli.fails("topics", "list", "acme/n", *app), "it is for this topic alone"
    cli.ok("topics", "revoke-permission", topic, "--role", "app", *ann)
    assert "HTTP 403" in cli.fails("topics", "stats", topic, *app)


def test_permissions_on_a_subscription(cli: CommandLine, as_role: As, topic: str) -> None:
    ann, app, other = as_role("ann"), as_role("app"), as_role("other")
    skip = ("subscriptions", "skip-all", topic, "s")
    for role in ("app", "other"):
        cli.ok("namespaces", "grant-permission", "acme/n", "--role", role, "--actions", "consume", *ann)
    cli.ok(*skip, *other)
    cli.ok("namespaces", "grant-subscription-permission", "acme/n", "--sub", "s", "--roles", "app", *ann)
    assert cli.json("namespaces", "subscription-permission", "acme/n", *ann) == {"s": ["app"]}
    cli.ok(*skip, *app)
    assert "subscription 's'" in cli.fails(*skip, *other)
    cli.ok("namespaces", "revoke-subscription-permission", "acme/n", "--sub", "s", "--role", "app", *ann)
    cli.ok(*skip, *other)


def test_messages_where_a_subscription_has_to_begin_with_the_role(cli: CommandLine, as_role: As, topic: str) -> None:
    ann, app = as_role("ann"), as_role("app")
    cli.ok("messages", "publish", topic, "hello", *ann)
    cli.ok("namespaces", "grant-permission", "acme/n", "--role", "app", "--actions", "consume", *ann)
    cli.ok("namespaces", "set-subscription-auth-mode", "acme/n", "--subscription-auth-mode", "Prefix", *ann)
    assert "has to begin with the role" in cli.fails("messages", "peek", topic, *app)
    prefix = ("--subscription-role-prefix", "app")
    assert "hello" in cli.ok("messages", "peek", topic, *prefix, *app)
    assert "hello" in cli.ok("messages", "tail", topic, "--from-start", "--count", "1", *prefix, *app)
    cannot = cli.fails("messages", "peek", topic, "--subscription", "s", *prefix, *app, code=2)
    assert cannot == "Invalid value: --subscription-role-prefix cannot be combined with --subscription"

"""CONNECT with authentication, and credentials that expire while the connection is open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from passlib.hash import apr_md5_crypt  # type: ignore[import-untyped]

from magnetar.access.authentication import Authentication
from magnetar.log.events import AUTHENTICATION_FAILED
from magnetar.settings.settings import Settings
from magnetar.wire import schema_pb2 as pb
from tests.access.keys import SECRET_SETTING, token
from tests.broker.world import World
from tests.session.talk import Talk

Command = pb.BaseCommand
TOKENS = {"authenticationEnabled": True, "authenticationProviders": "token", "tokenSecretKey": SECRET_SETTING}


def secured(**settings: Any) -> World:
    world = World(**{**TOKENS, **settings})
    world.broker.authentication = Authentication.from_settings(world.broker.settings)
    return world


def connect(world: World, data: bytes = b"", method: str = "token", **options: Any) -> Talk:
    talk = Talk(world, connect=False)
    command = pb.CommandConnect(
        client_version="t", protocol_version=21, auth_method_name=method, auth_data=data, **options
    )
    talk.send(Command(type=Command.CONNECT, connect=command))
    return talk


def kinds(talk: Talk) -> list[int]:
    return [command.type for command in talk.said()]


def refused(talk: Talk) -> pb.CommandError:
    (reply,) = talk.said()
    assert talk.closed
    return reply.error


def test_a_valid_token_is_let_in() -> None:
    talk = connect(secured(), token(sub="ann"))
    assert kinds(talk) == [Command.CONNECTED]
    assert talk.session.principal.role == "ann"


@pytest.mark.parametrize(("data", "method"), [(b"x", "token"), (b"", "token"), (b"", ""), (token(), "sasl")])
def test_others_get_an_authentication_error_and_are_closed(data: bytes, method: str) -> None:
    world = secured()
    assert refused(connect(world, data, method)).error == pb.AuthenticationError
    assert AUTHENTICATION_FAILED in [event for event, _ in world.host.events]
    assert not any(data.decode() in str(values) for _, values in world.host.events if len(data) > 1)


def test_what_follows_a_refused_connect_is_not_handled() -> None:
    talk = connect(secured(), b"wrong")
    talk.said()
    talk.send(Command(type=Command.PING, ping=pb.CommandPing()))
    assert talk.said() == []


def test_clients_without_a_method_are_anonymous_where_that_is_allowed() -> None:
    world = secured(anonymousUserRole="guest")
    talk = connect(world, method="none")
    assert kinds(talk) == [Command.CONNECTED]
    assert talk.session.principal.role == "guest"
    assert refused(connect(world, b"wrong")).error == pb.AuthenticationError


def test_a_password_is_checked_aside_and_what_follows_waits(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"ann:{apr_md5_crypt.hash('word')}")
    world = secured(authenticationProviders="basic", basicAuthConf=str(tmp_path / "users"))
    waiting: list[Any] = []
    world.broker.check_login = lambda work, then, address: waiting.append((work, then))  # type: ignore[method-assign]
    good, bad = connect(world, b"ann:word", "basic"), connect(world, b"ann:wrong", "basic")
    good.send(Command(type=Command.PING, ping=pb.CommandPing()))
    assert good.said() == []
    for work, then in waiting:
        work()
        then()
    assert kinds(good) == [Command.CONNECTED]
    good.session.receive(b"")
    assert kinds(good) == [Command.PONG]
    assert refused(bad).error == pb.AuthenticationError


def test_an_expired_token_is_asked_for_again() -> None:
    world = secured()
    expires_s = world.clock.now_ms() // 1000 + 90
    talk = connect(world, token(sub="ann", exp=expires_s), feature_flags=pb.FeatureFlags(supports_auth_refresh=True))
    assert kinds(talk) == [Command.CONNECTED]
    world.advance(milliseconds=61_000)
    assert talk.said() == []
    world.advance(milliseconds=60_000)
    (asked,) = talk.said()
    assert asked.authChallenge.challenge.auth_data == b"PulsarAuthRefresh"
    assert asked.authChallenge.challenge.auth_method_name == "token"
    answer(talk, token(sub="ann", exp=expires_s + 1000))
    world.advance(milliseconds=120_000)
    assert talk.said() == []
    assert not talk.closed
    assert talk.session.principal.expires_ms == (expires_s + 1000) * 1000


def answer(talk: Talk, data: bytes) -> None:
    response = pb.CommandAuthResponse(response=pb.AuthData(auth_method_name="token", auth_data=data))
    talk.send(Command(type=Command.AUTH_RESPONSE, authResponse=response))


def test_a_client_that_does_not_answer_is_disconnected_at_the_next_check() -> None:
    for can_refresh, checks in ((True, 2), (False, 1)):
        world = secured()
        data = token(sub="ann", exp=world.clock.now_ms() // 1000 + 1)
        talk = connect(world, data, feature_flags=pb.FeatureFlags(supports_auth_refresh=can_refresh))
        for _ in range(checks):
            assert not talk.closed
            world.advance(milliseconds=60_001)
        assert talk.closed


@pytest.mark.parametrize("data", [token(sub="bob"), b"wrong"])
def test_another_role_or_a_wrong_token_closes_the_connection(data: bytes) -> None:
    talk = connect(secured(), token(sub="ann"))
    talk.said()
    answer(talk, data)
    assert refused(talk).error == pb.AuthenticationError


def test_without_authentication_auth_response_changes_nothing() -> None:
    talk = Talk(World())
    answer(talk, b"x")
    assert talk.said() == []
    assert not talk.closed


def test_a_closed_connection_leaves_no_timer() -> None:
    world = secured()
    before = len(world.broker.intervals)
    talk = connect(world, token(sub="ann", exp=world.clock.now_ms() // 1000 + 90))
    talk.session.close()
    world.advance(milliseconds=600_000)
    assert len(world.broker.intervals) <= before


@pytest.mark.parametrize(
    ("role", "options", "original"),
    [
        ("proxy", {"original_principal": "ann"}, "ann"),
        ("proxy", {}, None),
        ("proxy", {"original_principal": "proxy2"}, None),
        ("proxy", {"original_principal": "$pipelines"}, None),
        ("ann", {"original_principal": "bob"}, None),
        ("ann", {"original_principal": "ann"}, None),
        ("ann", {"proxy_version": "p"}, None),
        ("ann", {}, ""),
    ],
)
def test_the_rules_of_proxies_are_pulsars(role: str, options: dict[str, str], original: str | None) -> None:
    talk = connect(secured(proxyRoles="proxy, proxy2"), token(sub=role), **options)
    if original is None:
        assert refused(talk).error == pb.AuthorizationError
    else:
        assert kinds(talk) == [Command.CONNECTED]
        assert talk.session.principal.original == original


def test_what_the_client_of_a_proxy_showed_is_checked_where_that_is_set() -> None:
    world = secured(proxyRoles="proxy", authenticateOriginalAuthData=True)
    options = {"original_principal": "boss", "original_auth_method": "token"}
    talk = connect(world, token(sub="proxy"), original_auth_data=token(sub="ann").decode(), **options)
    assert kinds(talk) == [Command.CONNECTED]
    assert talk.session.principal.original == "ann"
    assert refused(connect(world, token(sub="proxy"), original_auth_data="x", **options)).error == (
        pb.AuthenticationError
    )


def test_the_role_of_the_pipelines_process_is_not_given_by_a_token() -> None:
    assert refused(connect(secured(), token(sub="$pipelines"))).error == pb.AuthenticationError


def test_settings_that_cannot_be_obeyed_end_the_start() -> None:
    for settings, reason in (
        ({"authenticationProviders": ""}, "needs authenticationProviders"),
        (
            {"authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderSasl"},
            "Sasl is not",
        ),
        ({"anonymousUserRole": "$pipelines"}, "anonymousUserRole"),
    ):
        with pytest.raises(Exception, match=reason):
            Authentication.from_settings(Settings(**{**TOKENS, **settings}))  # type: ignore[arg-type]

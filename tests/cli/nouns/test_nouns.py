"""Every command group against a real broker: everyday commands and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pulsar
import pytest

from magnetar.cli.output import Table
from magnetar.cli.views.stats import stats_page
from magnetar.testing import TestBroker
from tests.cli.conftest import CommandLine, Recorder


@pytest.fixture
def namespace(cli: CommandLine, request: pytest.FixtureRequest) -> str:
    """A new namespace for each test."""
    name = f"acme/{request.node.name.partition('[')[0]}"
    if "acme" not in cli.json("tenants", "list"):
        cli.ok("tenants", "create", "acme")
    cli.ok("namespaces", "create", name)
    return name


@pytest.fixture
def topic(cli: CommandLine, namespace: str) -> str:
    cli.ok("topics", "create", f"{namespace}/orders")
    return f"persistent://{namespace}/orders"


def publish(running: TestBroker, topic: str, *values: str, batched: bool = False) -> None:
    client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, batching_enabled=batched, batching_max_publish_delay_ms=1000)
    for value in values:
        producer.send_async(value.encode(), None, partition_key="k", properties={"n": value})
    producer.flush()
    client.close()


# -- tenants, clusters, namespaces


def test_tenants(cli: CommandLine) -> None:
    assert cli.ok("tenants", "create", "t1", "--admin-roles", "a,b") == "created tenant t1\n"
    assert {"public", "t1"} <= set(cli.ok("tenants", "list").splitlines())
    assert cli.json("tenants", "get", "t1") == {"adminRoles": ["a", "b"], "allowedClusters": ["standalone"]}
    cli.ok("tenants", "update", "t1", "-r", "c")
    assert cli.ok("tenants", "get", "t1") == "adminRoles       c\nallowedClusters  standalone\n"
    assert "(HTTP 409)" in cli.fails("tenants", "create", "t1")
    assert cli.json("tenants", "delete", "t1") == {"done": "deleted tenant t1"}
    assert "(HTTP 404)" in cli.fails("tenants", "get", "t1")
    assert "give --admin-roles" in cli.fails("tenants", "update", "public", code=2)


def test_clusters(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "standalone" in cli.json("clusters", "list")
    cli.ok("clusters", "create", "there", "--service-url", "http://there:8080", "--broker-url", "pulsar://there:6650")
    cli.ok("clusters", "update", "there", "--broker-url", "pulsar://there:6651")
    found = cli.json("clusters", "get", "there")
    assert (found["serviceUrl"], found["brokerServiceUrl"]) == ("http://there:8080", "pulsar://there:6651")
    assert "http://there:8080" in cli.ok("clusters", "get", "there")
    cli.ok("clusters", "delete", "there")
    assert "there" not in cli.json("clusters", "list")
    create = ("clusters", "create", "there", "--broker-url", "pulsar://there:6650", "--auth-plugin", "token")
    complaint = cli.fails(*create, "--auth-parameters", "token:s3cret", code=2)
    assert "--auth-parameters-file" in complaint and "s3cret" not in complaint
    file = tmp_path / "parameters"
    file.write_text("token:s3cret\n")
    cli.ok(*create, "--auth-parameters-file", str(file))
    assert "s3cret" not in cli.ok("clusters", "get", "there") + str(cli.json("clusters", "get", "there"))
    monkeypatch.setenv("THERE", "token:s3cret")
    cli.ok("clusters", "update", "there", "--auth-parameters", "env:THERE")
    assert cli.json("clusters", "get", "there")["authenticationParameters"] == "token:(hidden)"
    assert "no such variable" in cli.fails("clusters", "update", "there", "--auth-parameters", "env:NONE", code=2)
    both = ("--auth-parameters", "env:THERE", "--auth-parameters-file", str(file))
    assert "give either" in cli.fails("clusters", "update", "there", *both, code=2)
    file.unlink()
    assert "cannot be read" in cli.fails("clusters", "update", "there", "--auth-parameters-file", str(file), code=2)
    outside = cli.fails("clusters", "update", "there", "--auth-parameters", "file:///run/token")
    assert "brokerClientTokenFolders" in outside
    cli.ok("clusters", "delete", "there")
    assert "give at least --service-url" in cli.fails("clusters", "create", "x", code=2)
    assert "standalone itself" in cli.fails("clusters", "create", "x", "--service-url", cli.url + "/", code=2)
    cli.ok("clusters", "create", "x", "--service-url", "http://there:8080")
    assert "standalone itself" in cli.fails("clusters", "update", "x", "--service-url", cli.url, code=2)
    assert cli.json("clusters", "get", "x")["serviceUrl"] == "http://there:8080"
    cli.ok("clusters", "delete", "x")


@pytest.mark.parametrize(
    ("plugin", "parameters"),
    [
        ("basic", "file:s3cret"),
        ("basic", "file:/s3cret"),
        ("org.apache.pulsar.client.impl.auth.AuthenticationBasic", "tlsKeyFile:/s3cret"),
        ("token", "tlsCertFile:s3cret"),
        ("oauth2", '{"issuerUrl":"https://i","client_id":"a","client_secret":"s3cret"}'),
    ],
)
def test_a_password_is_taken_for_no_path(cli: CommandLine, tmp_path: Path, plugin: str, parameters: str) -> None:
    create = ("clusters", "create", "p", "--service-url", "http://p:8080", "--auth-plugin", plugin)
    complaint = cli.fails(*create, "--auth-parameters", parameters, code=2)
    assert "would show a secret to every user" in complaint and "s3cret" not in complaint
    file = tmp_path / "parameters"
    file.write_text(parameters)
    cli.ok(*create, "--auth-parameters-file", str(file))
    try:
        complaint = cli.fails("clusters", "update", "p", "--auth-parameters", parameters, code=2)
        assert "would show a secret" in complaint and "s3cret" not in complaint, "the plugin is that of the record"
        assert "s3cret" not in cli.ok("clusters", "get", "p")
    finally:
        cli.ok("clusters", "delete", "p")


def test_namespaces(cli: CommandLine, namespace: str) -> None:
    assert namespace in cli.ok("namespaces", "list", "acme").splitlines()
    assert cli.json("namespaces", "get", namespace) == cli.json("namespaces", "policies", namespace)
    assert cli.json("namespaces", "topics", namespace) == []
    cli.ok("namespaces", "unload", namespace)
    cli.ok("topics", "create", f"{namespace}/t")
    assert "`magnetar topics list" in cli.fails("namespaces", "delete", namespace)
    cli.ok("topics", "delete", f"{namespace}/t")
    cli.ok("namespaces", "delete", namespace)
    assert namespace not in cli.json("namespaces", "list", "acme")


def test_policies_round_trip(cli: CommandLine, topic: str, namespace: str) -> None:
    cli.ok("namespaces", "set-retention", namespace, "-t", "3h", "-s", "10M")
    assert cli.json("namespaces", "get-retention", namespace) == {
        "retentionTimeInMinutes": 180,
        "retentionSizeInMB": 10,
    }
    assert cli.ok("namespaces", "get-retention", namespace) == (
        "retentionTimeInMinutes  180\nretentionSizeInMB       10\n"
    )
    cli.ok("namespaces", "remove-retention", namespace)
    cli.ok("namespaces", "set-message-ttl", namespace, "-t", "1h")
    assert cli.ok("namespaces", "get-message-ttl", namespace) == "3600\n"
    cli.ok("topics", "set-message-ttl", topic, "-t", "2h")
    assert cli.json("topics", "get-message-ttl", topic) == 7200
    cli.ok("topics", "remove-message-ttl", topic)
    assert cli.json("topics", "get-message-ttl", topic, "--applied") == 3600
    cli.ok("namespaces", "set-auto-topic-creation", namespace, "-e", "-t", "partitioned", "-n", "4")
    found = cli.json("namespaces", "get-auto-topic-creation", namespace)
    assert (found["topicType"], found["defaultNumPartitions"]) == ("partitioned", 4)
    cli.ok("namespaces", "set-backlog-quota", namespace, "-l", "10M", "-p", "producer_exception")
    assert cli.json("namespaces", "get-backlog-quotas", namespace)["destination_storage"]["limitSize"] == 10 << 20


# -- topics


def test_topics(cli: CommandLine, namespace: str) -> None:
    cli.ok("topics", "create", f"{namespace}/plain", "-m", "team=a")
    cli.ok("topics", "create-partitioned-topic", f"{namespace}/parts", "-p", "2", "-m", "team=b")
    assert cli.json("topics", "list", namespace) == [
        f"persistent://{namespace}/{name}" for name in ("parts-partition-0", "parts-partition-1", "plain")
    ]
    assert cli.json("topics", "list-partitioned-topics", namespace) == [f"persistent://{namespace}/parts"]
    assert cli.json("topics", "properties", f"{namespace}/plain") == {"team": "a"}
    assert cli.json("topics", "properties", f"{namespace}/parts")["team"] == "b"
    cli.ok("topics", "update-partitioned-topic", f"{namespace}/parts", "-p", "3")
    assert cli.json("topics", "get-partitioned-topic-metadata", f"{namespace}/parts")["partitions"] == 3
    assert cli.json("topics", "lookup", f"{namespace}/plain")["brokerUrl"].startswith("pulsar://")
    assert "delete-partitioned-topic" in cli.fails("topics", "delete", f"{namespace}/parts")
    cli.ok("topics", "delete-partitioned-topic", f"{namespace}/parts")
    cli.ok("topics", "delete", f"{namespace}/plain")
    code, out, err = cli("topics", "list", namespace)
    assert (code, out, err) == (0, "", f"{namespace} has no topics\n")


def test_stats(running: TestBroker, cli: CommandLine, topic: str, namespace: str) -> None:
    cli.ok("subscriptions", "create", topic, "billing", "-m", "earliest")
    publish(running, topic, "one", "two")
    text = cli.ok("topics", "stats", topic)
    assert text.startswith(f"{topic}\n")
    assert "published      2 messages" in text
    assert text.splitlines()[-1].split()[:3] == ["billing", "idle", "None"]
    assert cli.json("topics", "stats", topic)["msgInCounter"] == 2
    assert "SUBSCRIPTION" in cli.ok("topics", "stats-internal", topic)
    assert cli.json("topics", "last-message-id", topic)["entryId"] == 1
    assert cli.json("topics", "get-message-id", topic, "-d", "2020-01-01")["entryId"] == 0
    cli.ok("topics", "create-partitioned-topic", f"{namespace}/parts", "-p", "2")
    assert "partitions     2" in cli.ok("topics", "stats", f"{namespace}/parts")
    assert f"{namespace}/parts-partition-1 " in cli.ok(
        "topics", "partitioned-stats", f"{namespace}/parts", "--per-partition"
    )
    assert f"{namespace}/parts-partition-1" in cli.ok("topics", "stats-internal", f"{namespace}/parts")


def test_a_paused_subscription_shows_in_lists_and_stats(cli: CommandLine, topic: str) -> None:
    cli.ok("subscriptions", "create", topic, "billing", "--replicated")
    cli.ok("subscriptions", "create", topic, "other")
    cli.ok("subscriptions", "pause", topic, "billing")
    for words in (("subscriptions", "list", topic), ("topics", "stats", topic)):
        text = cli.ok(*words)
        rows = {line.split()[0]: line.split() for line in text.splitlines() if line.startswith(("billing ", "other "))}
        assert (rows["other"][1], rows["other"][-1]) == ("idle", "no")
        assert "SUBSCRIPTION  STATE" in text and "billing is paused: " in text
    assert [(one["name"], "pausedReason" in one) for one in cli.json("subscriptions", "list", topic)] == [
        ("billing", True),
        ("other", False),
    ]


def test_replication_shows_in_the_statistics_of_a_topic() -> None:
    west = {"state": "waiting-for-remote-topic", "reason": "no topic", "replicationBacklog": 7}
    east = {"connected": True, "replicationDelayInSeconds": 3}
    page = stats_page("t", {"replication": {"west": west, "east": east}})
    assert page.parts[1] == Table(
        {"west": west, "east": east},
        ("CLUSTER", "STATE", "BACKLOG", "DELAY S", "REASON"),
        [("east", "connected", 0, 3, "-"), ("west", "waiting-for-remote-topic", 7, 0, "no topic")],
    )


def test_a_forbidden_deletion_names_the_setting_and_the_command(cli: CommandLine, namespace: str) -> None:
    message = cli.fails("namespaces", "delete", namespace, "--force")
    assert "forceDeleteNamespaceAllowed is false" in message
    assert "`magnetar brokers update-dynamic-config --config forceDeleteNamespaceAllowed --value true`" in message


def test_terminating_and_deleting_a_topic(running: TestBroker, cli: CommandLine, topic: str) -> None:
    publish(running, topic, "one")
    cli.ok("topics", "unload", topic)
    cli.ok("topics", "truncate", topic)
    assert cli.json("topics", "terminate", topic)["entryId"] == 0
    cli.ok("topics", "update-properties", topic, "-p", "a=b=c")
    assert cli.json("topics", "properties", topic) == {"a": "b=c"}
    cli.ok("topics", "remove-properties", topic, "-k", "a")
    assert cli("topics", "properties", topic).err == f"{topic} has no properties\n"


# -- subscriptions


def test_subscriptions(running: TestBroker, cli: CommandLine, topic: str) -> None:
    cli.ok("subscriptions", "create", topic, "billing", "-m", "earliest", "-p", "a=b")
    cli.ok("subscriptions", "create", topic, "late")
    publish(running, topic, "one", "two", "three")

    def backlog(name: str = "billing") -> int:
        (found,) = (one for one in cli.json("subscriptions", "list", topic) if one["name"] == name)
        return int(found["msgBacklog"])

    assert (backlog(), backlog("late")) == (3, 3)
    assert cli.ok("subscriptions", "skip", topic, "billing", "-n", "1") == "skipped 1 message of billing\n"
    assert backlog() == 2
    assert cli.json("subscriptions", "analyze-backlog", topic, "billing")["messages"] == 2
    cli.ok("subscriptions", "skip-all", topic, "billing")
    assert backlog() == 0
    cli.ok("subscriptions", "reset", topic, "billing", "-m", "earliest")
    assert backlog() == 3
    cli.ok("subscriptions", "reset", topic, "billing", "-m", "latest")
    assert backlog() == 0
    cli.ok("subscriptions", "reset", topic, "billing", "-t", "1h")
    assert backlog() == 3
    cli.ok("subscriptions", "reset", topic, "billing", "-d", "2020-01-01T00:00:00Z")
    cli.ok("subscriptions", "expire", topic, "billing", "-t", "1h")
    assert backlog() == 3
    running.advance(hours=2)
    cli.ok("subscriptions", "expire", topic, "billing", "-t", "1h")
    assert (backlog(), backlog("late")) == (0, 3)
    cli.ok("subscriptions", "expire", topic, "-t", "1h")
    assert backlog("late") == 0
    assert cli.json("subscriptions", "properties", topic, "billing") == {"a": "b"}
    cli.ok("subscriptions", "update-properties", topic, "billing", "--clear")
    cli.ok("subscriptions", "delete", topic, "late")
    assert [one["name"] for one in cli.json("subscriptions", "list", topic)] == ["billing"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("reset T S", "give exactly one of --time, --datetime, --messageId"),
        ("reset T S -t 1h -m earliest", "give exactly one of --time, --datetime, --messageId"),
        ("reset T S -t 1h -e", "--exclude-reset-position needs --messageId"),
        ("reset T S -m first", "'first' is not earliest, latest or ledger:entry"),
        ("expire T -p 1:2", "--position needs a subscription"),
        ("skip T S -n 0", "'0' is not an integer from 1 to"),
        ("update-properties T S", "give either --property or --clear"),
        ("create T S -p ab", "'ab' is not of the form key=value"),
    ],
)
def test_invalid_uses_of_subscriptions(cli: CommandLine, command: str, message: str) -> None:
    assert message in cli.fails("subscriptions", *command.split(), code=2)


def test_peek_acknowledges_nothing(running: TestBroker, cli: CommandLine, topic: str) -> None:
    cli.ok("subscriptions", "create", topic, "billing", "-m", "earliest")
    publish(running, topic, "one", "two", batched=True)
    publish(running, topic, "three")
    lines = cli.ok("subscriptions", "peek", topic, "billing", "-n", "9").splitlines()
    assert [line.split()[-1] for line in lines] == ["one", "two", "three"]
    assert "key=k" in lines[0]
    found = [
        json.loads(line) for line in cli.ok("subscriptions", "peek", topic, "billing", "-n", "9", "--json").splitlines()
    ]
    assert [(one["key"], one["properties"], one["value"]) for one in found] == [
        ("k", {"n": value}, value) for value in ("one", "two", "three")
    ]
    assert len({one["id"] for one in found}) == 3
    cli.ok("subscriptions", "skip-all", topic, "billing")
    assert cli("subscriptions", "peek", topic, "billing") == (0, "", "subscription billing has no messages to read\n")


def test_peek_does_not_create_a_misspelled_subscription(cli: CommandLine, topic: str) -> None:
    """The REST call would, in Apache Pulsar too."""
    assert cli.fails("subscriptions", "peek", topic, "biling") == f"{topic} has no subscription biling; it has none"
    cli.ok("subscriptions", "create", topic, "billing")
    assert "it has billing" in cli.fails("messages", "peek", topic, "-s", "biling")
    assert [one["name"] for one in cli.json("subscriptions", "list", topic)] == ["billing"]


# -- schemas


def test_schemas(cli: CommandLine, topic: str, tmp_path: Path) -> None:
    definition = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    file = tmp_path / "order.json"
    file.write_text(json.dumps({"type": "JSON", "schema": definition}))
    assert "(HTTP 404)" in cli.fails("schemas", "get", topic)
    assert "version  0" in cli.ok("schemas", "upload", topic, "-f", str(file))
    found = cli.json("schemas", "get", topic)
    assert (found["type"], found["version"], json.loads(found["data"])) == ("JSON", 0, definition)
    assert "JSON" in cli.ok("schemas", "get", topic, "-v", "0")
    assert cli.ok("schemas", "versions", topic).splitlines()[1].split()[:2] == ["0", "JSON"]
    file.write_text(json.dumps({"type": "JSON", "schema": {**definition, "fields": [{"name": "x", "type": "string"}]}}))
    answer = cli("schemas", "compatibility", topic, "-f", str(file), "--json")
    assert json.loads(answer.out)["compatibility"] is False if answer.code == 0 else "ncompatible" in answer.err
    cli.ok("schemas", "delete", topic)
    assert "(HTTP 404)" in cli.fails("schemas", "get", topic)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "is not JSON"),
        ("[]", "has no field type"),
        ('{"schema": ""}', "has no field type"),
        ('{"type": "AVRO", "shema": ""}', "has unknown fields: shema"),
    ],
)
def test_an_invalid_schema_file_sends_nothing(
    recorder: Recorder, recorded: CommandLine, tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "schema.json"
    if content is not None:
        file.write_text(content)
    assert message in recorded.fails("schemas", "upload", "orders", "-f", str(file), code=2)
    assert recorder.requests == []


# -- mistakes


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("namespaces create orders", "did you mean public/orders?"),
        ("topics list public", "did you mean public/default?"),
        ("topics create default/orders", "did you mean public/default/orders?"),
        ("topics create-partitioned-topic orders -p many", "'many' is not an integer from 1 to 2147483647"),
        ("topics create-partitioned-topic orders -p 0", "'0' is not an integer from 1"),
        ("topics create-partitioned-topic orders", "Missing option '--partitions'"),
        ("topic list public/default", "Did you mean 'topics'"),
        ("topics lst public/default", "Did you mean 'list'"),
        ("tenants create a/b", "did you mean a?"),
        ("topics stats", "Missing argument"),
    ],
)
def test_usage_mistakes_are_explained(cli: CommandLine, command: str, message: str) -> None:
    assert message in cli.fails(*command.split(), code=2)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("namespaces create nobody/x", "`magnetar tenants create nobody` creates the tenant nobody"),
        ("topics create public/nowhere/orders", "`magnetar namespaces create public/nowhere` creates the namespace"),
        ("topics list public/nowhere", "`magnetar namespaces create public/nowhere` creates the namespace"),
        (
            "messages publish public/nowhere/orders x",
            "`magnetar namespaces create public/nowhere` creates the namespace",
        ),
        ("topics stats nosuch", "Topic persistent://public/default/nosuch not found (HTTP 404)"),
    ],
)
def test_rejections_suggest_what_to_do(cli: CommandLine, command: str, message: str) -> None:
    assert message in cli.fails(*command.split())


def test_clearing_a_backlog_requires_confirmation(
    recorder: Recorder, recorded: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("builtins.input", lambda: "n")
    result = recorded("namespaces", "clear-backlog", "acme/shop")
    assert (result.code, result.out) == (2, "")
    assert "not confirmed" in result.err
    assert recorder.requests == []
    monkeypatch.setattr("builtins.input", lambda: "y")
    assert recorded("namespaces", "clear-backlog", "acme/shop", "-s", "billing").code == 0
    recorded.ok("namespaces", "clear-backlog", "acme/shop", "--force")
    assert [request.path.partition("/shop/")[2] for request in recorder.requests] == [
        "clearBacklog/billing",
        "clearBacklog",
    ]


def test_permissions_and_properties(recorder: Recorder, recorded: CommandLine) -> None:
    recorded.ok("namespaces", "grant-permission", "acme/shop", "--role", "me", "--actions", "produce,consume")
    recorded.ok("namespaces", "revoke-permission", "acme/shop", "--role", "me")
    recorded.ok("namespaces", "set-properties", "acme/shop", "-p", "a=b")
    recorded.ok("namespaces", "remove-property", "acme/shop", "-k", "a/b")
    path = "/admin/v2/namespaces/acme/shop"
    assert [request[:4] for request in recorder.requests] == [
        ("POST", f"{path}/permissions/me", {}, ["produce", "consume"]),
        ("DELETE", f"{path}/permissions/me", {}, None),
        ("PUT", f"{path}/properties", {}, {"a": "b"}),
        ("DELETE", f"{path}/property/a%2Fb", {}, None),
    ]


def test_permissions_on_topics_and_subscriptions(recorder: Recorder, recorded: CommandLine) -> None:
    recorded.ok("topics", "grant-permission", "acme/shop/t", "--role", "me", "--actions", "consume,packages")
    recorded.ok("topics", "revoke-permission", "acme/shop/t", "--role", "me")
    recorded.ok("namespaces", "grant-subscription-permission", "acme/shop", "--subscription", "s", "--roles", "a,b")
    recorded.ok("namespaces", "revoke-subscription-permission", "acme/shop", "-s", "s", "--role", "a")
    recorded.ok("namespaces", "set-subscription-auth-mode", "acme/shop", "--subscription-auth-mode", "prefix")
    path = "/admin/v2/namespaces/acme/shop"
    assert [request[:4] for request in recorder.requests] == [
        ("POST", "/admin/v2/persistent/acme/shop/t/permissions/me", {}, ["consume", "packages"]),
        ("DELETE", "/admin/v2/persistent/acme/shop/t/permissions/me", {}, None),
        ("POST", f"{path}/permissions/subscription/s", {}, ["a", "b"]),
        ("DELETE", f"{path}/permissions/s/a", {}, None),
        ("POST", f"{path}/subscriptionAuthMode", {}, "Prefix"),
    ]


# -- the default namespace


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("topics list", "/admin/v2/persistent/public/default"),
        ("topics list-partitioned-topics", "/admin/v2/persistent/public/default/partitioned"),
        ("namespaces get", "/admin/v2/namespaces/public/default"),
        ("namespaces policies", "/admin/v2/namespaces/public/default"),
        ("namespaces topics", "/admin/v2/namespaces/public/default/topics"),
        ("namespaces bundles", "/admin/v2/namespaces/public/default/bundles"),
        ("namespaces permissions", "/admin/v2/namespaces/public/default/permissions"),
        ("namespaces get-properties", "/admin/v2/namespaces/public/default/properties"),
        ("namespaces get-retention", "/admin/v2/namespaces/public/default/retention"),
        ("namespaces list", "/admin/v2/namespaces/public"),
    ],
)
def test_reading_defaults_to_public_default(recorder: Recorder, recorded: CommandLine, words: str, path: str) -> None:
    for method_path in (path, path.replace("/persistent/", "/non-persistent/")):
        recorder.will_answer("GET", method_path, [] if "list" in words or "topics" in words else {})
    assert recorded(*words.split()).code == 0
    assert recorder.requests[0][:2] == ("GET", path)


@pytest.mark.parametrize(
    "words",
    [
        "namespaces create",
        "namespaces delete",
        "namespaces unload",
        "namespaces clear-backlog --force",
        "namespaces set-retention -t 1h -s 1G",
        "namespaces remove-retention",
        "namespaces clear-properties",
    ],
)
def test_a_change_requires_its_namespace(recorder: Recorder, recorded: CommandLine, words: str) -> None:
    assert "Missing argument 'TENANT/NAMESPACE'" in recorded.fails(*words.split(), code=2)
    assert recorder.requests == []

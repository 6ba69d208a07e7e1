"""`magnetar deadletters`, and `magnetar subscriptions` commands about failing messages, against real brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pulsar
import pytest

from magnetar.cli.rest import Refused, Rest
from magnetar.cli.views import dead_letters as dead_letter_views
from magnetar.testing import TestBroker
from tests.cli.conftest import CommandLine, Recorder

NUMBERS = count(1)
SUBSCRIPTION = "/admin/v2/persistent/public/default/t/subscription/s"


@pytest.fixture
def topic(cli: CommandLine) -> str:
    """A new topic for each test, with a subscription."""
    name = f"failing{next(NUMBERS)}"
    cli.ok("topics", "create", name)
    cli.ok("subscriptions", "create", name, "s")
    return name


@pytest.fixture
def client(running: TestBroker) -> Iterator[pulsar.Client]:
    client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def dead(cli: CommandLine, client: pulsar.Client, topic: str, *payloads: bytes) -> str:
    """The dead letter topic with these messages: they fail twice, and the policy allows once."""
    letters = f"{topic}-s-DLQ"
    cli.ok("topics", "create", letters)
    cli.ok("subscriptions", "set-dead-letter-policy", topic, "s", "-m", "1")
    producer = client.create_producer(topic, batching_enabled=False)
    for payload in payloads:
        producer.send(payload, properties={"colour": "red"})
    consumer = client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=10
    )
    for _ in range(2 * len(payloads)):
        consumer.negative_acknowledge(consumer.receive(10_000))
    end = time.monotonic() + 10
    while len(cli.json("deadletters", "list", letters)["deadLetters"]) < len(payloads):
        assert time.monotonic() < end, "the dead letters do not come"
    return letters


class Without:
    """A broker without our paths, like Apache Pulsar, with its version-specific responses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
        original = Rest.request

        def request(rest: Rest, method: str, segments: tuple[str, ...], **more: Any) -> Any:
            if {"deadLetters", "deadLetterPolicy"} & set(segments):
                raise Refused(status, "no such path")
            return original(rest, method, segments, **more)

        monkeypatch.setattr(Rest, "request", request)


@pytest.fixture(params=[None, 404, 405, 501], ids=["rest", "reader-404", "reader-405", "reader-501"])
def way(request: pytest.FixtureRequest) -> int | None:
    """The source of dead letters: REST, or reading where the broker lacks it."""
    status: int | None = request.param
    return status


# -- dead letters


def test_list_stats_and_show(
    cli: CommandLine, client: pulsar.Client, topic: str, way: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = dead(cli, client, topic, b'{"n": 1}', b"two", b"\xff")
    if way is not None:
        Without(monkeypatch, way)
    full = f"persistent://public/default/{topic}"
    page = cli.json("deadletters", "list", letters)
    assert [one["reason"] for one in page["deadLetters"]] == ["MaxRedeliveries"] * 3
    assert {(one["originTopic"], one["originSubscription"], one["count"]) for one in page["deadLetters"]} == {
        (full, "s", 2)
    }
    assert cli.json("deadletters", "list", topic, "-s", "s") == page
    first = cli.json("deadletters", "list", letters, "--limit", "2")
    assert first["deadLetters"] == page["deadLetters"][:2]
    rest = cli.json("deadletters", "list", letters, "--after", first["next"])
    assert (rest["deadLetters"], rest["next"]) == (page["deadLetters"][2:], None)
    out = cli.ok("deadletters", "list", letters, "-n", "2")
    assert out.splitlines()[0].split() == [
        "ID",
        "TIME",
        "REASON",
        "COUNT",
        "TOPIC",
        "SUBSCRIPTION",
        "MESSAGE",
        "PAYLOAD",
    ]
    assert out.splitlines()[-1] == f"more with --after {first['next']}"

    stats = cli.json("deadletters", "stats", letters)
    assert (stats["deadLetters"], stats["reasons"], stats["aborted"]) == (3, {"MaxRedeliveries": 3}, False)
    (origin,) = stats["origins"]
    assert (origin["topic"], origin["subscription"], origin["deadLetters"]) == (full, "s", 3)
    assert stats["first"] == min(one["time"] for one in page["deadLetters"])
    assert cli.json("deadletters", "stats", letters, "-a", first["next"])["deadLetters"] == 1
    assert "MaxRedeliveries  3" in cli.ok("deadletters", "stats", letters)

    by_payload = {}
    for one in page["deadLetters"]:
        shown = cli.json("deadletters", "show", letters, one["id"])
        assert shown["properties"]["colour"] == "red"
        (failure,) = shown["failures"]
        assert (failure["topic"], failure["reason"], failure["count"]) == (full, "MaxRedeliveries", 2)
        by_payload[shown["payloadEncoding"]] = shown["payload"]
        text = cli.ok("deadletters", "show", letters, one["id"])
        assert "MaxRedeliveries" in text and "colour" in text
    assert by_payload == {"json": {"n": 1}, "text": "two", "base64": "/w=="}
    ledger = page["deadLetters"][0]["id"].partition(":")[0]
    assert f"{ledger}:99" in cli.fails("deadletters", "show", letters, f"{ledger}:99:-1")


def test_dead_letters_of_a_client_in_partitions(
    cli: CommandLine, client: pulsar.Client, topic: str, way: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = f"{topic}-s-DLQ"
    cli.ok("topics", "create-partitioned-topic", letters, "-p", "2")
    for index in range(2):
        producer = client.create_producer(f"{letters}-partition-{index}")
        for number in range(2):
            properties = {"REAL_TOPIC": topic, "ORIGIN_MESSAGE_ID": f"(7,{number},{index},-1)"}
            producer.send_async(b"x", None, properties=properties)
        producer.flush()
    if way is not None:
        Without(monkeypatch, way)
    page = cli.json("deadletters", "list", letters)
    assert [one["originMessageId"] for one in page["deadLetters"]] == ["7:0:0", "7:1:0", "7:0:1", "7:1:1"]
    assert {(one["reason"], one["originSubscription"]) for one in page["deadLetters"]} == {("Client", "s")}
    found, after = [], None
    while True:
        one = cli.json("deadletters", "list", letters, "-n", "1", *(["-a", after] if after else []))
        found += one["deadLetters"]
        after = one["next"]
        if after is None:
            break
    assert found == page["deadLetters"]
    shown = cli.json("deadletters", "show", letters, page["deadLetters"][3]["id"])
    assert (shown["originMessageId"], shown["payload"]) == ("7:1:1", "x")


def test_a_missing_topic_or_dead_letter_is_reported(
    cli: CommandLine, topic: str, way: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way is not None:
        Without(monkeypatch, way)
    # Of a subscription that is there, whose first letter will create the topic.
    assert cli("deadletters", "list", topic, "-s", "s").err == "no dead letters\n"
    assert cli.json("deadletters", "stats", topic, "-s", "s")["deadLetters"] == 0
    missing = f"{topic}-nothing-DLQ"
    for words in (
        ("list", missing),
        ("stats", missing),
        ("show", missing, "1:0:-1"),
        ("list", topic, "-s", "nothing"),
        ("stats", topic, "-s", "nothing"),
        ("list", f"{topic}-nothing", "-s", "s"),
        ("show", topic, "1:0:-1", "-s", "s"),
    ):
        cli.fails("deadletters", *words)
    topics = cli.ok("topics", "list", "public/default")
    assert missing not in topics and f"{topic}-s-DLQ" not in topics  # looking creates nothing


def test_b8_a_topic_that_is_no_dead_letter_topic_is_rejected_with_the_names_of_its_own(
    cli: CommandLine, client: pulsar.Client, topic: str, way: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_producer(topic).send(b"a live message")
    client.create_producer(f"{topic}-s-DLQ").send(b"a dead one")
    if way is not None:
        Without(monkeypatch, way)
    for words in (("list", topic), ("stats", topic), ("show", topic, "1:0:-1")):
        error = cli.fails("deadletters", *words)
        assert f"{topic} is not a dead letter topic: its dead letter topics are" in error and f"{topic}-s-DLQ" in error
    other = f"{topic}-live"
    cli.ok("topics", "create", other)
    assert "it has none" in cli.fails("deadletters", "list", other)


def test_waiting_and_handled(
    cli: CommandLine, client: pulsar.Client, topic: str, way: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = dead(cli, client, topic, b"1", b"2", b"3", b"4")
    inspection = client.subscribe(letters, "inspection", initial_position=pulsar.InitialPosition.Earliest)
    received = [inspection.receive(10_000) for _ in range(4)]
    for index in (0, 2):
        inspection.acknowledge(received[index])
    inspection.close()
    if way is not None:
        Without(monkeypatch, way)
    (one,) = [one for one in cli.json("deadletters", "overview")["topics"] if one["topic"].endswith(f"/{letters}")]
    assert (one["waiting"], one["handled"]) == (2, 2)
    assert (one["originTopic"], one["originSubscription"]) == (f"persistent://public/default/{topic}", "s")
    if way is None:
        assert one["lastHour"] == 4 and one["oldest"]
    waiting = [one["id"] for one in cli.json("deadletters", "list", letters)["deadLetters"]]
    everything = cli.json("deadletters", "list", letters, "--handled")["deadLetters"]
    assert [one.get("handled", False) for one in everything] == [True, False, True, False]
    assert waiting == [one["id"] for one in everything if not one.get("handled")]
    assert cli.json("deadletters", "stats", letters)["deadLetters"] == 2
    assert cli.json("deadletters", "stats", letters, "--handled")["deadLetters"] == 4


def test_the_overview_is_what_the_group_does_without_a_command(cli: CommandLine, client: pulsar.Client) -> None:
    cli.ok("namespaces", "create", "public/quiet")
    assert cli("deadletters", "overview", "public/quiet").err == "no dead letter topics in public/quiet\n"
    for index in range(3):
        client.create_producer(f"public/quiet/t-{index}-DLQ").send(b"x")
    out = cli.ok("deadletters", "overview", "public/quiet", "-n", "2").splitlines()
    assert out[0].split()[:3] == ["DEAD", "LETTER", "TOPIC"] and len(out) == 5
    assert out[-1] == "more with --after persistent://public/quiet/t-1-DLQ"
    assert cli.json("deadletters") == cli.json("deadletters", "overview", "public/default")
    assert cli.json("deadletters", "public/quiet") == cli.json("deadletters", "overview", "public/quiet")
    assert "No such command 'lst'. Did you mean 'list'" in cli.fails("deadletters", "lst", "public/quiet", code=2)
    assert "public/missing" in cli.fails("deadletters", "overview", "public/missing")


def test_mistakes(cli: CommandLine, topic: str) -> None:
    assert "1000" in cli.fails("deadletters", "list", topic, "-n", "1001", code=2)
    letters = f"{topic}-s-DLQ"
    cli.ok("topics", "create", letters)
    assert "ledger:entry" in cli.fails("deadletters", "list", letters, "--after", "x")
    assert "ledger:entry" in cli.fails("deadletters", "show", letters, "x")


def test_the_count_by_reading_stops_with_a_continuation(
    cli: CommandLine, client: pulsar.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"{topic}-s-DLQ"
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"x") for _ in range(3)]
    Without(monkeypatch, 404)
    monkeypatch.setattr(dead_letter_views, "READ_MAX", 2)
    stats = cli.json("deadletters", "stats", topic)
    assert (stats["deadLetters"], stats["aborted"]) == (2, True)
    assert stats["next"].startswith(f"{ids[1].ledger_id()}:{ids[1].entry_id()}:")
    assert f"--after {stats['next']}" in cli.ok("deadletters", "stats", topic)
    assert cli.json("deadletters", "stats", topic, "--after", stats["next"])["deadLetters"] == 1


def test_control_characters_are_escaped(cli: CommandLine, client: pulsar.Client, topic: str) -> None:
    topic = f"{topic}-s-DLQ"
    producer = client.create_producer(topic)
    producer.send(b"a\x1b[2Jb\nc", properties={"REAL_TOPIC": "\x1b[31m", "\x1b]0;k": "v"})
    (one,) = cli.json("deadletters", "list", topic)["deadLetters"]
    for words in (("list", topic), ("stats", topic), ("show", topic, one["id"])):
        assert "\x1b" not in cli.ok("deadletters", *words)
    assert cli.ok("deadletters", "show", topic, one["id"]).endswith("a\\x1b[2Jb\nc\n")


# -- handling of failures


def test_dl3_policy_of_a_subscription(cli: CommandLine, topic: str) -> None:
    assert cli("subscriptions", "get-dead-letter-policy", topic, "s").err == "dead-letter-policy of s is not set\n"
    words = ("-m", "3", "-t", "graves", "-i", "inspection")
    assert cli.ok("subscriptions", "set-dead-letter-policy", topic, "s", *words) == "set dead-letter-policy of s\n"
    assert cli.json("subscriptions", "get-dead-letter-policy", topic, "s") == {
        "maxRedeliverCount": 3,
        "deadLetterTopic": "persistent://public/default/graves",
        "initialSubscriptionName": "inspection",
        "source": "subscription: REST",
    }
    assert "source" in cli.ok("subscriptions", "get-dead-letter-policy", topic, "s")
    assert "itself" in cli.fails("subscriptions", "set-dead-letter-policy", topic, "s", "-m", "3", "-t", topic)
    assert "0" in cli.fails("subscriptions", "set-dead-letter-policy", topic, "s", "-m", "0", code=2)
    cli.ok("subscriptions", "remove-dead-letter-policy", topic, "s")
    assert cli.json("subscriptions", "get-dead-letter-policy", topic, "s") is None


def test_dl3_policy_of_a_namespace(cli: CommandLine) -> None:
    cli.ok("tenants", "create", "graveyard")
    cli.ok("namespaces", "create", "graveyard/n")
    cli.ok("namespaces", "set-dead-letter-policy", "graveyard/n", "-m", "4")
    cli.ok("namespaces", "set-dead-letter-expired", "graveyard/n", "--enable")
    cli.ok("topics", "create", "graveyard/n/t")
    cli.ok("subscriptions", "create", "graveyard/n/t", "s")
    found = cli.json("subscriptions", "get-dead-letter-policy", "graveyard/n/t", "s")
    assert (found["maxRedeliverCount"], found["source"]) == (4, "namespace")
    assert cli.json("namespaces", "get-dead-letter-expired", "graveyard/n") is True
    cli.ok("namespaces", "remove-dead-letter-policy", "graveyard/n")
    assert cli.json("subscriptions", "get-dead-letter-policy", "graveyard/n/t", "s") is None


def test_backoff_breaker_and_pausing(cli: CommandLine, topic: str) -> None:
    cli.ok("subscriptions", "set-redelivery-backoff", topic, "s", "-d", "500ms,1s,10s,1m")
    assert cli.json("subscriptions", "get-redelivery-backoff", topic, "s") == [500, 1000, 10_000, 60_000]
    cli.ok("subscriptions", "remove-redelivery-backoff", topic, "s")
    assert cli.json("subscriptions", "get-redelivery-backoff", topic, "s") is None
    cli.ok("subscriptions", "set-circuit-breaker", topic, "s", "-p", "50", "-w", "5m", "-n", "20")
    assert cli.json("subscriptions", "get-circuit-breaker", topic, "s") == {
        "percent": 50,
        "windowSeconds": 300,
        "minimum": 20,
    }
    cli.ok("subscriptions", "remove-circuit-breaker", topic, "s")
    assert cli.json("subscriptions", "get-circuit-breaker", topic, "s") is None
    cli.ok("subscriptions", "pause", topic, "s", "-r", "until later")
    assert cli.json("topics", "stats", topic)["subscriptions"]["s"]["pausedReason"] == "until later"
    assert "s is paused: until later" in cli.ok("topics", "stats", topic).splitlines()
    cli.ok("subscriptions", "resume", topic, "s")
    assert "pausedReason" not in cli.json("topics", "stats", topic)["subscriptions"]["s"]


@pytest.mark.parametrize(
    ("command", "path", "body"),
    [
        ("set-dead-letter-policy -m 3", "deadLetterPolicy", {"maxRedeliverCount": 3}),
        ("set-redelivery-backoff -d 1,2m", "redeliveryBackoff", [1000, 120_000]),
        ("set-circuit-breaker -p 5", "circuitBreaker", {"percent": 5, "windowSeconds": 60, "minimum": 10}),
        ("pause", "pause", None),
        ("pause --reason why", "pause", {"reason": "why"}),
        ("resume", "resume", None),
    ],
)
def test_the_sent_requests(recorder: Recorder, recorded: CommandLine, command: str, path: str, body: object) -> None:
    name, *options = command.split()
    recorded.ok("subscriptions", name, "t", "s", *options)
    (request,) = recorder.requests
    assert (request.method, request.path, request.body) == ("POST", f"{SUBSCRIPTION}/{path}", body)


@pytest.mark.parametrize("delays", ["", ",", "x", "1s,x", "-1s", "1.5s", "ms"])
def test_invalid_delays_are_rejected(cli: CommandLine, topic: str, delays: str) -> None:
    cli.fails("subscriptions", "set-redelivery-backoff", topic, "s", f"--delays={delays}", code=2)


class Order(pulsar.schema.Record):  # type: ignore[misc]
    number = pulsar.schema.Integer()
    name = pulsar.schema.String()


def test_payloads_are_decoded_by_their_schema(
    cli: CommandLine, client: pulsar.Client, topic: str, way: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("subscriptions", "set-dead-letter-policy", topic, "s", "-m", "1")
    letters = f"{topic}-s-DLQ"
    producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(Order), batching_enabled=False)
    producer.send(Order(number=7, name="Ada"))
    consumer = client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=10
    )
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(10_000))
    end = time.monotonic() + 10
    while not cli.json("deadletters", "list", topic, "-s", "s")["deadLetters"]:
        assert time.monotonic() < end, "the dead letter does not come"
    if way is not None:
        Without(monkeypatch, way)
    (one,) = cli.json("deadletters", "list", letters)["deadLetters"]
    shown = cli.json("deadletters", "show", letters, one["id"])
    for found in (one, shown):
        assert (found["schemaType"], found["payloadEncoding"]) == ("AVRO", "avro")
        assert found["payload"] == {"number": 7, "name": "Ada"}
    assert '{"number": 7, "name": "Ada"}' in cli.ok("deadletters", "list", letters)
    assert '"name": "Ada"' in cli.ok("deadletters", "show", letters, one["id"])


@pytest.mark.parametrize(
    ("type_", "effect"), [("Shared", "are delivered again, one by one"), ("Failover", "die together")]
)
def test_dl9_stats_warn_of_batches_that_are_nacked_as_a_whole(
    cli: CommandLine, client: pulsar.Client, topic: str, type_: str, effect: str
) -> None:
    cli.ok("subscriptions", "set-dead-letter-policy", topic, "s", "-m", "5")
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=10_000)
    for _ in range(3):
        producer.send_async(b"x", None)
    producer.flush()
    options = {"consumer_type": getattr(pulsar.ConsumerType, type_), "negative_ack_redelivery_delay_ms": 10}
    consumer = client.subscribe(topic, "s", **options)
    consumer.negative_acknowledge(consumer.receive(10_000))
    end = time.monotonic() + 10
    while not cli.json("topics", "stats", topic)["subscriptions"]["s"]["nackedBatches"]:
        assert time.monotonic() < end, "the negative ack does not come"
    (warning,) = [line for line in cli.ok("topics", "stats", topic).splitlines() if "nacked as a whole" in line]
    assert warning.startswith("s had batches nacked as a whole (1)") and effect in warning

"""Dead letters with the official Python client: its own policy, and the broker's, which needs no client code."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.testing import TestBroker, broker
from tests.compat import poison
from tests.compat.stage import (
    PATIENCE_MS,
    backlog,
    connect,
    consume,
    eventually,
    nothing_comes,
    numbered,
    send_batch,
    serving,
    take,
    topic_in,
)

Type = pulsar.ConsumerType
DeadLetter = tuple[bytes, dict[str, str]]
SPREAD, ORDERED = [Type.Shared, Type.KeyShared], [Type.Exclusive, Type.Failover]
EARLIEST = pulsar.InitialPosition.Earliest


def named(value: object) -> str:
    return str(getattr(value, "name", value))


def limit(count: int, **more: str) -> dict[str, str]:
    """The consumer properties that request dead letters (DL3)."""
    return {f"deadLetterPolicy.{key}": value for key, value in {"maxRedeliverCount": str(count), **more}.items()}


def subscribe(
    client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType = Type.Shared, **options: object
) -> pulsar.Consumer:
    return client.subscribe(topic, "s", consumer_type, negative_ack_redelivery_delay_ms=100, **options)


def subscribe_dead(client: pulsar.Client, topic: str) -> pulsar.Consumer:
    """A consumer of the dead letters of a topic and of subscription "s"."""
    return client.subscribe(f"{topic}-s-DLQ", "inspection", Type.Shared, initial_position=EARLIEST)


def nack_bad(consumer: pulsar.Consumer, is_bad: Callable[[bytes], bool], until: Callable[[], bool]) -> Counter[bytes]:
    """Nacks bad messages and acknowledges the others until done. Returns the deliveries of each."""
    seen: Counter[bytes] = Counter()
    for _ in turns(until):
        with contextlib.suppress(pulsar.Timeout):
            message = consumer.receive(50)
            seen[message.data()] += 1
            handle(consumer, message, is_bad)
    return seen


def turns(until: Callable[[], bool]) -> Iterator[None]:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not until():
        assert time.monotonic() < deadline, "the condition never held"
        yield


def handle(consumer: pulsar.Consumer, message: pulsar.Message, is_bad: Callable[[bytes], bool]) -> None:
    if is_bad(message.data()):
        consumer.negative_acknowledge(message)
    else:
        consumer.acknowledge(message)


def dead_letters_arrive(running: TestBroker, topic: str, count: int) -> Callable[[], bool]:
    """Condition: this many dead letters exist and the subscription has no backlog."""

    def holds() -> bool:
        exists = running.run(lambda: f"persistent://public/default/{topic}-s-DLQ" in topics_of(running))
        if not exists or backlog(running, topic, "s"):
            return False
        return topic_in(running, f"{topic}-s-DLQ").messages_in >= count

    return holds


def topics_of(running: TestBroker) -> set[str]:
    return set(running.server.broker.catalog.topics)


def dead_letters(client: pulsar.Client, topic: str, count: int) -> list[DeadLetter]:
    """Exactly this many dead letters."""
    consumer = subscribe_dead(client, topic)
    found = [(message.data(), message.properties()) for message in take(consumer, count)]
    assert nothing_comes(consumer), "more dead letters than dead messages"
    return found


class TestClientPolicy:
    def test_dl1_delivered_as_often_as_allowed_then_one_copy_is_dead_lettered(
        self, shared_broker: TestBroker, client: pulsar.Client, topic: str
    ) -> None:
        policy = pulsar.ConsumerDeadLetterPolicy(3, f"{topic}-s-DLQ", "inspection")
        consumer = subscribe(client, topic, dead_letter_policy=policy)
        send_batch(client.create_producer(topic), [b"good", b"bad", b"fine"])
        seen = nack_bad(consumer, lambda data: data == b"bad", dead_letters_arrive(shared_broker, topic, 1))
        assert seen == {b"good": 1, b"bad": 1 + 3, b"fine": 1}
        ((data, properties),) = dead_letters(client, topic, 1)
        assert data == b"bad"
        assert properties["REAL_TOPIC"].endswith(topic) and properties["ORIGIN_MESSAGE_ID"]
        assert nothing_comes(consumer)

    def test_dl2_the_name_is_optional(self, shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
        consumer = subscribe(client, topic, dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1))
        client.create_producer(topic).send(b"bad")
        assert nack_bad(consumer, lambda _: True, dead_letters_arrive(shared_broker, topic, 1)) == {b"bad": 2}
        assert [data for data, _ in dead_letters(client, topic, 1)] == [b"bad"]

    def test_dl12_a_dead_letter_whose_ack_was_lost_is_published_again_and_stored_once(
        self, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        policy = pulsar.ConsumerDeadLetterPolicy(1)
        with serving(tmp_path) as (running, client):
            consumer = subscribe(client, topic, dead_letter_policy=policy)
            client.create_producer(topic).send(b"bad")
            with monkeypatch.context() as lossy:
                acks: list[int] = []
                lossy.setattr(Subscription, "ack", lambda _, entry_id, *more: acks.append(entry_id))
                assert nack_bad(consumer, lambda _: True, lambda: acks == [0]) == {b"bad": 2}
                consumer.close()
            assert topic_in(running, f"{topic}-s-DLQ").messages_in == 1
        with serving(tmp_path) as (running, client):
            consumer = subscribe(client, topic, dead_letter_policy=policy)
            assert nack_bad(consumer, lambda _: True, lambda: not backlog(running, topic, "s")) == {b"bad": 1}
            assert [data for data, _ in dead_letters(client, topic, 1)] == [b"bad"]

    def test_dl10_the_initial_subscription_gets_dead_letters_from_before_its_first_consumer(
        self, shared_broker: TestBroker, client: pulsar.Client, topic: str
    ) -> None:
        policy = pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-s-DLQ", "audit")
        consumer = subscribe(client, topic, dead_letter_policy=policy)
        send_batch(client.create_producer(topic), numbered(5))
        nack_bad(consumer, lambda _: True, dead_letters_arrive(shared_broker, topic, 5))
        audit = client.subscribe(f"{topic}-s-DLQ", "audit", Type.Shared)  # at the latest position, if it were new
        assert sorted(consume(audit, 5)) == numbered(5)

    def test_dl10_without_auto_creation_of_subscriptions_it_is_rejected_and_nothing_is_lost(self, topic: str) -> None:
        with serving(allowAutoSubscriptionCreation=False) as (running, client):
            for name in (topic, f"{topic}-s-DLQ"):
                client.create_producer(name).close()
            origin = topic_in(running, topic)
            running.run(lambda: origin.create_subscription(SubscribeRequest("s", from_earliest=True)))
            policy = pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-s-DLQ", "audit")
            consumer = subscribe(client, topic, dead_letter_policy=policy)
            client.create_producer(topic).send(b"bad")
            for _ in range(2):
                consumer.negative_acknowledge(consumer.receive(PATIENCE_MS))
            assert nothing_comes(consumer)  # the client cannot create its dead letter producer, and keeps the message
            consumer.close()
            assert topic_in(running, f"{topic}-s-DLQ").messages_in == 0
            assert "audit" not in topic_in(running, f"{topic}-s-DLQ").subscriptions
            assert consume(subscribe(client, topic), 1) == [b"bad"]


class TestBrokerPolicy:
    @pytest.mark.parametrize("consumer_type", SPREAD, ids=named)
    def test_dl3_consumer_properties_alone_enable_dead_letters(
        self, shared_broker: TestBroker, client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
    ) -> None:
        consumer = subscribe(client, topic, consumer_type, properties=limit(2))
        producer = client.create_producer(topic)
        for payload in numbered(20):
            producer.send(payload, partition_key=payload.decode(), properties={"number": payload.decode()})
        bad = {b"m3", b"m17"}
        seen = nack_bad(consumer, lambda data: data in bad, dead_letters_arrive(shared_broker, topic, 2))
        assert seen == {payload: 3 if payload in bad else 1 for payload in numbered(20)}
        found = dict(dead_letters(client, topic, 2))
        assert found.keys() == bad
        for payload, properties in found.items():
            assert properties["number"] == payload.decode()
            assert properties["DEATH_REASON"] == "MaxRedeliveries" and properties["REAL_SUBSCRIPTION"] == "s"
            assert json.loads(properties["DEATH_HISTORY"])[0]["count"] == 3

    @pytest.mark.parametrize("name", ["a/b", "non-persistent://public/default/x", "no/such/namespace"])
    def test_dl3_a_dead_letter_topic_that_cannot_be_is_refused_at_once(
        self, client: pulsar.Client, topic: str, name: str
    ) -> None:
        start = time.monotonic()
        with pytest.raises(pulsar.NotAllowedError):
            subscribe(client, topic, properties=limit(2) | {"deadLetterPolicy.deadLetterTopic": name})
        assert time.monotonic() - start < 20  # a code that clients retry takes the 30 s of an operation

    def test_dl3_a_subscription_without_a_default_dead_letter_topic_is_refused_at_once(
        self, client: pulsar.Client, topic: str
    ) -> None:
        with pytest.raises(pulsar.NotAllowedError):
            client.subscribe(topic, "a/b", properties=limit(2))

    def test_dl8_a_dead_letter_is_the_message_with_added_properties(
        self, shared_broker: TestBroker, client: pulsar.Client, topic: str
    ) -> None:
        consumer = subscribe(client, topic, properties=limit(1))
        producer = client.create_producer(topic, schema=pulsar.schema.StringSchema())
        options = {"partition_key": "k", "ordering_key": "o", "event_timestamp": 1234, "properties": {"colour": "red"}}
        sent = producer.send("bad", **options)
        nack_bad(consumer, lambda _: True, dead_letters_arrive(shared_broker, topic, 1))
        letter = subscribe_dead(client, topic).receive(PATIENCE_MS)
        assert (letter.data(), letter.partition_key(), letter.ordering_key()) == (b"bad", "k", "o")
        assert (letter.event_timestamp(), letter.schema_version()) == (1234, "\0" * 8)
        gained = letter.properties()
        assert gained.pop("colour") == "red"
        assert gained.pop("REAL_TOPIC").endswith(topic) and gained.pop("REAL_SUBSCRIPTION") == "s"
        assert gained.pop("ORIGIN_MESSAGE_ID") == f"{sent.ledger_id()}:{sent.entry_id()}:-1"
        assert gained.pop("DEATH_REASON") == "MaxRedeliveries" and gained.pop("DEATH_DESCRIPTION")
        (death,) = json.loads(gained.pop("DEATH_HISTORY"))
        assert gained.pop("DEATH_CONSUMER") == death["consumer"] == consumer.consumer_name()
        assert gained.pop("DEATH_CONSUMER_ADDRESS").startswith("127.0.0.1:")
        assert gained.pop("DEATH_CLIENT_VERSION").startswith("Pulsar-CPP-v")
        assert not gained
        assert (death["topic"].endswith(topic), death["subscription"], death["count"]) == (True, "s", 2)
        assert death["reason"] == "MaxRedeliveries" and 0 < death["first"] < death["last"]

    @pytest.mark.parametrize("consumer_type", ORDERED, ids=named)
    def test_dl11_ordered_types_keep_the_order(
        self, shared_broker: TestBroker, client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
    ) -> None:
        """A consumer requests redelivery of everything when it cannot handle a message.

        This client still delivers messages from its queue then, so the queue is short. It delays acks meanwhile, which
        must not count against these messages.
        """
        consumer = subscribe(client, topic, consumer_type, properties=limit(1), receiver_queue_size=1)
        send_batch(client.create_producer(topic), numbered(10))
        bad, done, refused = {b"m0", b"m4", b"m5"}, [], Counter[bytes]()
        for _ in turns(dead_letters_arrive(shared_broker, topic, 3)):
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            if message.data() in bad:
                refused[message.data()] += 1
                consumer.redeliver_unacknowledged_messages()
            else:
                consumer.acknowledge(message)
                done.append(message.data())
        assert done == [payload for payload in numbered(10) if payload not in bad]
        assert refused.keys() == bad
        assert all(times >= 2 for times in refused.values())  # more if it was queued behind another one
        assert [data for data, _ in dead_letters(client, topic, 3)] == sorted(bad)

    @pytest.mark.parametrize("consumer_type", ORDERED, ids=named)
    def test_dl11_negative_acks(
        self, shared_broker: TestBroker, client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
    ) -> None:
        consumer = subscribe(client, topic, consumer_type, properties=limit(1))
        send_batch(client.create_producer(topic), numbered(10))
        bad = {b"m2", b"m7"}
        seen = nack_bad(consumer, lambda data: data in bad, dead_letters_arrive(shared_broker, topic, 2))
        assert all(seen[payload] == 1 for payload in numbered(10) if payload not in bad)
        assert [data for data, _ in dead_letters(client, topic, 2)] == sorted(bad)

    def test_dl5_redelivering_everything_counts_for_every_message(
        self, shared_broker: TestBroker, client: pulsar.Client, topic: str
    ) -> None:
        consumer = subscribe(client, topic, properties=limit(1))
        send_batch(client.create_producer(topic), numbered(3))
        for count in range(2):
            messages = take(consumer, 3)
            assert [message.redelivery_count() for message in messages] == [count] * 3
            consumer.redeliver_unacknowledged_messages()
        assert sorted(data for data, _ in dead_letters(client, topic, 3)) == numbered(3)
        assert backlog(shared_broker, topic, "s") == 0

    def test_dl5_closing_does_not_count(self, shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
        for _ in range(4):
            consumer = subscribe(client, topic, properties=limit(1), initial_position=EARLIEST)
            if not topic_in(shared_broker, topic).messages_in:
                send_batch(client.create_producer(topic), numbered(3))
            assert [message.redelivery_count() for message in take(consumer, 3)] == [0, 0, 0]
            consumer.close()

    def test_dl3_custom_topic_and_initial_subscription_names(self, client: pulsar.Client, topic: str) -> None:
        properties = limit(1, deadLetterTopic=f"{topic}-dead", initialSubscriptionName="audit")
        consumer = subscribe(client, topic, properties=properties)
        client.create_producer(topic).send(b"bad")
        for _ in range(2):
            consumer.negative_acknowledge(consumer.receive(PATIENCE_MS))
        assert nothing_comes(consumer)
        assert consume(client.subscribe(f"{topic}-dead", "audit"), 1) == [b"bad"]

    def test_dl3_the_latest_consumer_wins(self, shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
        first = subscribe(client, topic, properties=limit(9))
        second = subscribe(client, topic, properties=limit(1))
        third = subscribe(client, topic)  # declares nothing, so nothing changes
        producer = client.create_producer(topic)
        send_batch(producer, numbered(6))
        counts: Counter[bytes] = Counter()
        for _ in turns(dead_letters_arrive(shared_broker, topic, 6)):
            for consumer in (first, second, third):
                with contextlib.suppress(pulsar.Timeout):
                    message = consumer.receive(20)
                    counts[message.data()] += 1
                    consumer.negative_acknowledge(message)
        assert counts == dict.fromkeys(numbered(6), 2)
        assert sorted(data for data, _ in dead_letters(client, topic, 6)) == numbered(6)

    @pytest.mark.parametrize(
        "properties",
        [
            limit(0),
            {"deadLetterPolicy.maxRedeliverCount": "many"},
            {"deadLetterPolicy.deadLetterTopic": "x"},
            limit(1, maxRedeliverCounts="2"),
        ],
        ids=str,
    )
    def test_dl3_an_invalid_policy_is_rejected(
        self, client: pulsar.Client, topic: str, properties: dict[str, str]
    ) -> None:
        with pytest.raises(pulsar.NotAllowedError):  # at once: the client retries after most other errors
            subscribe(client, topic, properties=properties)

    def test_dl6_counts_survive_a_restart_of_the_broker(self, tmp_path: Path, topic: str) -> None:
        with serving(tmp_path) as (_, client):
            consumer = subscribe(client, topic, properties=limit(3))
            send_batch(client.create_producer(topic), [b"bad", b"good"])
            for count in range(2):
                message = consumer.receive(PATIENCE_MS)
                assert (message.data(), message.redelivery_count()) == (b"bad", count)
                consumer.negative_acknowledge(message)
                if count == 0:
                    consumer.acknowledge(consumer.receive(PATIENCE_MS))
            assert consumer.receive(PATIENCE_MS).redelivery_count() == 2
        with serving(tmp_path) as (running, client):
            consumer = subscribe(client, topic)  # the policy is remembered too
            for count in (2, 3):
                message = consumer.receive(PATIENCE_MS)
                assert (message.data(), message.redelivery_count()) == (b"bad", count)
                consumer.negative_acknowledge(message)
            eventually(dead_letters_arrive(running, topic, 1))
            assert [data for data, _ in dead_letters(client, topic, 1)] == [b"bad"]

    def test_dl10_dead_letters_without_a_subscription_are_kept(self, tmp_path: Path, topic: str) -> None:
        with serving(tmp_path) as (running, client):
            consumer = subscribe(client, topic, properties=limit(1))
            client.create_producer(topic).send(b"bad")
            nack_bad(consumer, lambda _: True, dead_letters_arrive(running, topic, 1))
            running.advance(hours=2)
        with serving(tmp_path) as (_, client):
            assert [data for data, _ in dead_letters(client, topic, 1)] == [b"bad"]


COMPRESSIONS = [
    pulsar.CompressionType.NONE,
    pulsar.CompressionType.LZ4,
    pulsar.CompressionType.ZLib,
    pulsar.CompressionType.ZSTD,
    pulsar.CompressionType.SNAPPY,
]


def batching(client: pulsar.Client, topic: str, compression: pulsar.CompressionType) -> pulsar.Producer:
    return client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=10_000, compression_type=compression
    )


def nack_one_of_a_batch(running: TestBroker, consumer: pulsar.Consumer, topic: str, count: int, bad: int) -> None:
    """Of a batch of `count` messages, acknowledges all but one, and nacks that one after the acks arrived.

    This client nacks the whole batch, and messages that it acknowledges later are redelivered.
    """
    messages = take(consumer, count)
    refused = messages.pop(bad)
    for message in messages:
        consumer.acknowledge(message)
    subscription = topic_in(running, topic).subscriptions["s"]
    assert isinstance(subscription, Subscription)
    eventually(lambda: running.run(lambda: subscription.places.open_bits(0)) == 1 << bad)
    consumer.negative_acknowledge(refused)


class TestBatches:
    @pytest.mark.parametrize("compression", COMPRESSIONS, ids=named)
    @pytest.mark.parametrize("consumer_type", [Type.Shared, Type.KeyShared, Type.Exclusive], ids=named)
    def test_dl9_one_message_of_a_batch_is_dead_lettered_alone(
        self,
        shared_broker: TestBroker,
        client: pulsar.Client,
        topic: str,
        compression: pulsar.CompressionType,
        consumer_type: pulsar.ConsumerType,
    ) -> None:
        """This client nacks whole batches; acknowledged messages of them stay acknowledged."""
        consumer = subscribe(client, topic, consumer_type, properties=limit(1), batch_index_ack_enabled=True)
        send_batch(batching(client, topic, compression), numbered(10))
        nack_one_of_a_batch(shared_broker, consumer, topic, 10, 4)
        assert nack_bad(consumer, lambda _: True, dead_letters_arrive(shared_broker, topic, 1)) == {b"m4": 1}
        ((data, properties),) = dead_letters(client, topic, 1)
        assert data == b"m4" and properties["ORIGIN_MESSAGE_ID"].endswith(":0:-1:4")
        assert nothing_comes(consumer)

    @pytest.mark.parametrize("consumer_type", SPREAD, ids=named)
    def test_dl9_with_the_clients_defaults_only_the_bad_messages_of_batches_die(
        self, shared_broker: TestBroker, client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
    ) -> None:
        """The client sends no ack before a whole batch is acknowledged: after a failure it gets single messages."""
        consumer = subscribe(client, topic, consumer_type, properties=limit(2))
        bad = {b"m%d" % number for number in range(0, 100, 20)}
        producer = batching(client, topic, pulsar.CompressionType.LZ4)
        for start in range(0, 100, 10):
            send_batch(producer, numbered(100)[start : start + 10])
        seen = nack_bad(consumer, lambda data: data in bad, dead_letters_arrive(shared_broker, topic, len(bad)))
        in_failed_batches = {payload for start in range(0, 100, 20) for payload in numbered(100)[start : start + 10]}
        for payload in numbered(100):
            assert seen[payload] == (3 if payload in bad else 2 if payload in in_failed_batches else 1)
        found = dead_letters(client, topic, len(bad))
        assert {data for data, _ in found} == bad
        assert all("DEATH_BATCH_SIZE" not in properties for _, properties in found)

    def test_dl9_where_order_counts_a_batch_dies_whole_and_its_letters_say_so(
        self, shared_broker: TestBroker, client: pulsar.Client, topic: str
    ) -> None:
        consumer = subscribe(client, topic, pulsar.ConsumerType.Exclusive, properties=limit(1))
        send_batch(batching(client, topic, pulsar.CompressionType.LZ4), numbered(4))
        nack_bad(consumer, lambda data: data == b"m2", dead_letters_arrive(shared_broker, topic, 4))
        found = dead_letters(client, topic, 4)
        assert [data for data, _ in found] == numbered(4)
        assert {properties["DEATH_BATCH_SIZE"] for _, properties in found} == {"4"}

    def test_dl6_counts_of_single_messages_survive(self, tmp_path: Path, topic: str) -> None:
        options = {"properties": limit(2), "batch_index_ack_enabled": True}
        with serving(tmp_path) as (running, client):
            consumer = subscribe(client, topic, **options)
            send_batch(batching(client, topic, pulsar.CompressionType.ZSTD), numbered(3))
            nack_one_of_a_batch(running, consumer, topic, 3, 1)
            assert consumer.receive(PATIENCE_MS).redelivery_count() == 1
        with serving(tmp_path) as (running, client):
            consumer = subscribe(client, topic, **options)
            assert nack_bad(consumer, lambda _: True, dead_letters_arrive(running, topic, 1)) == {b"m1": 2}
            assert [data for data, _ in dead_letters(client, topic, 1)] == [b"m1"]


class ConsumerProcesses:
    """Runs consumer processes one after the other, as long as they crash."""

    def __init__(self, topic: str, policy: str) -> None:
        self._topic = topic
        self._policy = policy
        self.killed = 0
        self.processed: list[tuple[str, str]] = []  # payload and redelivery count

    def run_one(self, running: TestBroker) -> bool:
        """Runs one process; returns whether it survived."""
        command = [sys.executable, poison.__file__, running.service_url, self._topic, "s", "2", self._policy]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
        self.processed += [(payload, count) for payload, count in map(str.split, ended.stdout.splitlines())]
        assert ended.returncode in (0, poison.KILLED)
        self.killed += ended.returncode == poison.KILLED
        assert self.killed < 20, "the poison message keeps killing consumers"
        return ended.returncode == 0


class TestPoison:
    @pytest.mark.parametrize(("policy", "restart_after"), [("broker", None), ("broker", 3), ("client", None)])
    def test_dl13_a_message_that_kills_its_consumers_is_dead_lettered_and_the_others_are_processed(
        self, tmp_path: Path, topic: str, policy: str, restart_after: int | None
    ) -> None:
        victims = ConsumerProcesses(topic, policy)
        with broker(tmp_path) as running:
            self.publish(running, topic)
            while not victims.run_one(running):
                if victims.killed == restart_after:
                    break
            else:
                self.check(running, topic, victims, policy)
                return
        with broker(tmp_path) as running:
            while not victims.run_one(running):
                pass
            self.check(running, topic, victims, policy)

    def publish(self, running: TestBroker, topic: str) -> None:
        with contextlib.closing(connect(running)) as client:
            client.subscribe(topic, "s", Type.Shared).close()
            payloads = numbered(1000)
            payloads[700] = poison.POISON
            send_batch(client.create_producer(topic), payloads)

    def check(self, running: TestBroker, topic: str, victims: ConsumerProcesses, policy: str) -> None:
        assert {payload.encode() for payload, _ in victims.processed} == set(numbered(1000)) - {b"m700"}
        assert {count for _, count in victims.processed} == {"0"}
        with contextlib.closing(connect(running)) as client:
            ((data, properties),) = dead_letters(client, topic, 1)
        assert data == poison.POISON
        assert properties.get("DEATH_REASON") == ("ConsumerCrash" if policy == "broker" else None)
        assert backlog(running, topic, "s") == 0

"""Partitioned topics, consumers of several topics, and consumers of a pattern."""

from __future__ import annotations

import re
from pathlib import Path

import _pulsar
import httpx
import pulsar
import pytest

from magnetar.names import TopicName
from magnetar.testing import TestBroker
from tests.compat.stage import (
    PATIENCE_MS,
    consume,
    eventually,
    nothing_comes,
    numbered,
    serving,
    take,
    take_all,
    topic_in,
)

Type = pulsar.ConsumerType
EARLIEST = pulsar.InitialPosition.Earliest


def full(topic: str, domain: str = "persistent") -> str:
    return f"{domain}://public/default/{topic}"


def create_partitioned(running: TestBroker, topic: str, partitions: int) -> None:
    catalog = running.server.broker.catalog
    running.run(lambda: catalog.create_partitioned(TopicName.parse(topic), partitions, {}))


# -- partitioned topics


def test_messages_are_distributed_over_the_partitions(
    shared_broker: TestBroker, client: pulsar.Client, topic: str
) -> None:
    create_partitioned(shared_broker, topic, 3)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for payload in numbered(30):
        producer.send(payload)
    messages = take(consumer, 30)
    assert sorted(message.data() for message in messages) == sorted(numbered(30))
    counts = [topic_in(shared_broker, f"{topic}-partition-{index}").messages_in for index in range(3)]
    assert counts == [10, 10, 10]
    assert {message.message_id().partition() for message in messages} == {0, 1, 2}
    assert {message.topic_name() for message in messages} == {full(f"{topic}-partition-{index}") for index in range(3)}


def test_partitions_created_over_http(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    url = f"{shared_broker.http_url}/admin/v2/persistent/public/default/{topic}/partitions"
    assert httpx.put(url, json=4).status_code == 204
    assert len(client.get_topic_partitions(topic)) == 4


def test_the_partitions_of_a_topic(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    create_partitioned(shared_broker, topic, 3)
    assert client.get_topic_partitions(topic) == [full(f"{topic}-partition-{index}") for index in range(3)]
    assert client.get_topic_partitions(f"{topic}-plain") == [full(f"{topic}-plain")]


def test_a_key_stays_in_its_partition_and_in_order(
    shared_broker: TestBroker, client: pulsar.Client, topic: str
) -> None:
    create_partitioned(shared_broker, topic, 4)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for payload in numbered(10):
        for key in "abcdefgh":
            producer.send(payload, partition_key=key)
    messages = take(consumer, 80)
    for key in "abcdefgh":
        of_key = [message for message in messages if message.partition_key() == key]
        assert [message.data() for message in of_key] == numbered(10)
        assert len({message.topic_name() for message in of_key}) == 1


def test_one_partition_can_be_used_by_itself(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    create_partitioned(shared_broker, topic, 2)
    consumer = client.subscribe(f"{topic}-partition-1", "s")
    client.create_producer(f"{topic}-partition-1").send(b"one")
    client.create_producer(f"{topic}-partition-0").send(b"zero")
    assert consume(consumer, 1) == [b"one"]
    assert nothing_comes(consumer)


@pytest.mark.parametrize("consumer_type", [Type.Shared, Type.KeyShared, Type.Failover], ids=lambda t: t.name)
def test_consumers_share_a_partitioned_topic(
    shared_broker: TestBroker, client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
) -> None:
    create_partitioned(shared_broker, topic, 4)
    consumers = [client.subscribe(topic, "s", consumer_type) for _ in range(2)]
    producer = client.create_producer(topic)
    for index, payload in enumerate(numbered(80)):
        producer.send(payload, partition_key=str(index))
    taken = take_all(consumers)
    assert sorted(m.data() for messages in taken for m in messages) == sorted(numbered(80))
    assert all(taken), "one consumer received everything"


def test_acknowledgements_and_redelivery_work_across_partitions(
    shared_broker: TestBroker, client: pulsar.Client, topic: str
) -> None:
    create_partitioned(shared_broker, topic, 3)
    consumer = client.subscribe(topic, "s", Type.Shared)
    producer = client.create_producer(topic)
    for payload in numbered(9):
        producer.send(payload)
    messages = take(consumer, 9)
    for message in messages[:4]:
        consumer.acknowledge(message)
    consumer.redeliver_unacknowledged_messages()
    again = take(consumer, 5)
    assert {m.data() for m in again} == {m.data() for m in messages[4:]}
    assert {m.redelivery_count() for m in again} == {1}


def test_a_reader_of_a_partitioned_topic(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    create_partitioned(shared_broker, topic, 3)
    producer = client.create_producer(topic)
    for payload in numbered(9):
        producer.send(payload)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    got = []
    while reader.has_message_available():
        got.append(reader.read_next(1000).data())
    assert sorted(got) == numbered(9)


def test_seeking_moves_all_partitions(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    create_partitioned(shared_broker, topic, 3)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for payload in numbered(9):
        producer.send(payload)
    consume(consumer, 9)
    consumer.seek(pulsar.MessageId.earliest)
    assert sorted(consume(consumer, 9)) == numbered(9)


def test_unsubscribing_from_all_partitions(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    create_partitioned(shared_broker, topic, 2)
    client.subscribe(topic, "s").unsubscribe()
    assert all(not topic_in(shared_broker, f"{topic}-partition-{index}").subscriptions for index in range(2))


def test_partitions_survive_a_restart(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (running, client):
        create_partitioned(running, topic, 3)
        client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        for payload in numbered(9):
            producer.send(payload)
    with serving(tmp_path) as (_, client):
        assert sorted(consume(client.subscribe(topic, "s"), 9)) == numbered(9)


def test_topics_can_be_partitioned_by_default(topic: str) -> None:
    with serving(allowAutoTopicCreationType="partitioned", defaultNumPartitions=3) as (_, client):
        client.create_producer(topic).send(b"x")
        assert len(client.get_topic_partitions(topic)) == 3
        assert len(client.get_topic_partitions(f"{topic}-s-DLQ")) == 1  # never auto-partitioned


def test_a_partition_without_a_partitioned_topic_is_rejected(client: pulsar.Client, topic: str) -> None:
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(f"{topic}-partition-0")


def test_new_partitions_are_used_by_later_clients(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    create_partitioned(shared_broker, topic, 1)
    catalog = shared_broker.server.broker.catalog
    shared_broker.run(lambda: catalog.grow_partitioned(TopicName.parse(topic), 3))
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for payload in numbered(9):
        producer.send(payload)
    assert {message.message_id().partition() for message in take(consumer, 9)} == {0, 1, 2}


# -- several topics


def test_a_consumer_of_several_topics(client: pulsar.Client, topic: str) -> None:
    names = [f"{topic}-{index}" for index in range(3)]
    consumer = client.subscribe(names, "s")
    for name in names:
        client.create_producer(name).send(name.encode())
    messages = take(consumer, 3)
    assert {message.topic_name(): message.data().decode() for message in messages} == {full(n): n for n in names}
    for message in messages:
        consumer.acknowledge(message)
    consumer.close()
    assert nothing_comes(client.subscribe(names, "s"))


def test_a_consumer_of_plain_and_partitioned_topics(
    shared_broker: TestBroker, client: pulsar.Client, topic: str
) -> None:
    create_partitioned(shared_broker, f"{topic}-parts", 2)
    consumer = client.subscribe([f"{topic}-parts", f"{topic}-plain"], "s", Type.Shared)
    for name in (f"{topic}-parts", f"{topic}-parts", f"{topic}-plain"):
        client.create_producer(name).send(name.encode())
    assert len(consume(consumer, 3)) == 3


# -- patterns


def test_a_consumer_of_a_pattern(client: pulsar.Client, topic: str) -> None:
    for name in ("a", "b"):
        client.create_producer(f"{topic}-yes-{name}").send(name.encode())
    client.create_producer(f"{topic}-no").send(b"other")
    pattern = re.compile(f"persistent://public/default/{topic}-yes-.*")
    consumer = client.subscribe(pattern, "s", initial_position=EARLIEST)
    assert sorted(consume(consumer, 2)) == [b"a", b"b"]
    assert nothing_comes(consumer)


def test_a_pattern_finds_partitions(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    create_partitioned(shared_broker, f"{topic}-yes", 3)
    consumer = client.subscribe(re.compile(f"persistent://public/default/{topic}-y.*"), "s")
    producer = client.create_producer(f"{topic}-yes")
    for payload in numbered(9):
        producer.send(payload)
    assert sorted(consume(consumer, 9)) == numbered(9)


def test_a_pattern_finds_topics_created_later(client: pulsar.Client, topic: str) -> None:
    # The public call of this client's version ignores the discovery period it accepts.
    configuration = _pulsar.ConsumerConfiguration()
    configuration.pattern_auto_discovery_period(1)
    configuration.subscription_initial_position(EARLIEST)
    consumer = client._client.subscribe_pattern(f"persistent://public/default/{topic}-.*", "s", configuration)
    client.create_producer(f"{topic}-late").send(b"x")
    assert consumer.receive(PATIENCE_MS).data() == b"x"


@pytest.mark.parametrize(
    ("mode", "expected"), [("PersistentOnly", {b"p"}), ("NonPersistentOnly", {b"n"}), ("AllTopics", {b"p", b"n"})]
)
def test_a_pattern_may_select_one_domain(client: pulsar.Client, topic: str, mode: str, expected: set[bytes]) -> None:
    producers = {
        domain[0].encode(): client.create_producer(full(f"{topic}-x", domain))
        for domain in ("persistent", "non-persistent")
    }
    consumer = client.subscribe(
        re.compile(f"public/default/{topic}-.*"),
        "s",
        regex_subscription_mode=getattr(pulsar.RegexSubscriptionMode, mode),
    )
    for payload, producer in producers.items():
        producer.send(payload)
    assert {message.data() for message in take(consumer, len(expected))} == expected
    assert nothing_comes(consumer)


def test_a_pattern_without_matches_yet(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(re.compile(f"persistent://public/default/{topic}-none-.*"), "s")
    assert nothing_comes(consumer)
    eventually(consumer.is_connected)

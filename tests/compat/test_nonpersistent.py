"""Non-persistent topics: connected consumers receive messages, and nothing is stored."""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest

from magnetar.names import TopicName
from magnetar.testing import TestBroker
from tests.compat.stage import consume, data_of, nothing_comes, numbered, serving, take, take_all

Type = pulsar.ConsumerType


@pytest.fixture
def topic(topic: str) -> str:
    return f"non-persistent://public/default/{topic}"


def test_a_connected_consumer_receives_the_message(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, name) for name in "ab"]
    producer = client.create_producer(topic)
    for payload in numbered(20):
        producer.send(payload)
    assert [consume(consumer, 20) for consumer in consumers] == [numbered(20)] * 2


def test_a_late_consumer_receives_nothing(client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic)
    producer.send(b"missed")
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert nothing_comes(consumer)
    producer.send(b"seen")
    assert consume(consumer, 1) == [b"seen"]


def test_unacknowledged_messages_are_not_redelivered(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared)
    client.create_producer(topic).send(b"once")
    take(consumer, 1)
    consumer.redeliver_unacknowledged_messages()
    assert nothing_comes(consumer)


def test_messages_without_a_ready_consumer_are_dropped(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", receiver_queue_size=1)
    producer = client.create_producer(topic)
    for payload in numbered(50):
        producer.send(payload)
    assert len(take_all([consumer])[0]) < 50
    producer.send(b"room")
    assert consume(consumer, 1) == [b"room"]


def test_a_batch_is_forwarded(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for payload in numbered(10):
        producer.send_async(payload, lambda *_: None)
    producer.flush()
    assert consume(consumer, 10) == numbered(10)


def test_shared_consumers_share_messages(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", Type.Shared) for _ in range(2)]
    producer = client.create_producer(topic)
    for payload in numbered(20):
        producer.send(payload)
    assert [len(messages) for messages in take_all(consumers)] == [10, 10]


def test_keys_have_owners(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", Type.KeyShared) for _ in range(2)]
    producer = client.create_producer(topic)
    for index in range(40):
        producer.send(b"x", partition_key=str(index % 20))
    keys = [{message.partition_key() for message in messages} for messages in take_all(consumers)]
    assert all(keys)
    assert len(keys[0] | keys[1]) == 20
    assert not keys[0] & keys[1]


def test_failover_and_exclusive(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", Type.Failover) for _ in range(2)]
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", Type.Exclusive)
    producer = client.create_producer(topic)
    producer.send(b"first")
    active = 0 if take_all(consumers)[0] else 1
    consumers[active].close()
    producer.send(b"second")
    assert data_of(take(consumers[1 - active], 1)) == [b"second"]


def test_partitions(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    catalog = shared_broker.server.broker.catalog
    shared_broker.run(lambda: catalog.create_partitioned(TopicName.parse(topic), 3, {}))
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for payload in numbered(9):
        producer.send(payload)
    assert sorted(consume(consumer, 9)) == numbered(9)


def test_unsubscribing(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    consumer.unsubscribe()
    client.subscribe(topic, "s", Type.Shared)


def test_nothing_survives_a_restart(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        client.subscribe(topic, "s")
        client.create_producer(topic).send(b"x")
    with serving(tmp_path) as (running, client):
        assert running.run(lambda: topic not in running.server.broker.topics)
        assert nothing_comes(client.subscribe(topic, "s"))

"""Durable subscriptions: acknowledged messages are not redelivered, others are."""

from __future__ import annotations

import httpx
import pulsar
import pytest

from magnetar.client import EARLIEST, Client, Consumer, MessageId
from magnetar.client.errors import ConsumerBusy, InvalidArgument, Timeout
from magnetar.testing import TestBroker
from tests.client.connection.test_reconnect import drop_connections
from tests.compat.stage import PATIENCE_MS, backlog, eventually, numbered

PATIENCE_S = PATIENCE_MS / 1000


def send(client: Client, topic: str, payloads: list[bytes], *, batching: bool) -> None:
    with client.producer(topic, batching=batching, batch_delay_s=1) as producer:
        for payload in payloads:
            producer.send_async(payload)


def receive(consumer: Consumer, count: int) -> list[bytes]:
    return [consumer.receive(PATIENCE_S).value for _ in range(count)]


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Failover", "Key_Shared"])
@pytest.mark.parametrize("batching", [True, False])
def test_acknowledged_messages_are_not_redelivered(client: Client, topic: str, kind: str, batching: bool) -> None:
    send(client, topic, numbered(6), batching=batching)
    with client.consumer(topic, "s", subscription_type=kind, initial_position=EARLIEST) as consumer:  # type: ignore[arg-type]
        messages = [consumer.receive(PATIENCE_S) for _ in range(6)]
        for message in messages[::2]:
            consumer.acknowledge(message)
    with client.consumer(topic, "s", subscription_type=kind) as consumer:  # type: ignore[arg-type]
        assert receive(consumer, 3) == numbered(6)[1::2]
        with pytest.raises(Timeout):
            consumer.receive(0.05)


@pytest.mark.parametrize("batching", [True, False])
def test_cumulative_acknowledgement(running: TestBroker, client: Client, topic: str, batching: bool) -> None:
    send(client, topic, numbered(6), batching=batching)
    with client.consumer(topic, "s", initial_position=EARLIEST) as consumer:
        messages = [consumer.receive(PATIENCE_S) for _ in range(6)]
        consumer.acknowledge_cumulative(messages[3])
    with client.consumer(topic, "s") as consumer:
        rest = [consumer.receive(PATIENCE_S) for _ in range(2)]
        assert [message.value for message in rest] == numbered(6)[4:]
        consumer.acknowledge_cumulative(rest[-1])
    eventually(lambda: backlog(running, topic, "s") == 0)


def test_a_nacked_message_is_redelivered(client: Client, topic: str) -> None:
    send(client, topic, [b"x"], batching=False)
    with client.consumer(topic, "s", subscription_type="Shared", initial_position=EARLIEST) as consumer:
        for count in range(3):
            message = consumer.receive(PATIENCE_S)
            assert message.redelivery_count == count
            consumer.negative_acknowledge(message)
        consumer.acknowledge(consumer.receive(PATIENCE_S))
        with pytest.raises(Timeout):
            consumer.receive(0.05)


def test_all_chunks_are_acknowledged(running: TestBroker, client: Client, official: pulsar.Client, topic: str) -> None:
    with client.consumer(topic, "s") as consumer:
        producer = official.create_producer(topic, batching_enabled=False, chunking_enabled=True)
        producer.send(b"x" * 12_000_000)
        consumer.acknowledge(consumer.receive(PATIENCE_S))
        eventually(lambda: backlog(running, topic, "s") == 0)


def test_after_a_lost_connection_only_open_messages_are_redelivered(
    running: TestBroker, client: Client, topic: str
) -> None:
    send(client, topic, numbered(6), batching=True)
    send(client, topic, numbered(4, "n"), batching=False)
    with client.consumer(topic, "s", initial_position=EARLIEST) as consumer:
        for _ in range(3):
            consumer.acknowledge(consumer.receive(PATIENCE_S))
        drop_connections(running)
        eventually(lambda: consumer._consumer._streams[0]._connection is None)
        assert receive(consumer, 7) == [*numbered(6)[3:], *numbered(4, "n")]


def test_all_partitions_are_consumed(running: TestBroker, client: Client, topic: str) -> None:
    path = f"{running.http_url}/admin/v2/persistent/public/default/{topic}/partitions"
    httpx.put(path, json=3).raise_for_status()
    send(client, topic, numbered(9), batching=False)
    with client.consumer(topic, "s", initial_position=EARLIEST) as consumer:
        messages = [consumer.receive(PATIENCE_S) for _ in range(9)]
        assert sorted(message.value for message in messages) == sorted(numbered(9))
        for message in messages:
            consumer.acknowledge(message)
    for index in range(3):
        assert backlog(running, f"{topic}-partition-{index}", "s") == 0


def test_an_exclusive_subscription_has_one_consumer(client: Client, topic: str) -> None:
    with client.consumer(topic, "s"), pytest.raises(ConsumerBusy):
        client.consumer(topic, "s")


def test_unsubscribing(running: TestBroker, client: Client, topic: str) -> None:
    client.consumer(topic, "s").unsubscribe()
    send(client, topic, [b"x"], batching=False)
    with client.consumer(topic, "s") as consumer, pytest.raises(Timeout):
        consumer.receive(0.05)


def test_invalid_arguments(client: Client, topic: str) -> None:
    with pytest.raises(InvalidArgument, match="subscription is empty"):
        client.consumer(topic, "")
    with pytest.raises(InvalidArgument, match="initial_position 1:2:-1 is neither EARLIEST nor LATEST"):
        client.consumer(topic, "s", initial_position=MessageId(1, 2))
    with pytest.raises(InvalidArgument, match="subscription_type 'shared' is not one of Exclusive, Shared"):
        client.consumer(topic, "s", subscription_type="shared")  # type: ignore[arg-type]
    send(client, topic, [b"x"], batching=False)
    with (
        client.consumer(topic, "a", initial_position=EARLIEST) as one,
        client.consumer(f"{topic}-other", "b") as other,
        pytest.raises(
            InvalidArgument, match=f"does not belong to the consumer of persistent://public/default/{topic}-other"
        ),
    ):
        other.acknowledge(one.receive(PATIENCE_S))

"""Subscription types, durability, acknowledgement and redelivery."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

import pulsar
import pulsar.asyncio
import pytest

from magnetar.testing import TestBroker
from tests.compat.stage import (
    PATIENCE_MS,
    backlog,
    connect,
    consume,
    data_of,
    eventually,
    nothing_comes,
    numbered,
    send_batch,
    serving,
    take,
    take_all,
    topic_in,
)

Type = pulsar.ConsumerType
EARLIEST = pulsar.InitialPosition.Earliest


def publish(client: pulsar.Client, topic: str, payloads: list[bytes]) -> None:
    send_batch(client.create_producer(topic), payloads)


# -- Exclusive


def test_an_exclusive_subscription_has_one_consumer(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s", Type.Exclusive)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", Type.Exclusive)
    first.close()
    client.subscribe(topic, "s", Type.Exclusive)


def test_types_cannot_be_mixed(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s", Type.Shared)
    for other in (Type.Exclusive, Type.Failover, Type.KeyShared):
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "s", other)
    first.close()
    client.subscribe(topic, "s", Type.Failover)


def test_an_exclusive_consumer_receives_everything_in_order(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, numbered(500))
    assert consume(consumer, 500) == numbered(500)


def test_every_subscription_receives_every_message(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, f"s{index}") for index in range(3)]
    publish(client, topic, numbered(10))
    assert [consume(consumer, 10) for consumer in consumers] == [numbered(10)] * 3


def test_permits_limit_the_messages_sent_to_a_consumer(
    shared_broker: TestBroker, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", receiver_queue_size=4)
    publish(client, topic, numbered(20))
    take(consumer, 1)
    in_flight = topic_in(shared_broker, topic).cursors[0].places.in_flight
    assert shared_broker.run(lambda: len(in_flight)) <= 8
    assert len(take(consumer, 19)) == 19


def test_a_consumer_without_a_queue_receives_one_message_at_a_time(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared, receiver_queue_size=0)
    other = client.subscribe(topic, "s", Type.Shared)
    publish(client, topic, numbered(3))
    assert len(take(other, 3)) == 3
    publish(client, topic, [b"x"])
    other.close()
    assert len({consumer.receive().data() for _ in range(4)}) == 4


# -- Failover


def test_failover_has_one_active_consumer_and_another_takes_over(client: pulsar.Client, topic: str) -> None:
    consumers = {name: client.subscribe(topic, "s", Type.Failover, consumer_name=name) for name in "ab"}
    publish(client, topic, numbered(10))
    taken = dict(zip("ab", take_all(consumers.values()), strict=True))
    active = next(name for name, messages in taken.items() if messages)
    standby = "b" if active == "a" else "a"
    assert data_of(taken[active]) == numbered(10)
    assert taken[standby] == []
    for message in taken[active][:4]:
        consumers[active].acknowledge(message)
    consumers[active].close()
    assert consume(consumers[standby], 6) == numbered(10)[4:]
    publish(client, topic, [b"more"])
    assert consume(consumers[standby], 1) == [b"more"]


def test_a_lost_connection_causes_a_failover(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    owners = [connect(shared_broker) for _ in range(2)]
    consumers = [owner.subscribe(topic, "s", Type.Failover) for owner in owners]
    publish(client, topic, numbered(3))
    active = 0 if take_all(consumers)[0] else 1
    owners[active].shutdown()
    assert consume(consumers[1 - active], 3) == numbered(3)
    owners[1 - active].close()


# -- Shared


def test_shared_consumers_share_messages(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", Type.Shared, receiver_queue_size=20) for _ in range(3)]
    publish(client, topic, numbered(60))
    taken = take_all(consumers)
    assert sorted(data_of(message for messages in taken for message in messages)) == sorted(numbered(60))
    assert all(len(messages) == 20 for messages in taken)


def test_messages_held_by_a_closed_shared_consumer_go_to_the_others(client: pulsar.Client, topic: str) -> None:
    first, second = (client.subscribe(topic, "s", Type.Shared) for _ in range(2))
    publish(client, topic, numbered(40))
    held = take_all([first])[0]
    for message in held[:5]:
        first.acknowledge(message)
    first.close()
    rest = set(numbered(40)) - set(data_of(held[:5]))
    got = take(second, len(rest))
    assert set(data_of(got)) == rest
    assert {message.redelivery_count() for message in got} == {0}  # waiting in a queue is no failure


# -- durability and the initial position


def test_a_new_subscription_starts_at_the_end(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, [b"old"])
    consumer = client.subscribe(topic, "s")
    publish(client, topic, [b"new"])
    assert consume(consumer, 1) == [b"new"]


def test_a_new_subscription_can_start_at_the_beginning(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, numbered(3))
    assert consume(client.subscribe(topic, "s", initial_position=EARLIEST), 3) == numbered(3)


def test_the_initial_position_applies_to_new_subscriptions_only(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, [b"old"])
    client.subscribe(topic, "s").close()
    publish(client, topic, [b"new"])
    assert consume(client.subscribe(topic, "s", initial_position=EARLIEST), 1) == [b"new"]


def test_a_subscription_resumes_at_its_position(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, numbered(10))
    consume(consumer, 4)
    consumer.close()
    assert consume(client.subscribe(topic, "s"), 6) == numbered(10)[4:]


def test_messages_and_acknowledgements_survive_a_restart(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        publish(client, topic, numbered(10))
        for index, message in enumerate(take(consumer, 10)):
            if index in (0, 1, 4, 7):
                consumer.acknowledge(message)
    with serving(tmp_path) as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        assert consume(consumer, 6) == [b"m2", b"m3", b"m5", b"m6", b"m8", b"m9"]
        assert nothing_comes(consumer)
        publish(client, topic, [b"after"])
        assert consume(consumer, 1) == [b"after"]
        consumer.close()
        assert backlog(running, topic, "s") == 0


def test_a_restart_under_a_new_type(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        publish(client, topic, numbered(3))
        consumer.acknowledge(take(consumer, 3)[1])
    with serving(tmp_path) as (_, client):
        assert consume(client.subscribe(topic, "s", Type.Exclusive), 2) == [b"m0", b"m2"]


def test_a_lost_connection_loses_nothing(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    """Both clients reconnect, and the producer resends messages without a receipt."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    results: list[pulsar.Result] = []
    for index, payload in enumerate(numbered(300)):
        producer.send_async(payload, lambda result, _: results.append(result))
        if index % 100 == 50:
            shared_broker.run(lambda: [connection.close() for connection in list(shared_broker.server.connections)])
    producer.flush()
    eventually(lambda: len(results) == 300)
    assert set(results) == {pulsar.Result.Ok}
    seen: list[bytes] = []
    while len(set(seen)) < 300:
        seen += consume(consumer, 1)
    assert list(dict.fromkeys(seen)) == numbered(300)


# -- unsubscribe


def test_unsubscribing_deletes_the_position(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, [b"old"])
    consumer.unsubscribe()
    assert topic_in(shared_broker, topic).subscriptions == {}
    assert nothing_comes(client.subscribe(topic, "s"))


def test_one_of_several_consumers_cannot_unsubscribe(client: pulsar.Client, topic: str) -> None:
    first, second = (client.subscribe(topic, "s", Type.Shared) for _ in range(2))
    with pytest.raises(pulsar.PulsarException):
        first.unsubscribe()
    second.close()
    publish(client, topic, [b"x"])
    assert consume(first, 1) == [b"x"]
    first.unsubscribe()


def test_an_unsubscribed_name_stays_deleted_after_a_restart(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        consumer = client.subscribe(topic, "s")
        publish(client, topic, [b"old"])
        consumer.unsubscribe()
    with serving(tmp_path) as (running, _):
        assert topic_in(running, topic).subscriptions == {}


# -- acknowledgements


def test_a_cumulative_acknowledgement_covers_all_earlier_messages(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, numbered(10))
    consumer.acknowledge_cumulative(take(consumer, 10)[6])
    consumer.close()
    assert consume(client.subscribe(topic, "s"), 3) == numbered(10)[7:]


def test_a_cumulative_acknowledgement_survives_a_restart(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        consumer = client.subscribe(topic, "s", Type.Failover)
        publish(client, topic, numbered(10))
        consumer.acknowledge_cumulative(take(consumer, 10)[6])
    with serving(tmp_path) as (_, client):
        assert consume(client.subscribe(topic, "s", Type.Failover), 3) == numbered(10)[7:]


@pytest.mark.parametrize("consumer_type", [Type.Shared, Type.KeyShared], ids=lambda t: t.name)
def test_cumulative_acknowledgements_are_rejected_for_shared_types(
    client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type)
    publish(client, topic, [b"x"])
    with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
        consumer.acknowledge_cumulative(take(consumer, 1)[0])


def batching(client: pulsar.Client, topic: str) -> pulsar.Producer:
    return client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)


def test_single_messages_of_a_batch_are_acknowledged(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        consumer = client.subscribe(topic, "s", Type.Shared, batch_index_ack_enabled=True)
        send_batch(batching(client, topic), numbered(10))
        messages = take(consumer, 10)
        for index in (0, 3, 9):
            consumer.acknowledge(messages[index])
        consumer.close()
        consumer = client.subscribe(topic, "s", Type.Shared, batch_index_ack_enabled=True)
        left = [b"m1", b"m2", b"m4", b"m5", b"m6", b"m7", b"m8"]
        messages = take(consumer, 7)
        assert data_of(messages) == left
        consumer.acknowledge(messages[0])
    with serving(tmp_path) as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared, batch_index_ack_enabled=True)
        assert consume(consumer, 6) == left[1:]
        assert nothing_comes(consumer)
        consumer.close()
        assert backlog(running, topic, "s") == 0


def test_a_batch_of_more_than_64_messages_is_acknowledged_one_by_one(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared, batch_index_ack_enabled=True)
    send_batch(batching(client, topic), numbered(200))
    for index, message in enumerate(take(consumer, 200)):
        if index not in (5, 63, 64, 130, 199):
            consumer.acknowledge(message)
    consumer.close()
    again = client.subscribe(topic, "s", Type.Shared, batch_index_ack_enabled=True)
    assert consume(again, 5) == [b"m5", b"m63", b"m64", b"m130", b"m199"]


def test_a_cumulative_acknowledgement_within_a_batch(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    producer = batching(client, topic)
    send_batch(producer, numbered(5, "a"))
    send_batch(producer, numbered(5, "b"))
    consumer.acknowledge_cumulative(take(consumer, 10)[6])
    consumer.close()
    again = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    assert consume(again, 3) == [b"b2", b"b3", b"b4"]


def test_without_batch_index_acks_a_batch_is_redelivered_whole(topic: str) -> None:
    with serving(acknowledgmentAtBatchIndexLevelEnabled=False) as (_, client):
        consumer = client.subscribe(topic, "s", Type.Shared, batch_index_ack_enabled=True)
        send_batch(batching(client, topic), numbered(3))
        consumer.acknowledge(take(consumer, 3)[0])
        consumer.close()
        again = client.subscribe(topic, "s", Type.Shared, batch_index_ack_enabled=True)
        assert consume(again, 3) == numbered(3)


def test_a_fully_acknowledged_batch_is_not_redelivered(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared)
    send_batch(batching(client, topic), numbered(3))
    consume(consumer, 3)
    consumer.close()
    assert nothing_comes(client.subscribe(topic, "s", Type.Shared))


# -- redelivery


@pytest.mark.parametrize(
    "consumer_type", [Type.Exclusive, Type.Failover, Type.Shared, Type.KeyShared], ids=lambda t: t.name
)
def test_redelivery_repeats_everything_and_counts(
    client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type)
    publish(client, topic, numbered(5))
    consumer.acknowledge(take(consumer, 5)[2])
    for count in (1, 2):
        consumer.redeliver_unacknowledged_messages()
        again = take(consumer, 4)
        assert data_of(again) == [b"m0", b"m1", b"m3", b"m4"]
        # In ordered types the first message failed: those behind it were only waiting, and are not counted (DL11).
        is_ordered = consumer_type in (Type.Exclusive, Type.Failover)
        expected = [count, 0, 0, 0] if is_ordered else [count] * 4
        assert [message.redelivery_count() for message in again] == expected


@pytest.mark.parametrize(
    "consumer_type", [Type.Shared, Type.KeyShared, Type.Failover, Type.Exclusive], ids=lambda t: t.name
)
def test_a_nacked_message_is_redelivered(client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType) -> None:
    consumer = client.subscribe(topic, "s", consumer_type, negative_ack_redelivery_delay_ms=100)
    publish(client, topic, numbered(3))
    messages = take(consumer, 3)
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[2])
    consumer.negative_acknowledge(messages[1])
    again = take(consumer, 1)[0]
    assert (again.data(), again.redelivery_count()) == (b"m1", 1)
    consumer.acknowledge(again)
    assert nothing_comes(consumer)


def test_a_nack_within_a_batch(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(
        topic, "s", Type.Shared, negative_ack_redelivery_delay_ms=100, batch_index_ack_enabled=True
    )
    send_batch(batching(client, topic), numbered(3))
    messages = take(consumer, 3)
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[2])
    consumer.negative_acknowledge(messages[1])
    again = take(consumer, 1)[0]
    assert (again.data(), again.redelivery_count()) == (b"m1", 1)


def test_redelivery_counts_survive_a_restart(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        publish(client, topic, numbered(2))
        take(consumer, 2)
        consumer.redeliver_unacknowledged_messages()
        take(consumer, 2)
    with serving(tmp_path) as (_, client):
        again = take(client.subscribe(topic, "s", Type.Shared), 2)
        assert [message.redelivery_count() for message in again] == [1, 1]


def test_a_failing_message_goes_to_the_dead_letter_topic(client: pulsar.Client, topic: str) -> None:
    """The client's policy: the broker has to count, and to keep what the dead letter producer writes."""
    policy = pulsar.ConsumerDeadLetterPolicy(2, f"{topic}-s-DLQ", "keep")
    consumer = client.subscribe(
        topic, "s", Type.Shared, negative_ack_redelivery_delay_ms=100, dead_letter_policy=policy
    )
    publish(client, topic, [b"bad"])
    for count in (0, 1, 2):
        message = take(consumer, 1)[0]
        assert message.redelivery_count() == count
        consumer.negative_acknowledge(message)
    assert consume(client.subscribe(f"{topic}-s-DLQ", "keep"), 1) == [b"bad"]
    assert nothing_comes(consumer)


# -- other receive calls


def test_messages_are_received_in_batches(client: pulsar.Client, topic: str) -> None:
    policy = pulsar.ConsumerBatchReceivePolicy(10, -1, 5000)
    consumer = client.subscribe(topic, "s", batch_receive_policy=policy)
    publish(client, topic, numbered(20))
    assert [data_of(consumer.batch_receive()) for _ in range(2)] == [numbered(20)[:10], numbered(20)[10:]]


def test_a_listener_is_called(client: pulsar.Client, topic: str) -> None:
    got: list[bytes] = []
    done = threading.Event()

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        got.append(message.data())
        consumer.acknowledge(message)
        if len(got) == 20:
            done.set()

    consumer = client.subscribe(topic, "s", message_listener=listen)
    publish(client, topic, numbered(20))
    assert done.wait(PATIENCE_MS / 1000)
    assert got == numbered(20)
    consumer.close()


def test_a_slow_consumer_does_not_block_others(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    slow = client.subscribe(topic, "slow", receiver_queue_size=1)
    with contextlib.closing(connect(shared_broker)) as other:
        quick = other.subscribe(topic, "quick")
        publish(client, topic, numbered(100))
        assert consume(quick, 100) == numbered(100)
    assert consume(slow, 100) == numbered(100)


# -- extreme settings

TINY = {
    "dispatcherMaxReadBatchSize": 1,
    "dispatcherMaxReadSizeBytes": 1,
    "dispatcherMaxRoundRobinBatchSize": 1,
    "managedLedgerCacheSizeMB": 0,
    "keySharedLookAheadMsgInReplayThresholdPerConsumer": 1,
    "keySharedLookAheadMsgInReplayThresholdPerSubscription": 1,
}
UNLIMITED = {
    "dispatcherMaxReadBatchSize": 100_000,
    "dispatcherMaxRoundRobinBatchSize": 100_000,
    "keySharedLookAheadMsgInReplayThresholdPerConsumer": 0,
    "keySharedLookAheadMsgInReplayThresholdPerSubscription": 0,
    "maxUnackedMessagesPerConsumer": 0,
    "maxUnackedMessagesPerSubscription": 0,
}


@pytest.mark.parametrize("settings", [TINY, UNLIMITED], ids=["tiny", "unlimited"])
@pytest.mark.parametrize(
    "consumer_type", [Type.Exclusive, Type.Failover, Type.Shared, Type.KeyShared], ids=lambda t: t.name
)
def test_everything_arrives_with_any_dispatch_limits(
    tmp_path: Path, topic: str, consumer_type: pulsar.ConsumerType, settings: dict[str, object]
) -> None:
    with serving(tmp_path, **settings) as (_, client):
        consumer = client.subscribe(topic, "s", consumer_type)
        producer = client.create_producer(topic)
        for index, payload in enumerate(numbered(60)):
            producer.send_async(payload, lambda *_: None, partition_key=str(index % 7))
        take(consumer, 30)
        consumer.redeliver_unacknowledged_messages()
        producer.flush()
        seen: set[bytes] = set()
        while len(seen) < 60:
            seen.update(consume(consumer, 1))
        consumer.close()
        assert nothing_comes(client.subscribe(topic, "s", consumer_type))


def test_the_asyncio_client(shared_broker: TestBroker, topic: str) -> None:
    async def talk() -> list[bytes]:
        client = pulsar.asyncio.Client(shared_broker.service_url)
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic)
        for payload in numbered(5):
            await producer.send(payload)
        messages = [await consumer.receive() for _ in range(5)]
        for message in messages:
            await consumer.acknowledge(message)
        await client.close()
        return data_of(messages)

    assert asyncio.run(talk()) == numbered(5)

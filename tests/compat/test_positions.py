"""Readers and seeks: start positions and the next message."""

from __future__ import annotations

import time
from pathlib import Path

import pulsar
import pytest

from magnetar.testing import TestBroker
from tests.compat.stage import (
    backlog,
    consume,
    eventually,
    nothing_comes,
    numbered,
    read,
    send_batch,
    serving,
    take,
    topic_in,
)

Type = pulsar.ConsumerType
EARLIEST, LATEST = pulsar.MessageId.earliest, pulsar.MessageId.latest


def publish(client: pulsar.Client, topic: str, payloads: list[bytes]) -> list[pulsar.MessageId]:
    producer = client.create_producer(topic)
    return [producer.send(payload) for payload in payloads]


def publish_batch(client: pulsar.Client, topic: str, payloads: list[bytes]) -> list[pulsar.MessageId]:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    return send_batch(producer, payloads)


# -- readers


def test_a_reader_from_the_earliest_message(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, numbered(5))
    reader = client.create_reader(topic, EARLIEST)
    assert read(reader, 5) == numbered(5)
    publish(client, topic, [b"new"])
    assert read(reader, 1) == [b"new"]


def test_a_reader_from_the_latest_message(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, numbered(5))
    reader = client.create_reader(topic, LATEST)
    assert nothing_comes(reader)
    publish(client, topic, [b"new"])
    assert read(reader, 1) == [b"new"]


@pytest.mark.parametrize(("inclusive", "expected"), [(False, [b"m3", b"m4"]), (True, [b"m2", b"m3", b"m4"])])
def test_a_reader_from_a_message_id(client: pulsar.Client, topic: str, inclusive: bool, expected: list[bytes]) -> None:
    ids = publish(client, topic, numbered(5))
    reader = client.create_reader(topic, ids[2], start_message_id_inclusive=inclusive)
    assert read(reader, len(expected)) == expected
    assert nothing_comes(reader)


@pytest.mark.parametrize(("inclusive", "expected"), [(False, [b"m3", b"m4"]), (True, [b"m2", b"m3", b"m4"])])
def test_a_reader_from_within_a_batch(
    client: pulsar.Client, topic: str, inclusive: bool, expected: list[bytes]
) -> None:
    ids = publish_batch(client, topic, numbered(5))
    reader = client.create_reader(topic, ids[2], start_message_id_inclusive=inclusive)
    assert read(reader, len(expected)) == expected
    assert nothing_comes(reader)


def test_a_reader_from_the_last_message_of_a_batch(client: pulsar.Client, topic: str) -> None:
    ids = publish_batch(client, topic, numbered(3))
    publish(client, topic, [b"next"])
    assert read(client.create_reader(topic, ids[-1]), 1) == [b"next"]


def test_a_reader_from_a_serialized_id(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        written = publish(client, topic, numbered(5))[2].serialize()
    with serving(tmp_path) as (_, client):
        reader = client.create_reader(topic, pulsar.MessageId.deserialize(written))
        assert read(reader, 2) == [b"m3", b"m4"]


def test_a_reader_leaves_nothing_behind(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    publish(client, topic, [b"x"])
    reader = client.create_reader(topic, EARLIEST)
    seen = topic_in(shared_broker, topic)
    assert len(seen.subscriptions) == 1
    reader.close()
    eventually(lambda: not seen.subscriptions)


def test_readers_do_not_disturb_each_other(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, numbered(5))
    readers = [client.create_reader(topic, EARLIEST) for _ in range(3)]
    assert [read(reader, 5) for reader in readers] == [numbered(5)] * 3


def test_a_reader_knows_whether_there_is_more(client: pulsar.Client, topic: str) -> None:
    reader = client.create_reader(topic, EARLIEST)
    assert not reader.has_message_available()
    publish(client, topic, numbered(2))
    assert reader.has_message_available()
    read(reader, 1)
    assert reader.has_message_available()
    read(reader, 1)
    assert not reader.has_message_available()


def test_a_reader_at_the_end_has_no_message(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, numbered(2))
    reader = client.create_reader(topic, LATEST)
    assert not reader.has_message_available()
    publish(client, topic, [b"new"])
    assert reader.has_message_available()


def test_a_reader_knows_whether_its_batch_has_more(client: pulsar.Client, topic: str) -> None:
    publish_batch(client, topic, numbered(3))
    reader = client.create_reader(topic, EARLIEST)
    read(reader, 2)
    assert reader.has_message_available()
    read(reader, 1)
    assert not reader.has_message_available()


def test_a_reader_reads_all_messages(client: pulsar.Client, topic: str) -> None:
    publish_batch(client, topic, numbered(500))
    publish(client, topic, [b"last"])
    reader = client.create_reader(topic, EARLIEST)
    got = []
    while reader.has_message_available():
        got += read(reader, 1)
    assert got == [*numbered(500), b"last"]


def test_a_reader_seeks_to_an_id(client: pulsar.Client, topic: str) -> None:
    ids = publish(client, topic, numbered(5))
    reader = client.create_reader(topic, EARLIEST)
    read(reader, 5)
    reader.seek(ids[3])
    assert read(reader, 1) == [b"m4"]
    reader.seek(EARLIEST)
    assert read(reader, 5) == numbered(5)


def test_a_reader_seeks_to_a_time(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, numbered(5))
    reader = client.create_reader(topic, LATEST)
    reader.seek(int(time.time() * 1000) - 60_000)
    assert read(reader, 5) == numbered(5)


def test_named_readers_and_readers_with_a_queue_of_one(client: pulsar.Client, topic: str) -> None:
    publish(client, topic, numbered(5))
    reader = client.create_reader(topic, EARLIEST, receiver_queue_size=1, reader_name="ann")
    assert read(reader, 5) == numbered(5)


# -- seek


@pytest.mark.parametrize(
    "consumer_type", [Type.Exclusive, Type.Failover, Type.Shared, Type.KeyShared], ids=lambda t: t.name
)
def test_seeking_to_an_id_goes_back(client: pulsar.Client, topic: str, consumer_type: pulsar.ConsumerType) -> None:
    consumer = client.subscribe(topic, "s", consumer_type)
    ids = publish(client, topic, numbered(5))
    consume(consumer, 5)
    consumer.seek(ids[1])
    assert consume(consumer, 3) == [b"m2", b"m3", b"m4"]
    assert nothing_comes(consumer)


def test_seeking_to_an_id_inclusively(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    ids = publish(client, topic, numbered(5))
    consume(consumer, 5)
    consumer.seek(ids[1])
    assert consume(consumer, 4) == [b"m1", b"m2", b"m3", b"m4"]


@pytest.mark.parametrize(("inclusive", "expected"), [(False, [b"m3", b"m4"]), (True, [b"m2", b"m3", b"m4"])])
def test_seeking_within_a_batch(client: pulsar.Client, topic: str, inclusive: bool, expected: list[bytes]) -> None:
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=inclusive)
    ids = publish_batch(client, topic, numbered(5))
    consume(consumer, 5)
    consumer.seek(ids[2])
    assert consume(consumer, len(expected)) == expected
    assert nothing_comes(consumer)


def test_seeking_forward_skips(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    ids = publish(client, topic, numbered(5))
    consumer.seek(ids[4])
    assert consume(consumer, 1) == [b"m4"]
    consumer.close()
    assert backlog(shared_broker, topic, "s") == 0


def test_seeking_to_both_ends(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, numbered(5))
    consumer.seek(LATEST)
    assert nothing_comes(consumer)
    consumer.seek(EARLIEST)
    assert consume(consumer, 5) == numbered(5)


def test_seeking_to_a_time(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, [b"old"])
    old = take(consumer, 1)[0]
    eventually(lambda: int(time.time() * 1000) > old.publish_timestamp() + 1)
    publish(client, topic, [b"young"])
    messages = [old, *take(consumer, 1)]
    consumer.acknowledge_cumulative(messages[1])
    consumer.seek(messages[1].publish_timestamp())
    assert consume(consumer, 1) == [b"young"]
    consumer.seek(messages[0].publish_timestamp())
    assert consume(consumer, 2) == [b"old", b"young"]


def test_seeking_to_a_time_beyond_the_end_and_before_the_beginning(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client, topic, numbered(3))
    consumer.seek(int(time.time() * 1000) + 60_000)
    assert nothing_comes(consumer)
    consumer.seek(1)
    assert consume(consumer, 3) == numbered(3)


def test_a_seek_survives_a_restart(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        ids = publish(client, topic, numbered(5))
        consume(consumer, 5)
        consumer.seek(ids[3])
    with serving(tmp_path) as (_, client):
        # The client skips the message it sought; for the broker, it is the next one.
        consumer = client.subscribe(topic, "s", Type.Shared)
        assert consume(consumer, 2) == [b"m3", b"m4"]
        assert nothing_comes(consumer)


def test_a_seek_moves_all_consumers_of_a_shared_subscription(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", Type.Shared) for _ in range(2)]
    publish(client, topic, numbered(6))
    consumers[0].seek(LATEST)
    assert all(nothing_comes(consumer) for consumer in consumers)
    publish(client, topic, [b"new"])
    got = [message for consumer in consumers for message in _available(consumer)]
    assert got == [b"new"]


def _available(consumer: pulsar.Consumer) -> list[bytes]:
    try:
        return [consumer.receive(300).data()]
    except pulsar.Timeout:
        return []


def test_a_seek_resets_delays_and_counts(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared)
    publish(client, topic, [b"x"])
    take(consumer, 1)
    consumer.redeliver_unacknowledged_messages()
    assert take(consumer, 1)[0].redelivery_count() == 1
    consumer.seek(EARLIEST)
    assert take(consumer, 1)[0].redelivery_count() == 0


# -- the last message id


def test_the_last_message_id(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    ids = publish(client, topic, numbered(3))
    last = consumer.get_last_message_id()
    assert (last.ledger_id(), last.entry_id()) == (ids[-1].ledger_id(), ids[-1].entry_id())


def test_the_last_message_id_of_a_batch(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish_batch(client, topic, numbered(3))
    last = consumer.get_last_message_id()
    assert (last.entry_id(), last.batch_index()) == (0, 2)


def test_the_last_message_id_of_an_empty_topic(client: pulsar.Client, topic: str) -> None:
    last = client.subscribe(topic, "s").get_last_message_id()
    assert (last.ledger_id(), last.entry_id()) == (-1, -1)


def test_the_last_message_id_after_a_restart(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        sent = publish(client, topic, numbered(3))[-1]
    with serving(tmp_path) as (_, client):
        last = client.subscribe(topic, "s").get_last_message_id()
        assert (last.ledger_id(), last.entry_id()) == (sent.ledger_id(), sent.entry_id())
        following = publish(client, topic, [b"next"])[0]
        assert (following.ledger_id(), following.entry_id()) == (sent.ledger_id(), sent.entry_id() + 1)


def test_a_table_view_reads_an_uncompacted_topic(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    for number in range(3):
        producer.send(b"%d" % number, partition_key="same")
    view = client.create_table_view(topic)
    assert view.get("same") == b"2"
    view.close()

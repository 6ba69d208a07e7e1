"""Retention, time to live, and the backlog quota with its three policies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pulsar
import pytest

from magnetar.testing import TestBroker
from tests.compat.stage import (
    PATIENCE_MS,
    backlog,
    consume,
    nothing_comes,
    numbered,
    read,
    send_batch,
    serving,
    take,
    topic_in,
)

EARLIEST = pulsar.MessageId.earliest
# No extra retention for late readers.
CLOSED = {"managedLedgerMinLedgerRolloverTimeMinutes": 0}
KB = bytes(1000)


def publish(client: pulsar.Client, topic: str, payloads: list[bytes]) -> None:
    send_batch(client.create_producer(topic), payloads)


def kept(running: TestBroker, topic: str) -> int:
    log = topic_in(running, topic).log
    return running.run(lambda: log.confirmed + 1 - log.first)


# -- retention


def test_without_retention_acknowledged_messages_are_deleted(topic: str) -> None:
    with serving(**CLOSED) as (running, client):
        consumer = client.subscribe(topic, "s")
        publish(client, topic, numbered(10))
        consume(consumer, 6)
        consumer.close()
        running.advance(minutes=5)
        assert kept(running, topic) == 4
        assert read(client.create_reader(topic, EARLIEST), 4) == numbered(10)[6:]


def test_unacknowledged_messages_are_kept(topic: str) -> None:
    with serving(**CLOSED) as (running, client):
        client.subscribe(topic, "s").close()
        publish(client, topic, numbered(10))
        running.advance(days=2)
        assert consume(client.subscribe(topic, "s"), 10) == numbered(10)


def test_recent_messages_are_kept_for_late_readers(topic: str) -> None:
    """As in Apache Pulsar, whose open ledger is not trimmed."""
    with serving() as (running, client):
        publish(client, topic, numbered(3))
        running.advance(minutes=3)
        assert read(client.create_reader(topic, EARLIEST), 3) == numbered(3)
        running.advance(minutes=20)
        assert kept(running, topic) == 0


def test_retention_by_time(topic: str) -> None:
    with serving(defaultRetentionTimeInMinutes=60, defaultRetentionSizeInMB=-1, **CLOSED) as (running, client):
        publish(client, topic, [b"old"])
        running.advance(minutes=40)
        publish(client, topic, [b"young"])
        assert read(client.create_reader(topic, EARLIEST), 2) == [b"old", b"young"]
        running.advance(minutes=30)
        assert read(client.create_reader(topic, EARLIEST), 1) == [b"young"]
        running.advance(minutes=40)
        assert kept(running, topic) == 0


def test_retention_by_size(topic: str) -> None:
    with serving(defaultRetentionTimeInMinutes=-1, defaultRetentionSizeInMB=1, **CLOSED) as (running, client):
        publish(client, topic, [bytes(100_000)] * 15)
        running.advance(minutes=5)
        assert kept(running, topic) == 10


def test_unlimited_retention_keeps_everything(topic: str) -> None:
    with serving(defaultRetentionTimeInMinutes=-1, defaultRetentionSizeInMB=-1, **CLOSED) as (running, client):
        publish(client, topic, numbered(10))
        running.advance(days=1)
        assert read(client.create_reader(topic, EARLIEST), 10) == numbered(10)


def test_ids_continue_after_everything_was_trimmed(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path, **CLOSED) as (running, client):
        publish(client, topic, numbered(5))
        running.advance(minutes=5)
        assert kept(running, topic) == 0
    with serving(tmp_path, **CLOSED) as (running, client):
        assert client.create_producer(topic).send(b"x").entry_id() == 5


def test_a_reader_behind_the_trimmed_part_continues_after_it(topic: str) -> None:
    with serving(**CLOSED) as (running, client):
        reader = client.create_reader(topic, EARLIEST, receiver_queue_size=1)
        publish(client, topic, numbered(10))
        read(reader, 1)
        running.advance(minutes=5)
        publish(client, topic, [b"new"])
        last = b""
        while last != b"new":
            last = read(reader, 1)[0]


# -- time to live


def test_messages_past_their_time_to_live_are_acknowledged(topic: str) -> None:
    with serving(ttlDurationDefaultInSeconds=600) as (running, client):
        client.subscribe(topic, "s").close()
        publish(client, topic, [b"old"])
        running.advance(minutes=9)
        publish(client, topic, [b"young"])
        running.advance(minutes=6)
        consumer = client.subscribe(topic, "s")
        assert consume(consumer, 1) == [b"young"]
        assert nothing_comes(consumer)


def test_time_to_live_applies_to_messages_held_by_a_consumer(topic: str) -> None:
    with serving(ttlDurationDefaultInSeconds=600) as (running, client):
        consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
        publish(client, topic, numbered(3))
        take(consumer, 3)
        running.advance(minutes=20)
        assert backlog(running, topic, "s") == 0
        consumer.redeliver_unacknowledged_messages()
        assert nothing_comes(consumer)


# -- backlog quota


@pytest.fixture(
    params=[{"backlogQuotaDefaultLimitBytes": 5_000}, {"backlogQuotaDefaultLimitSecond": 600}], ids=["size", "time"]
)
def quota(request: pytest.FixtureRequest) -> dict[str, object]:
    settings: dict[str, object] = request.param
    return settings


def test_producers_get_an_error_at_the_quota(topic: str, quota: dict[str, object]) -> None:
    with serving(backlogQuotaDefaultRetentionPolicy="producer_exception", **quota) as (running, client):
        consumer = client.subscribe(topic, "s")
        publish(client, topic, [KB] * 10)
        running.advance(minutes=11)
        with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
            client.create_producer(topic)
        consume(consumer, 10)
        consumer.close()
        client.create_producer(topic).send(b"room again")


def test_a_connected_producer_is_closed_at_the_quota(topic: str, quota: dict[str, object]) -> None:
    with serving(backlogQuotaDefaultRetentionPolicy="producer_exception", **quota) as (running, client):
        client.subscribe(topic, "s")
        producer = client.create_producer(topic, send_timeout_millis=1000)
        for _ in range(10):
            producer.send(KB)
        running.advance(minutes=11)
        with pytest.raises(pulsar.PulsarException):
            producer.send(KB)
        assert topic_in(running, topic).log.last == 9


def test_producers_wait_at_the_quota(topic: str, quota: dict[str, object]) -> None:
    with serving(backlogQuotaDefaultRetentionPolicy="producer_request_hold", **quota) as (running, client):
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        for _ in range(10):
            producer.send(KB)
        running.advance(minutes=11)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(producer.send, b"patient")
            assert nothing_comes(client.create_reader(topic, pulsar.MessageId.latest))
            assert not sending.done()
            assert consume(consumer, 10) == [KB] * 10
            sending.result(PATIENCE_MS / 1000)
        assert consume(consumer, 1) == [b"patient"]


def test_the_oldest_messages_are_evicted_at_the_quota(topic: str) -> None:
    settings = {
        "backlogQuotaDefaultLimitBytes": 5_500,
        "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
    }
    with serving(**settings) as (running, client):
        client.subscribe(topic, "s").close()
        publish(client, topic, [str(index).encode() + KB for index in range(10)])
        running.advance(minutes=2)
        client.create_producer(topic).send(b"new")
        got = [payload[:1] for payload in consume(client.subscribe(topic, "s"), 6)]
        assert got == [b"5", b"6", b"7", b"8", b"9", b"n"]


def test_messages_past_the_age_of_the_quota_are_evicted(topic: str) -> None:
    settings = {
        "backlogQuotaDefaultLimitSecond": 600,
        "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
    }
    with serving(**settings) as (running, client):
        client.subscribe(topic, "s").close()
        publish(client, topic, [b"old"])
        running.advance(minutes=8)
        publish(client, topic, [b"young"])
        running.advance(minutes=4)
        assert consume(client.subscribe(topic, "s"), 1) == [b"young"]


def test_without_a_backlog_the_quota_blocks_no_producer(topic: str) -> None:
    settings = {"backlogQuotaDefaultLimitBytes": 1, "backlogQuotaDefaultRetentionPolicy": "producer_exception"}
    with serving(**settings) as (running, client):
        publish(client, topic, [KB] * 5)  # without subscriptions there is no backlog
        running.advance(minutes=5)
        client.create_producer(topic).send(KB)


def test_quotas_can_be_disabled(topic: str) -> None:
    settings = {
        "backlogQuotaDefaultLimitBytes": 1,
        "backlogQuotaDefaultRetentionPolicy": "producer_exception",
        "backlogQuotaCheckEnabled": False,
    }
    with serving(**settings) as (running, client):
        client.subscribe(topic, "s")
        publish(client, topic, [KB] * 5)
        running.advance(minutes=5)
        client.create_producer(topic).send(KB)

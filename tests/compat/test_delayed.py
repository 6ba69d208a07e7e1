"""Delayed messages: never early, and on time even across a restart of the broker."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pulsar
import pytest

from tests.compat.stage import consume, data_of, nothing_comes, numbered, send_batch, serving, take

Type = pulsar.ConsumerType
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("consumer_type", [Type.Shared, Type.KeyShared], ids=lambda t: t.name)
def test_a_message_arrives_at_its_time_and_not_before(topic: str, consumer_type: pulsar.ConsumerType) -> None:
    with serving() as (running, client):
        consumer = client.subscribe(topic, "s", consumer_type)
        client.create_producer(topic).send(b"later", deliver_after=HOUR)
        assert nothing_comes(consumer)
        running.advance(minutes=59)
        assert nothing_comes(consumer)
        running.advance(minutes=1)
        assert consume(consumer, 1) == [b"later"]


def test_a_message_arrives_at_an_absolute_time(topic: str) -> None:
    with serving() as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        client.create_producer(topic).send(b"later", deliver_at=int(time.time() * 1000) + 3_600_000)
        running.advance(minutes=59)
        assert nothing_comes(consumer)
        running.advance(minutes=1)
        assert consume(consumer, 1) == [b"later"]


def test_other_messages_are_not_delayed(topic: str) -> None:
    with serving() as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        producer = client.create_producer(topic)
        producer.send(b"third", deliver_after=2 * HOUR)
        producer.send(b"second", deliver_after=HOUR)
        producer.send(b"first")
        assert consume(consumer, 1) == [b"first"]
        running.advance(hours=1)
        assert consume(consumer, 1) == [b"second"]
        assert nothing_comes(consumer)
        running.advance(hours=1)
        assert consume(consumer, 1) == [b"third"]


def test_a_broker_clock_ahead_does_not_deliver_early(topic: str) -> None:
    with serving() as (running, client):
        running.advance(days=3)
        consumer = client.subscribe(topic, "s", Type.Shared)
        client.create_producer(topic).send(b"later", deliver_after=HOUR)
        assert nothing_comes(consumer)
        running.advance(hours=1)
        assert consume(consumer, 1) == [b"later"]


def test_a_late_subscription_waits_as_well(topic: str) -> None:
    with serving() as (running, client):
        client.create_producer(topic).send(b"later", deliver_after=HOUR)
        consumer = client.subscribe(topic, "s", Type.Shared, initial_position=pulsar.InitialPosition.Earliest)
        assert nothing_comes(consumer)
        running.advance(hours=1)
        assert consume(consumer, 1) == [b"later"]


def test_a_message_due_while_no_consumer_was_connected_is_delivered(topic: str) -> None:
    with serving() as (running, client):
        client.subscribe(topic, "s", Type.Shared).close()
        client.create_producer(topic).send(b"later", deliver_after=HOUR)
        running.advance(hours=1)
        assert consume(client.subscribe(topic, "s", Type.Shared), 1) == [b"later"]


def test_a_delay_survives_a_restart(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        client.subscribe(topic, "s", Type.Shared)
        client.create_producer(topic).send(b"later", deliver_after=HOUR)
    with serving(tmp_path) as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        assert nothing_comes(consumer)
        running.advance(hours=1)
        assert consume(consumer, 1) == [b"later"]


def test_a_delayed_message_delivered_before_a_restart_is_redelivered_if_unacknowledged(
    tmp_path: Path, topic: str
) -> None:
    with serving(tmp_path) as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        client.create_producer(topic).send(b"later", deliver_after=timedelta(milliseconds=1))
        running.advance(seconds=1)
        assert data_of(take(consumer, 1)) == [b"later"]
    with serving(tmp_path) as (_, client):
        assert consume(client.subscribe(topic, "s", Type.Shared), 1) == [b"later"]


def test_a_delay_survives_a_restart_without_a_subscription(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (_, client):
        client.create_producer(topic).send(b"later", deliver_after=HOUR)
    with serving(tmp_path) as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared, initial_position=pulsar.InitialPosition.Earliest)
        assert nothing_comes(consumer)
        running.advance(hours=1)
        assert consume(consumer, 1) == [b"later"]


def test_messages_delivered_before_a_restart_do_not_wait_for_delayed_ones(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        producer = client.create_producer(topic)
        producer.send(b"soon", deliver_after=HOUR)
        producer.send(b"much later", deliver_after=5 * HOUR)
        running.advance(hours=2)
        assert data_of(take(consumer, 1)) == [b"soon"]
    with serving(tmp_path) as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        running.advance(hours=2)
        assert consume(consumer, 1) == [b"soon"]
        assert nothing_comes(consumer)
        running.advance(hours=3)
        assert consume(consumer, 1) == [b"much later"]


def test_a_delivered_delayed_message_is_not_redelivered(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        client.create_producer(topic).send(b"later", deliver_after=HOUR)
        running.advance(hours=1)
        consume(consumer, 1)
    with serving(tmp_path) as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        running.advance(hours=2)
        assert nothing_comes(consumer)


@pytest.mark.parametrize("consumer_type", [Type.Exclusive, Type.Failover], ids=lambda t: t.name)
def test_ordered_types_do_not_wait(topic: str, consumer_type: pulsar.ConsumerType) -> None:
    with serving() as (_, client):
        consumer = client.subscribe(topic, "s", consumer_type)
        producer = client.create_producer(topic)
        producer.send(b"first", deliver_after=HOUR)
        producer.send(b"second")
        assert consume(consumer, 2) == [b"first", b"second"]


def test_delays_can_be_disabled(topic: str) -> None:
    with serving(delayedDeliveryEnabled=False) as (_, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        client.create_producer(topic).send(b"at once", deliver_after=HOUR)
        assert consume(consumer, 1) == [b"at once"]


def test_many_delayed_messages_arrive_once_each(topic: str) -> None:
    with serving() as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        producer = client.create_producer(topic, max_pending_messages=5000)
        send_batch(producer, numbered(2500), deliver_after=HOUR)
        assert nothing_comes(consumer)
        running.advance(hours=1)
        assert sorted(consume(consumer, 2500)) == sorted(numbered(2500))
        assert nothing_comes(consumer)


def test_a_nacked_delayed_message_is_redelivered_at_once(topic: str) -> None:
    with serving() as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        client.create_producer(topic).send(b"later", deliver_after=HOUR)
        running.advance(hours=1)
        take(consumer, 1)
        consumer.redeliver_unacknowledged_messages()
        message = take(consumer, 1)[0]
        assert (message.data(), message.redelivery_count()) == (b"later", 1)


def test_a_clock_set_back_does_not_deliver_early(topic: str) -> None:
    with serving() as (running, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        producer = client.create_producer(topic)
        producer.send(b"first", deliver_after=2 * HOUR)
        running.advance(hours=2)
        assert consume(consumer, 1) == [b"first"]
        running.run(lambda: running.clock.advance_ms(-3_600_000))
        producer.send(b"second", deliver_after=HOUR / 2)
        assert nothing_comes(consumer)
        running.advance(hours=2)
        assert consume(consumer, 1) == [b"second"]

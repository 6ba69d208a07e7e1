"""Deduplication by producer name and sequence id, as producers of the official Python client see it."""

from __future__ import annotations

import os
from pathlib import Path

import pulsar

from tests.compat.stage import consume, nothing_comes, numbered, send_batch, serving, topic_in

NAME = "ann"


def test_a_repeated_sequence_id_is_dropped(topic: str) -> None:
    with serving(brokerDeduplicationEnabled=True) as (_, client):
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, producer_name=NAME)
        for sequence_id in (5, 6, 6, 5, 7):
            producer.send(str(sequence_id).encode(), sequence_id=sequence_id)
        assert consume(consumer, 3) == [b"5", b"6", b"7"]
        assert nothing_comes(consumer)


def test_without_deduplication_everything_is_kept(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name=NAME)
    for _ in range(2):
        producer.send(b"x", sequence_id=1)
    assert consume(consumer, 2) == [b"x", b"x"]


def test_each_producer_name_has_its_own_sequence(topic: str) -> None:
    with serving(brokerDeduplicationEnabled=True) as (_, client):
        consumer = client.subscribe(topic, "s")
        for name in ("ann", "bob"):
            client.create_producer(topic, producer_name=name).send(name.encode(), sequence_id=3)
        assert consume(consumer, 2) == [b"ann", b"bob"]


def test_a_reconnected_producer_receives_its_last_sequence_id(topic: str) -> None:
    with serving(brokerDeduplicationEnabled=True) as (_, client):
        producer = client.create_producer(topic, producer_name=NAME)
        assert producer.last_sequence_id() == -1
        for payload in numbered(3):
            producer.send(payload)
        assert producer.last_sequence_id() == 2
        producer.close()
        assert client.create_producer(topic, producer_name=NAME).last_sequence_id() == 2


def test_a_reconnected_producer_continues_its_sequence(topic: str) -> None:
    with serving(brokerDeduplicationEnabled=True) as (_, client):
        consumer = client.subscribe(topic, "s")
        for payload in numbered(3):
            producer = client.create_producer(topic, producer_name=NAME)
            producer.send(payload)
            producer.close()
        assert consume(consumer, 3) == numbered(3)


def test_the_initial_sequence_id_starts_the_sequence(topic: str) -> None:
    with serving(brokerDeduplicationEnabled=True) as (_, client):
        consumer = client.subscribe(topic, "s")
        first = client.create_producer(topic, producer_name=NAME, initial_sequence_id=10)
        first.send(b"as 11")
        assert first.last_sequence_id() == 11
        first.close()
        second = client.create_producer(topic, producer_name=NAME, initial_sequence_id=10)
        second.send(b"as 11 again")
        second.send(b"as 12")
        assert consume(consumer, 2) == [b"as 11", b"as 12"]
        assert nothing_comes(consumer)


def test_deduplication_survives_a_restart(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path, brokerDeduplicationEnabled=True) as (_, client):
        client.subscribe(topic, "s")
        producer = client.create_producer(topic, producer_name=NAME)
        for sequence_id in (1, 2):
            producer.send(str(sequence_id).encode(), sequence_id=sequence_id)
    with serving(tmp_path, brokerDeduplicationEnabled=True) as (_, client):
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, producer_name=NAME)
        assert producer.last_sequence_id() == 2
        for sequence_id in (1, 2, 3):
            producer.send(str(sequence_id).encode(), sequence_id=sequence_id)
        assert consume(consumer, 3) == [b"1", b"2", b"3"]
        assert nothing_comes(consumer)


def test_a_repeated_batch_is_dropped(topic: str) -> None:
    with serving(brokerDeduplicationEnabled=True) as (running, client):
        consumer = client.subscribe(topic, "s")
        for _ in range(2):
            producer = client.create_producer(
                topic,
                producer_name=NAME,
                initial_sequence_id=100,
                batching_enabled=True,
                batching_max_publish_delay_ms=1000,
            )
            send_batch(producer, numbered(5))
            assert producer.last_sequence_id() == 105
            producer.close()
        assert consume(consumer, 5) == numbered(5)
        assert nothing_comes(consumer)
        assert topic_in(running, topic).log.last == 0


def test_chunks_of_one_message_are_not_duplicates(topic: str) -> None:
    """All chunks carry the sequence id of the message."""
    payloads = [os.urandom(30_000) for _ in range(2)]
    with serving(brokerDeduplicationEnabled=True, maxMessageSize=10_000) as (_, client):
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, producer_name=NAME, chunking_enabled=True)
        for payload in payloads:
            producer.send(payload)
        assert consume(consumer, 2) == payloads


def test_a_repeated_chunked_message_is_dropped(topic: str) -> None:
    payloads = [os.urandom(30_000) for _ in range(2)]
    with serving(brokerDeduplicationEnabled=True, maxMessageSize=10_000) as (_, client):
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, producer_name=NAME, chunking_enabled=True)
        producer.send(payloads[0], sequence_id=1)
        producer.send(payloads[0], sequence_id=1)
        producer.send(payloads[1], sequence_id=2)
        assert consume(consumer, 2) == payloads
        assert nothing_comes(consumer)


def test_a_long_inactive_producer_is_forgotten(topic: str) -> None:
    settings = {"brokerDeduplicationEnabled": True, "brokerDeduplicationProducerInactivityTimeoutMinutes": 60}
    with serving(**settings) as (running, client):
        connected = client.create_producer(topic, producer_name="connected")
        connected.send(b"x")
        left = client.create_producer(topic, producer_name="left")
        left.send(b"x")
        left.close()
        running.advance(minutes=30)
        assert topic_in(running, topic).last_sequence_id("left") == 0
        running.advance(minutes=60)
        assert topic_in(running, topic).last_sequence_id("left") == -1
        assert topic_in(running, topic).last_sequence_id("connected") == 0

"""A terminated topic: no new messages, existing ones stay readable."""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest

from magnetar.testing import TestBroker
from tests.compat.stage import consume, nothing_comes, numbered, read, serving, topic_in


def terminate(running: TestBroker, topic: str) -> None:
    running.run(topic_in(running, topic).terminate)


def test_a_terminated_topic_rejects_messages(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"last")
    terminate(shared_broker, topic)
    with pytest.raises((pulsar.TopicTerminated, pulsar.AlreadyClosed)):
        producer.send(b"too late")
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer(topic)
    assert topic_in(shared_broker, topic).log.last == 0


def test_existing_messages_can_be_read(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for payload in numbered(5):
        producer.send(payload)
    terminate(shared_broker, topic)
    assert consume(consumer, 5) == numbered(5)
    assert nothing_comes(consumer)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read(reader, 5) == numbered(5)
    assert not reader.has_message_available()


def test_a_topic_stays_terminated_after_a_restart(tmp_path: Path, topic: str) -> None:
    with serving(tmp_path) as (running, client):
        client.create_producer(topic).send(b"last")
        terminate(running, topic)
    with serving(tmp_path) as (_, client):
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer(topic)
        assert read(client.create_reader(topic, pulsar.MessageId.earliest), 1) == [b"last"]

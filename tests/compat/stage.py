"""Shared parts of the tests with an official client: a broker with a client, and short forms of send and receive."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pulsar

from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.names import TopicName
from magnetar.testing import TestBroker, broker

PATIENCE_MS = 10_000  # for messages that must arrive: only a failing test waits that long
SILENCE_MS = 150  # for messages that must not arrive


def connect(running: TestBroker, timeout_s: int = 5) -> pulsar.Client:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(running.service_url, operation_timeout_seconds=timeout_s, logger=logger)


@contextlib.contextmanager
def serving(
    data: Path | None = None, *, timeout_s: int = 5, **settings: object
) -> Iterator[tuple[TestBroker, pulsar.Client]]:
    """A broker for one test, and a client that is closed before it."""
    with broker(data, **settings) as running, contextlib.closing(connect(running, timeout_s)) as client:
        yield running, client


def numbered(count: int, prefix: str = "m") -> list[bytes]:
    return [f"{prefix}{index}".encode() for index in range(count)]


def send_batch(producer: pulsar.Producer, payloads: Iterable[bytes], **options: object) -> list[pulsar.MessageId]:
    """Sends without waiting, so that a batching producer sends one batch; returns the message ids."""
    results: list[tuple[pulsar.Result, pulsar.MessageId]] = []
    for payload in payloads:
        producer.send_async(payload, lambda result, message_id: results.append((result, message_id)), **options)
    producer.flush()
    eventually(lambda: len(results) == len(list(payloads)))
    assert all(result == pulsar.Result.Ok for result, _ in results), results
    return [message_id for _, message_id in results]


def take(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    """The next `count` messages, unacknowledged."""
    return [consumer.receive(PATIENCE_MS) for _ in range(count)]


def consume(consumer: pulsar.Consumer, count: int) -> list[bytes]:
    """The payloads of the next `count` messages, acknowledged."""
    payloads = []
    for message in take(consumer, count):
        consumer.acknowledge(message)
        payloads.append(message.data())
    return payloads


def data_of(messages: Iterable[pulsar.Message]) -> list[bytes]:
    return [message.data() for message in messages]


def nothing_comes(consumer: pulsar.Consumer | pulsar.Reader) -> bool:
    receive = consumer.read_next if isinstance(consumer, pulsar.Reader) else consumer.receive
    try:
        receive(SILENCE_MS)
    except pulsar.Timeout:
        return True
    return False


def read(reader: pulsar.Reader, count: int) -> list[bytes]:
    return [reader.read_next(PATIENCE_MS).data() for _ in range(count)]


def take_all(consumers: Iterable[pulsar.Consumer]) -> list[list[pulsar.Message]]:
    """Messages of each consumer until none arrives any more, unacknowledged."""
    taken: list[list[pulsar.Message]] = []
    for consumer in consumers:
        taken.append([])
        with contextlib.suppress(pulsar.Timeout):
            while True:
                taken[-1].append(consumer.receive(SILENCE_MS))
    return taken


def eventually(holds: Callable[[], bool]) -> None:
    """Waits for a condition that follows a message already sent."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not holds():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.002)


def topic_in(running: TestBroker, name: str) -> PersistentTopic:
    """The broker's view of a topic."""
    topic = running.run(lambda: running.server.broker.topic(TopicName.parse(name)))
    assert isinstance(topic, PersistentTopic)
    return topic


def backlog(running: TestBroker, topic: str, subscription: str) -> int:
    """Unacknowledged entries of the subscription, after pending acks."""
    cursor = topic_in(running, topic).subscriptions[subscription]
    return running.run(lambda: cursor.backlog)  # type: ignore[attr-defined]

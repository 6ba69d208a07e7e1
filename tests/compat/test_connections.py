"""Connections: effects of a loss, isolation of two brokers, and lookup over HTTP."""

from __future__ import annotations

import contextlib
import socket

import pulsar
import pytest

from magnetar.testing import TestBroker, broker
from tests.compat.stage import PATIENCE_MS, connect, consume, eventually, nothing_comes, numbered, serving


def cut(running: TestBroker) -> None:
    """Closes all connections, like a network failure."""
    running.run(lambda: [connection.close() for connection in list(running.server.connections)])


def test_a_producer_reconnects_with_its_name(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    name = producer.producer_name()
    consumer = client.subscribe(topic, "s")
    producer.send(b"before")
    cut(shared_broker)
    producer.send(b"after")
    assert producer.producer_name() == name
    assert set(consume(consumer, 2)) >= {b"after"}


def test_an_exclusive_producer_reconnects_as_itself(
    shared_broker: TestBroker, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    cut(shared_broker)
    producer.send(b"still mine")
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)


def test_a_reader_reconnects_at_its_position(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    for payload in numbered(10):
        producer.send(payload)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=2)
    got = [reader.read_next(PATIENCE_MS).data() for _ in range(4)]
    cut(shared_broker)
    got += [reader.read_next(PATIENCE_MS).data() for _ in range(6)]
    assert got == numbered(10)


def test_a_waiting_consumer_reconnects(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    cut(shared_broker)
    eventually(consumer.is_connected)
    client.create_producer(topic).send(b"x")
    assert consume(consumer, 1) == [b"x"]


def test_two_brokers_share_nothing(topic: str) -> None:
    with serving() as (first, client), serving() as (second, other):
        assert first.service_url != second.service_url
        consumer, listener = client.subscribe(topic, "s"), other.subscribe(topic, "s")
        client.create_producer(topic).send(b"here only")
        assert consume(consumer, 1) == [b"here only"]
        assert nothing_comes(listener)
        first.advance(hours=1)
        assert first.clock.now_ms() - second.clock.now_ms() > 3_000_000


def test_the_service_url_may_be_an_http_address(shared_broker: TestBroker, topic: str) -> None:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with contextlib.closing(pulsar.Client(shared_broker.http_url, logger=logger)) as client:
        consumer = client.subscribe(topic, "s")
        client.create_producer(topic).send(b"x")
        assert consume(consumer, 1) == [b"x"]


def test_small_responses_are_not_delayed(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    """Without TCP_NODELAY a message that follows a receipt waits for the client's delayed acknowledgement, 40 ms."""
    client.create_producer(topic)

    def options() -> list[int]:
        sockets = [connection._transport.get_extra_info("socket") for connection in shared_broker.server.connections]
        return [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in sockets]

    found = shared_broker.run(options)
    assert found
    assert all(found)


def test_without_a_keep_alive_interval_no_client_is_disconnected(topic: str) -> None:
    with serving(keepAliveIntervalSeconds=0) as (running, client):
        consumer = client.subscribe(topic, "s")
        before = running.run(lambda: set(running.server.connections))
        assert len(before) == 1
        assert nothing_comes(consumer)
        assert running.run(lambda: set(running.server.connections)) == before


def test_a_stopping_broker_notifies_its_clients(topic: str) -> None:
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(broker())
        client = connect(running, timeout_s=1)
        producer = client.create_producer(topic, send_timeout_millis=200)
        stack.close()
        with pytest.raises(pulsar.PulsarException):
            producer.send(b"nobody there")
        client.shutdown()

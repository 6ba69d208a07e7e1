"""Clients that do not read: they hold up themselves, and take a bounded amount of memory."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from magnetar.bounds import ANSWERS, OUTBOX
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.server.tcp import Connection
from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame
from magnetar.wire.templates import SendEncoder

from .raw_client import Command, RawClient, send_frame

TOPIC = "persistent://public/default/unread"


@pytest.fixture
def server() -> Iterator[TestBroker]:
    with broker() as running:
        yield running
        RawClient.close_all()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def _deaf(server: TestBroker) -> tuple[RawClient, Connection]:
    """A client, and the broker's side of it; both sockets have small buffers."""
    before = server.run(lambda: set(server.server.connections))
    client = RawClient(server)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    (connection,) = server.run(lambda: set(server.server.connections)) - before
    transport = connection._transport
    assert transport is not None
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
    return client, connection


def _flood(client: RawClient, data: bytes) -> None:
    """Sends until there is no room any more."""
    client.socket.settimeout(1)
    sent = 0
    try:
        while sent < len(data):
            sent += client.socket.send(data[sent : sent + (1 << 16)])
    except TimeoutError:
        pass
    client.socket.settimeout(60)


def _ask_for_schemas(client: RawClient, count: int) -> int:
    """Requests with answers of 1 MB each; returns the size of one."""
    definition = b'{"type":"record","name":"R","doc":"%s","fields":[{"name":"a","type":"int"}]}' % (b"d" * 1_000_000)
    schema = pb.Schema(name="t", schema_data=definition, type=pb.Schema.Avro)
    request = pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=1, schema=schema)
    client.send_command(Command(type=Command.PRODUCER, producer=request))
    assert client.receive().type == Command.PRODUCER_SUCCESS
    asked = [pb.CommandGetSchema(topic=TOPIC, request_id=number) for number in range(count)]
    client.send_bytes(b"".join(encode_frame(Command(type=Command.GET_SCHEMA, getSchema=one)) for one in asked))
    return len(definition)


def test_fault_answers_not_read(server: TestBroker) -> None:
    """1,000 requests for a schema of 1 MB, 44 KB, took 1.3 GB."""
    client, connection = _deaf(server)
    size = _ask_for_schemas(client, 1000)
    wait_for(lambda: server.run(lambda: connection.unread_bytes) > OUTBOX.limit, "answers fill the outbox")
    # Others are served meanwhile.
    other = RawClient(server)
    other.produce_to(TOPIC + "-other")
    for number in range(50):
        assert client.receive().getSchemaResponse.request_id == number
        assert server.run(lambda: connection.unread_bytes) < OUTBOX.limit + ANSWERS.limit + 2 * size


def test_everything_goes_on_when_the_client_reads(server: TestBroker) -> None:
    client, connection = _deaf(server)
    _ask_for_schemas(client, 20)
    client.send_command(Command(type=Command.PING, ping=pb.CommandPing()))
    wait_for(lambda: server.run(lambda: connection.unread_bytes) > OUTBOX.limit, "answers fill the outbox")
    assert [client.receive().getSchemaResponse.request_id for _ in range(20)] == list(range(20))
    assert client.receive().type == Command.PONG
    client.send(0)
    assert client.receive().type == Command.SEND_RECEIPT


def test_bound_outbox_of_a_producer_that_does_not_read_its_receipts(server: TestBroker) -> None:
    client, connection = _deaf(server)
    client.produce_to(TOPIC)
    first = send_frame(0)
    blob = first[8 + int.from_bytes(first[4:8]) :]
    encode = SendEncoder(1).encode
    data = b"".join(encode(number, number, 1, blob) for number in range(200_000))
    _flood(client, data)
    wait_for(lambda: server.run(lambda: connection.unread_bytes) >= OUTBOX.limit, "receipts fill the outbox")
    wait_for(lambda: server.run(lambda: connection.is_held), "nothing more is read")
    assert server.run(lambda: connection.unread_bytes) < OUTBOX.limit + ANSWERS.limit
    topic = server.server.broker.topics[TOPIC]
    assert isinstance(topic, PersistentTopic)
    assert server.run(lambda: topic.log.last) < 199_999  # the rest is in buffers of the operating system
    client.close()


def test_a_client_that_reads_nothing_is_disconnected_by_keep_alive(server: TestBroker) -> None:
    client, connection = _deaf(server)
    _ask_for_schemas(client, 20)
    wait_for(lambda: server.run(lambda: connection.unread_bytes) > OUTBOX.limit, "answers fill the outbox")
    topic = server.server.broker.topics[TOPIC]

    def is_gone_after_a_check() -> bool:
        server.run(connection.keep_alive)
        return server.run(lambda: len(topic.producers)) == 0

    assert not is_gone_after_a_check()
    wait_for(is_gone_after_a_check, "a client without progress is disconnected")


def test_bound_closing(server: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that the broker closes ends, though its client has not read the last answers."""
    monkeypatch.setattr("magnetar.server.tcp._CLOSE_MAX_S", 0.05)
    client, connection = _deaf(server)
    _ask_for_schemas(client, 20)
    wait_for(lambda: server.run(lambda: connection.unread_bytes) > OUTBOX.limit, "answers fill the outbox")
    server.run(connection.close)
    wait_for(lambda: server.run(lambda: connection not in server.server.connections), "the connection ends")


def test_a_flood_of_commands_leaves_turns_to_others(server: TestBroker) -> None:
    """Their requests are answered before a flood that came first."""
    flooding, other = RawClient(server), RawClient(server)
    flooding.send_bytes(encode_frame(Command(type=Command.PING, ping=pb.CommandPing())) * 30_000)
    other.send_command(Command(type=Command.PING, ping=pb.CommandPing()))
    assert other.receive().type == Command.PONG
    for _ in range(30_000):
        assert flooding.receive().type == Command.PONG

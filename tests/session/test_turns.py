"""Turns: input of one connection is handled in pieces, and not at all while its client does not read the answers."""

from __future__ import annotations

import pytest

from magnetar.bounds import ANSWERS, FIRST_FRAME, TURN
from magnetar.session.handles import SessionState
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame
from tests.broker.world import World

from .talk import Command, Talk, send_frame

PING = encode_frame(Command(type=Command.PING, ping=pb.CommandPing()))


def _lookup(request_id: int, topic: str = "t") -> bytes:
    return encode_frame(
        Command(type=Command.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=topic, request_id=request_id))
    )


def _get_schema(request_id: int) -> bytes:
    return encode_frame(
        Command(type=Command.GET_SCHEMA, getSchema=pb.CommandGetSchema(topic="t", request_id=request_id))
    )


def _answered(talk: Talk) -> int:
    return len(talk.said())


def test_bound_commands_per_turn() -> None:
    talk = Talk(World())
    talk.session.receive(PING * 2500)
    assert _answered(talk) == TURN.limit
    assert talk.session.has_input
    talk.session.receive(b"")
    assert _answered(talk) == TURN.limit
    talk.session.receive(b"")
    assert _answered(talk) == 500
    assert not talk.session.has_input


def test_bound_commands_per_turn_that_take_longer() -> None:
    talk = Talk(World())
    talk.session.receive(b"".join(_lookup(number) for number in range(250)))
    replies = [command.lookupTopicResponse.request_id for command in talk.said()]
    assert replies == list(range(TURN.limit // 10))
    while talk.session.has_input:
        talk.session.receive(b"")
    assert [command.lookupTopicResponse.request_id for command in talk.said()] == list(range(100, 250))


def test_a_turn_takes_any_number_of_sends() -> None:
    world = World()
    talk = Talk(world)
    talk.produce()
    talk.session.receive(b"".join(send_frame(number) for number in range(3000)))
    assert not talk.session.has_input
    assert [command.send_receipt.sequence_id for command in talk.said()] == list(range(3000))


@pytest.mark.parametrize("size", [7, 1000, 100_000])
def test_turns_keep_the_order_of_everything(size: int) -> None:
    """SENDs with the next sequence id are not parsed: what waits must not lose count, wherever the data is cut."""
    world = World()
    talk = Talk(world)
    talk.produce()
    pieces = [send_frame(number) + (PING * 300 if number % 5 == 0 else b"") for number in range(50)]
    data = b"".join(pieces)
    said: list[Command] = []
    for start in range(0, len(data), size):
        talk.session.receive(data[start : start + size])
        said += talk.said()
    while talk.session.has_input:
        talk.session.receive(b"")
        said += talk.said()
    assert [one.send_receipt.sequence_id for one in said if one.type == Command.SEND_RECEIPT] == list(range(50))
    assert sum(one.type == Command.PONG for one in said) == 3000


def _with_schema(size: int = 400_000) -> Talk:
    """A client, and a schema whose answer has this size."""
    talk = Talk(World())
    definition = b'{"type":"record","name":"R","doc":"%s","fields":[{"name":"a","type":"string"}]}' % (b"d" * size)
    schema = pb.Schema(name="t", schema_data=definition, type=pb.Schema.Avro)
    assert talk.produce(schema=schema).HasField("producer_success")
    return talk


def test_bound_answers_not_read() -> None:
    talk = _with_schema()
    session = talk.session
    session.receive(b"".join(_get_schema(number) for number in range(90)))
    assert ANSWERS.limit < session.unread_bytes < ANSWERS.limit + 500_000
    assert session.has_input and not session.can_answer
    answers: list[int] = []
    while True:
        answers += [command.getSchemaResponse.request_id for command in talk.said()]
        assert session.can_answer
        if not session.has_input:
            break
        session.receive(b"")
        assert session.unread_bytes < ANSWERS.limit + 500_000
    assert answers == list(range(90))
    assert session.unread_bytes == 0


def test_bound_answers_not_read_that_wait_for_the_disk() -> None:
    talk = _with_schema()
    talk.world.topic("busy")
    assert not talk.world.broker.commits.idle
    session = talk.session
    session.receive(b"".join(_get_schema(number) for number in range(90)))
    assert not session.take_output()
    assert ANSWERS.limit < session.unread_bytes < ANSWERS.limit + 500_000
    assert session.has_input and not session.can_answer
    answers = [command.getSchemaResponse.request_id for command in talk.said()]
    while session.has_input:
        session.receive(b"")
        answers += [command.getSchemaResponse.request_id for command in talk.said()]
    assert answers == list(range(90))
    assert session.unread_bytes == 0


def test_bound_answers_not_read_by_a_full_socket() -> None:
    talk = Talk(World())
    talk.session.set_writable(False)
    talk.session.receive(PING * 50)
    assert _answered(talk) == 1
    assert talk.session.has_input
    talk.session.set_writable(True)
    talk.session.receive(b"")
    assert _answered(talk) == 49


def test_a_bad_frame_is_refused_after_the_good_ones_before_it() -> None:
    talk = Talk(World())
    talk.session.set_writable(False)
    talk.session.receive(PING * 5 + b"\x00\x00\x00\x0a\x00\x00\x00\x06garbage")
    assert talk.session.state is SessionState.CONNECTED
    talk.session.set_writable(True)
    talk.session.receive(b"")
    *pongs, error = talk.said()
    assert [command.type for command in pongs] == [Command.PONG] * 5
    assert error.type == Command.ERROR
    assert talk.session.state is SessionState.CLOSED
    assert not talk.session.has_input


def test_bound_first_frames() -> None:
    talk = Talk(World(), connect=False)
    connect = pb.CommandConnect(client_version="t", protocol_version=21, auth_data=b"a" * FIRST_FRAME.limit)
    talk.send(Command(type=Command.CONNECT, connect=connect))
    (error,) = talk.said()
    assert "exceeds the limit of 65536 bytes" in error.error.message
    assert talk.session.state is SessionState.CLOSED


def test_a_large_frame_may_follow_the_handshake_in_the_same_read() -> None:
    talk = Talk(World(), connect=False)
    connect = Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="t", protocol_version=21))
    schema = pb.Schema(name="t", schema_data=b" " * 100_000, type=pb.Schema.String)
    producer = pb.CommandProducer(topic="t", producer_id=1, request_id=1, schema=schema)
    talk.send(
        connect, Command(type=Command.PRODUCER, producer=producer), Command(type=Command.PING, ping=pb.CommandPing())
    )
    assert [command.type for command in talk.said()] == [Command.CONNECTED, Command.ERROR, Command.PONG]

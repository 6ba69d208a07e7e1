"""A session without a socket: keep-alive, bits of ack sets, and the protocol page."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from magnetar.bounds import CLOSED_PRODUCERS
from magnetar.session.handles import ClientAddress, SessionState, bits_of, words_of
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob
from tests.broker.world import World
from tests.session.talk import Talk
from tools.protocol_reference import protocol_page

Command = pb.BaseCommand


def conversation() -> tuple[Session, list[str]]:
    closed: list[str] = []
    session = Session(
        World().broker,
        ClientAddress("10.0.0.9:1234", "pulsar://here:6650", "http://here:8080"),
        lambda: None,
        lambda: closed.append("closed"),
    )
    connect = pb.CommandConnect(client_version="t", protocol_version=21)
    session.receive(encode_frame(Command(type=Command.CONNECT, connect=connect)))
    return session, closed


def said(session: Session) -> list[Command]:
    frames = FrameDecoder(1 << 20).receive_data(b"".join(session.take_output()))
    return [command for command, _ in frames]


def test_pm2_connected_announces_exactly_the_supported_features() -> None:
    session, _ = conversation()
    connected = said(session)[0].connected
    assert connected.protocol_version == 21
    assert connected.max_message_size == 5242880
    flags = {field.name for field, _ in connected.feature_flags.ListFields()}
    assert flags == {
        "supports_get_partitioned_metadata_without_auto_creation",
        "supports_repl_dedup_by_lid_and_eid",
    }


def test_bound_idle_connection_is_pinged_once_and_then_closed() -> None:
    session, closed = conversation()
    said(session)
    session.keep_alive()  # it sent something during the last interval
    assert said(session) == []
    session.keep_alive()
    assert [command.type for command in said(session)] == [Command.PING]
    session.keep_alive()
    assert closed == ["closed"]
    assert session.state is SessionState.CLOSED


def test_a_client_that_answers_stays_connected() -> None:
    session, closed = conversation()
    for _ in range(5):
        session.keep_alive()
        session.keep_alive()
        session.receive(encode_frame(Command(type=Command.PONG, pong=pb.CommandPong())))
    assert closed == []


def test_an_old_client_is_answered_in_its_protocol_version() -> None:
    session, _ = conversation()
    old = Session(session.broker, session.where, lambda: None, lambda: None)
    connect = pb.CommandConnect(client_version="old", protocol_version=8)
    old.receive(encode_frame(Command(type=Command.CONNECT, connect=connect)))
    assert said(old)[0].connected.protocol_version == 8


@given(st.integers(0, (1 << 200) - 1))
def test_ack_sets_are_words_of_64_bits(bits: int) -> None:
    words = words_of(bits)
    assert bits_of(words) == bits
    assert all(-(1 << 63) <= word < 1 << 63 for word in words)


def test_the_protocol_page_matches_the_table() -> None:
    assert Path("docs/protocol.md").read_text(encoding="utf-8") == protocol_page()


def test_the_receipt_of_a_dropped_duplicate_has_no_position() -> None:
    world = World(brokerDeduplicationEnabled=True)
    session = Session(world.broker, ClientAddress("10.0.0.9:1", "", ""), lambda: None, lambda: None)
    connect = pb.CommandConnect(client_version="t", protocol_version=21)
    session.receive(encode_frame(Command(type=Command.CONNECT, connect=connect)))
    producer = pb.CommandProducer(topic="t", producer_id=1, request_id=1, producer_name="p")
    session.receive(encode_frame(Command(type=Command.PRODUCER, producer=producer)))
    blob = build_blob(pb.MessageMetadata(producer_name="p", sequence_id=7, publish_time=1), b"x")
    send = encode_frame_with_blob(Command(type=Command.SEND, send=pb.CommandSend(producer_id=1, sequence_id=7)), blob)
    world.settle()
    said(session)
    session.receive(send + send)
    world.settle()
    first, second = [command.send_receipt.message_id for command in said(session)]
    nowhere = (1 << 64) - 1
    assert (first.ledgerId, first.entryId) == (world.topic().ledger_id, 0)
    assert (second.ledgerId, second.entryId) == (nowhere, nowhere)  # -1:-1, as in Apache Pulsar


def test_bound_closed_producers_are_forgotten() -> None:
    talk = Talk(World())
    for producer_id in range(CLOSED_PRODUCERS.limit + 1):
        talk.session.forget_producer(producer_id)
    assert len(talk.session._closed_producers) == CLOSED_PRODUCERS.limit
    talk.publish(producer_id=1)  # in flight when it was closed
    assert not talk.closed
    talk.publish(producer_id=0)
    assert talk.closed


def test_fault_client_that_vanishes_leaves_its_messages_to_others() -> None:
    world = World()
    first, second = Talk(world, "10.0.0.1:1"), Talk(world, "10.0.0.2:1")
    first.subscribe()
    world.publish(3)
    assert [command.type for command in first.said()].count(Command.MESSAGE) == 3
    second.subscribe()
    assert [command.type for command in second.said()].count(Command.MESSAGE) == 0
    first.session.keep_alive()
    first.session.keep_alive()  # pinged
    first.session.keep_alive()
    assert first.closed
    received = [command.message.message_id.entryId for command in second.said() if command.type == Command.MESSAGE]
    assert sorted(received) == [0, 1, 2]

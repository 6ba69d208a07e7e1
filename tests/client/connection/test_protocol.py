"""The protocol without sockets: bytes in, events out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.connection.protocol import (
    MESSAGE_SIZE_MAX,
    TABLE,
    Broken,
    Connected,
    ConsumerClosed,
    Delivery,
    EndReached,
    ErrorReply,
    Event,
    ProducerClosed,
    Protocol,
    ProtocolState,
    Receipt,
    Reply,
    SendError,
)
from magnetar.client.errors import (
    ConnectionLost,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    NotSupported,
    ProtocolBroken,
    TopicTerminated,
)
from magnetar.client.message import MessageId
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import PING, PONG, FrameDecoder, encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob

Command = pb.BaseCommand

CONNECTED = encode_frame(
    Command(
        type=Command.CONNECTED,
        connected=pb.CommandConnected(
            server_version="S",
            max_message_size=1234,
            feature_flags=pb.FeatureFlags(supports_get_partitioned_metadata_without_auto_creation=True),
        ),
    )
)
SUCCESS = encode_frame(Command(type=Command.SUCCESS, success=pb.CommandSuccess(request_id=7)))
BLOB = build_blob(pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"payload")
MESSAGE = encode_frame_with_blob(
    Command(
        type=Command.MESSAGE,
        message=pb.CommandMessage(
            consumer_id=3, message_id=pb.MessageIdData(ledgerId=1, entryId=2), redelivery_count=4, ack_set=[-1]
        ),
    ),
    BLOB,
)


def ready() -> Protocol:
    protocol = Protocol()
    protocol.connect()
    protocol.receive_data(CONNECTED)
    protocol.take_output()
    return protocol


def error(request_id: int, code: pb.ServerError.ValueType, text: str = "why") -> bytes:
    return encode_frame(
        Command(type=Command.ERROR, error=pb.CommandError(request_id=request_id, error=code, message=text))
    )


def said(protocol: Protocol) -> list[Command]:
    frames = FrameDecoder(1 << 20).receive_data(b"".join(protocol.take_output()))
    return [command for command, _ in frames if command is not None]


def test_the_handshake() -> None:
    protocol = Protocol()
    protocol.connect("broker:6650")
    [connect] = said(protocol)
    assert (connect.type, connect.connect.protocol_version) == (Command.CONNECT, 21)
    assert connect.connect.proxy_to_broker_url == "broker:6650"
    assert protocol.receive_data(CONNECTED) == [Connected("S", 1234, True)]
    assert protocol.state is ProtocolState.READY


def test_an_old_broker_announces_fewer_features() -> None:
    protocol = Protocol()
    protocol.connect()
    old = encode_frame(Command(type=Command.CONNECTED, connected=pb.CommandConnected(server_version="old")))
    assert protocol.receive_data(old) == [Connected("old", MESSAGE_SIZE_MAX, False)]


@pytest.mark.parametrize(
    ("code", "kind", "hint"),
    [
        (pb.AuthenticationError, NotAuthenticated, "; no credentials were given"),
        (pb.UnsupportedVersionError, NotSupported, ""),
    ],
)
def test_a_rejected_connection(code: pb.ServerError.ValueType, kind: type[Exception], hint: str) -> None:
    protocol = Protocol()
    protocol.connect()
    [event] = protocol.receive_data(error((1 << 64) - 1, code, "no token"))
    assert isinstance(event, Broken) and isinstance(event.error, kind)
    assert event.error.text == f"the broker refused the connection: no token{hint}"
    assert protocol.state is ProtocolState.CLOSED


def test_an_unexpected_challenge_is_rejected_clearly() -> None:
    protocol = ready()
    challenge = pb.CommandAuthChallenge(challenge=pb.AuthData(auth_method_name="sasl"))
    [event] = protocol.receive_data(encode_frame(Command(type=Command.AUTH_CHALLENGE, authChallenge=challenge)))
    assert isinstance(event, Broken) and isinstance(event.error, NotSupported)
    assert "'sasl'" in event.error.text


def command(kind: str, field: str, **fields: object) -> bytes:
    part = getattr(Command(), field).__class__(**fields)
    return encode_frame(Command(type=Command.Type.Value(kind), **{field: part}))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (command("CLOSE_PRODUCER", "close_producer", producer_id=5, request_id=1), ProducerClosed(5)),
        (command("CLOSE_CONSUMER", "close_consumer", consumer_id=6, request_id=1), ConsumerClosed(6)),
        (command("REACHED_END_OF_TOPIC", "reachedEndOfTopic", consumer_id=6), EndReached(6)),
        (
            command(
                "SEND_RECEIPT",
                "send_receipt",
                producer_id=1,
                sequence_id=9,
                message_id=pb.MessageIdData(ledgerId=4, entryId=5),
            ),
            Receipt(1, 9, MessageId(4, 5)),
        ),
        (command("SEND_RECEIPT", "send_receipt", producer_id=1, sequence_id=9), Receipt(1, 9, MessageId(-1, -1))),
    ],
)
def test_events(data: bytes, expected: Event) -> None:
    assert ready().receive_data(data) == [expected]


def test_a_message_arrives_as_stored() -> None:
    [event] = ready().receive_data(MESSAGE)
    assert isinstance(event, Delivery)
    assert event == Delivery(3, 1, 2, 4, (-1,), [BLOB])


@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(120, 140), st.sampled_from([0, 0, 0, 1])),
        max_size=30,
    ),
    st.integers(1, 400),
)
def test_consecutive_entries_arrive_together_and_are_distinguished(
    sent: list[tuple[int, int, int, int]], size: int
) -> None:
    data, expected = b"", []
    for consumer_id, ledger_id, first, redelivery_count in sent:
        for entry_id in range(first, first + 5):  # including the number where ids get a byte longer
            blob = b"%d" % len(expected)
            message = pb.CommandMessage(
                consumer_id=consumer_id,
                message_id=pb.MessageIdData(ledgerId=ledger_id, entryId=entry_id, partition=-1),
                redelivery_count=redelivery_count,
            )
            data += encode_frame_with_blob(pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=message), blob)
            expected.append((consumer_id, ledger_id, entry_id, redelivery_count, blob))
            if entry_id == first + 2:
                data += SUCCESS
    protocol = ready()
    events = [
        event for start in range(0, len(data), size) for event in protocol.receive_data(data[start : start + size])
    ]
    assert expected == [
        (event.consumer_id, event.ledger_id, entry_id, event.redelivery_count, blob)
        for event in events
        if isinstance(event, Delivery)
        for entry_id, blob in enumerate(event.blobs, event.entry_id)
    ]


def test_a_similar_frame_is_parsed_completely() -> None:
    """The fields of the message id are in another order, and the bytes of an entry id occur twice."""

    def frame(entry_id: int) -> bytes:
        message_id = b"\x10" + bytes([entry_id]) + b"\x08\x01"  # entry before ledger
        message = b"\x08\x03\x12" + bytes([len(message_id)]) + message_id
        body = b"\x08\x09\x4a" + bytes([len(message)]) + message
        return (len(body) + 4 + 1).to_bytes(4) + len(body).to_bytes(4) + body + b"x"

    protocol = ready()
    events = protocol.receive_data(b"".join(frame(entry_id) for entry_id in (1, 1, 2, 3, 8, 16)))
    assert [event.entry_id for event in events if isinstance(event, Delivery)] == [1, 1, 2, 3, 8, 16]


def test_responses_and_errors_carry_their_request() -> None:
    protocol = ready()
    [reply, refusal] = protocol.receive_data(SUCCESS + error(8, pb.TopicNotFound))
    assert isinstance(reply, Reply) and reply.request_id == 7
    assert isinstance(refusal, ErrorReply) and refusal.request_id == 8
    assert isinstance(refusal.error, NotFound)
    assert (refusal.error.code, refusal.error.text) == (pb.TopicNotFound, "why")


def test_a_rejected_send() -> None:
    data = command("SEND_ERROR", "send_error", producer_id=1, sequence_id=2, error=pb.TopicTerminatedError, message="")
    [event] = ready().receive_data(data)
    assert isinstance(event, SendError) and isinstance(event.error, TopicTerminated)
    assert event.error.text == "TopicTerminatedError"


def test_an_error_without_a_request_closes_the_connection() -> None:
    [event] = ready().receive_data(error((1 << 64) - 1, pb.NotAllowedError, "producer 1 does not exist"))
    assert isinstance(event, Broken) and isinstance(event.error, NotAllowed)
    assert event.error.text == "the broker ended the connection: producer 1 does not exist"


def test_a_producer_waiting_for_exclusive_access_is_not_ready_yet() -> None:
    protocol = ready()
    waiting = pb.CommandProducerSuccess(request_id=1, producer_name="p", producer_ready=False)
    assert protocol.receive_data(encode_frame(Command(type=Command.PRODUCER_SUCCESS, producer_success=waiting))) == []
    waiting.producer_ready = True
    [event] = protocol.receive_data(encode_frame(Command(type=Command.PRODUCER_SUCCESS, producer_success=waiting)))
    assert isinstance(event, Reply)


def test_a_ping_is_answered() -> None:
    protocol = ready()
    assert protocol.receive_data(PING) == []
    assert protocol.take_output() == [PONG]


def test_a_silent_broker_is_pinged_once_and_then_disconnected() -> None:
    protocol = ready()
    assert protocol.keep_alive() is None and protocol.take_output() == []
    assert protocol.keep_alive() is None and protocol.take_output() == [PING]
    broken = protocol.keep_alive()
    assert broken is not None and isinstance(broken.error, ConnectionLost)
    assert not isinstance(broken.error, ProtocolBroken)


def test_a_broker_that_answers_stays_connected() -> None:
    protocol = ready()
    for _ in range(10):
        assert protocol.keep_alive() is None
        protocol.receive_data(PONG)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "this is an HTTP port"),
        (b"\0\0\0\5\0\0\0\5\xff\xff\xff\xff\xff", "exceeds its frame"),
        (b"\0\0\0\6\0\0\0\2\xff\xff", "not a protobuf BaseCommand"),
        (command("CONNECTED", "connected", server_version="again"), "CONNECTED is unexpected in state ready"),
        (
            command("MESSAGE", "message", consumer_id=1, message_id=pb.MessageIdData(ledgerId=1, entryId=2)),
            "MESSAGE has no payload",
        ),
    ],
)
def test_malformed_input_closes_the_connection(data: bytes, text: str) -> None:
    protocol = ready()
    [answer, event] = protocol.receive_data(SUCCESS + data + SUCCESS)
    assert isinstance(answer, Reply)
    assert isinstance(event, Broken) and isinstance(event.error, ProtocolBroken)
    assert text in event.error.text
    assert protocol.receive_data(SUCCESS) == []
    protocol.write(PING)
    assert protocol.take_output() == []


def test_commands_of_clients_are_rejected() -> None:
    send = command("SEND", "send", producer_id=1, sequence_id=1) + command("SEND", "send", producer_id=1, sequence_id=2)
    for data in (send, command("LOOKUP", "lookupTopic", topic="t", request_id=1)):
        [event] = ready().receive_data(data)
        assert isinstance(event, Broken)


@given(st.lists(st.integers(0, 200), max_size=8))
def test_any_chunk_size(cuts: list[int]) -> None:
    data = CONNECTED + SUCCESS + PING + MESSAGE + SUCCESS
    whole = Protocol()
    whole.connect()
    expected = whole.receive_data(data)
    assert [type(event) for event in expected] == [Connected, Reply, Delivery, Reply]
    pieces = Protocol()
    pieces.connect()
    events: list[Event] = []
    start = 0
    for end in [*sorted(cuts), len(data)]:
        events += pieces.receive_data(data[start:end])
        start = max(start, end)
    assert events == expected


@given(st.binary(max_size=200))
def test_any_bytes_are_handled(data: bytes) -> None:
    protocol = ready()
    protocol.receive_data(data)


def test_the_table_has_every_state() -> None:
    assert set(TABLE) == set(ProtocolState)

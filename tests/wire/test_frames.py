"""Frames: whole, in pieces, with trailing bytes, and broken."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.frames import (
    PING,
    PONG,
    Frame,
    FrameDecoder,
    encode_frame,
    encode_frame_with_blob,
)
from magnetar.wire.schema_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandFlow,
    CommandSend,
    CommandSubscribe,
    CommandSuccess,
)

FRAME_SIZE_MAX = 10_000
JAVA_REQUEST_ID = 1_300_000_000_000_000_000

CONNECT = BaseCommand(
    type=BaseCommand.CONNECT, connect=CommandConnect(client_version="test client", protocol_version=21)
)
SEND = BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=1, sequence_id=2, num_messages=3))
FLOW = BaseCommand(type=BaseCommand.FLOW, flow=CommandFlow(consumer_id=7, messagePermits=1000))
SUCCESS = BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=JAVA_REQUEST_ID))
BLOB = b"\x0e\x01" + bytes(range(200))

CONVERSATION: list[Frame] = [(CONNECT, None), (SEND, BLOB), (FLOW, None), (SEND, b"\x0e\x02x"), (SUCCESS, None)]
CONVERSATION_BYTES = b"".join(
    encode_frame(command) if blob is None else encode_frame_with_blob(command, blob) for command, blob in CONVERSATION
)


def decode_in_pieces(data: bytes, size: int, frame_size_max: int = FRAME_SIZE_MAX) -> tuple[list[Frame], FrameDecoder]:
    decoder = FrameDecoder(frame_size_max)
    frames: list[Frame] = []
    for start in range(0, len(data), size):
        frames += decoder.receive_data(data[start : start + size])
    return frames, decoder


def decode(data: bytes, frame_size_max: int = FRAME_SIZE_MAX) -> list[Frame]:
    frames, decoder = decode_in_pieces(data, max(len(data), 1), frame_size_max)
    assert decoder.error is None
    return frames


def frame_of(body: bytes, blob: bytes = b"") -> bytes:
    return (len(body) + 4 + len(blob)).to_bytes(4) + len(body).to_bytes(4) + body + blob


class TestDecoding:
    @pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 64, 100_000])
    def test_any_piece_size(self, size: int) -> None:
        frames, decoder = decode_in_pieces(CONVERSATION_BYTES, size)
        assert frames == CONVERSATION
        assert decoder.error is None

    @given(st.lists(st.integers(0, len(CONVERSATION_BYTES))))
    def test_any_cuts(self, cuts: list[int]) -> None:
        decoder = FrameDecoder(FRAME_SIZE_MAX)
        frames: list[Frame] = []
        edges = [0, *sorted(cuts), len(CONVERSATION_BYTES)]
        for start, end in pairwise(edges):
            frames += decoder.receive_data(CONVERSATION_BYTES[start:end])
        assert frames == CONVERSATION

    @pytest.mark.parametrize("kept", [1, 4, 7, 8, 9, 20])
    def test_trailing_bytes_wait_for_the_rest_of_their_frame(self, kept: int) -> None:
        decoder = FrameDecoder(FRAME_SIZE_MAX)
        second = encode_frame_with_blob(SEND, BLOB)
        assert decoder.receive_data(encode_frame(FLOW) + second[:kept]) == [(FLOW, None)]
        assert decoder.receive_data(second[kept:] + PING) == [(SEND, BLOB), *decode(PING)]

    def test_a_frame_is_returned_with_its_last_byte(self) -> None:
        data = encode_frame_with_blob(SEND, BLOB)
        decoder = FrameDecoder(FRAME_SIZE_MAX)
        assert decoder.receive_data(data[:-1]) == []
        assert decoder.receive_data(data[-1:]) == [(SEND, BLOB)]

    def test_a_large_frame_in_many_pieces(self) -> None:
        blob = bytes(5_000_000)
        frames, _ = decode_in_pieces(encode_frame_with_blob(SEND, blob) + PONG, 65_536, 6_000_000)
        assert [(command.type, blob) for command, blob in frames] == [
            (BaseCommand.SEND, blob),
            (BaseCommand.PONG, None),
        ]

    def test_an_empty_read_changes_nothing(self) -> None:
        decoder = FrameDecoder(FRAME_SIZE_MAX)
        assert decoder.receive_data(b"") == []
        assert decoder.receive_data(PING[:5]) == []
        assert decoder.receive_data(b"") == []
        assert decoder.receive_data(PING[5:]) == decode(PING)

    def test_a_blob_is_its_own_bytes_object(self) -> None:
        ((_, blob),) = decode(encode_frame_with_blob(SEND, BLOB))
        assert type(blob) is bytes

    def test_the_largest_frame_allowed(self) -> None:
        data = encode_frame_with_blob(SEND, BLOB)
        assert decode(data, len(data) - 4) == [(SEND, BLOB)]


def connect_without_client_version() -> bytes:
    return BaseCommand(type=BaseCommand.CONNECT, connect=CommandConnect()).SerializePartialToString()


def subscribe_without_consumer_id() -> bytes:
    subscribe = CommandSubscribe(topic="t", subscription="s", subType=CommandSubscribe.Shared, request_id=1)
    return BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe).SerializePartialToString()


BAD_FRAMES = [
    pytest.param(
        b"\x00\x00\x27\x11\x00\x00\x00\x04", "frame of 10001 bytes exceeds the limit of 10000", id="too large"
    ),
    pytest.param(b"GET / HTTP/1.1\r\n", "the request is HTTP: this is a port of", id="HTTP request"),
    pytest.param(b"DELETE /x HTTP/1.1\r\n", "the request is HTTP", id="HTTP request of another method"),
    pytest.param(b"HTTP/1.1 400 Bad Request\r\n", "the reply is HTTP: this is an HTTP port", id="HTTP response"),
    pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "frame of 1397966893 bytes exceeds", id="another protocol"),
    pytest.param(b"\x00\x00\x00\x08\x00\x00\x00\x05", "command of 5 bytes exceeds its frame of 8", id="command size"),
    pytest.param(b"\x00\x00\x00\x08\xff\xff\xff\xff", "command of 4294967295 bytes exceeds", id="command size max"),
    pytest.param(b"\x00\x00\x00\x03\x00\x00\x00\x00", "frame of 3 bytes is below the 4 bytes", id="below 4"),
    pytest.param(bytes(8), "frame of 0 bytes is below the 4 bytes", id="zeros"),
    pytest.param(frame_of(b"\xff\xff"), "command of 2 bytes is not a protobuf", id="not protobuf"),
    pytest.param(frame_of(b""), "no type", id="empty command"),
    pytest.param(frame_of(b"\x12\x00"), "no type", id="command without a type"),
    pytest.param(frame_of(b"\x08\x46"), "no type, or an unknown one", id="scalable topic lookup"),
    pytest.param(frame_of(b"\x08\x04"), "type SUBSCRIBE has no subscribe", id="type without its command"),
    pytest.param(frame_of(connect_without_client_version()), "CONNECT lacks connect.client_version", id="required"),
    pytest.param(frame_of(subscribe_without_consumer_id()), "SUBSCRIBE lacks subscribe.consumer_id", id="required id"),
]


class TestBadFrames:
    @pytest.mark.parametrize(("data", "message"), BAD_FRAMES)
    @pytest.mark.parametrize("size", [1, 5, 100_000])
    def test_names_what_is_wrong(self, data: bytes, message: str, size: int) -> None:
        frames, decoder = decode_in_pieces(data, size)
        assert frames == []
        assert message in str(decoder.error)

    @pytest.mark.parametrize(("data", "_message"), BAD_FRAMES)
    def test_frames_before_it_are_good_and_data_after_it_is_ignored(self, data: bytes, _message: str) -> None:
        decoder = FrameDecoder(FRAME_SIZE_MAX)
        assert decoder.receive_data(CONVERSATION_BYTES + data + PING) == CONVERSATION
        error = decoder.error
        assert error is not None
        assert decoder.receive_data(CONVERSATION_BYTES) == []
        assert decoder.error is error

    def test_a_frame_that_is_too_large_is_refused_before_it_has_arrived(self) -> None:
        decoder = FrameDecoder(FRAME_SIZE_MAX)
        decoder.receive_data(encode_frame_with_blob(SEND, bytes(FRAME_SIZE_MAX))[:8])
        assert decoder.error is not None

    @pytest.mark.parametrize("command_type", [BaseCommand.PING, BaseCommand.PONG])
    def test_a_ping_needs_no_content(self, command_type: BaseCommand.Type.ValueType) -> None:
        ((command, blob),) = decode(frame_of(bytes((0x08, command_type))))
        assert (command.type, blob) == (command_type, None)

    @given(st.binary(max_size=200), st.integers(1, 20))
    def test_garbage_raises_nothing(self, data: bytes, size: int) -> None:
        decode_in_pieces(data, size)

    @given(st.binary(max_size=60), st.binary(max_size=20))
    def test_garbage_in_a_frame_raises_nothing(self, body: bytes, blob: bytes) -> None:
        frames, decoder = decode_in_pieces(frame_of(body, blob), 1000)
        assert len(frames) == (decoder.error is None)

    @given(st.binary(max_size=200), st.integers(1, 20))
    def test_garbage_means_the_same_in_pieces(self, data: bytes, size: int) -> None:
        whole_frames, whole = decode_in_pieces(data, 1000)
        frames, decoder = decode_in_pieces(data, size)
        assert frames == whole_frames
        assert str(decoder.error) == str(whole.error)


class TestEncoding:
    @pytest.mark.parametrize("command", [CONNECT, SEND, FLOW, SUCCESS])
    def test_what_is_encoded_is_decoded(self, command: BaseCommand) -> None:
        assert decode(encode_frame(command)) == [(command, None)]
        assert decode(encode_frame_with_blob(command, BLOB)) == [(command, BLOB)]

    def test_ping_and_pong(self) -> None:
        commands = [command for command, _ in decode(PING + PONG)]
        assert [command.type for command in commands] == [BaseCommand.PING, BaseCommand.PONG]
        assert commands[0].HasField("ping")
        assert commands[1].HasField("pong")


def plain_send(producer_id: int, sequence_id: int) -> BaseCommand:
    return BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=producer_id, sequence_id=sequence_id))


class TestRepeatedSend:
    """A SEND that differs from the one before by the next sequence id only is returned as no command."""

    @staticmethod
    def shapes(*sends: BaseCommand) -> list[bool]:
        """Which of them were parsed."""
        frames = decode(b"".join(encode_frame_with_blob(send, BLOB) for send in sends))
        assert [blob for _, blob in frames] == [BLOB] * len(sends)
        assert all(command in (None, send) for (command, _), send in zip(frames, sends, strict=True))
        return [command is not None for command, _ in frames]

    def test_from_the_third_of_a_producer_on(self) -> None:
        assert self.shapes(*(plain_send(7, n) for n in range(5))) == [True, True, False, False, False]

    @pytest.mark.parametrize("edge", [128, 1 << 14, 1 << 28, 1 << 35])
    def test_where_the_sequence_id_gets_longer_it_is_parsed(self, edge: int) -> None:
        first = edge - 3
        shapes = self.shapes(*(plain_send(1, first + n) for n in range(6)))
        assert shapes == [True, True, False, True, False, False]

    def test_a_gap_or_a_step_back_is_parsed(self) -> None:
        assert self.shapes(*(plain_send(1, n) for n in (0, 1, 3, 4, 2, 3))) == [True, True, True, False, True, False]

    def test_interleaved_producers_are_parsed(self) -> None:
        assert all(self.shapes(*(plain_send(n % 2, n // 2) for n in range(10))))

    def test_with_another_field_it_is_parsed(self) -> None:
        chunk = plain_send(1, 2)
        chunk.send.is_chunk = True
        assert self.shapes(plain_send(1, 0), plain_send(1, 1), chunk, plain_send(1, 3)) == [True] * 4

    def test_other_commands_in_between_are_allowed(self) -> None:
        first = encode_frame_with_blob(plain_send(1, 0), BLOB) + encode_frame_with_blob(plain_send(1, 1), BLOB)
        frames = decode(first + encode_frame(FLOW) + encode_frame_with_blob(plain_send(1, 2), b""))
        assert frames[2:] == [(FLOW, None), (None, None)]

    def test_the_largest_sequence_ids_are_parsed(self) -> None:
        assert all(self.shapes(plain_send(1, 2**64 - 3), plain_send(1, 2**64 - 2), plain_send(1, 2**64 - 1)))

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
    MessageEncoder,
    SendEncoder,
    SendReceiptEncoder,
    encode_frame,
    encode_frame_with_blob,
    encode_send_receipt,
    encode_varint,
)
from magnetar.wire.schema_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandFlow,
    CommandMessage,
    CommandSend,
    CommandSendReceipt,
    CommandSubscribe,
    CommandSuccess,
    MessageIdData,
)

FRAME_SIZE_MAX = 10_000
UINT64_MAX = (1 << 64) - 1
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

uint64s = st.integers(0, UINT64_MAX)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
# Numbers at the edges of their encodings come up too rarely by chance.
ids = st.one_of(uint64s, st.sampled_from([1 << bits for bits in range(64)] + [(1 << bits) - 1 for bits in range(65)]))


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
    def test_the_pieces_do_not_matter(self, size: int) -> None:
        frames, decoder = decode_in_pieces(CONVERSATION_BYTES, size)
        assert frames == CONVERSATION
        assert decoder.error is None

    @given(st.lists(st.integers(0, len(CONVERSATION_BYTES))))
    def test_no_cut_matters(self, cuts: list[int]) -> None:
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

    def test_a_frame_is_given_out_with_its_last_byte(self) -> None:
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

    def test_a_blob_is_bytes_of_its_own(self) -> None:
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
    pytest.param(b"GET / HTTP/1.1\r\n", "frame of 1195725856 bytes exceeds", id="another protocol"),
    pytest.param(b"\x00\x00\x00\x08\x00\x00\x00\x05", "command of 5 bytes exceeds its frame of 8", id="command size"),
    pytest.param(b"\x00\x00\x00\x08\xff\xff\xff\xff", "command of 4294967295 bytes exceeds", id="command size max"),
    pytest.param(b"\x00\x00\x00\x03\x00\x00\x00\x00", "frame of 3 bytes is below the 4 bytes", id="below 4"),
    pytest.param(bytes(8), "frame of 0 bytes is below the 4 bytes", id="zeros"),
    pytest.param(frame_of(b"\xff\xff"), "command of 2 bytes is not a protobuf", id="not protobuf"),
    pytest.param(frame_of(b""), "no type", id="empty command"),
    pytest.param(frame_of(b"\x12\x00"), "no type", id="command without a type"),
    pytest.param(frame_of(b"\x08\x46"), "no type or one that is unknown", id="scalable topic lookup"),
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

    @given(ids)
    def test_varints_are_those_of_protobuf(self, value: int) -> None:
        expected = CommandSuccess(request_id=value).SerializeToString()
        assert b"\x08" + encode_varint(value) == expected

    def test_every_varint_of_one_and_two_bytes_and_the_edges_of_the_others(self) -> None:
        edges = [(1 << bits) - difference for bits in range(14, 64) for difference in (1, 0)]
        for value in (*range(1 << 14), *edges):
            assert b"\x08" + encode_varint(value) == CommandSuccess(request_id=value).SerializeToString()

    def test_minus_one_is_the_largest_number(self) -> None:
        assert encode_varint(-1) == encode_varint(UINT64_MAX) == b"\xff" * 9 + b"\x01"

    @pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1])
    def test_a_number_beyond_64_bits_is_refused(self, value: int) -> None:
        with pytest.raises(OverflowError, match="64 bits"):
            encode_varint(value)


class TestSendReceipts:
    @given(ids, ids, ids, ids, ids)
    def test_are_those_of_protobuf(self, producer: int, sequence: int, highest: int, ledger: int, entry: int) -> None:
        receipt = CommandSendReceipt(
            producer_id=producer,
            sequence_id=sequence,
            highest_sequence_id=highest,
            message_id=MessageIdData(ledgerId=ledger, entryId=entry),
        )
        expected = encode_frame(BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=receipt))
        assert encode_send_receipt(producer, sequence, highest, ledger, entry) == expected
        assert SendReceiptEncoder(producer, ledger).encode(sequence, highest, entry) == expected

    def test_minus_one(self) -> None:
        ((command, _),) = decode(encode_send_receipt(1, -1, -1, -1, -1))
        receipt = command.send_receipt
        assert receipt.sequence_id == receipt.highest_sequence_id == receipt.message_id.entryId == UINT64_MAX


class TestMessages:
    @given(
        consumer=ids,
        ledger=ids,
        entry=ids,
        partition=st.integers(-1, (1 << 31) - 1),
        redelivery_count=st.integers(0, (1 << 32) - 1),
        ack_set=st.none() | st.lists(int64s, max_size=40),
        consumer_epoch=st.none() | uint64s,
        blob=st.binary(max_size=100),
    )
    def test_are_those_of_protobuf(
        self,
        consumer: int,
        ledger: int,
        entry: int,
        partition: int,
        redelivery_count: int,
        ack_set: list[int] | None,
        consumer_epoch: int | None,
        blob: bytes,
    ) -> None:
        message = CommandMessage(
            consumer_id=consumer, message_id=MessageIdData(ledgerId=ledger, entryId=entry), ack_set=ack_set or ()
        )
        if partition != -1:
            message.message_id.partition = partition
        if redelivery_count:
            message.redelivery_count = redelivery_count
        if consumer_epoch is not None:
            message.consumer_epoch = consumer_epoch
        expected = encode_frame_with_blob(BaseCommand(type=BaseCommand.MESSAGE, message=message), blob)
        special = (redelivery_count, ack_set, blob, consumer_epoch)
        assert MessageEncoder(consumer, ledger, partition).encode(entry, *special) == expected

    @given(ids, ids, ids, st.integers(-1, 100), st.binary(max_size=100))
    def test_first_deliveries(self, consumer: int, ledger: int, entry: int, partition: int, blob: bytes) -> None:
        ((command, decoded),) = decode(MessageEncoder(consumer, ledger, partition).encode(entry, 0, None, blob))
        message = command.message
        assert (message.consumer_id, message.message_id.ledgerId, message.message_id.entryId) == (
            consumer,
            ledger,
            entry,
        )
        assert message.message_id.partition == partition
        assert decoded == (blob or None)

    def test_ack_set_words_may_be_signed_or_not(self) -> None:
        encoder = MessageEncoder(1, 2)
        assert encoder.encode(3, 0, [-1], BLOB) == encoder.encode(3, 0, [UINT64_MAX], BLOB)
        ((command, _),) = decode(encoder.encode(3, 0, [-1], BLOB))
        assert list(command.message.ack_set) == [-1]

    def test_an_epoch_of_zero_is_sent(self) -> None:
        ((command, _),) = decode(MessageEncoder(1, 2).encode(3, 0, None, BLOB, 0))
        assert command.message.HasField("consumer_epoch")


class TestSends:
    @given(ids, ids, ids, st.integers(1, (1 << 31) - 1), st.binary(max_size=100))
    def test_are_those_of_protobuf(
        self, producer: int, sequence: int, highest: int, messages: int, blob: bytes
    ) -> None:
        send = CommandSend(producer_id=producer, sequence_id=sequence)
        if messages != 1:
            send.num_messages = messages
        if highest != sequence:
            send.highest_sequence_id = highest
        expected = encode_frame_with_blob(BaseCommand(type=BaseCommand.SEND, send=send), blob)
        assert SendEncoder(producer).encode(sequence, highest, messages, blob) == expected


def plain_send(producer_id: int, sequence_id: int) -> BaseCommand:
    return BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=producer_id, sequence_id=sequence_id))


class TestRepeatedSend:
    """A SEND that differs from the one before by the next sequence id only is told as no command."""

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

    def test_producers_in_turn_are_parsed(self) -> None:
        assert all(self.shapes(*(plain_send(n % 2, n // 2) for n in range(10))))

    def test_with_another_field_it_is_parsed(self) -> None:
        chunk = plain_send(1, 2)
        chunk.send.is_chunk = True
        assert self.shapes(plain_send(1, 0), plain_send(1, 1), chunk, plain_send(1, 3)) == [True] * 4

    def test_other_commands_between_do_not_disturb(self) -> None:
        first = encode_frame_with_blob(plain_send(1, 0), BLOB) + encode_frame_with_blob(plain_send(1, 1), BLOB)
        frames = decode(first + encode_frame(FLOW) + encode_frame_with_blob(plain_send(1, 2), b""))
        assert frames[2:] == [(FLOW, None), (None, None)]

    def test_the_largest_sequence_ids_are_parsed(self) -> None:
        assert all(self.shapes(plain_send(1, 2**64 - 3), plain_send(1, 2**64 - 2), plain_send(1, 2**64 - 1)))

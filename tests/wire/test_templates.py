"""Commands from templates: the same bytes as protobuf's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.frames import Frame, FrameDecoder, encode_frame, encode_frame_with_blob
from magnetar.wire.schema_pb2 import BaseCommand, CommandMessage, CommandSend, CommandSendReceipt, MessageIdData
from magnetar.wire.templates import MessageEncoder, SendEncoder, SendReceiptEncoder, encode_send_receipt

UINT64_MAX = (1 << 64) - 1
BLOB = b"\x0e\x01" + bytes(range(200))

uint64s = st.integers(0, UINT64_MAX)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
# Numbers at the edges of their encodings come up too rarely by chance.
ids = st.one_of(uint64s, st.sampled_from([1 << bits for bits in range(64)] + [(1 << bits) - 1 for bits in range(65)]))


def decode(data: bytes) -> list[Frame]:
    decoder = FrameDecoder(10_000)
    frames = decoder.receive_data(data)
    assert decoder.error is None
    return frames


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

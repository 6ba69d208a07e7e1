"""Opening entries: chunks, partly acknowledged batches, and damaged bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.consume.entry import CHUNKED_OPEN_MAX, Entry, EntryDecoder
from magnetar.client.errors import UnreadableMessage
from magnetar.client.message import Message, MessageId
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.metadata import build_blob, messages_in


def metadata(**fields: object) -> pb.MessageMetadata:
    return pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=9, **fields)  # type: ignore[arg-type]


def entry(number: int, blob: bytes, ack_set: tuple[int, ...] = ()) -> Entry:
    return Entry("topic", MessageId(1, number), 2, ack_set, blob)


def chunk(number: int, uuid: str, chunk_id: int, count: int, payload: bytes, **fields: object) -> Entry:
    fields = {"uuid": uuid, "num_chunks_from_msg": count, "chunk_id": chunk_id, **fields}
    return entry(number, build_blob(metadata(**fields), payload))


def open_all(*entries: Entry) -> list[Message]:
    decoder = EntryDecoder()
    return [message for item in entries for message in decoder.decode(item)[0]]


def test_chunked_messages_of_several_producers_may_be_interleaved() -> None:
    messages = open_all(
        chunk(0, "a", 0, 2, b"a0"),
        chunk(1, "b", 0, 3, b"b0"),
        entry(2, build_blob(metadata(), b"whole")),
        chunk(3, "b", 1, 3, b"b1"),
        chunk(4, "a", 1, 2, b"a1"),
        chunk(5, "b", 2, 3, b"b2"),
    )
    assert [message.value for message in messages] == [b"whole", b"a0a1", b"b0b1b2"]
    assert messages[1].chunk_ids == (MessageId(1, 0), MessageId(1, 4))
    assert [message.redelivery_count for message in messages] == [2, 2, 2]


def test_chunks_are_decompressed_as_one() -> None:
    packed = compress(pb.ZSTD, b"x" * 1000)
    fields = {"compression": pb.ZSTD, "uncompressed_size": 1000}
    [message] = open_all(chunk(0, "a", 0, 2, packed[:5], **fields), chunk(1, "a", 1, 2, packed[5:], **fields))
    assert message.value == b"x" * 1000


def test_a_repeated_chunk_counts_once() -> None:
    messages = open_all(*(chunk(0, "a", number, 2, b"%d" % number) for number in (0, 0, 1)))
    assert [message.value for message in messages] == [b"01"]


def test_a_missing_chunk_is_reported() -> None:
    with pytest.raises(UnreadableMessage, match="chunk 1 of 3 of message 'a' is missing"):
        open_all(chunk(0, "a", 0, 3, b""), chunk(1, "a", 2, 3, b""))


def test_unfinished_chunked_messages_are_bounded() -> None:
    decoder = EntryDecoder()
    for number in range(CHUNKED_OPEN_MAX + 1):
        decoder.decode(chunk(number, str(number), 0, 2, b""))
    assert decoder.decode(chunk(999, "1", 1, 2, b""))[0]
    with pytest.raises(UnreadableMessage, match="the first were not read"):
        decoder.decode(chunk(999, "0", 1, 2, b""))


def batch(count: int) -> bytes:
    singles = [(pb.SingleMessageMetadata(payload_size=1, sequence_id=5 + n), b"%d" % n) for n in range(count)]
    return build_blob(metadata(num_messages_in_batch=count), build_batch(singles))


def test_acknowledged_messages_of_a_batch_are_left_out() -> None:
    messages, permits = EntryDecoder().decode(entry(0, batch(5), (0b10110,)))
    assert [message.value for message in messages] == [b"1", b"2", b"4"]
    assert [message.id.batch_index for message in messages] == [1, 2, 4]
    assert permits == 5 == messages_in(batch(5))


def test_words_of_an_ack_set_are_signed() -> None:
    messages, _ = EntryDecoder().decode(entry(0, batch(9), (-1,)))
    assert len(messages) == 9


def test_a_damaged_entry_is_reported() -> None:
    blob = bytearray(build_blob(metadata(), b"payload"))
    blob[-1] ^= 1
    with pytest.raises(UnreadableMessage, match=r"message 1:0:-1 of topic cannot be read: its checksum") as raised:
        EntryDecoder().decode(entry(0, bytes(blob)))
    assert (raised.value.topic, raised.value.message_id) == ("topic", MessageId(1, 0))
    assert messages_in(b"\x0e") == 1


@given(st.binary(max_size=100))
def test_any_entry_is_opened_or_reported(blob: bytes) -> None:
    decoder = EntryDecoder()
    for data in (blob, build_blob(metadata(num_messages_in_batch=3), blob), build_blob(metadata(compression=4), blob)):
        try:
            decoder.decode(entry(0, data))
        except UnreadableMessage as error:
            assert error.message_id == MessageId(1, 0)

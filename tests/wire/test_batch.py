"""Batches: built and split, in whole blobs, and with sizes and counts that do not add up."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.batch import build_batch, messages_of, split_batch
from magnetar.wire.compression import CompressionError, compress
from magnetar.wire.metadata import MetadataError, build_blob
from magnetar.wire.schema_pb2 import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    CompressionType,
    EncryptionKeys,
    MessageMetadata,
    SingleMessageMetadata,
)

SIZE_MAX = 100_000

messages = st.lists(
    st.tuples(
        st.builds(
            SingleMessageMetadata,
            partition_key=st.none() | st.text(max_size=10),
            event_time=st.none() | st.integers(0, (1 << 64) - 1),
            null_value=st.none() | st.booleans(),
        ),
        st.binary(max_size=50),
    ),
    max_size=10,
)
THREE = [
    (SingleMessageMetadata(partition_key="a"), b"first"),
    (SingleMessageMetadata(partition_key="b"), b""),
    (SingleMessageMetadata(partition_key="c"), b"third"),
]


def metadata_for(count: int | None, **fields: object) -> MessageMetadata:
    return MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=2,
        num_messages_in_batch=count,
        **fields,  # type: ignore[arg-type]
    )


def contents(
    pairs: list[tuple[SingleMessageMetadata, bytes]] | list[tuple[SingleMessageMetadata | None, bytes]],
) -> list[tuple[str | None, bytes]]:
    return [(single.partition_key if single else None, payload) for single, payload in pairs]


class TestBatch:
    @given(messages)
    def test_built_and_split(self, batch: list[tuple[SingleMessageMetadata, bytes]]) -> None:
        split = split_batch(metadata_for(len(batch)), build_batch(batch))
        assert [payload for _, payload in split] == [payload for _, payload in batch]
        for (single, payload), (original, _) in zip(split, batch, strict=True):
            assert single.payload_size == len(payload)
            single.ClearField("payload_size")
            assert single == original

    def test_the_layout_as_written_down(self) -> None:
        batch = build_batch([(SingleMessageMetadata(partition_key="k"), b"payload")])
        assert batch == b"\x00\x00\x00\x05" + b"\x12\x01k\x18\x07" + b"payload"

    def test_building_leaves_the_given_metadata_alone(self) -> None:
        single = SingleMessageMetadata(payload_size=99)
        ((built, _),) = split_batch(metadata_for(1), build_batch([(single, b"payload")]))
        assert (single.payload_size, built.payload_size) == (99, 7)

    def test_cut_anywhere(self) -> None:
        batch = build_batch(THREE)
        for size in range(len(batch)):
            with pytest.raises(MetadataError):
                split_batch(metadata_for(3), batch[:size])

    @pytest.mark.parametrize(
        ("count", "payload", "message"),
        [
            (4, build_batch(THREE), "batch of 4 messages ends after 3"),
            (2, build_batch(THREE), "batch of 2 messages has 14 bytes after its last message"),
            (-1, b"x", "batch of -1 messages has 1 bytes after"),
            (3, build_batch(THREE) + b"!", "batch of 3 messages has 1 bytes after its last message"),
            (1, b"\x00\x00", "batch of 2 bytes ends before the metadata size of message 0"),
            (1, b"\x00\x00\x00\x09x", "metadata of 9 bytes of message 0 at offset 4 exceeds its batch of 5 bytes"),
            (1, b"\x00\x00\x00\x01\xff", "metadata of 1 bytes of message 0 is not a protobuf"),
            (1, b"\x00\x00\x00\x02\x18\x05abc", "message 0 of 5 bytes at offset 6 exceeds its batch of 9 bytes"),
            (1, b"\x00\x00\x00\x0b\x18" + b"\xff" * 9 + b"\x01", "message 0 of -1 bytes"),
        ],
    )
    def test_names_what_is_wrong(self, count: int, payload: bytes, message: str) -> None:
        with pytest.raises(MetadataError, match=message):
            split_batch(metadata_for(count), payload)

    @given(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=100))
    def test_garbage_raises_nothing_else(self, count: int, payload: bytes) -> None:
        with contextlib.suppress(MetadataError):
            split_batch(metadata_for(count), payload)


class TestMessagesOf:
    @pytest.mark.parametrize("compression", [NONE, LZ4, ZLIB, ZSTD, SNAPPY], ids=CompressionType.Name)
    def test_a_batch(self, compression: CompressionType.ValueType) -> None:
        batch = build_batch(THREE)
        metadata = metadata_for(3, compression=compression, uncompressed_size=len(batch))
        blob = build_blob(metadata, compress(compression, batch))
        assert contents(messages_of(blob, SIZE_MAX)) == [("a", b"first"), ("b", b""), ("c", b"third")]

    @pytest.mark.parametrize("compression", [NONE, LZ4, ZLIB, ZSTD, SNAPPY], ids=CompressionType.Name)
    def test_a_message_that_is_not_in_a_batch(self, compression: CompressionType.ValueType) -> None:
        metadata = metadata_for(None, compression=compression, uncompressed_size=7)
        assert messages_of(build_blob(metadata, compress(compression, b"payload")), SIZE_MAX) == [(None, b"payload")]

    def test_a_batch_of_one_is_a_batch(self) -> None:
        blob = build_blob(metadata_for(1), build_batch(THREE[:1]))
        assert contents(messages_of(blob, SIZE_MAX)) == [("a", b"first")]

    def test_an_encrypted_batch_stays_whole(self) -> None:
        metadata = metadata_for(3, compression=LZ4, encryption_keys=[EncryptionKeys(key="k", value=b"v")])
        assert messages_of(build_blob(metadata, b"secret"), SIZE_MAX) == [(None, b"secret")]

    def test_a_chunk_stays_compressed(self) -> None:
        metadata = metadata_for(None, compression=LZ4, num_chunks_from_msg=2, uncompressed_size=10)
        assert messages_of(build_blob(metadata, b"part of a block"), SIZE_MAX) == [(None, b"part of a block")]

    def test_the_limit_holds(self) -> None:
        metadata = metadata_for(None, compression=LZ4, uncompressed_size=SIZE_MAX + 1)
        with pytest.raises(CompressionError, match="exceeds the limit of 100000 bytes"):
            messages_of(build_blob(metadata, compress(LZ4, bytes(SIZE_MAX + 1))), SIZE_MAX)

    @given(st.binary(max_size=100), st.integers(0, 4), st.integers(-2, 5), st.integers(0, 300))
    def test_garbage_raises_nothing_else(self, payload: bytes, compression: int, count: int, size: int) -> None:
        metadata = metadata_for(count, compression=compression, uncompressed_size=size)
        with contextlib.suppress(MetadataError, CompressionError):
            messages_of(build_blob(metadata, payload), SIZE_MAX)
        with contextlib.suppress(MetadataError, CompressionError):
            messages_of(payload, SIZE_MAX)

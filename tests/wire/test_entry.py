"""Entries: opened, refused and packed again, by whatever client they were written."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bounds import UNCOMPRESSED_SIZE
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import CompressionError, compress
from magnetar.wire.entry import (
    ChecksumError,
    ChunkEntry,
    EncryptedEntry,
    batch_messages_of,
    content_of,
    messages_of,
    open_entry,
    pack,
    pack_batch,
)
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import MetadataError, build_blob, split_blob
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
COMPRESSIONS = [NONE, LZ4, ZLIB, ZSTD, SNAPPY]
THREE = [
    (SingleMessageMetadata(partition_key="a"), b"first"),
    (SingleMessageMetadata(partition_key="b"), b""),
    (SingleMessageMetadata(partition_key="c"), b"third"),
]
KEYS = [EncryptionKeys(key="k", value=b"v")]

each_compression = pytest.mark.parametrize("compression", COMPRESSIONS, ids=CompressionType.Name)


def metadata_for(count: int | None, **fields: object) -> MessageMetadata:
    return MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=2,
        num_messages_in_batch=count,
        **fields,  # type: ignore[arg-type]
    )


class TestOpening:
    def test_the_metadata_and_the_offset_of_the_payload(self) -> None:
        blob = build_blob(metadata_for(None), b"payload")
        metadata, start = open_entry(blob)
        assert (metadata, blob[start:]) == (metadata_for(None), b"payload")

    def test_any_flipped_byte_after_the_magic_number_is_a_wrong_checksum(self) -> None:
        blob = build_blob(metadata_for(None), b"payload")
        for index in range(2, len(blob)):
            broken = bytearray(blob)
            broken[index] ^= 1
            with pytest.raises(ChecksumError, match="checksum does not match"):
                open_entry(bytes(broken))

    def test_metadata_that_is_cut_off(self) -> None:
        with pytest.raises(MetadataError):
            open_entry(b"\x00\x00\x00\x09x")

    @given(st.binary(max_size=100))
    def test_garbage_raises_nothing_else(self, blob: bytes) -> None:
        with contextlib.suppress(EntryError):
            open_entry(blob)


class TestMessages:
    @each_compression
    def test_a_batch(self, compression: CompressionType.ValueType) -> None:
        batch = build_batch(THREE)
        metadata = metadata_for(3, compression=compression, uncompressed_size=len(batch))
        messages = list(messages_of(metadata, compress(compression, batch)))
        assert [(single.partition_key if single else None, payload) for single, payload in messages] == [
            ("a", b"first"),
            ("b", b""),
            ("c", b"third"),
        ]
        assert list(batch_messages_of(metadata, compress(compression, batch))) == messages

    @each_compression
    def test_a_message_that_is_not_in_a_batch(self, compression: CompressionType.ValueType) -> None:
        metadata = metadata_for(None, compression=compression, uncompressed_size=7)
        assert list(messages_of(metadata, compress(compression, b"payload"))) == [(None, b"payload")]

    def test_a_batch_of_one_is_a_batch(self) -> None:
        ((single, payload),) = messages_of(metadata_for(1), build_batch(THREE[:1]))
        assert single is not None and (single.partition_key, payload) == ("a", b"first")

    def test_an_encrypted_entry_is_refused(self) -> None:
        metadata = metadata_for(3, compression=LZ4, encryption_keys=KEYS)
        with pytest.raises(EncryptedEntry, match="decryption is not supported"):
            messages_of(metadata, b"secret")

    def test_a_chunk_is_refused_and_encryption_is_named_first(self) -> None:
        chunk = {"compression": LZ4, "num_chunks_from_msg": 2, "chunk_id": 1, "uncompressed_size": 10}
        with pytest.raises(ChunkEntry, match="chunk 1 of 2"):
            content_of(metadata_for(None, **chunk), b"part of a block")
        with pytest.raises(EncryptedEntry):
            content_of(metadata_for(None, **chunk, encryption_keys=KEYS), b"part of a block")

    def test_the_limit_holds(self) -> None:
        metadata = metadata_for(None, compression=LZ4, uncompressed_size=SIZE_MAX + 1)
        with pytest.raises(CompressionError, match="exceeds the limit of 100000 bytes"):
            messages_of(metadata, compress(LZ4, bytes(SIZE_MAX + 1)), SIZE_MAX)

    @given(st.binary(max_size=100), st.integers(0, 4), st.integers(-2, 5), st.integers(0, 300))
    def test_garbage_raises_nothing_else(self, payload: bytes, compression: int, count: int, size: int) -> None:
        metadata = metadata_for(count, compression=compression, uncompressed_size=size)
        with contextlib.suppress(EntryError):
            list(messages_of(metadata, payload, SIZE_MAX))
        with contextlib.suppress(EntryError):
            list(messages_of(*split_blob(payload), SIZE_MAX))


class TestPacking:
    @given(st.lists(st.binary(max_size=50), min_size=1, max_size=10), st.sampled_from(COMPRESSIONS))
    def test_a_batch_is_what_was_packed(self, values: list[bytes], compression: CompressionType.ValueType) -> None:
        metadata = metadata_for(99, compression=compression, uncompressed_size=1)
        payload = pack_batch(metadata, [(SingleMessageMetadata(), value) for value in values])
        assert [value for _, value in messages_of(metadata, payload)] == values
        assert metadata.num_messages_in_batch == len(values)

    @each_compression
    def test_a_single_message(self, compression: CompressionType.ValueType) -> None:
        metadata = metadata_for(None, compression=compression)
        assert content_of(metadata, pack(metadata, b"other")) == b"other"

    def test_a_size_that_was_not_announced_stays_so(self) -> None:
        metadata = metadata_for(None)
        pack(metadata, b"other")
        assert not metadata.HasField("uncompressed_size")


def test_bound_uncompressed_size_is_the_default() -> None:
    metadata = metadata_for(None, compression=LZ4, uncompressed_size=UNCOMPRESSED_SIZE.limit + 1)
    with pytest.raises(CompressionError, match=f"exceeds the limit of {UNCOMPRESSED_SIZE.limit} bytes"):
        content_of(metadata, compress(LZ4, b"small"))

"""Entries: the stored bytes of a message, a batch or a chunk become messages.

Owns the checks on the way: checksum, metadata, encryption, chunks, decompression with a bound, batch. Does not decrypt
and does not assemble chunks. Knows nothing of positions, acknowledgements or topics: a caller maps `EntryError` to its
own error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from magnetar.bounds import BYTES_SPLIT, UNCOMPRESSED_SIZE
from magnetar.wire.batch import build_batch, iter_batch
from magnetar.wire.compression import compress, decompress
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import checksum_ok, metadata_bounds, parse_metadata
from magnetar.wire.schema_pb2 import MessageMetadata, SingleMessageMetadata

UNCOMPRESSED_SIZE_MAX = UNCOMPRESSED_SIZE.limit
"""A bound on the announced size of compressed data: far above any sensible entry, far below a bomb."""


class ChecksumError(EntryError):
    pass


class EncryptedEntry(EntryError):
    """Only a client with the key can open it."""


class ChunkEntry(EntryError):
    """A part of a compressed message: it cannot be decompressed alone."""


def open_entry(blob: bytes) -> tuple[MessageMetadata, int]:
    """The metadata of an entry with a valid checksum, and the offset of its payload. Raises EntryError."""
    if not checksum_ok(blob):
        raise ChecksumError("its checksum does not match")
    start, end = metadata_bounds(blob)
    return parse_metadata(blob[start:end]), end


def content_of(metadata: MessageMetadata, payload: bytes, size_max: int = UNCOMPRESSED_SIZE_MAX) -> bytes:
    """The decompressed payload. Raises EntryError."""
    if metadata.encryption_keys:
        raise EncryptedEntry("it is encrypted, and decryption is not supported")
    if metadata.num_chunks_from_msg > 1:
        raise ChunkEntry(f"it is chunk {metadata.chunk_id} of {metadata.num_chunks_from_msg} of a message")
    return decompress(metadata.compression, payload, metadata.uncompressed_size, size_max)


def messages_of(
    metadata: MessageMetadata, payload: bytes, size_max: int = UNCOMPRESSED_SIZE_MAX
) -> Iterator[tuple[SingleMessageMetadata | None, bytes]]:
    """All messages, those that compaction removed too, one by one; the metadata is None outside of a batch.

    Raises EntryError, for a corrupt batch when the message that is wrong is reached.
    """
    content = content_of(metadata, payload, size_max)
    if not metadata.HasField("num_messages_in_batch"):  # a batch of one has it, and the layout of a batch
        return iter([(None, content)])
    return iter_batch(metadata, content)


def batch_messages_of(
    metadata: MessageMetadata, payload: bytes, size_max: int = BYTES_SPLIT.limit
) -> Iterator[tuple[SingleMessageMetadata, bytes]]:
    """As `messages_of`, for an entry that is a batch."""
    return iter_batch(metadata, content_of(metadata, payload, size_max))


def pack(metadata: MessageMetadata, content: bytes) -> bytes:
    """The payload of changed content, compressed as before; puts the new size into the metadata."""
    if metadata.compression or metadata.HasField("uncompressed_size"):
        metadata.uncompressed_size = len(content)
    return compress(metadata.compression, content)


def pack_batch(metadata: MessageMetadata, messages: Sequence[tuple[SingleMessageMetadata, bytes]]) -> bytes:
    """The payload of changed messages; puts their number and size into the metadata."""
    metadata.num_messages_in_batch = len(messages)
    return pack(metadata, build_batch(messages))

"""Batches: several messages in the payload of one entry.

Owns the layout below, uncompressed and decrypted (see `entry`).

    ┌──────────────────────┬───────────────────────┬──────────────┐
    │ metadata size u32    │ SingleMessageMetadata │ payload      │   once per message
    │ big-endian           │ protobuf              │ payload_size │
    └──────────────────────┴───────────────────────┴──────────────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct

from google.protobuf.message import DecodeError

from magnetar.bounds import MESSAGES_READ
from magnetar.wire.metadata import MetadataError
from magnetar.wire.schema_pb2 import MessageMetadata, SingleMessageMetadata

_U32 = Struct(">I")


def split_batch(metadata: MessageMetadata, payload: bytes) -> list[tuple[SingleMessageMetadata, bytes]]:
    """The messages of an uncompressed batch, which has to end with the last one. Raises MetadataError."""
    return list(iter_batch(metadata, payload))


def iter_batch(metadata: MessageMetadata, payload: bytes) -> Iterator[tuple[SingleMessageMetadata, bytes]]:
    """The same, one by one: an error is raised where it is met, and what is not wanted is not read."""
    count = metadata.num_messages_in_batch
    if count > MESSAGES_READ.limit:
        raise MetadataError(f"batch of {count} messages exceeds {MESSAGES_READ.limit}")
    position = 0
    for index in range(count):
        if position == len(payload):
            raise MetadataError(f"batch of {count} messages ends after {index}")
        single, start = _single_metadata(payload, position, index)
        position = start + single.payload_size
        if single.payload_size < 0 or position > len(payload):
            raise MetadataError(
                f"message {index} of {single.payload_size} bytes at offset {start} "
                f"exceeds its batch of {len(payload)} bytes"
            )
        yield single, payload[start:position]
    if position != len(payload):
        raise MetadataError(f"batch of {count} messages has {len(payload) - position} bytes after its last message")


def _single_metadata(payload: bytes, position: int, index: int) -> tuple[SingleMessageMetadata, int]:
    start = position + 4
    if start > len(payload):
        raise MetadataError(f"batch of {len(payload)} bytes ends before the metadata size of message {index}")
    size: int = _U32.unpack_from(payload, position)[0]
    end = start + size
    if end > len(payload):
        raise MetadataError(
            f"metadata of {size} bytes of message {index} at offset {start} exceeds its batch of {len(payload)} bytes"
        )
    try:
        return SingleMessageMetadata.FromString(payload[start:end]), end
    except DecodeError:
        raise MetadataError(
            f"metadata of {size} bytes of message {index} is not a protobuf SingleMessageMetadata"
        ) from None


def build_batch(messages: Sequence[tuple[SingleMessageMetadata, bytes]]) -> bytes:
    """The uncompressed payload of a batch; `payload_size` is set here, on a copy where it differs."""
    parts: list[bytes] = []
    for single, payload in messages:
        # Partial: properties may lack what their client left out.
        section = _sized(single, len(payload)).SerializePartialToString()
        parts += (_U32.pack(len(section)), section, payload)
    return b"".join(parts)


def _sized(single: SingleMessageMetadata, payload_size: int) -> SingleMessageMetadata:
    if single.HasField("payload_size") and single.payload_size == payload_size:
        return single
    sized = SingleMessageMetadata()
    sized.CopyFrom(single)
    sized.payload_size = payload_size
    return sized

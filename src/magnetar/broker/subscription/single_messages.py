"""Single messages of a failed batch: each is delivered alone, with an id of its own, so that only the bad one dies.

Clients nack whole batches, and by default withhold the acks of its messages until all of them are acknowledged. So
after the first failure the broker delivers the open messages of a batch one by one. Acks and negative acks name these
ids, so each of them says which message it is about, whenever it arrives and on whichever connection:

    bits 0 to 39     the entry id
    bits 40 to 62    the batch index + 1; 0 for an entry as it is stored

Owns the ids and the cutting of blobs. Knows no consumers and no policy.
"""

from __future__ import annotations

from magnetar.wire import schema_pb2 as pb
from magnetar.wire.entry import batch_messages_of
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import build_blob, split_blob
from magnetar.wire.text import copy_field

_ENTRY_BITS = 40
SINGLE_ID_MIN = 1 << _ENTRY_BITS
"""Ids from here on are those of single messages."""

INDEX_MAX = 100_000  # more than any batch has; a larger one would create a huge number

FIELDS_OF_ONE = (
    "partition_key",
    "partition_key_b64_encoded",
    "ordering_key",
    "event_time",
    "null_value",
    "null_partition_key",
)
"""Fields that a message of a batch has of its own, and under the same name when it is alone."""


def single_id(entry_id: int, index: int) -> int:
    return index + 1 << _ENTRY_BITS | entry_id


def parse_id(entry_id: int) -> tuple[int, int]:
    """The entry, and the index of one of its messages; -1 for the whole entry.

    An id with a larger index is that of an entry which does not exist.
    """
    index = (entry_id >> _ENTRY_BITS) - 1
    return (entry_id & SINGLE_ID_MIN - 1, index) if index < INDEX_MAX else (entry_id, -1)


def single_blobs(entry_id: int, blob: bytes, open_bits: int | None, size_max: int) -> list[tuple[int, bytes]]:
    """The open messages of a batch by index; empty if it stays whole, because it is encrypted, corrupt or too large."""
    try:
        metadata, payload = split_blob(blob)
        if not metadata.HasField("num_messages_in_batch") or entry_id >= SINGLE_ID_MIN:
            return []
        messages = batch_messages_of(metadata, payload)
    except EntryError:
        return []
    is_open = (1 << len(messages)) - 1 if open_bits is None else open_bits
    if is_open >> len(messages) or len(messages) > INDEX_MAX:
        return []
    found = [(index, *message) for index, message in enumerate(messages) if is_open >> index & 1]
    if any(single.compacted_out or len(content) > size_max for _, single, content in found):
        return []
    return [(index, _single(metadata, single, content)) for index, single, content in found]


def _single(metadata: pb.MessageMetadata, single: pb.SingleMessageMetadata, payload: bytes) -> bytes:
    """As if its producer had sent it alone and uncompressed."""
    message = pb.MessageMetadata()
    message.CopyFrom(metadata)
    for field in (
        "num_messages_in_batch",
        "compression",
        "highest_sequence_id",
        "compacted_batch_indexes",
        *FIELDS_OF_ONE,
    ):
        message.ClearField(field)  # type: ignore[arg-type]
    del message.properties[:]
    message.properties.extend(single.properties)
    for field in FIELDS_OF_ONE:
        if single.HasField(field):  # type: ignore[arg-type]
            copy_field(single, message, field)
    if single.HasField("sequence_id"):
        message.sequence_id = single.sequence_id
    message.uncompressed_size = len(payload)
    return build_blob(message, payload)

"""Single messages of a failed batch: each is delivered alone, with an id of its own, so that only the bad one dies.

Clients nack whole batches, and by default withhold the acks of its messages until all of them are acknowledged. So
after the first failure the broker delivers the open messages of a batch one by one. Acks and negative acks name these
ids, so each of them says which message it is about, whenever it arrives and on whichever connection:

    bits 0 to 39     the entry id
    bits 40 to 62    the batch index + 1; 0 for an entry as it is stored

Owns the ids and the cutting of blobs. Knows no consumers and no policy.
"""

from __future__ import annotations

from magnetar.bounds import BYTES_SPLIT, MESSAGES_READ, MESSAGES_SPLIT
from magnetar.broker.bits import indexes_in
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.entry import batch_messages_of
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import build_blob, split_blob
from magnetar.wire.text import copy_field

_ENTRY_BITS = 40
SINGLE_ID_MIN = 1 << _ENTRY_BITS
"""Ids from here on are those of single messages."""

INDEX_MAX = MESSAGES_READ.limit  # more than any batch has; a larger one would create a huge number

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


def single_blobs(
    entry_id: int, blob: bytes, messages: int, open_bits: int | None, size_max: int
) -> list[tuple[int, bytes]]:
    """The open messages of a batch by index; empty if it stays whole, because it is encrypted, corrupt or too large.

    `messages` is their number as the log has it; a batch that says otherwise stays whole.
    """
    if messages > MESSAGES_SPLIT.limit or entry_id >= SINGLE_ID_MIN:
        return []
    is_open = set(range(messages) if open_bits is None else indexes_in(open_bits))
    last, size = max(is_open, default=-1), 0
    found: list[tuple[int, bytes]] = []
    try:
        metadata, payload = split_blob(blob)
        is_batch = metadata.HasField("num_messages_in_batch") and metadata.num_messages_in_batch == messages
        if not is_batch or last >= messages:
            return []
        for index, (single, content) in enumerate(batch_messages_of(metadata, payload)):
            if index in is_open:
                if single.compacted_out or len(content) > size_max:
                    return []
                found.append((index, _single(metadata, single, content)))
                size += len(found[-1][1])
            if index == last or size > BYTES_SPLIT.limit:
                break
    except EntryError:
        return []
    return found if size <= BYTES_SPLIT.limit else []


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

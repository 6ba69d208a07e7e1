"""The copy encoder: turns a source entry into its copy, the same payload with more metadata.

Owns which entries are copied, and the bytes of a copy. Fields are appended to the metadata, which is valid protobuf:
the fields that the producer wrote stay as they are, known or not, and most entries are not even parsed. Knows nothing
of connections.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import google_crc32c

from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.replication.model import SOURCE_POSITION
from magnetar.wire.entry import open_entry
from magnetar.wire.errors import EntryError
from magnetar.wire.schema_pb2 import KeyValue, MessageMetadata
from magnetar.wire.varint import encode_varint

_MAGIC_CHECKSUM = b"\x0e\x01"
_METADATA_START = 10
_U32 = Struct(">I")
_pack_u32 = _U32.pack
_crc32c = google_crc32c.value
_extend_crc32c = google_crc32c.extend

_VARINT, _BYTES = 0, 2


def _tag(field: int, wire_type: int) -> bytes:
    return encode_varint(field << 3 | wire_type)


_SPECIAL = re.compile(
    b"|".join(
        re.escape(_tag(field, wire_type))
        for field, wire_type in (
            (MessageMetadata.REPLICATED_FROM_FIELD_NUMBER, _BYTES),
            (MessageMetadata.REPLICATE_TO_FIELD_NUMBER, _BYTES),
            (MessageMetadata.NUM_MESSAGES_IN_BATCH_FIELD_NUMBER, _VARINT),
            (MessageMetadata.ENCRYPTION_KEYS_FIELD_NUMBER, _BYTES),
            (MessageMetadata.SCHEMA_VERSION_FIELD_NUMBER, _BYTES),
            (MessageMetadata.DELIVER_AT_TIME_FIELD_NUMBER, _VARINT),
            (MessageMetadata.MARKER_TYPE_FIELD_NUMBER, _VARINT),
        )
    )
).search
"""Finds the fields that make an entry more than one plain message, or bytes that look like them by chance."""

_PROPERTY_TAG = _tag(MessageMetadata.PROPERTIES_FIELD_NUMBER, _BYTES)
_KEY = b"".join(
    (_tag(KeyValue.KEY_FIELD_NUMBER, _BYTES), encode_varint(len(SOURCE_POSITION)), SOURCE_POSITION.encode())
)
_VALUE_TAG = _tag(KeyValue.VALUE_FIELD_NUMBER, _BYTES)
_POSITION_SIZE_MAX = 41  # two numbers of 64 bits and a colon
# The property without its value, by the size of the value.
_PROPERTY_HEADS = [
    b"".join((_PROPERTY_TAG, encode_varint(len(_KEY) + 2 + size), _KEY, _VALUE_TAG, encode_varint(size)))
    for size in range(_POSITION_SIZE_MAX + 1)
]


class ParsedEntry(NamedTuple):
    """An entry with its metadata. `version` is that of its schema, b"" for none."""

    metadata: MessageMetadata
    payload: bytes
    version: bytes

    @property
    def messages(self) -> int:
        return max(1, self.metadata.num_messages_in_batch)


def parse_entry(blob: bytes) -> ParsedEntry:
    try:
        metadata, start = open_entry(blob)
    except EntryError as error:
        raise MessageRefused(f"the entry of {len(blob)} bytes cannot be read: {error}") from None
    return ParsedEntry(metadata, blob[start:], metadata.schema_version)


def is_for(metadata: MessageMetadata, remote: str) -> bool:
    """Whether an entry is copied: a client published it here, for all clusters or for this one."""
    if metadata.HasField("replicated_from") or metadata.HasField("marker_type"):
        return False
    return not metadata.replicate_to or remote in metadata.replicate_to


class CopyEncoder:
    """Encodes copies of the entries of one ledger.

    `name` is the producer name to write, for Apache Pulsar, whose deduplication reads the stored metadata. None keeps
    the original's.
    """

    def __init__(self, cluster: str, ledger_id: int, name: str | None) -> None:
        self._ledger = f"{ledger_id}:".encode()
        origin = cluster.encode()
        self._origin = b"".join(
            (_tag(MessageMetadata.REPLICATED_FROM_FIELD_NUMBER, _BYTES), encode_varint(len(origin)), origin)
        )
        self._name = name

    def plain(self, blobs: Sequence[bytes], start: int, first_id: int, size_max: int) -> list[bytes]:
        """Copies of the entries from `start` on, up to the first that may be more than one plain message, or whose copy
        is larger than `size_max`. Without batching nearly all are plain. `first_id` is the id of the first of `blobs`.
        """
        copies: list[bytes] = []
        if self._name is not None:
            return copies
        # The hot path: one loop, locals only.
        append, special, unpack_u32, pack_u32 = copies.append, _SPECIAL, _U32.unpack_from, _pack_u32
        crc32c, extend, join = _crc32c, _extend_crc32c, b"".join
        ledger, origin, heads = self._ledger, self._origin, _PROPERTY_HEADS
        for index in range(start, len(blobs)):
            blob = blobs[index]
            if len(blob) < _METADATA_START or not blob.startswith(_MAGIC_CHECKSUM):
                break
            end: int = _METADATA_START + unpack_u32(blob, 6)[0]
            if special(blob, _METADATA_START, end) is not None or end > len(blob):
                break
            if blob[2:6] != pack_u32(crc32c(blob[6:])):
                break
            position = ledger + b"%d" % (first_id + index)
            added = heads[len(position)]
            size = end - _METADATA_START + len(added) + len(position) + len(origin)
            head = join((pack_u32(size), blob[_METADATA_START:end], added, position, origin))
            payload = blob[end:]
            copy = join((_MAGIC_CHECKSUM, pack_u32(extend(crc32c(head), payload)), head, payload))
            if len(copy) > size_max:
                break
            append(copy)
        return copies

    def special(self, entry: ParsedEntry, entry_id: int, version: bytes) -> bytes:
        """The copy of any entry. `version` is that of its schema in the remote cluster, b"" for none."""
        metadata = entry.metadata
        is_changed = version != entry.version or self._name is not None
        if is_changed:
            changed = MessageMetadata()
            changed.CopyFrom(metadata)
            metadata = changed
        if version != entry.version:
            metadata.schema_version = version
        if self._name is not None:
            metadata.producer_name, metadata.sequence_id = self._name, entry_id
            metadata.ClearField("highest_sequence_id")
        # Partial, because the broker also stores metadata without a required field.
        return self._sealed(metadata.SerializePartialToString(), entry.payload, entry_id)

    def _sealed(self, section: bytes, payload: bytes, entry_id: int) -> bytes:
        position = self._ledger + b"%d" % entry_id
        added = _PROPERTY_HEADS[len(position)]
        size = len(section) + len(added) + len(position) + len(self._origin)
        head = b"".join((_pack_u32(size), section, added, position, self._origin))
        checksum = _extend_crc32c(_crc32c(head), payload)
        return b"".join((_MAGIC_CHECKSUM, _pack_u32(checksum), head, payload))

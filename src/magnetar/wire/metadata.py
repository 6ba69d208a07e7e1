"""The blob of an entry: the bounds of its metadata and payload, and the keys that order it.

Owns the layout below. Knows nothing of frames, and does not read the payload (see `entry`).

    ┌────────────────────────┬───────────────────┬───────────────┬─────────────────┬─────────┐
    │ 0x0e02, size u32,      │ 0x0e01,           │ metadata size │ MessageMetadata │ payload │
    │ BrokerEntryMetadata    │ crc32c u32        │ u32           │ protobuf        │ bytes   │
    │ may be absent          │ may be absent     │               │                 │         │
    └────────────────────────┴───────────────────┴───────────────┴─────────────────┴─────────┘

The checksum covers everything after itself. Integers are big-endian.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from struct import Struct

import google_crc32c
import mmh3
from google.protobuf.message import DecodeError

from magnetar.bounds import MESSAGES_READ
from magnetar.wire.errors import EntryError
from magnetar.wire.schema_pb2 import KeyValue, MessageMetadata
from magnetar.wire.text import octets
from magnetar.wire.varint import encode_varint

_MAGIC_BROKER_ENTRY = b"\x0e\x02"
_MAGIC_CHECKSUM = b"\x0e\x01"
_MAGIC_SIZE = 2
_METADATA_AFTER_CHECKSUM = _MAGIC_SIZE + 4 + 4
_U32 = Struct(">I")
_pack_u32 = _U32.pack
_unpack_u32 = _U32.unpack_from
_crc32c = google_crc32c.value

# Pulsar orders by this where there is no key.
_NO_KEY = b"NONE_KEY"
_STICKY_HASH_RANGE = 1 << 16

_WIRE_TYPE_VARINT = 0
_REPLICATED_FROM, _MARKER_TYPE = b"\x2a", b"\xa0\x01"  # the tags of these fields


class MetadataError(EntryError):
    """A blob that is shorter than its sizes promise, or metadata that is not protobuf."""


def _size_at(blob: bytes, start: int, what: str) -> int:
    if len(blob) < start + 4:
        raise MetadataError(f"blob of {len(blob)} bytes ends before its {what} at offset {start}")
    size: int = _U32.unpack_from(blob, start)[0]
    return size


def _after_broker_entry(blob: bytes) -> int:
    if not blob.startswith(_MAGIC_BROKER_ENTRY):
        return 0
    end = _MAGIC_SIZE + 4 + _size_at(blob, _MAGIC_SIZE, "broker entry metadata size")
    if end > len(blob):
        raise MetadataError(f"broker entry metadata up to offset {end} exceeds the blob of {len(blob)} bytes")
    return end


def metadata_bounds(blob: bytes) -> tuple[int, int]:
    if blob.startswith(_MAGIC_CHECKSUM) and len(blob) >= _METADATA_AFTER_CHECKSUM:  # nearly always
        end = _METADATA_AFTER_CHECKSUM + _U32.unpack_from(blob, _METADATA_AFTER_CHECKSUM - 4)[0]
        if end <= len(blob):
            return _METADATA_AFTER_CHECKSUM, end
    return _unusual_metadata_bounds(blob)


def _unusual_metadata_bounds(blob: bytes) -> tuple[int, int]:
    start = _after_broker_entry(blob)
    if blob.startswith(_MAGIC_CHECKSUM, start):
        start += _MAGIC_SIZE + 4
    size = _size_at(blob, start, "metadata size")
    start += 4
    if start + size > len(blob):
        raise MetadataError(f"metadata of {size} bytes at offset {start} exceeds the blob of {len(blob)} bytes")
    return start, start + size


def parse_metadata(section: bytes) -> MessageMetadata:
    try:
        return MessageMetadata.FromString(section)
    except DecodeError:
        raise MetadataError(f"metadata of {len(section)} bytes is not a protobuf MessageMetadata") from None


def checksum_ok(blob: bytes) -> bool:
    """Whether the checksum matches. A blob without one is valid; one too short for its own checksum is not."""
    if blob.startswith(_MAGIC_CHECKSUM):
        # Compared as bytes: a blob that ends inside its checksum needs no separate test.
        return blob[2:6] == _pack_u32(_crc32c(blob[6:]))
    if blob.startswith(_MAGIC_BROKER_ENTRY):
        try:
            rest = blob[_after_broker_entry(blob) :]
        except MetadataError:
            return False
        return not rest.startswith(_MAGIC_CHECKSUM) or checksum_ok(rest)
    return True


def checked_bounds(blob: bytes) -> tuple[int, int]:
    """As `metadata_bounds`, of a blob whose checksum matches. Raises MetadataError."""
    if blob.startswith(_MAGIC_CHECKSUM) and len(blob) >= _METADATA_AFTER_CHECKSUM:  # nearly always
        end = _METADATA_AFTER_CHECKSUM + _unpack_u32(blob, 6)[0]
        if end <= len(blob) and blob[2:6] == _pack_u32(_crc32c(blob[6:])):
            return _METADATA_AFTER_CHECKSUM, end
    if not checksum_ok(blob):
        raise MetadataError("its checksum does not match")
    return metadata_bounds(blob)


# The results of `examine`.
PLAIN, MAY_BE_DELAYED, BAD_CHECKSUM, MALFORMED = range(4)
_DELIVER_AT_TAG = encode_varint(MessageMetadata.DELIVER_AT_TIME_FIELD_NUMBER << 3 | _WIRE_TYPE_VARINT)


def examine(blob: bytes) -> int:
    """Checks a published blob in one pass, without parsing: the only check on the hot path.

    MAY_BE_DELAYED means that the tag of deliver_at_time occurs in the metadata, possibly by chance.
    """
    if not blob.startswith(_MAGIC_CHECKSUM) or len(blob) < _METADATA_AFTER_CHECKSUM:
        return _examine_unusual(blob)
    if blob[2:6] != _pack_u32(_crc32c(blob[6:])):
        return BAD_CHECKSUM
    end = _METADATA_AFTER_CHECKSUM + _U32.unpack_from(blob, 6)[0]
    if end > len(blob):
        return MALFORMED
    return MAY_BE_DELAYED if blob.find(_DELIVER_AT_TAG, _METADATA_AFTER_CHECKSUM, end) >= 0 else PLAIN


def _examine_unusual(blob: bytes) -> int:
    if not checksum_ok(blob):
        return BAD_CHECKSUM
    try:
        start, end = metadata_bounds(blob)
    except MetadataError:
        return MALFORMED
    return MAY_BE_DELAYED if blob.find(_DELIVER_AT_TAG, start, end) >= 0 else PLAIN


def claims_origin(blob: bytes) -> bool:
    """Whether an entry says that a broker wrote it, or that it comes from another cluster.

    Nearly every entry lacks the bytes of these fields, and is not parsed.
    """
    try:
        start, end = metadata_bounds(blob)
        if blob.find(_REPLICATED_FROM, start, end) < 0 and blob.find(_MARKER_TYPE, start, end) < 0:
            return False
        metadata = metadata_of(blob)
    except MetadataError:
        return False
    return metadata.HasField("replicated_from") or metadata.HasField("marker_type")


def metadata_of(blob: bytes) -> MessageMetadata:
    start, end = metadata_bounds(blob)
    return parse_metadata(blob[start:end])


_BATCH_TAG = encode_varint(MessageMetadata.NUM_MESSAGES_IN_BATCH_FIELD_NUMBER << 3 | _WIRE_TYPE_VARINT)


def may_have_messages(blob: bytes, messages: int) -> bool:
    """Whether the metadata may name this number of messages in the batch, without parsing: its bytes occur there.

    For a blob that was examined. By chance they may be those of another field: a batch that is opened is counted again.
    """
    if blob.startswith(_MAGIC_CHECKSUM):
        end = _METADATA_AFTER_CHECKSUM + _unpack_u32(blob, _METADATA_AFTER_CHECKSUM - 4)[0]
    else:
        end = metadata_bounds(blob)[1]
    return blob.find(_BATCH_TAG + encode_varint(messages), 0, end) >= 0


def messages_in(blob: bytes) -> int:
    """The number of messages in an entry, which is the number of permits it takes; 1 if it cannot be read.

    Most entries that are not batches lack the tag of the number in their metadata; the others are parsed.
    """
    if blob.startswith(_MAGIC_CHECKSUM) and len(blob) >= _METADATA_AFTER_CHECKSUM:
        end = _METADATA_AFTER_CHECKSUM + _U32.unpack_from(blob, _METADATA_AFTER_CHECKSUM - 4)[0]
        if blob.find(_BATCH_TAG, _METADATA_AFTER_CHECKSUM, end) < 0:
            return 1
    try:
        messages = metadata_of(blob).num_messages_in_batch
    except MetadataError:
        return 1
    return messages if 0 < messages <= MESSAGES_READ.limit else 1


def payload_of(blob: bytes) -> bytes:
    return blob[metadata_bounds(blob)[1] :]


def metadata_and_payload_start(blob: bytes) -> tuple[MessageMetadata, int]:
    """As `split_blob`, without copying the payload."""
    start, end = metadata_bounds(blob)
    return parse_metadata(blob[start:end]), end


def split_blob(blob: bytes) -> tuple[MessageMetadata, bytes]:
    start, end = metadata_bounds(blob)
    return parse_metadata(blob[start:end]), blob[end:]


def without_broker_entry(blob: bytes) -> bytes:
    """The blob without broker entry metadata, as a client sends it."""
    start = _after_broker_entry(blob)
    return blob[start:] if start else blob


def build_blob(metadata: MessageMetadata, payload: bytes) -> bytes:
    """The blob as a client sends it, with a checksum."""
    # Partial: stored metadata may lack required fields that its client left out.
    return join_blob(metadata.SerializePartialToString(), payload)


def join_blob(section: bytes, payload: bytes) -> bytes:
    """The same of serialized metadata."""
    head = _U32.pack(len(section)) + section
    checksum = google_crc32c.extend(google_crc32c.value(head), payload)
    return b"".join((_MAGIC_CHECKSUM, _U32.pack(checksum), head, payload))


def text_properties(properties: Iterable[KeyValue]) -> dict[str, str]:
    """Properties by key, without those that are not UTF-8, which protobuf returns as bytes."""
    pairs = ((pair.key, pair.value) for pair in properties)
    return {key: value for key, value in pairs if isinstance(key, str) and isinstance(value, str)}


def sticky_key(metadata: MessageMetadata) -> bytes:
    """The key a Key_Shared subscription orders by. A batch counts as one message, with the key of its own metadata."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        if metadata.partition_key_b64_encoded:
            return _base64_key(octets(metadata.partition_key))
        return octets(metadata.partition_key)
    if metadata.HasField("producer_name") and metadata.HasField("sequence_id"):
        return b"%b-%d" % (octets(metadata.producer_name), _as_java_long(metadata.sequence_id))
    return _NO_KEY


def _base64_key(encoded: bytes) -> bytes:
    try:
        return base64.b64decode(encoded + b"=" * (-len(encoded) % 4), validate=True)
    except ValueError:
        return _NO_KEY


def _as_java_long(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def sticky_hash(key: bytes) -> int:
    """The slot of a key, 1 to 65535: 0 means "not set" and shares the slot of 1."""
    return (mmh3.hash(key, 0, signed=False) & 0x7FFF_FFFF) % _STICKY_HASH_RANGE or 1

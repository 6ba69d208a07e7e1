"""Entry views: the messages of an entry as columns, with as little work per message as possible.

In most batches all messages have metadata of the same layout, and differ only in numbers or in keys of the same
length. Such a uniform batch is a table of bytes, and its columns are slices of it. Mixed batches are parsed message by
message.

Knows the protocol's bytes; knows nothing of Spark and Arrow.
"""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING

import numpy as np
from google.protobuf.message import DecodeError

from magnetar.client.consume.entry import Entry
from magnetar.spark.codec.varints import decode_columns
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import split_batch
from magnetar.wire.entry import content_of, open_entry
from magnetar.wire.metadata import MetadataError, metadata_bounds, parse_metadata
from magnetar.wire.text import octets, readable
from magnetar.wire.varint import decode_varint

if TYPE_CHECKING:
    from numpy.typing import NDArray

_U32 = Struct(">I")

_VARINT, _BYTES = 0, 2
_PAYLOAD_SIZE_TAG, _SEQUENCE_ID_TAG = 3 << 3 | _VARINT, 8 << 3 | _VARINT
_KEY, _PAYLOAD_SIZE, _EVENT_TIME, _ORDERING_KEY, _SEQUENCE_ID = 2, 3, 5, 7, 8
_MAY_DIFFER = frozenset((_KEY, _EVENT_TIME, _ORDERING_KEY, _SEQUENCE_ID))
_MORE = 0x80
_UNIFORM_MIN = 8  # messages; smaller batches are parsed faster one by one

Cells = Sequence[bytes | None]
"""One value per message. An array instead has one row per message, all of the same length."""


class EntryView(ABC):
    """The messages of an entry as columns. `indexes` is None for a message outside a batch."""

    __slots__ = ("count", "entry", "error", "indexes", "metadata")

    def __init__(
        self, entry: Entry, metadata: pb.MessageMetadata, count: int, indexes: NDArray[np.int32] | None
    ) -> None:
        self.entry = entry
        self.metadata = metadata
        self.count = count
        self.indexes = indexes
        self.error: str | None = None

    @abstractmethod
    def values(self) -> NDArray[np.uint8] | Cells: ...

    def payloads(self) -> NDArray[np.uint8] | Cells:
        """As `values`, but also of an unreadable entry: as it is stored."""
        return self.values()

    @abstractmethod
    def keys(self) -> NDArray[np.uint8] | Cells | None: ...

    @abstractmethod
    def ordering_keys(self) -> NDArray[np.uint8] | Cells | None: ...

    @abstractmethod
    def event_times_ms(self) -> NDArray[np.int64] | None:
        """0 for a message without one; None if no message has one."""

    @abstractmethod
    def sequence_ids(self) -> NDArray[np.int64]: ...

    @abstractmethod
    def properties(self) -> list[list[tuple[str, str]]] | None:
        """None if no message has any."""

    @abstractmethod
    def cut(self, first: int, end: int) -> EntryView:
        """The messages with batch indexes from `first` to before `end`."""


class SingleMessage(EntryView):
    """A message outside a batch."""

    __slots__ = ("_value",)

    def __init__(self, entry: Entry, metadata: pb.MessageMetadata, value: bytes | None) -> None:
        super().__init__(entry, metadata, 1, None)
        self._value = value

    def values(self) -> Cells:
        return (self._value,)

    def keys(self) -> Cells | None:
        key = _key(self.metadata)
        return None if key is None else (key,)

    def ordering_keys(self) -> Cells | None:
        return (self.metadata.ordering_key,) if self.metadata.HasField("ordering_key") else None

    def event_times_ms(self) -> NDArray[np.int64] | None:
        time_ms = self.metadata.event_time
        return np.array((time_ms,), np.int64) if time_ms else None

    def sequence_ids(self) -> NDArray[np.int64]:
        return np.array((self.metadata.sequence_id,), np.uint64).view(np.int64)

    def properties(self) -> list[list[tuple[str, str]]] | None:
        pairs = self.metadata.properties
        return [_pairs(pairs)] if pairs else None

    def cut(self, first: int, end: int) -> EntryView:
        return self


class UnreadableEntry(SingleMessage):
    """An entry that cannot be opened: one message without a value, with the stored payload and an error."""

    __slots__ = ("_payload",)

    def __init__(self, entry: Entry, error: str) -> None:
        try:
            start, end = metadata_bounds(entry.blob)
            metadata, payload = parse_metadata(entry.blob[start:end]), entry.blob[end:]
        except MetadataError:
            metadata, payload = pb.MessageMetadata(), entry.blob
        super().__init__(entry, metadata, None)
        self._payload = payload
        self.error = error

    def payloads(self) -> Cells:
        return (self._payload,)


class UniformBatch(EntryView):
    """A batch whose messages have the same layout: one row each, with every field at the same offset."""

    __slots__ = ("_fields", "_first", "_rows", "_value_start")

    def __init__(
        self,
        entry: Entry,
        metadata: pb.MessageMetadata,
        indexes: NDArray[np.int32],
        rows: NDArray[np.uint8],
        fields: dict[int, tuple[int, int]],
        value_start: int,
        first: pb.SingleMessageMetadata,
    ) -> None:
        super().__init__(entry, metadata, len(rows), indexes)
        self._rows, self._fields, self._value_start, self._first = rows, fields, value_start, first

    def _column(self, field: int) -> NDArray[np.uint8] | None:
        bounds = self._fields.get(field)
        return None if bounds is None else self._rows[:, bounds[0] : bounds[1]]

    def values(self) -> NDArray[np.uint8] | Cells:
        return (None,) * self.count if self._first.null_value else self._rows[:, self._value_start :]

    def keys(self) -> NDArray[np.uint8] | Cells | None:
        keys = self._column(_KEY)
        if keys is None or not self._first.partition_key_b64_encoded:
            return keys
        return [_decoded(bytes(key)) for key in keys]

    def ordering_keys(self) -> NDArray[np.uint8] | None:
        return self._column(_ORDERING_KEY)

    def event_times_ms(self) -> NDArray[np.int64] | None:
        times = self._column(_EVENT_TIME)
        return None if times is None else decode_columns(times).view(np.int64)

    def sequence_ids(self) -> NDArray[np.int64]:
        numbers = self._column(_SEQUENCE_ID)
        if numbers is not None:
            return decode_columns(numbers).view(np.int64)
        assert self.indexes is not None
        return self.metadata.sequence_id + self.indexes.astype(np.int64)

    def properties(self) -> list[list[tuple[str, str]]] | None:
        pairs = self._first.properties
        return [_pairs(pairs)] * self.count if pairs else None

    def cut(self, first: int, end: int) -> EntryView:
        assert self.indexes is not None
        part = slice(*np.searchsorted(self.indexes, (first, end)))
        return UniformBatch(
            self.entry,
            self.metadata,
            self.indexes[part],
            self._rows[part],
            self._fields,
            self._value_start,
            self._first,
        )


class MixedBatch(EntryView):
    """A batch whose messages differ. `singles` has None for a message with only a value and a sequence id."""

    __slots__ = ("_singles", "_values")

    def __init__(
        self,
        entry: Entry,
        metadata: pb.MessageMetadata,
        indexes: NDArray[np.int32],
        singles: list[pb.SingleMessageMetadata | None],
        values: list[bytes | None],
    ) -> None:
        super().__init__(entry, metadata, len(values), indexes)
        self._singles, self._values = singles, values

    def _are_plain(self) -> bool:
        return self._singles.count(None) == len(self._singles)

    def values(self) -> Cells:
        return self._values

    def keys(self) -> Cells | None:
        if self._are_plain():
            return None
        return [None if single is None else _key(single) for single in self._singles]

    def ordering_keys(self) -> Cells | None:
        if self._are_plain():
            return None
        return [single.ordering_key if single and single.HasField("ordering_key") else None for single in self._singles]

    def event_times_ms(self) -> NDArray[np.int64] | None:
        if self._are_plain():
            return None
        return np.array([single.event_time if single else 0 for single in self._singles], np.uint64).view(np.int64)

    def sequence_ids(self) -> NDArray[np.int64]:
        assert self.indexes is not None
        numbers = self.metadata.sequence_id + self.indexes.astype(np.int64)
        for row, single in enumerate(self._singles):
            if single is not None and single.HasField("sequence_id"):
                numbers[row] = np.uint64(single.sequence_id).astype(np.int64)
        return numbers

    def properties(self) -> list[list[tuple[str, str]]] | None:
        if self._are_plain():
            return None
        return [_pairs(single.properties) if single and single.properties else [] for single in self._singles]

    def cut(self, first: int, end: int) -> EntryView:
        assert self.indexes is not None
        part = slice(*np.searchsorted(self.indexes, (first, end)))
        return MixedBatch(self.entry, self.metadata, self.indexes[part], self._singles[part], self._values[part])


def view_entry(entry: Entry, *, with_sequence_ids: bool = False) -> EntryView | None:
    """The messages of an entry; None for a marker and for a chunk, which cannot be read alone.

    `with_sequence_ids` also reads the sequence id of each message. Raises `EntryError`.
    """
    metadata, start = open_entry(entry.blob)
    if metadata.HasField("marker_type") or metadata.num_chunks_from_msg > 1:
        return None
    data = entry.blob
    if metadata.compression != pb.NONE or metadata.encryption_keys:  # otherwise without a copy
        data, start = content_of(metadata, data[start:]), 0
    if not metadata.HasField("num_messages_in_batch"):
        return SingleMessage(entry, metadata, None if metadata.null_value else data[start:])
    return _open_batch(entry, metadata, data, start, with_sequence_ids)


def _open_batch(
    entry: Entry, metadata: pb.MessageMetadata, data: bytes, start: int, with_sequence_ids: bool
) -> EntryView:
    """The batch begins at `start`, which saves copying it."""
    count = metadata.num_messages_in_batch
    if count >= _UNIFORM_MIN and (len(data) - start) % count == 0:
        uniform = _as_uniform_batch(entry, metadata, data, start, count)
        if uniform is not None:
            return uniform
    parsed = None if with_sequence_ids else _parse_mixed(data, start, count)
    if parsed is None:
        return _split(entry, metadata, data[start:])
    return MixedBatch(entry, metadata, np.arange(count, dtype=np.int32), *parsed)


def _split(entry: Entry, metadata: pb.MessageMetadata, payload: bytes) -> EntryView:
    """The general parser, which handles messages that were compacted out, and reports errors in a batch."""
    kept = [
        (index, single, None if single.null_value else value)
        for index, (single, value) in enumerate(split_batch(metadata, payload))
        if not single.compacted_out
    ]
    indexes = np.array([index for index, _, _ in kept], np.int32)
    return MixedBatch(entry, metadata, indexes, [single for _, single, _ in kept], [value for _, _, value in kept])


def _as_uniform_batch(
    entry: Entry, metadata: pb.MessageMetadata, data: bytes, start: int, count: int
) -> UniformBatch | None:
    """None unless every message has the layout of the first one."""
    stride = (len(data) - start) // count
    message = data[start : start + stride]
    value_start = 4 + int.from_bytes(message[:4], "big")
    layout = _layout(message, 4, value_start) if value_start <= stride else None
    if layout is None:
        return None
    fields, value_size = layout
    if value_start + value_size != stride:
        return None
    rows = np.frombuffer(data, np.uint8, offset=start).reshape(count, stride)
    heads = rows[:, :value_start]
    changes = heads ^ heads[0]
    differs = changes.any(axis=0)
    if differs.any():
        # Tags, lengths, sizes and the ends of varints must be equal; then message n begins at n times the stride.
        for field in _MAY_DIFFER & fields.keys():
            first, end = fields[field]
            if field in (_EVENT_TIME, _SEQUENCE_ID) and (changes[:, first:end] & _MORE).any():
                return None
            differs[first:end] = False
        if differs.any():
            return None
    head = pb.SingleMessageMetadata.FromString(message[4:value_start])
    if head.compacted_out:
        return None
    return UniformBatch(entry, metadata, np.arange(count, dtype=np.int32), rows, fields, value_start, head)


def _layout(data: bytes, start: int, end: int) -> tuple[dict[int, tuple[int, int]], int] | None:
    """The offsets of each field's contents, and the payload size. None if it is not simple protobuf."""
    fields: dict[int, tuple[int, int]] = {}
    size = -1
    try:
        while start < end:
            tag, start = decode_varint(data, start)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, after = decode_varint(data, start)
                if number == _PAYLOAD_SIZE:
                    size = value
            elif kind == _BYTES:
                value, start = decode_varint(data, start)
                after = start + value
            else:
                return None
            if number in _MAY_DIFFER and number in fields:
                return None
            fields[number] = (start, after)
            start = after
    except (IndexError, ValueError):
        return None
    return (fields, size) if start == end and size >= 0 else None


def _parse_mixed(
    data: bytes, position: int, count: int
) -> tuple[list[pb.SingleMessageMetadata | None], list[bytes | None]] | None:
    """Parses only metadata with more than a size and a sequence id. None if a message is irregular."""
    singles: list[pb.SingleMessageMetadata | None] = []
    values: list[bytes | None] = []
    unpack, parse = _U32.unpack_from, pb.SingleMessageMetadata.FromString
    try:
        for _ in range(count):
            start = position + 4
            end = start + unpack(data, position)[0]
            size = _plain_size(data, start, end)
            if size >= 0:
                singles.append(None)
                position = end + size
                values.append(data[end:position])
            else:
                single = parse(data[start:end])
                if single.compacted_out or single.payload_size < 0:
                    return None
                singles.append(single)
                position = end + single.payload_size
                values.append(None if single.null_value else data[end:position])
    except (IndexError, StructError, ValueError, DecodeError):
        return None
    return (singles, values) if position == len(data) else None


def _plain_size(data: bytes, position: int, end: int) -> int:
    """The payload size of metadata with only that and an optional sequence id; -1 for other metadata."""
    if data[position] != _PAYLOAD_SIZE_TAG:
        return -1
    size, position = decode_varint(data, position + 1)
    if position == end:
        return size
    if position + 1 >= end or data[position] != _SEQUENCE_ID_TAG or data[end - 1] >= _MORE:
        return -1
    if end - position > 2 and min(data[position + 1 : end - 1]) < _MORE:
        return -1
    return size


def _key(metadata: pb.MessageMetadata | pb.SingleMessageMetadata) -> bytes | None:
    if not metadata.HasField("partition_key"):
        return None
    key = octets(metadata.partition_key)
    return _decoded(key) if metadata.partition_key_b64_encoded else key


def _decoded(key: bytes) -> bytes:
    """Byte keys travel as base64; an invalid one is returned as is."""
    try:
        return base64.b64decode(key, validate=True)
    except binascii.Error:
        return key


def _pairs(properties: Sequence[pb.KeyValue]) -> list[tuple[str, str]]:
    """The last value of a key wins, as in the client."""
    return list({readable(pair.key): readable(pair.value) for pair in properties}.items())

"""Batch encoder: the payload of a batch from whole columns, without an object per message.

Owns the bytes below. The layout is that of `magnetar.wire.batch`, which writes and reads it message by message.

    ┌───────────────┬──────────────────────────────────────────────────────────────────────────┬───────┐
    │ u32: size of  │ numbers: payload size, event time, flags, sequence id │ key │ ordering key │ value │
    │ the metadata  │                                                       │ properties         │       │
    └───────────────┴──────────────────────────────────────────────────────────────────────────┴───────┘

Protobuf allows fields in any order; those of variable length come last, because Arrow joins them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

_VARINT, _BYTES = 0, 2
_KEY = 2 << 3 | _BYTES
_PAYLOAD_SIZE = 3 << 3 | _VARINT
_EVENT_TIME = 5 << 3 | _VARINT
_KEY_IS_BASE64 = 6 << 3 | _VARINT
_ORDERING_KEY = 7 << 3 | _BYTES
_SEQUENCE_ID = 8 << 3 | _VARINT
_NULL_VALUE = 9 << 3 | _VARINT
_PROPERTIES = 1 << 3 | _BYTES
_PAIR_KEY, _PAIR_VALUE = 1 << 3 | _BYTES, 2 << 3 | _BYTES
_TRUE = 1

_SEPTET, _MORE = np.uint64(0x7F), np.uint8(0x80)


@dataclass(frozen=True)
class MessageRows:
    """Messages as columns of equal length. None stands for a column without values, 0 for no time."""

    values: pa.Array
    """Binary; null is a message without a value, which differs from an empty one."""
    keys: pa.Array | None = None
    """Binary, as on the wire: byte keys in base64."""
    keys_are_base64: NDArray[np.bool_] | None = None
    ordering_keys: pa.Array | None = None
    event_times_ms: NDArray[np.int64] | None = None
    deliver_at_ms: NDArray[np.int64] | None = None
    properties: pa.Array | None = None
    """A map from strings to strings."""

    def __len__(self) -> int:
        return len(self.values)

    def take(self, indexes: NDArray[np.int64]) -> MessageRows:
        chosen = pa.array(indexes)
        return MessageRows(
            values=self.values.take(chosen),
            keys=None if self.keys is None else self.keys.take(chosen),
            keys_are_base64=None if self.keys_are_base64 is None else self.keys_are_base64[indexes],
            ordering_keys=None if self.ordering_keys is None else self.ordering_keys.take(chosen),
            event_times_ms=None if self.event_times_ms is None else self.event_times_ms[indexes],
            deliver_at_ms=None if self.deliver_at_ms is None else self.deliver_at_ms[indexes],
            properties=None if self.properties is None else self.properties.take(chosen),
        )

    def slice(self, start: int, count: int) -> MessageRows:
        end = start + count
        return MessageRows(
            values=self.values.slice(start, count),
            keys=None if self.keys is None else self.keys.slice(start, count),
            keys_are_base64=None if self.keys_are_base64 is None else self.keys_are_base64[start:end],
            ordering_keys=None if self.ordering_keys is None else self.ordering_keys.slice(start, count),
            event_times_ms=None if self.event_times_ms is None else self.event_times_ms[start:end],
            deliver_at_ms=None if self.deliver_at_ms is None else self.deliver_at_ms[start:end],
            properties=None if self.properties is None else self.properties.slice(start, count),
        )


class EncodedRows:
    """Rows in the form of a batch: row n is `data[offsets[n]:offsets[n + 1]]`."""

    __slots__ = ("data", "offsets", "rows", "sequence_ids")

    def __init__(self, rows: MessageRows, sequence_ids: NDArray[np.int64]) -> None:
        self.rows = rows
        self.sequence_ids = sequence_ids
        joined = _join(rows, sequence_ids)
        self.offsets = _offsets(joined)
        self.data = memoryview(joined.buffers()[2] or b"")

    def payload(self, start: int, end: int) -> bytes:
        return self.data[self.offsets[start] : self.offsets[end]].tobytes()


def _join(rows: MessageRows, sequence_ids: NDArray[np.int64]) -> pa.Array:
    """A binary array with one message per element."""
    numbers = _numbers(rows, sequence_ids)
    fields: list[pa.Array] = []
    for tag, column in ((_KEY, rows.keys), (_ORDERING_KEY, rows.ordering_keys)):
        if column is not None and column.null_count < len(column):
            fields += _field(tag, column)
    if rows.properties is not None and len(rows.properties.items):
        fields.append(_properties(rows.properties))
    metadata_sizes = numbers.sizes() + sum(_sizes(field) for field in fields)
    head = _ByteColumns(len(rows))
    head.u32(metadata_sizes)
    return pc.binary_join_element_wise(
        head.followed_by(numbers).array(),
        *fields,
        rows.values,
        pa.scalar(b"", pa.binary()),
        null_handling="replace",
        null_replacement=b"",
    )


def _numbers(rows: MessageRows, sequence_ids: NDArray[np.int64]) -> _ByteColumns:
    cells = _ByteColumns(len(rows))
    cells.byte(_PAYLOAD_SIZE)
    cells.varint(_sizes(rows.values))
    if rows.event_times_ms is not None:
        has_time = rows.event_times_ms > 0
        cells.byte(_EVENT_TIME, has_time)
        cells.varint(rows.event_times_ms, has_time)
    if rows.keys_are_base64 is not None:
        cells.byte(_KEY_IS_BASE64, rows.keys_are_base64)
        cells.byte(_TRUE, rows.keys_are_base64)
    cells.byte(_SEQUENCE_ID)
    cells.varint(sequence_ids)
    if rows.values.null_count:
        is_null = is_null_in(rows.values)
        cells.byte(_NULL_VALUE, is_null)
        cells.byte(_TRUE, is_null)
    return cells


def _field(tag: int, column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Tag and length, and contents, of a field that is absent where the column is null."""
    is_present = ~is_null_in(column) if column.null_count else None
    cells = _ByteColumns(len(column))
    cells.byte(tag, is_present)
    cells.varint(_sizes(column), is_present)
    return cells.array(), column


def _properties(maps: pa.Array) -> pa.Array:
    """A binary array with all properties of a message per element."""
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    keys = maps.keys.slice(first, last - first).cast(pa.binary())
    values = maps.items.slice(first, last - first).cast(pa.binary())
    key, value = _field(_PAIR_KEY, keys), _field(_PAIR_VALUE, values)
    sizes = sum(_sizes(part) for part in (*key, *value))
    head = _ByteColumns(len(keys))
    head.byte(_PROPERTIES)
    head.varint(np.asarray(sizes, np.int64))
    pairs = pc.binary_join_element_wise(head.array(), *key, *value, pa.scalar(b"", pa.binary()))
    # The pairs of a message are adjacent: one slice of the same bytes.
    of_message = maps.offsets.to_numpy() - first
    return _binary(_offsets(pairs)[of_message], pairs.buffers()[2])


class _ByteColumns:
    """Columns of single bytes, some absent in some rows; `array` concatenates those present."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._bytes: list[NDArray[np.uint8] | int] = []
        self._are_present: list[NDArray[np.bool_] | None] = []

    def byte(self, value: int | NDArray[np.uint8], is_present: NDArray[np.bool_] | None = None) -> None:
        self._bytes.append(value)
        self._are_present.append(is_present)

    def u32(self, numbers: NDArray[np.int64]) -> None:
        for shift in (24, 16, 8, 0):
            self.byte((numbers >> shift).astype(np.uint8))

    def varint(self, numbers: NDArray[np.int64], is_present: NDArray[np.bool_] | None = None) -> None:
        """Negative numbers in two's complement, as in protobuf."""
        rest = numbers.astype(np.int64).view(np.uint64)
        present = is_present
        while True:
            higher = rest >> np.uint64(7)
            goes_on = higher != 0
            byte = (rest & _SEPTET).astype(np.uint8)
            if not goes_on.any():
                self.byte(byte, present)
                return
            self.byte(byte | (goes_on * _MORE), present)
            is_next = goes_on if present is None else goes_on & present
            present = None if is_next.all() else is_next
            rest = higher

    def followed_by(self, other: _ByteColumns) -> _ByteColumns:
        both = _ByteColumns(self._count)
        both._bytes = self._bytes + other._bytes
        both._are_present = self._are_present + other._are_present
        return both

    def sizes(self) -> NDArray[np.int64]:
        sizes = np.full(self._count, sum(is_present is None for is_present in self._are_present), np.int64)
        for is_present in self._are_present:
            if is_present is not None:
                sizes += is_present
        return sizes

    def array(self) -> pa.Array:
        table = np.empty((self._count, len(self._bytes)), np.uint8)
        for index, column in enumerate(self._bytes):
            table[:, index] = column
        offsets = np.zeros(self._count + 1, np.int64)
        np.cumsum(self.sizes(), out=offsets[1:])
        if any(is_present is not None for is_present in self._are_present):
            mask = np.ones(table.shape, np.bool_)
            for index, is_present in enumerate(self._are_present):
                if is_present is not None:
                    mask[:, index] = is_present
            table = table[mask]
        return _binary(offsets, pa.py_buffer(table))


def _binary(offsets: NDArray[np.int64], data: pa.Buffer | None) -> pa.Array:
    starts = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, starts, data or pa.py_buffer(b"")])


def _offsets(column: pa.Array) -> NDArray[np.int64]:
    starts = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
    return starts.astype(np.int64)


def _sizes(column: pa.Array) -> NDArray[np.int64]:
    """Sizes of the values; 0 for null, whose slot in Arrow may have bytes."""
    if not len(column):
        return np.zeros(0, np.int64)
    sizes = np.diff(_offsets(column))
    if column.null_count:
        sizes[is_null_in(column)] = 0
    return sizes


def is_null_in(column: pa.Array) -> NDArray[np.bool_]:
    nulls: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls

"""Column-wise reader of Avro's binary form: one field of all rows at a time, with numpy.

Owns the offset of each row's next value, and the rows that violate the definition. Reads records, scalars and unions,
but not arrays and maps, which need a loop per row (`can_read`).

    long, int     zigzag varint
    string, bytes length as a varint | bytes
    union         index of the member as a varint | value
    record        the fields one after the other
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from magnetar.spark.codec.avro.fields import Node, member_name, storage_type
from magnetar.spark.codec.varints import decode_varints

Numbers = np.ndarray[Any, Any]

_PADDING = bytes(16)  # a truncated value is read beyond the end of its row before that is detected
_GATHER_SIZE_MAX = 64
"""Average bytes per value up to which bytes are gathered by index; longer values are copied one by one."""


def can_read(node: Node) -> bool:
    if node.kind in ("array", "map"):
        return False
    return all(can_read(each.node) for each in node.fields) and all(map(can_read, node.members))


class AvroColumns:
    """The payloads of one version. `errors` are by row; values of `broken` rows are undefined.

    In other rows with errors only the bad values are null: their bytes have the right size.
    """

    def __init__(self, values: pa.Array) -> None:
        self.errors: dict[int, str] = {}
        self.broken: set[int] = set()
        self._rows = len(values)
        offsets = np.frombuffer(values.buffers()[1], np.int32, self._rows + 1, values.offset * 4).astype(np.int64)
        buffer = values.buffers()[2]
        raw = b"" if buffer is None else memoryview(buffer)[offsets[0] : offsets[-1]]
        self._bytes = b"".join((raw, _PADDING))
        self._data = np.frombuffer(self._bytes, np.uint8)
        self._at = offsets[:-1] - offsets[0]
        self._end = offsets[1:] - offsets[0]
        self._active = np.flatnonzero(np.asarray(values.is_valid())) if values.null_count else np.arange(self._rows)

    def read(self, node: Node, wanted: set[str]) -> list[pa.Array]:
        """The columns of a record; None for those that are not wanted."""
        columns = [self._field(each.node, each.name, each.name in wanted) for each in node.fields]
        self._reject_rest()
        return columns

    def read_one(self, node: Node) -> pa.Array:
        """The column of a definition other than a record."""
        column = self._read(node, self._active, "value", True)
        self._reject_rest()
        return column

    def _field(self, node: Node, name: str, is_wanted: bool) -> pa.Array:
        return self._read(node, self._active, f"field {name}", is_wanted)

    def _reject_rest(self) -> None:
        left = self._end[self._active] - self._at[self._active]
        for row in self._active[left > 0].tolist():
            size = int(self._end[row] - self._at[row])
            self.broken.add(row)
            self.errors.setdefault(row, f"{size} bytes follow the last field: it was written with another schema")

    # -- types; `rows` are those with a value of the type

    def _read(self, node: Node, rows: Numbers, where: str, is_wanted: bool) -> pa.Array:
        if node.kind == "union" or node.null_at >= 0:
            return self._union(node, rows, where, is_wanted)
        return self._value(node, rows, where, is_wanted)

    def _value(self, node: Node, rows: Numbers, where: str, is_wanted: bool) -> pa.Array:
        kind = node.kind
        if kind == "record":
            columns = [self._read(each.node, rows, f"{where}.{each.name}", is_wanted) for each in node.fields]
            return self._struct(columns, [each.name for each in node.fields], node, rows) if is_wanted else None
        if kind in ("string", "bytes", "fixed"):
            return self._binary(node, rows, where, is_wanted)
        if kind in ("float", "double"):
            numbers = self._floats(rows, where, 4 if kind == "float" else 8)
        elif kind == "boolean":
            numbers = self._booleans(rows, where)
        elif kind == "null":
            return pa.nulls(self._rows)
        else:
            numbers = self._varints(rows, where)
        if kind == "enum":
            return self._enum(node, numbers, rows, where)
        if kind == "int":
            numbers, rows = self._as_int(numbers, rows, where)
        return self._numbers(numbers, node, rows) if is_wanted else None

    def _union(self, node: Node, rows: Numbers, where: str, is_wanted: bool) -> pa.Array:
        branches = self._varints(rows, where)
        count = len(node.members) + (node.null_at >= 0) if node.kind == "union" else 2
        outside = (branches < 0) | (branches >= count)
        if outside.any():
            self._reject(rows[outside], f"{where}: the union has no type with that index")
            rows, branches = rows[~outside], branches[~outside]
        if node.kind != "union":
            return self._value(node, rows[branches != node.null_at], where, is_wanted)
        slots = [slot for slot in range(count) if slot != node.null_at]
        columns = [
            self._value(member, rows[branches == slot], where, is_wanted)
            for member, slot in zip(node.members, slots, strict=True)
        ]
        names = [member_name(index) for index in range(len(columns))]
        return self._struct(columns, names, node, rows[branches != node.null_at]) if is_wanted else None

    # -- bytes

    def _varints(self, rows: Numbers, where: str) -> Numbers:
        value, at, more = decode_varints(self._data, self._at[rows])
        if len(more):
            self._reject(rows[more], f"{where}: the number has more than 64 bits")
            at[more] = self._end[rows[more]]
        self._move(rows, at, where)
        numbers: Numbers = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
        return numbers

    def _floats(self, rows: Numbers, where: str, size: int) -> Numbers:
        at = self._at[rows]
        every = np.ndarray((len(self._data) - size + 1,), f"<f{size}", self._bytes, strides=(1,))
        numbers: Numbers = every[at]
        self._move(rows, at + size, where)
        return numbers

    def _booleans(self, rows: Numbers, where: str) -> Numbers:
        at = self._at[rows]
        pieces: Numbers = self._data[at]
        self._move(rows, at + 1, where)
        if (pieces > 1).any():  # the bytes of another schema
            self._reject(rows[pieces > 1], f"{where}: the boolean is neither 0 nor 1")
        return pieces.astype(np.bool_)

    def _move(self, rows: Numbers, at: Numbers, where: str) -> None:
        end = self._end[rows]
        beyond = at > end
        if beyond.any():
            self._reject(rows[beyond], f"{where}: the payload ends before it")
            at = np.minimum(at, end)
        self._at[rows] = at

    def _reject(self, rows: Numbers, text: str) -> None:
        """Gives rows up: where their next value begins is unknown."""
        self._mark(rows, text)
        self.broken.update(rows.tolist())
        self._at[rows] = self._end[rows]

    def _mark(self, rows: Numbers, text: str) -> None:
        for row in rows.tolist():
            self.errors.setdefault(row, text)

    # -- columns

    def _null(self, rows: Numbers) -> Numbers | None:
        if len(rows) == self._rows:
            return None
        null = np.ones(self._rows, np.bool_)
        null[rows] = False
        return null

    def _spread(self, numbers: Numbers, rows: Numbers) -> Numbers:
        if len(rows) == self._rows:
            return numbers
        spread = np.zeros(self._rows, numbers.dtype)
        spread[rows] = numbers
        return spread

    def _numbers(self, numbers: Numbers, node: Node, rows: Numbers) -> pa.Array:
        return pa.array(self._spread(numbers, rows), storage_type(node), mask=self._null(rows))

    def _as_int(self, numbers: Numbers, rows: Numbers, where: str) -> tuple[Numbers, Numbers]:
        outside = numbers != numbers.astype(np.int32)
        if outside.any():
            self._mark(rows[outside], f"{where}: the number has more than 32 bits")
            numbers, rows = numbers[~outside], rows[~outside]
        return numbers, rows

    def _enum(self, node: Node, numbers: Numbers, rows: Numbers, where: str) -> pa.Array:
        outside = (numbers < 0) | (numbers >= len(node.symbols))
        if outside.any():
            self._mark(rows[outside], f"{where}: the enum has {len(node.symbols)} symbols, none with that index")
            rows, numbers = rows[~outside], numbers[~outside]
        indices = pa.array(self._spread(numbers, rows), pa.int32(), mask=self._null(rows))
        return pa.array(node.symbols, pa.string()).take(indices)

    def _binary(self, node: Node, rows: Numbers, where: str, is_wanted: bool) -> pa.Array:
        sizes = np.full(len(rows), node.size) if node.kind == "fixed" else self._varints(rows, where)
        starts = self._at[rows]
        outside = (sizes < 0) | (sizes > self._end[rows] - starts)
        if outside.any():
            self._reject(rows[outside], f"{where}: the payload ends before it")
            rows, sizes, starts = rows[~outside], sizes[~outside], starts[~outside]
        self._at[rows] = starts + sizes
        if not is_wanted:
            return None
        offsets = np.zeros(self._rows + 1, np.int32)
        offsets[rows + 1] = sizes
        np.cumsum(offsets, out=offsets)
        null = self._null(rows)
        validity = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(self._picked(starts, sizes))]
        column = pa.Array.from_buffers(pa.binary(), self._rows, buffers)
        return self._text(column, where) if node.kind == "string" else column

    def _picked(self, starts: Numbers, sizes: Numbers) -> bytes | Numbers:
        total = int(sizes.sum())
        if total > _GATHER_SIZE_MAX * len(sizes):
            whole = memoryview(self._bytes)
            return b"".join([whole[a:b] for a, b in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)])
        before = np.cumsum(sizes) - sizes
        return self._data[np.repeat(starts - before, sizes) + np.arange(total)]

    def _text(self, column: pa.Array, where: str) -> pa.Array:
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [self._text_or_none(each, row, where) for row, each in enumerate(column.to_pylist())]
            return pa.array(texts, pa.string())

    def _text_or_none(self, value: bytes | None, row: int, where: str) -> str | None:
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError:
            self.errors.setdefault(row, f"{where}: the text is not UTF-8")
            return None

    def _struct(self, columns: list[pa.Array], names: list[str], node: Node, rows: Numbers) -> pa.Array:
        null = self._null(rows)
        if not columns:
            return pa.array(
                [None if null is not None and null[row] else {} for row in range(self._rows)], pa.struct([])
            )
        mask = None if null is None else pa.array(null)
        return pa.StructArray.from_arrays(columns, fields=list(storage_type(node)), mask=mask)

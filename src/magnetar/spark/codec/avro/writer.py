"""Avro writer: columns as payloads in Avro's binary form, the reverse of `avro.columns`.

Every field becomes pieces, one per row: a union's index, a length, the bytes. Their sizes give their offsets, and each
field is copied to all rows at once. Columns have the definition's `storage_type`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from magnetar.spark.codec.avro.fields import Node

Numbers = np.ndarray[Any, Any]
Piece = tuple[Numbers, Numbers]
"""The size of each row's part, and the concatenated parts."""

_VARINT_SIZE_MAX = 10
_PAYLOADS_SIZE_MAX = (1 << 31) - 1


class NullRejected(Exception):
    """A null where the definition allows none; `row` is the first one."""

    def __init__(self, where: str, row: int, kind: str) -> None:
        super().__init__(f"{where} is null, but the topic's schema has {kind} without null")
        self.row = row


def encode_records(columns: Sequence[pa.Array], node: Node, rows: int) -> pa.Array:
    """The payloads of a record's columns. Raises `NullRejected`, and `ValueError` for a value that does not fit."""
    pieces: list[Piece] = []
    every = np.ones(rows, np.bool_)
    for column, each in zip(columns, node.fields, strict=True):
        _add(pieces, column, each.node, every, f"column {each.name!r}")
    if not pieces or not rows:
        return pa.array([b""] * rows, pa.binary())
    sizes = np.array([sizes for sizes, _ in pieces])
    ends = np.cumsum(sizes.T.reshape(-1))
    starts = (ends - sizes.T.reshape(-1)).reshape(rows, len(pieces))
    if ends[-1] > _PAYLOADS_SIZE_MAX:
        raise ValueError(f"{rows} payloads of {ends[-1]} bytes exceed the limit of {_PAYLOADS_SIZE_MAX} per batch")
    out = np.empty(int(ends[-1]), np.uint8)
    for index, (size, parts) in enumerate(pieces):
        before = np.cumsum(size) - size
        out[np.repeat(starts[:, index] - before, size) + np.arange(len(parts))] = parts
    offsets = np.zeros(rows + 1, np.int32)
    offsets[1:] = ends[len(pieces) - 1 :: len(pieces)]
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _add(pieces: list[Piece], column: pa.Array, node: Node, rows: Numbers, where: str) -> None:
    """`rows` are those with this value: the others are inside a null or another union member."""
    is_valid = np.asarray(column.is_valid()) if column.null_count else np.ones(len(column), np.bool_)
    if node.kind == "null":
        return
    if node.null_at < 0 and not (is_valid | ~rows).all():
        raise NullRejected(where, int(np.flatnonzero(rows & ~is_valid)[0]), node.logical or node.kind)
    present = rows & is_valid
    if node.kind == "union":
        _add_union(pieces, column, node, rows, present, where)
        return
    if node.null_at >= 0:
        pieces.append(_varints(np.where(present, 1 - node.null_at, node.null_at), rows))
    if node.kind == "record":
        for part, each in zip(column.flatten(), node.fields, strict=True):
            _add(pieces, part, each.node, present, f"{where}.{each.name}")
    else:
        pieces.extend(_scalars(column, node, present, where))


def _add_union(pieces: list[Piece], column: pa.Array, node: Node, rows: Numbers, present: Numbers, where: str) -> None:
    parts = column.flatten()
    given = [present & np.asarray(part.is_valid()) for part in parts]
    if not (sum(each.astype(np.int8) for each in given) == present).all():
        row = int(np.flatnonzero(sum(each.astype(np.int8) for each in given) != present)[0])
        raise NullRejected(f"{where} (exactly one of its members must be set; it)", row, "a union")
    slots = [slot for slot in range(len(parts) + (node.null_at >= 0)) if slot != node.null_at]
    chosen = np.full(len(column), max(node.null_at, 0), np.int64)
    for slot, each in zip(slots, given, strict=True):
        chosen[each] = slot
    pieces.append(_varints(chosen, rows))
    for part, member, each in zip(parts, node.members, given, strict=True):
        _add(pieces, part, member, each, where)


def _scalars(column: pa.Array, node: Node, rows: Numbers, where: str) -> list[Piece]:
    if node.kind in ("string", "bytes", "fixed"):
        return _binaries(column, node, rows, where)
    if node.kind == "enum":
        return [_varints(_symbols(column, node, rows, where), rows)]
    numbers = np.asarray(column.fill_null(False if node.kind == "boolean" else 0))
    if node.kind in ("int", "long"):
        return [_varints(numbers.astype(np.int64), rows)]
    stored = numbers.astype({"boolean": "u1", "float": "<f4", "double": "<f8"}[node.kind])[rows]
    return [(rows * stored.dtype.itemsize, stored.view(np.uint8))]


def _varints(numbers: Numbers, rows: Numbers) -> Piece:
    numbers = numbers[rows]
    zigzag = (numbers.view(np.int64) << 1 ^ numbers >> 63).view(np.uint64)
    wide = np.empty((len(numbers), _VARINT_SIZE_MAX), np.uint8)
    size = np.ones(len(numbers), np.int64)
    width = 0
    rest = zigzag
    while True:
        more = rest > 0x7F
        wide[:, width] = (rest & np.uint64(0x7F)) | (more.astype(np.uint64) << np.uint64(7))
        width += 1
        if not more.any():
            break
        size += more
        rest = rest >> np.uint64(7)
    used = np.arange(width) < size[:, None]
    sizes = np.zeros(len(rows), np.int64)
    sizes[rows] = size
    return sizes, wide[:, :width][used]


def _binaries(column: pa.Array, node: Node, rows: Numbers, where: str) -> list[Piece]:
    column = column.cast(pa.binary())
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    sizes = np.diff(offsets) * rows
    buffer = column.buffers()[2]
    raw = np.frombuffer(buffer, np.uint8) if buffer is not None and buffer.size else np.empty(0, np.uint8)
    before = np.cumsum(sizes) - sizes
    parts = raw[np.repeat(offsets[:-1] - before, sizes) + np.arange(int(sizes.sum()))]
    if node.kind != "fixed":
        return [_varints(sizes, rows), (sizes, parts)]
    if (sizes[rows] != node.size).any():
        wrong = int(sizes[rows & (sizes != node.size)][0])
        raise ValueError(f"{where}: a value has {wrong} bytes, but the topic's schema has {node.size}")
    return [(sizes, parts)]


def _symbols(column: pa.Array, node: Node, rows: Numbers, where: str) -> Numbers:
    numbers = np.zeros(len(column), np.int64)
    indexes = {symbol: index for index, symbol in enumerate(node.symbols)}
    encoded = column.dictionary_encode()
    of_value = np.array([indexes.get(each, -1) for each in encoded.dictionary.to_pylist()] or [0], np.int64)
    numbers[:] = of_value[np.asarray(encoded.indices.fill_null(0))]
    if (numbers[rows] < 0).any():
        wrong = column[int(np.flatnonzero(rows & (numbers < 0))[0])].as_py()
        raise ValueError(f"{where}: {wrong!r} is not one of the symbols {', '.join(node.symbols)[:200]}")
    return numbers

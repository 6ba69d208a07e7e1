"""Sequence ids of written messages, derived from a column of serialized source message ids.

Owns the rule behind exactly once: the sequence id in the target is the position in the source's ledger, so a repeated
write uses the same one.

    ┌──────────────────────┬─────────────────────┐
    │ entry id, 47 bits    │ batch index, 16 bits│
    └──────────────────────┴─────────────────────┘
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from magnetar.client.errors import InvalidArgument
from magnetar.client.message import MessageId
from magnetar.spark.codec.varints import decode_varints
from magnetar.spark.errors import UnwritableRow
from magnetar.wire.varint import SIZE_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH_INDEX_BITS = 16
_BATCH_INDEX_MAX = (1 << _BATCH_INDEX_BITS) - 1
_ENTRY_MAX = (1 << 63 - _BATCH_INDEX_BITS) - 1

_VARINT, _BYTES = 0, 2
_LEDGER, _ENTRY, _BATCH_INDEX = 1, 2, 4


@dataclass(frozen=True)
class SourcePositions:
    """Ledger, and sequence id within it, of each row."""

    ledgers: NDArray[np.int64]
    sequence_ids: NDArray[np.int64]

    def text(self, row: int) -> str:
        sequence_id = int(self.sequence_ids[row])
        return f"{self.ledgers[row]}:{sequence_id >> _BATCH_INDEX_BITS} (batch index {sequence_id & _BATCH_INDEX_MAX})"


def source_positions(column: str, ids: pa.Array) -> SourcePositions:
    """Parses a binary column; raises `UnwritableRow`, which names the column and the row."""
    ledgers, entries, indexes = message_positions(column, ids)
    return SourcePositions(ledgers, entries << _BATCH_INDEX_BITS | np.maximum(indexes, 0))


def message_positions(column: str, ids: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Ledgers, entries and batch indexes, -1 for none; raises `UnwritableRow` as above."""
    if ids.null_count:
        row = ids.is_null().index(True).as_py()
        raise UnwritableRow(f"column {column} is null in row {row}: a source position is required")
    fields = _parse(ids)
    ledgers, entries, indexes = fields[_LEDGER], fields[_ENTRY], fields[_BATCH_INDEX]
    wrong = (ledgers < 0) | (entries < 0) | (entries > _ENTRY_MAX) | (indexes > _BATCH_INDEX_MAX)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        data = ids[row].as_py()
        try:
            text = str(MessageId.from_bytes(data))
        except InvalidArgument:
            text = f"{data[:32].hex()}, which is not a serialized message id"
        raise UnwritableRow(
            f"column {column} of row {row} is {text}: it must have a ledger, an entry up to {_ENTRY_MAX} and a"
            f" batch index up to {_BATCH_INDEX_MAX}"
        )
    return ledgers, entries, indexes


def _parse(ids: pa.Array) -> dict[int, NDArray[np.int64]]:
    """The wanted fields, -1 where absent. Invalid protobuf gets ledger -1."""
    count = len(ids)
    fields = {number: np.full(count, -1, np.int64) for number in (_LEDGER, _ENTRY, _BATCH_INDEX)}
    offsets = np.frombuffer(ids.buffers()[1], np.int32, count + 1, ids.offset * 4).astype(np.int64)
    # Padded by more than a varint, so that reading needs no bounds check.
    data = np.frombuffer(ids.buffers()[2] or b"", np.uint8)[: offsets[-1]]
    data = np.concatenate((data, np.zeros(2 * SIZE_MAX, np.uint8)))
    position, end = offsets[:-1].copy(), offsets[1:]
    rows = np.flatnonzero(position < end)
    while len(rows):
        # Field numbers of an id are below 16: a longer tag is not an id.
        tag = data[position[rows]]
        kind, number = tag & 7, tag >> 3
        unsigned, after, _ = decode_varints(data, position[rows] + 1)
        value = unsigned.view(np.int64)
        for wanted, column in fields.items():
            is_wanted = (number == wanted) & (kind == _VARINT)
            column[rows[is_wanted]] = value[is_wanted]
        after = after + np.where(kind == _BYTES, value, 0)
        is_broken = (after > end[rows]) | ((kind != _VARINT) & (kind != _BYTES)) | (after <= position[rows])
        fields[_LEDGER][rows[is_broken]] = -1
        position[rows] = np.where(is_broken, end[rows], after)
        broken = rows[is_broken]
        rows = rows[position[rows] < end[rows]]
        if len(broken):
            fields[_ENTRY][broken] = -1
    return fields

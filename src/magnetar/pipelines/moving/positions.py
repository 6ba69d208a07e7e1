"""Positions of rows as numbers, and as the text that a move carries.

    ┌───────────────────┬─────────────────────────────────────────┐
    │ entry id, 46 bits │ batch index + 1, 17 bits; 0 for no batch│
    └───────────────────┴─────────────────────────────────────────┘

Numbers of one ledger are in the order of its messages, so they are sequence ids as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from magnetar.spark.sink.sequence_ids import message_positions
from magnetar.wire.moves import NO_INDEX, PositionRange, Positions

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_INDEX_BITS = 17
_INDEX_MASK = (1 << _INDEX_BITS) - 1


class RowPositions(NamedTuple):
    """Ledger and number of each row."""

    ledgers: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @property
    def entries(self) -> NDArray[np.int64]:
        return self.numbers >> _INDEX_BITS

    @property
    def batch_indexes(self) -> NDArray[np.int64]:
        """-1 outside a batch."""
        return (self.numbers & _INDEX_MASK) - 1


def row_positions(column: str, ids: pa.Array) -> RowPositions:
    """Of a column of serialized message ids; raises `UnwritableRow`, which names the column and the row."""
    ledgers, entries, indexes = message_positions(column, ids)
    return RowPositions(ledgers, entries << _INDEX_BITS | np.maximum(indexes + 1, 0))


def positions_text(ledger_id: int, numbers: NDArray[np.int64]) -> str:
    """The messages with these numbers, which ascend and may occur more than once."""
    if len(numbers) == 1:  # most entries of a topic with keys
        number = int(numbers[0])
        index = number & _INDEX_MASK
        return f"{ledger_id}:{number >> _INDEX_BITS}" + (f".{index - 1}" if index else "")
    numbers = numbers[np.concatenate(([True], np.diff(numbers) > 0))]
    indexes = numbers & _INDEX_MASK
    step = np.where(indexes[1:] == 0, 1 << _INDEX_BITS, 1)  # to a neighbour: the next entry, or the next of its batch
    is_joined = (np.diff(numbers) == step) & ((indexes[1:] == 0) == (indexes[:-1] == 0))
    starts = np.concatenate(([0], np.flatnonzero(~is_joined) + 1))
    ends = np.concatenate((starts[1:] - 1, [len(numbers) - 1]))
    ranges = tuple(map(_range, numbers[starts].tolist(), numbers[ends].tolist()))
    return Positions(ledger_id, ranges).text


def _range(first: int, last: int) -> PositionRange:
    if not first & _INDEX_MASK:
        return PositionRange(first >> _INDEX_BITS, last >> _INDEX_BITS)
    entry_id = first >> _INDEX_BITS
    return PositionRange(entry_id, entry_id, (first & _INDEX_MASK) + NO_INDEX, (last & _INDEX_MASK) + NO_INDEX)

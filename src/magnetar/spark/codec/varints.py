"""Varints of whole columns, with numpy: `wire.varint` for all rows at once.

Owns reading. The three writers of columns of varints stay with their layouts: Avro's pieces, the sink's cells, ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from magnetar.wire.varint import SIZE_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SEPTET, _MORE = np.uint8(0x7F), np.uint8(0x80)


def decode_varints(
    data: NDArray[np.uint8], position: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """The numbers at these positions, the positions after them, and the indexes of those with more than ten bytes.

    The data has to go on for ten bytes after each position.
    """
    byte = data[position]
    value = (byte & _SEPTET).astype(np.uint64)
    after = position + 1
    more = np.flatnonzero(byte & _MORE)
    shift = 7
    while len(more) and shift < 7 * SIZE_MAX:
        byte = data[after[more]]
        value[more] |= (byte & _SEPTET).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[(byte & _MORE) != 0]
        shift += 7
    return value, after, more


def decode_columns(columns: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Varints of the same length, one in each row."""
    value = np.zeros(len(columns), np.uint64)
    for index in range(columns.shape[1]):
        value |= (columns[:, index] & _SEPTET).astype(np.uint64) << np.uint64(7 * index)
    return value

"""Decoded payloads, as every reader of payloads returns them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

Decoded = tuple[list[pa.Array], dict[int, str]]
"""Columns, and errors by row. In a row with an error, the columns that could not be read are null."""


def with_nulls(column: pa.Array, rows: Collection[int]) -> pa.Array:
    """The column with null in these rows."""
    null = np.zeros(len(column), np.bool_)
    null[list(rows)] = True
    return column.take(pa.array(np.arange(len(column)), mask=null))

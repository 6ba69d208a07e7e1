"""Decoded payloads, as every reader of payloads returns them."""

from __future__ import annotations

import pyarrow as pa

Decoded = tuple[list[pa.Array], dict[int, str]]
"""Columns, and errors by row; the values of rows with an error are undefined."""

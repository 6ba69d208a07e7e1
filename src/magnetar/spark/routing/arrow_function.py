"""Functions over Arrow arrays as functions over columns. Spark's own maps over record batches need pandas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType


def arrow_function(function: Callable[..., Any], result: DataType) -> Callable[..., Column]:
    """`function` takes arrays of equal length and returns one; its annotations say so to Spark."""
    made: Any = arrow_udf
    column: Callable[..., Column] = made(function, result)
    return column

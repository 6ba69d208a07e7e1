"""Payloads of primitive schemas as columns and back.

Owns the byte layouts, which are those of the Java client; all numbers are big-endian.

    STRING                 UTF-8
    BOOLEAN                1 byte, 0 is false
    INT8 … INT64           1, 2, 4, 8 bytes
    FLOAT, DOUBLE          4, 8 bytes
    DATE, TIME, TIMESTAMP  milliseconds since 1970 i64
    INSTANT                seconds since 1970 i64 | nanoseconds i32
    LOCAL_DATE             days since 1970 i64
    LOCAL_TIME             nanoseconds of the day i64
    LOCAL_DATE_TIME        days since 1970 i64 | nanoseconds of the day i64
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from magnetar.spark.codec.decoded import Decoded

Numbers = np.ndarray[Any, Any]

_DAY_NS = 86_400_000_000_000
_DAY_US = _DAY_NS // 1000
_MICROS_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class Layout:
    """The numpy dtype of the bytes, and its conversion to and from the Arrow values of the column."""

    spark_type: spark.DataType
    dtype: np.dtype[Any]
    from_stored: Callable[[Numbers], Numbers]
    to_stored: Callable[[Numbers], Numbers]
    is_in_range: Callable[[Numbers], Numbers] | None = None


def _same(numbers: Numbers) -> Numbers:
    return numbers


def _fits_millis(millis: Numbers) -> Numbers:
    return np.abs(millis.astype(np.float64)) < _MICROS_MAX / 1000


def _instant(stored: Numbers) -> Numbers:
    micros: Numbers = stored["seconds"].astype(np.int64) * 1_000_000 + stored["nanos"] // 1000
    return micros


def _to_instant(micros: Numbers) -> Numbers:
    stored = np.empty(len(micros), _INSTANT)
    stored["seconds"] = micros // 1_000_000
    stored["nanos"] = micros % 1_000_000 * 1000
    return stored


def _local(stored: Numbers) -> Numbers:
    micros: Numbers = stored["days"].astype(np.int64) * _DAY_US + stored["nanos"] // 1000
    return micros


def _to_local(micros: Numbers) -> Numbers:
    stored = np.empty(len(micros), _LOCAL_DATE_TIME)
    stored["days"] = micros // _DAY_US
    stored["nanos"] = micros % _DAY_US * 1000
    return stored


_INSTANT = np.dtype([("seconds", ">i8"), ("nanos", ">i4")])
_LOCAL_DATE_TIME = np.dtype([("days", ">i8"), ("nanos", ">i8")])
_MILLIS = Layout(spark.TimestampType(), np.dtype(">i8"), lambda ms: ms * 1000, lambda us: us // 1000, _fits_millis)

LAYOUTS: dict[str, Layout] = {
    "BOOLEAN": Layout(spark.BooleanType(), np.dtype("u1"), lambda one: one != 0, lambda one: one.astype(np.uint8)),
    "INT8": Layout(spark.ByteType(), np.dtype("i1"), _same, _same),
    "INT16": Layout(spark.ShortType(), np.dtype(">i2"), _same, _same),
    "INT32": Layout(spark.IntegerType(), np.dtype(">i4"), _same, _same),
    "INT64": Layout(spark.LongType(), np.dtype(">i8"), _same, _same),
    "FLOAT": Layout(spark.FloatType(), np.dtype(">f4"), _same, _same),
    "DOUBLE": Layout(spark.DoubleType(), np.dtype(">f8"), _same, _same),
    "DATE": _MILLIS,
    "TIME": _MILLIS,
    "TIMESTAMP": _MILLIS,
    "INSTANT": Layout(
        spark.TimestampType(),
        _INSTANT,
        _instant,
        _to_instant,
        lambda stored: np.abs(stored["seconds"].astype(np.float64)) < _MICROS_MAX / 1_000_000 - 1,
    ),
    "LOCAL_DATE": Layout(
        spark.DateType(), np.dtype(">i8"), _same, _same, lambda days: days.astype(np.int64) == days.astype(np.int32)
    ),
    "LOCAL_TIME": Layout(
        spark.TimeType(), np.dtype(">i8"), _same, _same, lambda nanos: (nanos >= 0) & (nanos < _DAY_NS)
    ),
    "LOCAL_DATE_TIME": Layout(
        spark.TimestampNTZType(),
        _LOCAL_DATE_TIME,
        _local,
        _to_local,
        lambda stored: np.abs(stored["days"].astype(np.float64)) < _MICROS_MAX // _DAY_US - 1,
    ),
}

_AS_NUMBERS: dict[type[spark.DataType], Any] = {
    spark.TimestampType: np.int64,
    spark.TimestampNTZType: np.int64,
    spark.TimeType: np.int64,
    spark.DateType: np.int32,
}


def spark_type(schema_type: str) -> spark.DataType:
    return spark.StringType() if schema_type == "STRING" else LAYOUTS[schema_type].spark_type


def arrow_type(schema_type: str) -> pa.DataType:
    return to_arrow_type(spark_type(schema_type), timezone="UTC")


def decode(values: pa.Array, schema_type: str) -> Decoded:
    if schema_type == "STRING":
        return _decode_text(values)
    layout = LAYOUTS[schema_type]
    size = layout.dtype.itemsize
    rows = len(values)
    offsets = np.frombuffer(values.buffers()[1], np.int32, rows + 1, values.offset * 4)
    is_valid = np.asarray(values.is_valid()) if values.null_count else np.ones(rows, np.bool_)
    fits = np.diff(offsets) == size
    stored = np.zeros(rows, layout.dtype)
    good = is_valid & fits
    if good.any():
        raw = np.frombuffer(values.buffers()[2], np.uint8)
        stored.view(np.uint8).reshape(rows, size)[good] = raw[offsets[:-1][good][:, None] + np.arange(size)]
    errors = {
        row: f"{schema_type} has {size} bytes, not {offsets[row + 1] - offsets[row]}"
        for row in np.flatnonzero(is_valid & ~fits).tolist()
    }
    if layout.is_in_range is not None:
        outside = good & ~layout.is_in_range(stored)
        errors |= dict.fromkeys(np.flatnonzero(outside).tolist(), f"{schema_type} is out of Spark's range")
        good &= ~outside
        stored[outside] = np.zeros((), layout.dtype)
    return [_column(layout, stored, ~good)], errors


def _column(layout: Layout, stored: Numbers, null: Numbers) -> pa.Array:
    numbers = layout.from_stored(stored)
    kind = to_arrow_type(layout.spark_type, timezone="UTC")
    native = numbers.astype(_AS_NUMBERS.get(type(layout.spark_type), numbers.dtype.newbyteorder("=")))
    column = pa.array(native, mask=null if null.any() else None)
    return column if column.type == kind else column.cast(kind)


def _decode_text(values: pa.Array) -> Decoded:
    try:
        return [values.cast(pa.string())], {}
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    errors = {}
    for row, each in enumerate(values.to_pylist()):
        try:
            texts.append(None if each is None else each.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            errors[row] = f"STRING is not UTF-8 at byte {error.start}"
    return [pa.array(texts, pa.string())], errors


def encode(column: pa.Array, schema_type: str) -> list[bytes | None]:
    """Encodes a column of `arrow_type`; null stays null."""
    if schema_type == "STRING":
        return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
    layout = LAYOUTS[schema_type]
    native = _AS_NUMBERS.get(type(layout.spark_type))
    if native is not None:
        column = column.cast(pa.int32() if native is np.int32 else pa.int64())
    numbers = np.asarray(column.fill_null(False if pa.types.is_boolean(column.type) else 0))
    stored = layout.to_stored(numbers).astype(layout.dtype)
    size, raw = layout.dtype.itemsize, stored.tobytes()
    payloads: list[bytes | None] = [raw[at : at + size] for at in range(0, len(raw), size)]
    if column.null_count:
        is_valid = np.asarray(column.is_valid()).tolist()
        payloads = [each if valid else None for each, valid in zip(payloads, is_valid, strict=True)]
    return payloads

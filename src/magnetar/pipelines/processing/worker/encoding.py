"""Payloads of what a function returned, in the form of the target topic's schema.

A value that does not match it fails its own row only. Owns what a value may be without a schema.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from magnetar.client.connection.retry import with_retry_blocking
from magnetar.client.inline import InlineClient
from magnetar.client.schema import Schema
from magnetar.names import TopicName
from magnetar.pipelines.processing.call.function import InvalidProcess
from magnetar.spark.client_options import SparkClientOptions
from magnetar.spark.clients import inline_client
from magnetar.spark.codec.columns import VALUE
from magnetar.spark.codec.value_decoder import has_separate_keys
from magnetar.spark.codec.value_encoder import UnencodableValue, ValueEncoder
from magnetar.spark.errors import InvalidOption

_CACHED_S = 30.0
_ENCODERS_MAX = 64

_json = msgspec.json.Encoder(decimal_format="number")
_encoders: OrderedDict[tuple[SparkClientOptions, str], tuple[float, OutputEncoder]] = OrderedDict()


class Encoded(NamedTuple):
    """A binary column, and the errors of rows, whose payloads are null."""

    payloads: pa.Array
    errors: dict[int, str]


class OutputEncoder:
    """For one topic. `version` is the number of its schema, -1 without one."""

    def __init__(self, topic: str, schema: Schema | None) -> None:
        self.topic = topic
        self.schema = schema
        self.version = -1
        self._encoder: ValueEncoder | None = None
        if schema is not None and schema.type not in ("BYTES", "NONE"):
            if has_separate_keys(schema):
                raise InvalidProcess(f"into: the schema of {topic} keeps its keys apart, which is not supported")
            self._encoder = ValueEncoder(schema)
        if schema is not None and len(schema.version) == 8:
            self.version = int.from_bytes(schema.version, "big")
        self._arrow = None if self._encoder is None else _arrow_schema(self._encoder)

    @property
    def is_typed(self) -> bool:
        return self._encoder is not None

    # -- values

    def values(self, values: Sequence[Any]) -> Encoded:
        """Bytes are payloads already."""
        if self._encoder is None:
            return _untyped(values)
        rows = [row for row, value in enumerate(values) if not isinstance(value, bytes) and value is not None]
        payloads = [value if isinstance(value, bytes) else None for value in values]
        errors: dict[int, str] = {}
        for row, payload in zip(rows, self._typed([values[row] for row in rows], rows, errors), strict=True):
            payloads[row] = payload
        return Encoded(pa.array(payloads, pa.binary()), errors)

    def _typed(self, values: list[Any], rows: list[int], errors: dict[int, str]) -> list[bytes | None]:
        """All at once; one by one if one of them does not match."""
        if not values:
            return []
        try:
            return self._encode(values)
        except (UnencodableValue, InvalidOption, pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            if len(values) == 1:
                errors[rows[0]] = f"the result does not match the schema of {self.topic}: {error}"
                return [None]
        half = len(values) // 2
        return self._typed(values[:half], rows[:half], errors) + self._typed(values[half:], rows[half:], errors)

    def _encode(self, values: list[Any]) -> list[bytes | None]:
        assert self._encoder is not None and self._arrow is not None
        if self._arrow.names == [VALUE]:
            batch = pa.RecordBatch.from_arrays([pa.array(values, self._arrow.field(0).type)], schema=self._arrow)
        else:
            names = set(self._arrow.names)
            for value in values:
                _check_record(value, names)
            batch = pa.RecordBatch.from_pylist(values, self._arrow)
        found: list[bytes | None] = self._encoder.encode(batch).to_pylist()
        return found

    # -- batches

    def batch(self, batch: pa.RecordBatch) -> Encoded:
        """Of the columns whose names do not begin with `__`."""
        names = [name for name in batch.schema.names if not name.startswith("__")]
        columns = batch.select(names)
        if self._encoder is None:
            if names != [VALUE]:
                return Encoded(pa.array([_json.encode(row) for row in columns.to_pylist()], pa.binary()), {})
            column = columns.column(0)
            if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
                return Encoded(column.cast(pa.binary()), {})
            return _untyped(column.to_pylist())
        errors: dict[int, str] = {}
        pieces = self._pieces(columns, 0, errors)
        return Encoded(pa.concat_arrays(pieces) if pieces else pa.nulls(0, pa.binary()), errors)

    def _pieces(self, batch: pa.RecordBatch, start: int, errors: dict[int, str]) -> list[pa.Array]:
        assert self._encoder is not None
        if not batch.num_rows:
            return []
        try:
            return [self._encoder.encode(batch)]
        except (UnencodableValue, InvalidOption, pa.ArrowException) as error:
            if batch.num_rows == 1 or isinstance(error, InvalidOption):
                text = f"the result does not match the schema of {self.topic}: {error}"
                errors.update((start + row, text) for row in range(batch.num_rows))
                return [pa.nulls(batch.num_rows, pa.binary())]
        half = batch.num_rows // 2
        return self._pieces(batch.slice(0, half), start, errors) + self._pieces(batch.slice(half), start + half, errors)


def encoder_for(options: SparkClientOptions, topic: str) -> OutputEncoder:
    """Of the topic's latest schema, which is looked up again from time to time."""
    key = (options, topic)
    cached_at_s, found = _encoders.get(key, (float("-inf"), None))
    if found is not None and time.monotonic() - cached_at_s < _CACHED_S:
        return found
    client: InlineClient = inline_client(options)
    base = TopicName.parse(topic).base.full
    schema = with_retry_blocking(lambda: client.run(client.client.schema(base)), options.operation_timeout_s)
    found = OutputEncoder(base, schema)
    _encoders[key] = time.monotonic(), found
    while len(_encoders) > _ENCODERS_MAX:
        _encoders.popitem(last=False)
    return found


def _arrow_schema(encoder: ValueEncoder) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    found: pa.Schema = to_arrow_schema(StructType(encoder.fields), timezone="UTC")
    return found


def _check_record(value: Any, names: set[str]) -> None:
    if not isinstance(value, dict):
        raise UnencodableValue(f"{type(value).__name__} is not a dict with the fields {', '.join(sorted(names))}")
    unknown = next((name for name in value if name not in names), None)
    if unknown is not None:
        raise UnencodableValue(f"field {unknown!r} is not in the schema, which has {', '.join(sorted(names))}")


def _untyped(values: Sequence[Any]) -> Encoded:
    payloads: list[bytes | None] = []
    errors: dict[int, str] = {}
    for row, value in enumerate(values):
        payload: bytes | None = None
        if isinstance(value, bytes):
            payload = value
        elif isinstance(value, str):
            payload = value.encode(errors="replace")
        elif value is not None:
            try:
                payload = _json.encode(value)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                errors[row] = f"the result of type {type(value).__name__} cannot be written as JSON: {error}"
        payloads.append(payload)
    return Encoded(pa.array(payloads, pa.binary()), errors)

"""Value encoder: typed columns as payloads, by the schema of the topic.

Owns the check of columns against the schema. Layouts are in `avro.writer` and `primitive`; definitions with arrays and
maps are written by fastavro, row by row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from io import BytesIO
from typing import Any

import fastavro
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from magnetar.client.schema import Schema
from magnetar.schema.key_value import encode_key_value
from magnetar.spark.codec import primitive
from magnetar.spark.codec.avro.columns import can_read
from magnetar.spark.codec.avro.fields import Node, member_name
from magnetar.spark.codec.avro.reader import fastavro_schema, union_member
from magnetar.spark.codec.avro.resolution import to_storage
from magnetar.spark.codec.avro.writer import NullRejected, encode_records
from magnetar.spark.codec.columns import PAIR_KEY, VALUE
from magnetar.spark.codec.value_decoder import PayloadType, fields_of, has_separate_keys, key_and_value, payload_type_of
from magnetar.spark.errors import InvalidOption, SparkSourceError

_json = msgspec.json.Encoder(decimal_format="number")


class UnencodableValue(SparkSourceError):
    """A row that does not match the topic's schema; the text names its column."""


class ValueEncoder:
    """Encodes rows by one schema. Columns whose names begin with `__` are ignored."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.fields = fields_of(schema)
        self._types = {field.name: to_arrow_type(field.dataType, timezone="UTC") for field in self.fields}
        self._is_pair = schema.type == "KEY_VALUE"
        if self._is_pair:
            key, value = key_and_value(schema)
            self._key, self._value = _writer(key), _writer(value)
        else:
            self._value = _writer(payload_type_of(schema))

    @property
    def has_keys(self) -> bool:
        """Whether the columns include the message keys (`encode_keys`)."""
        return has_separate_keys(self.schema)

    def check(self, columns: pa.Schema) -> None:
        """Raises `InvalidOption`, which names the first column that is missing, unknown or of another type."""
        for name, kind in self._types.items():
            if name not in columns.names:
                raise InvalidOption(f"column {name!r} is missing: the topic's schema requires it as {_called(kind)}")
            _check_type(name, columns.field(name).type, kind)
        for name in columns.names:
            if name not in self._types and not name.startswith("__"):
                raise InvalidOption(
                    f"column {name!r} is not in the topic's schema, which has {', '.join(self._types) or 'no fields'}"
                )

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Payloads as a binary column. AVRO without arrays and maps needs no object per row.

        Raises `InvalidOption` for a wrong column and `UnencodableValue` for a wrong value.
        """
        self.check(batch.schema)
        columns = [self._column(batch, name) for name in self._types]
        try:
            if self._is_pair:
                return self._pairs(columns[0], columns[1])
            return self._value.encode(columns, batch.num_rows)
        except (NullRejected, ValueError, TypeError, OverflowError) as error:
            raise UnencodableValue(str(error)) from None

    def encode_keys(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """Message keys of a separated KEY_VALUE schema."""
        self.check(batch.schema)
        return self._key.encode_one(self._column(batch, PAIR_KEY)).to_pylist()  # type: ignore[no-any-return]

    def _pairs(self, keys: pa.Array, values: pa.Array) -> pa.Array:
        payloads = self._value.encode_one(values)
        if self.has_keys:
            return payloads
        pairs = zip(self._key.encode_one(keys).to_pylist(), payloads.to_pylist(), strict=True)
        return pa.array([encode_key_value(key, value) for key, value in pairs], pa.binary())

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        column, kind = batch.column(name), self._types[name]
        if column.type != kind:
            column = column.cast(kind)
        # A slice is copied, so that encoders need not handle offsets.
        return column if column.offset == 0 else column.take(pa.array(np.arange(len(column))))


# -- columns


def _check_type(name: str, given: pa.DataType, wanted: pa.DataType) -> None:
    if given == wanted or _called(given) == _called(wanted) or _widens(given, wanted):
        return
    raise InvalidOption(f"column {name!r} is {_called(given)}, but the topic's schema has {_called(wanted)}")


def _called(kind: pa.DataType) -> str:
    try:
        return from_arrow_type(kind).simpleString()
    except Exception:  # no Spark type
        return str(kind)


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_integer(given) and pa.types.is_integer(wanted):
        return bool(given.bit_width <= wanted.bit_width)
    if pa.types.is_decimal(given) and pa.types.is_decimal(wanted):
        return bool(given.scale <= wanted.scale and given.precision - given.scale <= wanted.precision - wanted.scale)
    return bool(pa.types.is_float32(given) and pa.types.is_float64(wanted))


# -- writers


class _Writer(ABC):
    """Writer of one payload type: `encode` takes the fields of a record or one column, `encode_one` a single column."""

    def __init__(self, payload_type: PayloadType) -> None:
        self._payload_type = payload_type

    @abstractmethod
    def encode(self, columns: list[pa.Array], rows: int) -> pa.Array: ...

    def encode_one(self, column: pa.Array) -> pa.Array:
        if not self._payload_type.is_record:
            return self.encode([column], len(column))
        whole = column.drop_null()
        payloads = iter(self.encode(whole.flatten(), len(whole)).to_pylist())
        return pa.array([next(payloads) if valid else None for valid in column.is_valid().to_pylist()], pa.binary())


class _RawWriter(_Writer):
    def encode(self, columns: list[pa.Array], rows: int) -> pa.Array:
        return columns[0]


class _PrimitiveWriter(_Writer):
    def encode(self, columns: list[pa.Array], rows: int) -> pa.Array:
        return pa.array(primitive.encode(columns[0], self._payload_type.type), pa.binary())


class _NodeWriter(_Writer):
    def __init__(self, payload_type: PayloadType) -> None:
        super().__init__(payload_type)
        assert payload_type.node is not None
        self._node = payload_type.node
        self._fields = (
            [(each.name, each.node) for each in payload_type.node.fields]
            if payload_type.is_record
            else [(VALUE, payload_type.node)]
        )

    def _stored(self, columns: list[pa.Array], *, for_json: bool) -> list[pa.Array]:
        stored = []
        for (name, node), column in zip(self._fields, columns, strict=True):
            if column.null_count and not node.is_nullable and self._payload_type.is_record:
                row = column.is_null().index(True).as_py()
                raise NullRejected(f"column {name!r}", row, node.logical or node.kind)
            try:
                stored.append(to_storage(column, node, for_json=for_json))
            except (pa.ArrowInvalid, OverflowError, ValueError) as error:
                raise ValueError(f"column {name!r}: {error}") from None
        return stored


class _JsonWriter(_NodeWriter):
    def __init__(self, payload_type: PayloadType) -> None:
        super().__init__(payload_type)
        members = [(f"f{index}", Any, None) for index in range(len(self._fields))]
        rename = {f"f{index}": name for index, (name, _) in enumerate(self._fields)}
        # Nulls are omitted, as in Java.
        self._struct: Any = msgspec.defstruct("Payload", members, rename=rename, omit_defaults=True, gc=False)

    def encode(self, columns: list[pa.Array], rows: int) -> pa.Array:
        stored = self._stored(columns, for_json=True)
        lists = [
            _json_values(column, node, f"column {name!r}")
            for column, (name, node) in zip(stored, self._fields, strict=True)
        ]
        encode, make = _json.encode, self._struct
        if not self._payload_type.is_record:
            payloads = [None if each is None else encode(each) for each in lists[0]]
        elif not lists:
            payloads = [b"{}"] * rows
        else:
            payloads = [encode(make(*row)) for row in zip(*lists, strict=True)]
        return pa.array(payloads, pa.binary())


def _json_values(column: pa.Array, node: Node, where: str) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if node.kind in ("float", "double"):
        if pc.all(pc.is_finite(column), min_count=0).as_py():
            return values
    elif node.kind == "enum":
        for symbol in column.unique().to_pylist():
            _check_symbol(symbol, node, where)
        return values
    elif not node.fields and node.items is None and not node.members:
        return values
    return [_json_value(each, node, where) if each is not None else None for each in values]


def _json_value(value: Any, node: Node, where: str) -> Any:
    """Raises `ValueError` for a null or a symbol that the definition does not have."""
    if value is None:
        if not node.is_nullable:
            raise ValueError(f"{where} is null, but the topic's schema has {node.logical or node.kind} without null")
        return None
    if node.kind in ("float", "double"):
        # JSON has no literal for these; Jackson reads and writes these strings.
        return value if math.isfinite(value) else "NaN" if value != value else f"{'-' * (value < 0)}Infinity"
    if node.kind == "record":
        return {each.name: _json_value(value[each.name], each.node, f"{where}.{each.name}") for each in node.fields}
    if node.kind == "array":
        return [_json_value(each, node.inner, f"{where}[]") for each in value]
    if node.kind == "map":
        return {key: _json_value(each, node.inner, f"{where}[]") for key, each in value}
    if node.kind == "union":
        for index, member in enumerate(node.members):
            if value[member_name(index)] is not None:
                return _json_value(value[member_name(index)], member, where)
        return None
    if node.kind == "enum":
        _check_symbol(value, node, where)
    return value


def _check_symbol(symbol: str | None, node: Node, where: str) -> None:
    if symbol is not None and symbol not in node.symbols:
        raise ValueError(f"{where}: {symbol!r} is not one of the symbols {', '.join(node.symbols)[:200]}")


class _AvroWriter(_NodeWriter):
    def __init__(self, payload_type: PayloadType) -> None:
        super().__init__(payload_type)
        self._at_once = payload_type.is_record and self._node.null_at < 0 and can_read(self._node)
        self._schema: Any = None if self._at_once else fastavro.parse_schema(fastavro_schema(self._node))

    def encode(self, columns: list[pa.Array], rows: int) -> pa.Array:
        stored = self._stored(columns, for_json=False)
        if self._at_once:
            return encode_records(stored, self._node, rows)
        path = "r_{}" if self._payload_type.is_record else "r"
        lists = [
            [_avro_value(each, node, path.format(index)) for each in column.to_pylist()]
            for index, (column, (_, node)) in enumerate(zip(stored, self._fields, strict=True))
        ]
        if not self._payload_type.is_record:
            return pa.array([None if each is None else self._payload(each) for each in lists[0]], pa.binary())
        names = [name for name, _ in self._fields]
        rows_made = (dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True))
        return pa.array([self._payload(each) for each in rows_made], pa.binary())

    def _payload(self, value: Any) -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, self._schema, value, strict=True)
        return out.getvalue()


def _avro_value(value: Any, node: Node, path: str) -> Any:
    """The value for fastavro; `path` is that of `fastavro_schema`."""
    if value is None:
        return None
    if node.kind == "record":
        return {
            each.name: _avro_value(value[each.name], each.node, f"{path}_{index}")
            for index, each in enumerate(node.fields)
        }
    if node.kind == "array":
        return [_avro_value(each, node.inner, f"{path}_i") for each in value]
    if node.kind == "map":
        return {key: _avro_value(each, node.inner, f"{path}_i") for key, each in value}
    if node.kind == "union":
        for index, member in enumerate(node.members):
            inside = value[member_name(index)]
            if inside is not None:
                made = _avro_value(inside, member, f"{path}_{index}")
                return union_member(path, index), {member_name(index): made}
        return None
    return value


def _writer(payload_type: PayloadType) -> _Writer:
    if payload_type.type == "raw":
        return _RawWriter(payload_type)
    if payload_type.node is None:
        return _PrimitiveWriter(payload_type)
    return _JsonWriter(payload_type) if payload_type.type == "JSON" else _AvroWriter(payload_type)

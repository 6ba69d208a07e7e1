"""Avro definitions as types of Spark and Arrow.

Owns the tree that a definition unfolds to, and the type of each node. Knows neither payloads nor Avro's notation, which
`schema.avro` parses.

`storage_type` is what Avro writes, without logical types: days and milliseconds as numbers, decimals as bytes.
`arrow_type` is what Spark derives for the column, where those are dates, timestamps and decimals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from magnetar.schema.avro import AvroDefinitionError, AvroType, field_path, parse_definition
from magnetar.spark.errors import SparkSourceError

NODES_MAX = 10_000
"""Types that one definition may unfold to: references to references multiply."""

DECIMAL_DIGITS_MAX = 38
FIXED_SIZE_MAX = 64 << 20
_DEPTH_MAX = 60

_LOGICAL = {
    "int": {"date", "time-millis"},
    "long": {
        "time-micros",
        *(f"{zone}timestamp-{unit}" for zone in ("", "local-") for unit in ("millis", "micros", "nanos")),
    },
    "string": {"uuid"},
    "bytes": {"decimal"},
    "fixed": {"decimal", "uuid"},
}


class UnsupportedSchema(SparkSourceError):
    """A definition that cannot be read, or that has no counterpart in Spark."""


@dataclass(frozen=True, slots=True)
class Node:
    """One type. A union of null and one other is that other with `null_at`, a wider one has `members` without null."""

    kind: str
    name: str = ""
    logical: str = ""
    null_at: int = -1
    fields: tuple[Field, ...] = ()
    items: Node | None = None
    members: tuple[Node, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    weight: int = field(default=1, compare=False)

    @property
    def is_nullable(self) -> bool:
        return self.null_at >= 0 or self.kind == "null"

    @property
    def inner(self) -> Node:
        """The type of an array's items or a map's values."""
        assert self.items is not None
        return self.items


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    node: Node
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = field(default=None, compare=False)


def parse(data: bytes) -> Node:
    """The tree of a definition; raises `UnsupportedSchema`."""
    try:
        return _Unfolding().node(parse_definition(data), "the schema", 0)
    except AvroDefinitionError as error:
        raise UnsupportedSchema(str(error)) from None


class _Unfolding:
    """Turns the graph of a definition into a tree, with each reference replaced by the type it refers to."""

    def __init__(self) -> None:
        self._records: dict[AvroType, Node | None] = {}  # None while it is unfolded

    def node(self, type_: AvroType, where: str, depth: int) -> Node:
        if depth > _DEPTH_MAX:
            raise UnsupportedSchema(f"{where}: nested deeper than {_DEPTH_MAX} types")
        if type_.kind == "union":
            node = self._union(type_, where, depth)
        elif type_.kind in ("array", "map"):
            node = self._items(type_, where, depth)
        elif type_.kind == "record":
            node = self._record(type_, where, depth)
        elif type_.kind == "enum":
            node = Node("enum", name=type_.name, symbols=type_.symbols)
        else:
            node = _with_logical(type_)
        if node.weight > NODES_MAX:
            raise UnsupportedSchema(f"{where}: the schema unfolds to more than {NODES_MAX} types")
        return node

    def _items(self, type_: AvroType, where: str, depth: int) -> Node:
        items = self.node(type_.parts[0], where, depth + 1)
        if type_.kind == "array" and _is_empty(items):
            # A payload of ten bytes could claim a billion of them.
            raise UnsupportedSchema(f"{where}: an array whose items have no bytes")
        return Node(type_.kind, items=items, weight=1 + items.weight)

    def _record(self, type_: AvroType, where: str, depth: int) -> Node:
        if type_ in self._records:
            found = self._records[type_]
            if found is None:
                raise UnsupportedSchema(
                    f"{where}: {type_.full_name} contains itself, and a column of Spark cannot: read it with option"
                    " decode=raw"
                )
            return found
        self._records[type_] = None
        fields = tuple(
            Field(
                each.name,
                self.node(each.type, field_path(where, each.name), depth + 1),
                each.aliases,
                each.has_default,
                each.default,
            )
            for each in type_.fields
        )
        names = [each.name for each in fields]
        if twice := {name for name in names if names.count(name) > 1}:
            raise UnsupportedSchema(f"{where}: the field {min(twice)!r} occurs twice")
        node = Node("record", name=type_.name, fields=fields, weight=1 + sum(each.node.weight for each in fields))
        self._records[type_] = node
        return node

    def _union(self, type_: AvroType, where: str, depth: int) -> Node:
        every = [self.node(each, where, depth + 1) for each in type_.parts]
        null_at = next((i for i, each in enumerate(every) if each.kind == "null"), -1)
        members = [each for each in every if each.kind != "null"]
        if any(each.kind == "union" or each.is_nullable for each in members):
            raise UnsupportedSchema(f"{where}: a union in a union")
        if len(members) == 1:
            return replace(members[0], null_at=null_at)
        if not members:
            raise UnsupportedSchema(f"{where}: a union of null only")
        return Node("union", null_at=null_at, members=tuple(members), weight=1 + sum(each.weight for each in members))


def _is_empty(node: Node) -> bool:
    if node.null_at >= 0 or node.kind not in ("null", "record", "fixed"):
        return False
    return node.size == 0 and all(_is_empty(each.node) for each in node.fields)


def _with_logical(type_: AvroType) -> Node:
    """A logical type that is unknown, or not of this type, is ignored, as Avro demands."""
    kind, name, size, logical = type_.kind, type_.name, type_.size, type_.logical
    if size > FIXED_SIZE_MAX:
        raise UnsupportedSchema(f"fixed {name}: a size of {size} bytes exceeds the limit of {FIXED_SIZE_MAX}")
    if logical not in _LOGICAL.get(kind, ()) or (logical == "uuid" and kind == "fixed" and size != 16):
        return Node(kind, name=name, size=size)
    if logical == "decimal":
        precision, scale = type_.precision, type_.scale
        fits = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= DECIMAL_DIGITS_MAX
        if not fits or precision == 0:
            return Node(kind, name=name, size=size)
        return Node(kind, name=name, size=size, logical=logical, precision=int(precision), scale=int(scale))
    return Node(kind, name=name, size=size, logical=logical)


# -- types of Spark and Arrow

_SPARK: dict[str, Callable[[], spark.DataType]] = {
    "null": spark.NullType,
    "boolean": spark.BooleanType,
    "int": spark.IntegerType,
    "long": spark.LongType,
    "float": spark.FloatType,
    "double": spark.DoubleType,
    "bytes": spark.BinaryType,
    "string": spark.StringType,
    "enum": spark.StringType,
    "fixed": spark.BinaryType,
}
_SPARK_LOGICAL: dict[str, Callable[[], spark.DataType]] = {
    "date": spark.DateType,
    "uuid": spark.StringType,
    "time-millis": spark.TimeType,
    "time-micros": spark.TimeType,
    **{f"timestamp-{unit}": spark.TimestampType for unit in ("millis", "micros", "nanos")},
    **{f"local-timestamp-{unit}": spark.TimestampNTZType for unit in ("millis", "micros", "nanos")},
}
_STORAGE: dict[str, Callable[[], pa.DataType]] = {
    "null": pa.null,
    "boolean": pa.bool_,
    "int": pa.int32,
    "long": pa.int64,
    "float": pa.float32,
    "double": pa.float64,
    "bytes": pa.binary,
    "string": pa.string,
    "enum": pa.string,
    "fixed": pa.binary,
}


def member_name(index: int) -> str:
    """The field of a union's member in its struct column, named as in Spark's own Avro source."""
    return f"member{index}"


@cache
def spark_type(node: Node) -> spark.DataType:
    """Every type is nullable: older versions lack fields, and JSON may omit any."""
    if node.logical == "decimal":
        return spark.DecimalType(node.precision, node.scale)
    if node.logical:
        return _SPARK_LOGICAL[node.logical]()
    if node.kind == "array":
        return spark.ArrayType(spark_type(node.inner))
    if node.kind == "map":
        return spark.MapType(spark.StringType(), spark_type(node.inner))
    if node.kind == "record":
        return spark.StructType([spark.StructField(each.name, spark_type(each.node)) for each in node.fields])
    if node.kind == "union":
        return spark.StructType(
            [spark.StructField(member_name(i), spark_type(each)) for i, each in enumerate(node.members)]
        )
    return _SPARK[node.kind]()


@cache
def arrow_type(node: Node) -> pa.DataType:
    return to_arrow_type(spark_type(node), timezone="UTC")


@cache
def storage_type(node: Node) -> pa.DataType:
    if node.kind == "array":
        return pa.list_(pa.field("element", storage_type(node.inner)))
    if node.kind == "map":
        return pa.map_(pa.string(), storage_type(node.inner))
    if node.kind == "record":
        return pa.struct([pa.field(each.name, storage_type(each.node)) for each in node.fields])
    if node.kind == "union":
        return pa.struct([pa.field(member_name(i), storage_type(each)) for i, each in enumerate(node.members)])
    return _STORAGE[node.kind]()


def default_of(node: Node, default: Any) -> Any:
    """A field's default in the definition, as a value of the storage type."""
    if default is None:
        return None
    if node.kind == "union":
        return {member_name(0): default_of(node.members[0], default)}
    if node.kind in ("bytes", "fixed"):
        return default.encode("latin-1")
    if node.kind == "array":
        return [default_of(node.inner, each) for each in default]
    if node.kind == "map":
        return {key: default_of(node.inner, each) for key, each in default.items()}
    if node.kind == "record":
        return {each.name: default_of(each.node, default.get(each.name, each.default)) for each in node.fields}
    return default

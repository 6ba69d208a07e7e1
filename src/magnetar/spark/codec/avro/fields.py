"""Definitions in Avro's notation, which describe AVRO and JSON topics alike, as types of Spark and Arrow.

Owns the tree that a definition unfolds to, and which type each node of it has. It does not know payloads.

`storage_type` is what Avro writes, without logical types: days and milliseconds as numbers, decimals as bytes.
`arrow_type` is what Spark derives for the column, where those are dates, timestamps and decimals.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from magnetar.spark.errors import SparkSourceError

NODES_MAX = 10_000
"""Types that one definition may unfold to: names that refer to names grow fast."""

DECIMAL_DIGITS_MAX = 38
FIXED_SIZE_MAX = 64 << 20
_DEPTH_MAX = 60

_PLAIN = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
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
        """What an array or a map holds."""
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
        return _Parser().node(json.loads(data), "", "the schema", 0)
    except (ValueError, RecursionError) as error:
        raise UnsupportedSchema(f"the schema's definition is not JSON: {error}") from None


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Node | None] = {}

    def node(self, described: Any, namespace: str, where: str, depth: int) -> Node:
        if depth > _DEPTH_MAX:
            raise UnsupportedSchema(f"{where}: nested deeper than {_DEPTH_MAX} types")
        if isinstance(described, list):
            node = self._union(described, namespace, where, depth)
        elif isinstance(described, str):
            node = Node(described) if described in _PLAIN else self._reference(described, namespace, where)
        elif isinstance(described, dict):
            node = self._described(described, namespace, where, depth)
        else:
            raise UnsupportedSchema(f"{where}: {str(described)[:100]!r} is no type of Avro")
        if node.weight > NODES_MAX:
            raise UnsupportedSchema(f"{where}: the schema unfolds to more than {NODES_MAX} types")
        return node

    def _reference(self, name: str, namespace: str, where: str) -> Node:
        for full in (name,) if "." in name or not namespace else (f"{namespace}.{name}", name):
            if full in self._named:
                found = self._named[full]
                if found is None:
                    raise UnsupportedSchema(
                        f"{where}: {full} contains itself, and a column of Spark cannot: read it with option decode=raw"
                    )
                return found
        raise UnsupportedSchema(f"{where}: unknown type {name[:100]!r}")

    def _described(self, described: dict[str, Any], namespace: str, where: str, depth: int) -> Node:
        kind = described.get("type")
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(described, str(kind), namespace, where, depth)
        if kind in ("array", "map"):
            items = self.node(described.get("items" if kind == "array" else "values"), namespace, where, depth + 1)
            if kind == "array" and _is_empty(items):
                # A payload of ten bytes could say that there are a billion of them.
                raise UnsupportedSchema(f"{where}: an array of what has no bytes")
            return Node(kind, items=items, weight=1 + items.weight)
        if isinstance(kind, str) and kind in _PLAIN:
            return _with_logical(kind, described)
        return self.node(kind, namespace, where, depth + 1)

    def _defined(self, described: dict[str, Any], kind: str, namespace: str, where: str, depth: int) -> Node:
        name, space = str(described.get("name", "")), described.get("namespace")
        if "." in name:
            space, _, name = name.rpartition(".")
        space = namespace if space is None else str(space)
        full = f"{space}.{name}" if space else name
        if kind == "enum":
            node = Node("enum", name=name, symbols=tuple(map(str, described.get("symbols", ()))))
        elif kind == "fixed":
            node = _with_logical("fixed", described, name=name)
        else:
            self._named[full] = None
            node = self._record(described, name, space, where, depth)
        self._named[full] = node
        return node

    def _record(self, described: dict[str, Any], name: str, space: str, where: str, depth: int) -> Node:
        fields = []
        for each in described.get("fields") or ():
            if not isinstance(each, dict) or "name" not in each:
                raise UnsupportedSchema(f"{where}: {str(each)[:100]!r} is no field of a record")
            inside = f"field {each['name']}" if depth == 0 else f"{where}.{each['name']}"
            fields.append(
                Field(
                    str(each["name"]),
                    self.node(each.get("type"), space, inside, depth + 1),
                    tuple(map(str, each.get("aliases", ()))),
                    "default" in each,
                    each.get("default"),
                )
            )
        names = [each.name for each in fields]
        if twice := {name for name in names if names.count(name) > 1}:
            raise UnsupportedSchema(f"{where}: the field {min(twice)!r} is there twice")
        return Node("record", name=name, fields=tuple(fields), weight=1 + sum(each.node.weight for each in fields))

    def _union(self, described: list[Any], namespace: str, where: str, depth: int) -> Node:
        every = [self.node(each, namespace, where, depth + 1) for each in described]
        null_at = next((i for i, each in enumerate(every) if each.kind == "null"), -1)
        members = [each for each in every if each.kind != "null"]
        if any(each.kind == "union" or each.is_nullable for each in members):
            raise UnsupportedSchema(f"{where}: a union in a union")
        if len(members) == 1:
            return replace(members[0], null_at=null_at)
        if not members:
            raise UnsupportedSchema(f"{where}: a union of nothing but null")
        return Node("union", null_at=null_at, members=tuple(members), weight=1 + sum(each.weight for each in members))


def _is_empty(node: Node) -> bool:
    if node.null_at >= 0 or node.kind not in ("null", "record", "fixed"):
        return False
    return node.size == 0 and all(_is_empty(each.node) for each in node.fields)


def _with_logical(kind: str, described: dict[str, Any], name: str = "") -> Node:
    """Logical types that are not known, or not of this type, do not count: Avro says so."""
    logical = described.get("logicalType", "")
    size = described.get("size", 0) if kind == "fixed" else 0
    if not isinstance(size, int) or not 0 <= size <= FIXED_SIZE_MAX:
        raise UnsupportedSchema(f"fixed {name}: a size of {str(size)[:100]}, which is not in 0 to {FIXED_SIZE_MAX}")
    if logical not in _LOGICAL.get(kind, ()) or (logical == "uuid" and kind == "fixed" and size != 16):
        return Node(kind, name=name, size=size)
    if logical == "decimal":
        precision, scale = described.get("precision"), described.get("scale", 0)
        fits = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= DECIMAL_DIGITS_MAX
        if not fits or precision == 0:
            return Node(kind, name=name, size=size)
        return Node(kind, name=name, size=size, logical=logical, precision=int(precision or 0), scale=int(scale))
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
    """Of a union's column, which is a struct: the name that Spark's own Avro source gives it."""
    return f"member{index}"


@cache
def spark_type(node: Node) -> spark.DataType:
    """Everything may be null: rows of older versions lack fields, JSON lacks what it likes."""
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
    """A field's default as the definition writes it, as a value of the storage type."""
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

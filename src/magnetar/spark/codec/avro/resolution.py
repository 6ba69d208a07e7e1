"""Avro schema resolution on Arrow columns, from the writer's definition to the reader's.

Owns promotion, defaults, unions, and logical types in both directions. Knows no bytes: columns come in the writer's
`storage_type` and leave in the reader's `arrow_type`, or the reverse with `to_storage`.

More lenient than Avro, because every column of a source is nullable: a field that the writer lacks is null if it has no
default, nulls are kept if the reader has none, and enum symbols are returned as written.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from magnetar.spark.codec.avro.fields import (
    DECIMAL_DIGITS_MAX,
    Field,
    Node,
    arrow_type,
    default_of,
    member_name,
    storage_type,
)

_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes", "enum"),
    "bytes": ("string",),
    "enum": ("string",),
}


class SchemaMismatch(Exception):
    """A writer's type that cannot be read as the reader's; the text names the field."""


def resolve(column: pa.Array, writer: Node, reader: Node, where: str = "value") -> pa.Array:
    """The column as the reader's Arrow type. Raises `SchemaMismatch`, or `pa.ArrowInvalid` for a value out of range."""
    if writer.kind == "null":
        return pa.nulls(len(column), arrow_type(reader))
    if writer.kind == "union":
        return _of_union(column, writer, reader, where)
    if reader.kind == "union":
        return _into_union(column, writer, reader, where)
    if not _reads(reader, writer):
        raise SchemaMismatch(f"{where}: {_called(writer)} cannot be read as {_called(reader)}")
    if reader.kind == "record":
        return _record(column, writer, reader, where)
    if reader.kind in ("array", "map"):
        return _collection(column, writer, reader, where)
    if writer.kind != reader.kind:
        column = column.cast(storage_type(reader))
    return _to_logical(column, reader)


def resolve_fields(columns: list[pa.Array], rows: int, writer: Node, reader: Node, where: str = "") -> list[pa.Array]:
    """The reader's fields, from the columns of the writer's."""
    indexes = {each.name: index for index, each in enumerate(writer.fields)}
    resolved = []
    for each in reader.fields:
        name = next((name for name in (each.name, *each.aliases) if name in indexes), None)
        inside = f"{where}.{each.name}" if where else f"field {each.name}"
        if name is None:
            resolved.append(_defaults(each, rows))
        else:
            index = indexes[name]
            resolved.append(resolve(columns[index], writer.fields[index].node, each.node, inside))
    return resolved


def _defaults(field: Field, rows: int) -> pa.Array:
    node = field.node
    if not field.has_default or field.default is None:
        return pa.nulls(rows, arrow_type(node))
    one = resolve(pa.array([default_of(node, field.default)], storage_type(node)), node, node, field.name)
    return pc.take(one, pa.array([0] * rows, pa.int32()))


def _reads(reader: Node, writer: Node) -> bool:
    if writer.kind == reader.kind:
        return writer.kind != "fixed" or writer.size == reader.size
    return reader.kind in _PROMOTED.get(writer.kind, ())


def _called(node: Node) -> str:
    if node.kind == "union":
        return "a union"
    return f"{node.kind} of {node.size} bytes" if node.kind == "fixed" else node.logical or node.kind


def _record(column: pa.Array, writer: Node, reader: Node, where: str) -> pa.Array:
    columns = resolve_fields(column.flatten(), len(column), writer, reader, where)
    return _struct(columns, reader, column.is_null())


def _struct(columns: list[pa.Array], node: Node, is_null: pa.Array) -> pa.Array:
    kind = arrow_type(node)
    if not columns:
        return pa.array([None if null else {} for null in is_null.to_pylist()], kind)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=is_null)


def _collection(column: pa.Array, writer: Node, reader: Node, where: str) -> pa.Array:
    kind = arrow_type(reader)
    if reader.kind == "array":
        child = resolve(column.values, writer.inner, reader.inner, f"{where}[]")
    else:
        items = resolve(column.items, writer.inner, reader.inner, f"{where}[]")
        child = pa.StructArray.from_arrays([column.keys, items], fields=[kind.key_field, kind.item_field])
    validity, offsets = column.buffers()[:2]
    return pa.Array.from_buffers(kind, len(column), [validity, offsets], column.null_count, column.offset, [child])


# -- unions


def _of_union(column: pa.Array, writer: Node, reader: Node, where: str) -> pa.Array:
    parts = []
    for part, member in zip(column.flatten(), writer.members, strict=True):
        try:
            parts.append(resolve(part, member, reader, where))
        except SchemaMismatch:
            if part.null_count < len(part):
                raise
    if reader.kind == "union" and parts:
        return _merged(parts, reader)
    return pc.coalesce(*parts) if parts else pa.nulls(len(column), arrow_type(reader))


def _merged(parts: list[pa.Array], reader: Node) -> pa.Array:
    by_member = zip(*(part.flatten() for part in parts), strict=True)
    is_null = pc.is_null(parts[0])
    for part in parts[1:]:
        is_null = pc.and_(is_null, pc.is_null(part))
    return _struct([pc.coalesce(*columns) for columns in by_member], reader, is_null)


def _into_union(column: pa.Array, writer: Node, reader: Node, where: str) -> pa.Array:
    chosen = _member(writer, reader)
    if chosen is None:
        raise SchemaMismatch(f"{where}: {_called(writer)} is not a type of the union")
    columns = [
        resolve(column, writer, member, where) if index == chosen else pa.nulls(len(column), arrow_type(member))
        for index, member in enumerate(reader.members)
    ]
    return _struct(columns, reader, column.is_null())


def _member(writer: Node, reader: Node) -> int | None:
    """The member of the same type and name, else of the same type, else one that the writer's can be promoted to."""
    rules: tuple[Callable[[Node], bool], ...] = (
        lambda each: each.kind == writer.kind and each.name == writer.name,
        lambda each: each.kind == writer.kind and _reads(each, writer),
        lambda each: _reads(each, writer),
    )
    for rule in rules:
        for index, each in enumerate(reader.members):
            if rule(each):
                return index
    return None


# -- logical types

_EXACT = Context(prec=2 * DECIMAL_DIGITS_MAX)
_NANOS = {"time-millis": 1_000_000, "time-micros": 1_000}


def _to_logical(column: pa.Array, node: Node) -> pa.Array:
    kind, logical = arrow_type(node), node.logical
    if logical in _NANOS:
        return pc.multiply_checked(column.cast(pa.int64()), _NANOS[logical]).cast(kind)
    if logical.endswith("timestamp-millis"):
        return pc.multiply_checked(column, 1000).cast(kind)
    if logical.endswith("timestamp-nanos"):
        return _floor_thousandth(column).cast(kind)
    if logical == "decimal":
        return _decimals(column, kind)
    if logical == "uuid" and node.kind == "fixed":
        return pa.array([None if each is None else str(uuid.UUID(bytes=each)) for each in column.to_pylist()], kind)
    return column.cast(kind)


def _floor_thousandth(column: pa.Array) -> pa.Array:
    """Rounds down, as Java does; Arrow rounds towards zero."""
    quotient = pc.divide(column, 1000)
    is_above = pc.less(column, pc.multiply(quotient, 1000))
    return pc.subtract(quotient, is_above.cast(pa.int64()))


def _decimals(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow stores decimals in 16 bytes, little-endian; Avro in as few as needed, big-endian."""
    parts, limit = [], 10**kind.precision
    for each in column.to_pylist():
        number = int.from_bytes(each, "big", signed=True) if each else 0
        if not -limit < number < limit:
            raise pa.ArrowInvalid(f"a decimal has more than {kind.precision} digits")
        parts.append(number.to_bytes(16, "little", signed=True))
    validity = None if column.null_count == 0 else _bitmap(column)
    return pa.Array.from_buffers(kind, len(column), [validity, pa.py_buffer(b"".join(parts))])


def _bitmap(column: pa.Array) -> pa.Buffer:
    return column.is_valid().buffers()[1]


def to_storage(column: pa.Array, node: Node, *, for_json: bool = False) -> pa.Array:
    """The reverse: a column of `arrow_type` in `storage_type`. Raises `pa.ArrowInvalid` for values that do not fit.

    For JSON, decimals and UUIDs are kept as they are.
    """
    if node.kind in ("record", "union"):
        named = (
            [(each.name, each.node) for each in node.fields]
            if node.kind == "record"
            else [(member_name(index), each) for index, each in enumerate(node.members)]
        )
        parts = [
            to_storage(part, each, for_json=for_json) for part, (_, each) in zip(column.flatten(), named, strict=True)
        ]
        fields = [pa.field(name, part.type) for (name, _), part in zip(named, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null()) if parts else column
    if node.kind in ("array", "map"):
        return _stored_collection(column, node, for_json)
    if for_json and node.logical in ("decimal", "uuid"):
        return column
    return _from_logical(column, node)


def _stored_collection(column: pa.Array, node: Node, for_json: bool) -> pa.Array:
    if node.kind == "array":
        child = to_storage(column.values, node.inner, for_json=for_json)
        kind = pa.list_(child.type)
    else:
        items = to_storage(column.items, node.inner, for_json=for_json)
        kind = pa.map_(pa.string(), items.type)
        child = pa.StructArray.from_arrays([column.keys, items], fields=[kind.key_field, kind.item_field])
    validity, offsets = column.buffers()[:2]
    return pa.Array.from_buffers(kind, len(column), [validity, offsets], column.null_count, column.offset, [child])


def _from_logical(column: pa.Array, node: Node) -> pa.Array:
    kind, logical = storage_type(node), node.logical
    if logical in _NANOS:
        return _divided(column.cast(pa.int64()), _NANOS[logical], logical).cast(kind)
    if logical.endswith("timestamp-millis"):
        return _divided(column.cast(pa.int64()), 1000, logical)
    if logical.endswith("timestamp-nanos"):
        return pc.multiply_checked(column.cast(pa.int64()), 1000)
    if logical == "decimal":
        return pa.array([_decimal_bytes(each, node) for each in column.to_pylist()], kind)
    if logical == "uuid" and node.kind == "fixed":
        return pa.array([None if each is None else uuid.UUID(each).bytes for each in column.to_pylist()], kind)
    return column.cast(kind)


def _divided(column: pa.Array, by: int, logical: str) -> pa.Array:
    quotient = pc.divide(column, by)
    if not pc.all(pc.equal(pc.multiply(quotient, by), column), min_count=0).as_py():
        raise pa.ArrowInvalid(f"a value is too precise for {logical}")
    return quotient


def _decimal_bytes(value: Decimal | None, node: Node) -> bytes | None:
    if value is None:
        return None
    number = int(value.scaleb(node.scale, _EXACT))
    size = node.size if node.kind == "fixed" else (number + (number < 0)).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)

"""Avro reader: payloads of one schema version as columns of another.

Owns the choice between `avro.columns`, which reads all rows at once, and fastavro, which reads any definition row by
row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa

from magnetar.spark.codec.avro.columns import AvroColumns, can_read
from magnetar.spark.codec.avro.fields import Node, arrow_type, member_name, storage_type
from magnetar.spark.codec.avro.resolution import SchemaMismatch, resolve, resolve_fields
from magnetar.spark.codec.decoded import Decoded, with_nulls

_Written = tuple[list[pa.Array], dict[int, str], Collection[int]]
"""Columns of the writer, errors by row, and the rows of which nothing can be trusted."""


class AvroReader:
    """Reads payloads of `writer` as the fields of `reader`, or as one column if that is not a record.

    Raises `SchemaMismatch` if the definitions are incompatible.
    """

    def __init__(self, writer: Node, reader: Node) -> None:
        self._writer, self._reader = writer, reader
        names = {name for each in reader.fields for name in (each.name, *each.aliases)}
        self._wanted = {each.name for each in writer.fields if each.name in names}
        self._at_once = can_read(writer)
        self._schema: Any = None if self._at_once else fastavro.parse_schema(fastavro_schema(writer))
        try:
            self._resolved(*self._nothing())
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise SchemaMismatch(f"a default does not match its type: {error}") from None

    def decode(self, values: pa.Array) -> Decoded:
        columns, errors, broken = self._at_once_decoded(values) if self._at_once else self._decoded(values)
        try:
            resolved = self._resolved(columns, len(values))
        except (pa.ArrowInvalid, SchemaMismatch) as error:
            if len(values) > 1:
                return self._bisect(values)
            resolved, reason = self._resolved_apart(columns, error)
            errors.setdefault(0, reason)
        return [with_nulls(column, broken) for column in resolved] if broken else resolved, errors

    def _at_once_decoded(self, values: pa.Array) -> _Written:
        payloads = AvroColumns(values)
        columns = payloads.read(self._writer, self._wanted) if self._is_record else [payloads.read_one(self._writer)]
        return columns, payloads.errors, payloads.broken

    @property
    def _is_record(self) -> bool:
        return self._writer.kind == self._reader.kind == "record" and self._writer.null_at < 0

    def _resolved(self, columns: list[pa.Array], rows: int) -> list[pa.Array]:
        if self._is_record:
            return resolve_fields(columns, rows, self._writer, self._reader)
        column = resolve(columns[0], self._writer, self._reader)
        return column.flatten() if self._reader.kind == "record" else [column]

    def _resolved_apart(self, columns: list[pa.Array], error: Exception) -> tuple[list[pa.Array], str]:
        """The fields of one row that can be resolved, and the reason for the others."""
        if not self._is_record:
            return self._resolved(*self._nothing(1)), str(error)
        resolved, reasons = [], []
        for field in self._reader.fields:
            try:
                resolved += resolve_fields(columns, 1, self._writer, replace(self._reader, fields=(field,)))
            except (pa.ArrowInvalid, SchemaMismatch) as reason:
                resolved.append(pa.nulls(1, arrow_type(field.node)))
                is_named = isinstance(reason, SchemaMismatch)
                reasons.append(str(reason) if is_named else f"field {field.name}: {reason}")
        return resolved, "; ".join(reasons)

    def _decoded(self, values: pa.Array) -> _Written:
        rows: list[Any] = []
        errors: dict[int, str] = {}
        for index, value in enumerate(values.to_pylist()):
            row = None
            if value is not None:
                try:
                    row = self._row(value)
                except ValueError as error:
                    errors[index] = str(error)
            rows.append(row)
        column = self._column(rows, errors)
        return (column.flatten() if self._is_record else [column]), errors, errors.keys()

    def _row(self, value: bytes) -> Any:
        payload = BytesIO(value)
        try:
            row = fastavro.schemaless_reader(payload, self._schema, None)
        except Exception as error:  # fastavro raises many types
            raise ValueError(self._bad_field(value) or _reason(error)) from None
        left = len(value) - payload.tell()
        if left:
            raise ValueError(f"{left} bytes follow the last field: it was written with another schema")
        return row

    def _bad_field(self, value: bytes) -> str | None:
        """The first field that cannot be read, with the reason."""
        payload = BytesIO(value)
        for each in self._writer.fields if self._is_record else ():
            try:
                fastavro.schemaless_reader(payload, fastavro.parse_schema(fastavro_schema(each.node)), None)
            except Exception as error:
                return f"field {each.name}: {_reason(error)}"
        return None

    def _column(self, rows: list[Any], errors: dict[int, str]) -> pa.Array:
        kind = storage_type(self._writer)
        try:
            return pa.array(rows, kind)
        except (ValueError, TypeError, OverflowError):
            for index, row in enumerate(rows):
                try:
                    pa.array([row], kind)
                except (ValueError, TypeError, OverflowError) as error:
                    errors[index] = str(error)
                    rows[index] = None
            return pa.array(rows, kind)

    def _bisect(self, values: pa.Array) -> Decoded:
        """Isolates the rows that cannot be resolved by bisection."""
        middle = len(values) // 2
        one, one_errors = self.decode(values.slice(0, middle))
        other, other_errors = self.decode(values.slice(middle))
        columns = [pa.concat_arrays(pair) for pair in zip(one, other, strict=True)]
        return columns, one_errors | {row + middle: text for row, text in other_errors.items()}

    def _nothing(self, rows: int = 0) -> tuple[list[pa.Array], int]:
        column = pa.nulls(rows, storage_type(self._writer))
        return (column.flatten() if self._is_record else [column]), rows


def _reason(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the payload ends before it"
    if isinstance(error, IndexError):
        return "the payload ends before it, or a union or enum has nothing with its index"
    return str(error) or type(error).__name__


def fastavro_schema(node: Node, path: str = "r") -> Any:
    """The definition for fastavro: without logical types, and with generated names.

    A member of a wider union becomes a record with one field. It has the same bytes, identifies the member, and is the
    struct in the column.
    """
    if node.kind == "union":
        members: list[Any] = []
        for index, each in enumerate(node.members):
            name = member_name(index)
            field = {"name": name, "type": fastavro_schema(each, f"{path}_{index}")}
            members.append({"type": "record", "name": union_member(path, index), "fields": [field]})
        return _with_null(members, node)
    if node.null_at >= 0:
        return _with_null([fastavro_schema(replace(node, null_at=-1), path)], node)
    if node.kind == "record":
        fields = [
            {"name": each.name, "type": fastavro_schema(each.node, f"{path}_{index}")}
            for index, each in enumerate(node.fields)
        ]
        return {"type": "record", "name": path, "fields": fields}
    if node.kind == "array":
        return {"type": "array", "items": fastavro_schema(node.inner, f"{path}_i")}
    if node.kind == "map":
        return {"type": "map", "values": fastavro_schema(node.inner, f"{path}_i")}
    if node.kind == "enum":
        return {"type": "enum", "name": path, "symbols": list(node.symbols)}
    if node.kind == "fixed":
        return {"type": "fixed", "name": path, "size": node.size}
    return node.kind


def union_member(path: str, index: int) -> str:
    return f"{path}_m{index}"


def _with_null(members: list[Any], node: Node) -> list[Any]:
    if node.null_at < 0:
        return members
    return [*members[: node.null_at], "null", *members[node.null_at :]]

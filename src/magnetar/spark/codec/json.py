"""JSON payloads as columns of an Avro definition.

Owns the conversion of JSON values, and the fields of a message in which one is bad. As in Java's client, unknown fields
are ignored, missing ones are null, bytes are base64, and quoted numbers are numbers. Times are accepted in the forms of
Jackson: a whole number in the unit of the logical type, fractional seconds, a list of parts, or ISO 8601.

The official client for Python differs: it writes bytes as the text itself, and enums as numbers. Its payloads have a
layout of their own (`_PYTHON`). The symbol of a number is not in the schema, so it stays a number, as text.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any, TypedDict

import msgspec
import pyarrow as pa

from magnetar.spark.codec.avro.fields import Field, Node, arrow_type, default_of, member_name
from magnetar.spark.codec.decoded import Decoded

_INT = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_LONG = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_TIME = int | float | str | list[_INT]
_TYPES: dict[str, Any] = {
    "boolean": bool,
    "int": _INT,
    "long": _LONG,
    "float": float,
    "double": float,
    "string": str,
    "enum": str | int,
    "bytes": bytes,
    "fixed": bytes,
    "union": Any,
    "null": type(None),
}


_PYTHON, _PYTHON_END = b'{\n "', b"\n}"
"""Payloads of the official client for Python: it indents by one space, and other clients not at all."""

_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class JsonReader:
    """Reads the fields of a record, or any other definition as one column.

    A field that the writer's version did not have is its default; one that the writer omitted is null.
    """

    def __init__(self, writer: Node, reader: Node) -> None:
        self._is_record = reader.kind == "record"
        fields = reader.fields if self._is_record else (Field("value", reader),)
        written = {each.name for each in writer.fields} if self._is_record else {"value"}
        self._columns = [
            _Column(f"f{index}", field, is_added=field.name not in written) for index, field in enumerate(fields)
        ]
        self._standard = _Layout(self._columns, reader, text_bytes=False)
        self._python = _Layout(self._columns, reader, text_bytes=True) if _has_bytes(reader) else None
        self._nothing = self._standard.nothing

    def decode(self, values: pa.Array) -> Decoded:
        errors: dict[int, str] = {}
        rows = self._rows(values.to_pylist(), errors)
        columns = []
        for each in self._columns:
            cells = list(map(each.get, rows)) if self._is_record else rows
            columns.append(each.array(cells, errors))
        return columns, errors

    def _rows(self, values: list[bytes | None], errors: dict[int, str]) -> list[Any]:
        nothing, decode = self._nothing, self._standard.decoder.decode
        try:
            if self._python is None:
                return [nothing if value is None else decode(value) for value in values]
            return [nothing if value is None else self._layout(value).decoder.decode(value) for value in values]
        except _UNDECODABLE:
            return [nothing if value is None else self._row(value, row, errors) for row, value in enumerate(values)]

    def _layout(self, value: bytes) -> _Layout:
        is_of_python = value.startswith(_PYTHON) and value.endswith(_PYTHON_END)
        return self._python if is_of_python and self._python is not None else self._standard

    def _row(self, value: bytes, row: int, errors: dict[int, str]) -> Any:
        if value.strip() == b"null":
            return self._nothing
        layout = self._layout(value)
        for decoder in (layout.decoder, layout.lax_decoder):
            try:
                return decoder.decode(value)
            except _UNDECODABLE as error:
                reason = _reason(error)
        if not self._is_record:
            errors[row] = reason
            return self._nothing
        return self._partial(layout, value, row, errors)

    def _partial(self, layout: _Layout, value: bytes, row: int, errors: dict[int, str]) -> Any:
        """The fields that can be read, of a payload in which some cannot."""
        try:
            cells = _FIELDS.decode(value)
        except _UNDECODABLE as error:
            errors[row] = _reason(error)
            return self._nothing
        readable = layout.kind()
        for each in self._columns:
            cell = cells.get(each.name)
            if cell is None:
                continue
            try:
                setattr(readable, each.attribute, layout.fields[each.name].decode(cell))
            except _UNDECODABLE as error:
                setattr(readable, each.attribute, None)
                _add(errors, row, f"field {each.name}: {_text(error)}")
        return readable


class _Layout:
    """Decoders for payloads whose bytes are text, or base64. `nothing` is a row of nulls."""

    def __init__(self, columns: Sequence[_Column], reader: Node, *, text_bytes: bool) -> None:
        types = {each.name: _json_type(each.node, text_bytes=text_bytes) | None for each in columns}
        self.fields = {name: msgspec.json.Decoder(kind, strict=False) for name, kind in types.items()}
        self.kind: Any = types.get("value")
        self.nothing: Any = None
        if reader.kind == "record":
            members = [(each.attribute, types[each.name], each.missing) for each in columns]
            rename = {each.attribute: each.name for each in columns}
            self.kind = msgspec.defstruct("Payload", members, rename=rename, gc=False)
            self.nothing = self.kind(*(None for _ in columns))
        self.decoder = msgspec.json.Decoder(self.kind)
        self.lax_decoder = msgspec.json.Decoder(self.kind, strict=False)


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _add(errors: dict[int, str], row: int, text: str) -> None:
    errors[row] = f"{errors[row]}; {text}" if row in errors else text


def _reason(error: Exception) -> str:
    return _text(error) if isinstance(error, UnicodeDecodeError) else f"not JSON of the schema: {error}"


def _text(error: Exception) -> str:
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


_UNFIT = (ValueError, TypeError, OverflowError, ArithmeticError)


class _Column:
    def __init__(self, attribute: str, field: Field, *, is_added: bool) -> None:
        self.attribute, self.name, self.node = attribute, field.name, field.node
        self.missing: Any = None
        if is_added and field.has_default and field.default is not None:
            default = _default(field.node, field.default)
            self.missing = msgspec.field(default_factory=lambda: default)
        self.get: Callable[[Any], Any] = attrgetter(attribute)
        self._type = arrow_type(field.node)
        self._ready = _is_ready(field.node)

    def array(self, cells: Sequence[Any], errors: dict[int, str]) -> pa.Array:
        try:
            if self._ready:
                return pa.array(cells, self._type)
        except _UNFIT:
            pass  # an enum as a number, or a value out of range
        try:
            return pa.array([_converted(each, self.node) for each in cells], self._type)
        except _UNFIT:
            return pa.array([self._converted_or_none(each, row, errors) for row, each in enumerate(cells)], self._type)

    def _converted_or_none(self, cell: Any, row: int, errors: dict[int, str]) -> Any:
        try:
            converted = _converted(cell, self.node)
            pa.array([converted], self._type)
        except _UNFIT as error:
            _add(errors, row, f"field {self.name}: {error}")
            return None
        return converted


def _has_bytes(node: Node) -> bool:
    if node.kind in ("bytes", "fixed"):
        return not node.logical
    return any(_has_bytes(each.node) for each in node.fields) or (node.items is not None and _has_bytes(node.items))


def _default(node: Node, default: Any) -> Any:
    """A field's default in the definition, as a payload's value is decoded."""
    if node.logical == "decimal":
        return decimal.Decimal(int.from_bytes(default.encode("latin-1"), "big", signed=True)).scaleb(-node.scale)
    return default if node.kind == "union" or node.logical else default_of(node, default)


def _json_type(node: Node, *, text_bytes: bool = False) -> Any:
    if node.logical == "decimal":
        return decimal.Decimal
    if node.logical and node.logical != "uuid":
        return _TIME
    if node.logical:
        return str
    if node.kind == "array":
        return list[_json_type(node.inner, text_bytes=text_bytes) | None]  # type: ignore[misc]
    if node.kind == "map":
        return dict[str, _json_type(node.inner, text_bytes=text_bytes) | None]  # type: ignore[misc]
    if node.kind == "record":
        fields = {each.name: _json_type(each.node, text_bytes=text_bytes) | None for each in node.fields}
        return TypedDict("Record", fields, total=False)  # type: ignore[operator]
    if text_bytes and node.kind in ("bytes", "fixed"):
        return str
    return _TYPES[node.kind]


def _is_ready(node: Node) -> bool:
    """Whether Arrow takes decoded values without conversion."""
    if node.kind == "union" or (node.logical and node.logical not in ("decimal", "uuid")):
        return False
    return all(_is_ready(each.node) for each in node.fields) and (node.items is None or _is_ready(node.items))


def _converted(value: Any, node: Node) -> Any:
    """Converts a JSON value for the Arrow type of the column."""
    if value is None:
        return None
    if node.kind == "record":
        return {each.name: _converted(value.get(each.name), each.node) for each in node.fields}
    if node.kind == "array":
        return [_converted(each, node.inner) for each in value]
    if node.kind == "map":
        return {key: _converted(each, node.inner) for key, each in value.items()}
    if node.kind == "union":
        return _of_union(value, node)
    if node.logical == "date":
        return _days(value)
    if node.logical.startswith("time-"):
        return _nanos_of_day(value, 1_000_000 if node.logical == "time-millis" else 1_000)
    if node.kind == "enum":
        return str(value)
    if "timestamp" in node.logical:
        return _micros(value, node.logical.rpartition("-")[2])
    return value


def _of_union(value: Any, node: Node) -> dict[str, Any]:
    for index, member in enumerate(node.members):
        try:
            return {member_name(index): _converted(msgspec.convert(value, _json_type(member)), member)}
        except (msgspec.ValidationError, ValueError):
            continue
    raise ValueError(f"{type(value).__name__} is not a type of the union")


# -- times

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_MICROS = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}


def _days(value: int | float | str | list[int]) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return _ordinal(datetime.date.fromisoformat(value))
    if isinstance(value, list):
        return _ordinal(datetime.date(*value[:3]))
    raise ValueError(f"{value} is not a date")


def _ordinal(day: datetime.date) -> int:
    return day.toordinal() - _EPOCH.toordinal()


def _nanos_of_day(value: int | float | str | list[int], unit_ns: int) -> int:
    if isinstance(value, int):
        return value * unit_ns
    if isinstance(value, str):
        time = datetime.time.fromisoformat(value)
        seconds, nanos = time.hour * 3600 + time.minute * 60 + time.second, time.microsecond * 1000
    elif isinstance(value, list):
        hour, minute, second, nanos = (*value, 0, 0, 0, 0)[:4]
        seconds = hour * 3600 + minute * 60 + second
    else:
        raise ValueError(f"{value} is not a time of day")
    return seconds * 1_000_000_000 + nanos


def _micros(value: int | float | str | list[int], unit: str) -> int:
    if isinstance(value, int):
        times, by = _MICROS[unit]
        return value * times // by
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a timestamp")
        return round(value * 1_000_000)
    if isinstance(value, str):
        moment = datetime.datetime.fromisoformat(value)
    else:
        year, month, day, hour, minute, second, nanos = (*value, 0, 0, 0, 0, 0, 0)[:7]
        moment = datetime.datetime(year, month, day, hour, minute, second, nanos // 1000)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _EPOCH) // _MICROSECOND

"""JSON payloads as columns of an Avro definition.

Owns the conversion of JSON values. As in Java's client, unknown fields are ignored, missing ones are null, bytes are
base64, and quoted numbers are numbers. Times are accepted in the forms of Jackson: a whole number in the unit of the
logical type, fractional seconds, a list of parts, or ISO 8601.
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

from magnetar.spark.codec.avro.fields import Node, arrow_type, member_name
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
    "enum": str,
    "bytes": bytes,
    "fixed": bytes,
    "union": Any,
    "null": type(None),
}


class JsonReader:
    """Reads the fields of a record, or any other definition as one column."""

    def __init__(self, reader: Node) -> None:
        self._is_record = reader.kind == "record"
        fields = [(each.name, each.node) for each in reader.fields] if self._is_record else [("value", reader)]
        self._columns = [_Column(f"f{index}", name, node) for index, (name, node) in enumerate(fields)]
        kind: Any = _json_type(reader) | None
        self._nothing: Any = None
        if self._is_record:
            members = [(each.attribute, _json_type(each.node) | None, None) for each in self._columns]
            rename = {each.attribute: each.name for each in self._columns}
            kind = msgspec.defstruct("Payload", members, rename=rename, gc=False)
            self._nothing = kind()
        self._decoder = msgspec.json.Decoder(kind)
        self._lax_decoder = msgspec.json.Decoder(kind, strict=False)

    def decode(self, values: pa.Array) -> Decoded:
        errors: dict[int, str] = {}
        rows = self._rows(values.to_pylist(), errors)
        columns = []
        for each in self._columns:
            cells = list(map(each.get, rows)) if self._is_record else rows
            columns.append(each.array(cells, errors))
        return columns, errors

    def _rows(self, values: list[bytes | None], errors: dict[int, str]) -> list[Any]:
        nothing, decode = self._nothing, self._decoder.decode
        try:
            return [nothing if value is None else decode(value) for value in values]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [nothing if value is None else self._row(value, row, errors) for row, value in enumerate(values)]

    def _row(self, value: bytes, row: int, errors: dict[int, str]) -> Any:
        if value.strip() == b"null":
            return self._nothing
        try:
            return self._decoder.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        try:
            return self._lax_decoder.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            errors[row] = _reason(error)
            return self._nothing


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return f"not JSON of the schema: {error}"


class _Column:
    def __init__(self, attribute: str, name: str, node: Node) -> None:
        self.attribute, self.name, self.node = attribute, name, node
        self.get: Callable[[Any], Any] = attrgetter(attribute)
        self._type = arrow_type(node)
        self._ready = _is_ready(node)

    def array(self, cells: Sequence[Any], errors: dict[int, str]) -> pa.Array:
        try:
            converted = cells if self._ready else [_converted(each, self.node) for each in cells]
            return pa.array(converted, self._type)
        except (ValueError, TypeError, OverflowError, ArithmeticError):
            return pa.array([self._converted_or_none(each, row, errors) for row, each in enumerate(cells)], self._type)

    def _converted_or_none(self, cell: Any, row: int, errors: dict[int, str]) -> Any:
        try:
            converted = _converted(cell, self.node)
            pa.array([converted], self._type)
        except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
            errors.setdefault(row, f"field {self.name}: {error}")
            return None
        return converted


def _json_type(node: Node) -> Any:
    if node.logical == "decimal":
        return decimal.Decimal
    if node.logical and node.logical != "uuid":
        return _TIME
    if node.logical:
        return str
    if node.kind == "array":
        return list[_json_type(node.inner) | None]  # type: ignore[misc]
    if node.kind == "map":
        return dict[str, _json_type(node.inner) | None]  # type: ignore[misc]
    if node.kind == "record":
        fields = {each.name: _json_type(each.node) | None for each in node.fields}
        return TypedDict("Record", fields, total=False)  # type: ignore[operator]
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

"""Values of payloads: one message as its schema describes it, in the terms of JSON.

For people who look at a few messages; `magnetar.spark` has codecs for many. Payloads and definitions are untrusted: all
work is bounded, and whatever cannot be decoded is an `UndecodableValue` with the reason. Bytes are shown in base64.

    AVRO              by the definition, with dates, times, decimals; a record of one version, not resolved to another
    JSON              as it is
    PROTOBUF_NATIVE   by the descriptors in the schema
    PROTOBUF          by the field numbers in the property __PARSING_INFO__; nested messages stay bytes
    KEY_VALUE         an object with `key` and `value`
    others            the layouts of the Java client, big-endian
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from struct import Struct, error
from typing import Any

from magnetar.bounds import DECODED_VALUES
from magnetar.schema.avro import AvroDefinitionError, AvroType, parse_definition
from magnetar.schema.key_value import KeyValueError, Part, decode_whole, is_separated, parts_of
from magnetar.schema.types import Schema, SchemaType

VALUES_MAX = DECODED_VALUES.limit
"""Values in one Avro payload: a few bytes may claim any number of nulls."""

_DEPTH_MAX = 100
_DEFINITIONS_KEPT = 64
_DECIMAL_MAX = 1024  # bytes, and digits after the point
_PARSING_INFO = "__PARSING_INFO__"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_S = 86_400


class UndecodableValue(ValueError):
    """A payload that its schema does not describe, or a schema that cannot be used; the text is the reason."""


def decode_value(schema: Schema, payload: bytes, key: bytes | None = None) -> Any:
    """`key` is the message's own, for a KEY_VALUE schema that keeps it there. Raises UndecodableValue."""
    try:
        if schema.type is SchemaType.KEY_VALUE:
            return _pair(schema, payload, key)
        return _single(schema, payload)
    except (UndecodableValue, AvroDefinitionError, KeyValueError) as failure:
        raise UndecodableValue(str(failure)) from None
    except (ValueError, error, OverflowError, RecursionError, LookupError, TypeError, AttributeError) as failure:
        raise UndecodableValue(f"{type(failure).__name__}: {failure}"[:500]) from None


def _pair(schema: Schema, payload: bytes, own_key: bytes | None) -> dict[str, Any]:
    key_part, value_part = parts_of(schema.data, schema.properties)
    key, value = (own_key, payload) if is_separated(schema.properties) else decode_whole(payload)
    return {"key": _part(key_part, key), "value": _part(value_part, value)}


def _part(part: Part, payload: bytes | None) -> Any:
    if payload is None:
        return None
    if part.type not in SchemaType.__members__:
        raise UndecodableValue(f"{part.type[:100]!r} is not a schema type")
    type_ = SchemaType[part.type]
    if type_ is SchemaType.KEY_VALUE:
        raise UndecodableValue("a KEY_VALUE in a KEY_VALUE is not supported")
    properties = json.loads(part.properties)
    return _single(Schema(type_, part.data, properties if isinstance(properties, dict) else {}), payload)


def _single(schema: Schema, payload: bytes) -> Any:
    if schema.type is SchemaType.AVRO:
        return _Avro(payload).whole(_definition(schema.data))
    if schema.type is SchemaType.JSON:
        return json.loads(payload)
    if schema.type is SchemaType.PROTOBUF_NATIVE:
        return _protobuf(_native_files(schema.data), payload)
    if schema.type is SchemaType.PROTOBUF:
        return _protobuf(_described_files(schema.properties), payload)
    return _primitive(schema.type, payload)


@lru_cache(maxsize=_DEFINITIONS_KEPT)
def _definition(data: bytes) -> AvroType:
    return parse_definition(data)


# -- primitives


def _numbers(layout: str) -> Callable[[bytes], tuple[Any, ...]]:
    return Struct(layout).unpack


def _time_of_day(nanos: int) -> str:
    seconds, rest = divmod(nanos, 1_000_000_000)
    if not 0 <= seconds < _DAY_S:
        raise UndecodableValue(f"{nanos} ns is not a time of the day")
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" + (f".{rest:09}" if rest else "")


def _moment(**since_1970: int) -> str:
    return (_EPOCH + timedelta(**since_1970)).isoformat().replace("+00:00", "Z")


def _day(days: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=days)).isoformat()


def _primitive(type_: SchemaType, payload: bytes) -> Any:
    read = _PRIMITIVES.get(type_)
    if read is None:
        raise UndecodableValue(f"values of type {type_.name} are not decoded")
    return read(payload)


_PRIMITIVES: dict[SchemaType, Callable[[bytes], Any]] = {
    SchemaType.STRING: bytes.decode,
    SchemaType.NONE: lambda payload: _shown_bytes(payload),
    SchemaType.BYTES: lambda payload: _shown_bytes(payload),
    SchemaType.BOOLEAN: lambda payload: bool(_numbers(">b")(payload)[0]),
    SchemaType.INT8: lambda payload: _numbers(">b")(payload)[0],
    SchemaType.INT16: lambda payload: _numbers(">h")(payload)[0],
    SchemaType.INT32: lambda payload: _numbers(">i")(payload)[0],
    SchemaType.INT64: lambda payload: _numbers(">q")(payload)[0],
    SchemaType.FLOAT: lambda payload: _finite(_numbers(">f")(payload)[0]),
    SchemaType.DOUBLE: lambda payload: _finite(_numbers(">d")(payload)[0]),
    SchemaType.DATE: lambda payload: _moment(milliseconds=_numbers(">q")(payload)[0]),
    SchemaType.TIME: lambda payload: _time_of_day(_numbers(">q")(payload)[0] % (_DAY_S * 1000) * 1_000_000),
    SchemaType.TIMESTAMP: lambda payload: _moment(milliseconds=_numbers(">q")(payload)[0]),
    SchemaType.INSTANT: lambda payload: _instant(*_numbers(">qi")(payload)),
    SchemaType.LOCAL_DATE: lambda payload: _day(_numbers(">q")(payload)[0]),
    SchemaType.LOCAL_TIME: lambda payload: _time_of_day(_numbers(">q")(payload)[0]),
    SchemaType.LOCAL_DATE_TIME: lambda payload: _local_time(*_numbers(">qq")(payload)),
}


def _instant(seconds: int, nanos: int) -> str:
    return _moment(seconds=seconds, microseconds=nanos // 1000)


def _local_time(days: int, nanos: int) -> str:
    return f"{_day(days)}T{_time_of_day(nanos)}"


def _finite(number: float) -> float | str:
    """JSON has no other numbers."""
    return number if math.isfinite(number) else str(number)


def _shown_bytes(value: bytes) -> str:
    return f"base64:{base64.b64encode(value).decode()}"


# -- Avro


class _Avro:
    """One payload, read from its beginning."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0
        self._left = VALUES_MAX

    def whole(self, described: AvroType) -> Any:
        value = self._read(described, 0)
        if self._at < len(self._payload):
            raise UndecodableValue(f"{len(self._payload) - self._at} bytes are left after the Avro value")
        return value

    def _read(self, described: AvroType, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _DEPTH_MAX:
            limit = f"{VALUES_MAX} values" if self._left < 0 else f"{_DEPTH_MAX} levels"
            raise UndecodableValue(f"the Avro value has more than {limit}")
        kind = described.kind
        if kind == "record":
            return {one.name: self._read(one.type, depth + 1) for one in described.fields}
        if kind == "union":
            return self._read(described.parts[self._index(len(described.parts), "member of a union")], depth + 1)
        if kind == "array":
            return [self._read(described.parts[0], depth + 1) for _ in self._blocks()]
        if kind == "map":
            return {self._bytes().decode(): self._read(described.parts[0], depth + 1) for _ in self._blocks()}
        if kind == "enum":
            return described.symbols[self._index(len(described.symbols), "symbol")]
        return self._scalar(described)

    def _scalar(self, described: AvroType) -> Any:
        kind = described.kind
        if kind == "null":
            return None
        if kind == "boolean":
            return bool(self._take(1)[0])
        if kind in ("int", "long"):
            return _logical_number(described.logical, self._long())
        if kind == "float":
            return _finite(_numbers("<f")(self._take(4))[0])
        if kind == "double":
            return _finite(_numbers("<d")(self._take(8))[0])
        if kind == "string":
            return self._bytes().decode()
        if kind in ("bytes", "fixed"):
            value = self._take(described.size) if kind == "fixed" else self._bytes()
            return _decimal(described, value) if described.logical == "decimal" else _shown_bytes(value)
        raise UndecodableValue(f"Avro type {kind[:100]!r} is unknown")

    def _blocks(self) -> Any:
        """Once for each item of an array or a map."""
        while (count := self._long()) != 0:
            if count < 0:
                self._long()  # the size of the block in bytes
            for _ in range(abs(count)):
                yield

    def _index(self, count: int, noun: str) -> int:
        index = self._long()
        if not 0 <= index < count:
            raise UndecodableValue(f"{noun} {index} does not exist: there are {count}")
        return index

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise UndecodableValue(f"a number is longer than 10 bytes, at byte {self._at}")

    def _bytes(self) -> bytes:
        return self._take(self._long())

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._payload):
            raise UndecodableValue(
                f"the payload has {len(self._payload)} bytes, Avro needs {size} from byte {self._at}"
            )
        taken, self._at = self._payload[self._at : end], end
        return taken


def _logical_number(logical: str, number: int) -> int | str:
    try:
        if logical == "date":
            return _day(number)
        if logical in ("timestamp-millis", "timestamp-micros"):
            return _moment(milliseconds=number) if logical.endswith("millis") else _moment(microseconds=number)
        if logical in ("time-millis", "time-micros"):
            return _time_of_day(number * (1_000_000 if logical.endswith("millis") else 1000))
    except (OverflowError, UndecodableValue):
        pass  # beyond the calendar: the number says more
    return number


def _decimal(described: AvroType, value: bytes) -> str:
    unscaled = int.from_bytes(value, "big", signed=True)
    scale = described.scale if isinstance(described.scale, int) else -1
    if len(value) > _DECIMAL_MAX or not 0 <= scale <= _DECIMAL_MAX:
        return _shown_bytes(value)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    point = len(digits) - scale
    return ("-" if unscaled < 0 else "") + digits[:point] + (f".{digits[point:]}" if scale else "")


# -- Protobuf


def _native_files(data: bytes) -> tuple[bytes, str]:
    """The descriptors and the name of the message."""
    described = json.loads(data)
    if not isinstance(described, dict):
        raise UndecodableValue("the definition of the PROTOBUF_NATIVE schema is not an object")
    files = described.get("fileDescriptorSet")
    name = described.get("rootMessageTypeName")
    if not isinstance(files, str) or not isinstance(name, str):
        raise UndecodableValue("the definition has no fileDescriptorSet and rootMessageTypeName")
    return base64.b64decode(files), name


def _described_files(properties: dict[str, str]) -> tuple[bytes, str]:
    """The same from the list of fields that the Java client adds. It does not describe nested messages and enums."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

    text = properties.get(_PARSING_INFO)
    if text is None:
        raise UndecodableValue(f"the PROTOBUF schema has no property {_PARSING_INFO} with the numbers of its fields")
    file = FileDescriptorProto(name="described.proto", package="described", syntax="proto2")
    message = file.message_type.add(name="Message")
    plain = {"TYPE_MESSAGE": "TYPE_BYTES", "TYPE_GROUP": "TYPE_BYTES", "TYPE_ENUM": "TYPE_INT32"}
    for field in json.loads(text):
        type_ = f"TYPE_{field['type']}"
        repeated = field.get("label") == "LABEL_REPEATED"
        message.field.add(
            name=field["name"],
            number=field["number"],
            type=FieldDescriptorProto.Type.Value(plain.get(type_, type_)),
            label=FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL,
        )
    return FileDescriptorSet(file=[file]).SerializeToString(), "described.Message"


def _protobuf(described: tuple[bytes, str], payload: bytes) -> Any:
    from google.protobuf import json_format, message_factory
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Error

    files, name = described
    try:
        pool = DescriptorPool()
        for file in FileDescriptorSet.FromString(files).file:
            pool.Add(file)
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))()
        message.ParseFromString(payload)
        return json_format.MessageToDict(message, preserving_proto_field_name=True)
    except (Error, KeyError, TypeError, json_format.Error) as failure:
        raise UndecodableValue(f"Protobuf: {failure}"[:500]) from None

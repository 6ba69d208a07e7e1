"""What a schema is: its type, its definition, its properties; whether it is well formed, and whether two are the same.

Owns how definitions are read: pairs of key and value, protobuf, and with `avro_notation` those in Avro's notation.
It does not know topics, versions or strategies.

The definition of a KEY_VALUE schema is both definitions, each behind its length; the two types are properties:

    length of the key's definition i32 | the definition | length of the value's definition i32 | the definition
"""

from __future__ import annotations

import binascii
import enum
import json
import struct
from typing import TYPE_CHECKING, Any

import msgspec
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from magnetar.errors import InvalidSchema

if TYPE_CHECKING:
    from avro.schema import Schema as Definition

SCHEMA_SIZE_MAX = 1 << 20
"""Bytes of one definition with its properties. Apache Pulsar's own limit is the size of a frame, 5 MB."""

_LENGTH = struct.Struct(">i")


class SchemaType(enum.IntEnum):
    """The protocol's numbers, under the names that REST and the properties of KEY_VALUE schemas use."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21
    EXTERNAL = 22
    BYTES = -1  # of the parts of a KEY_VALUE schema; elsewhere it is NONE

    @property
    def is_avro(self) -> bool:
        """Its definition is written in Avro's notation."""
        return self in (SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF)


PRIMITIVE = frozenset(
    set(SchemaType)
    - {
        SchemaType.JSON,
        SchemaType.PROTOBUF,
        SchemaType.AVRO,
        SchemaType.KEY_VALUE,
        SchemaType.PROTOBUF_NATIVE,
        SchemaType.AUTO_CONSUME,
        SchemaType.EXTERNAL,
    }
)
"""Types that say everything by themselves: their definition is empty."""


class Schema(msgspec.Struct, frozen=True):
    type: SchemaType
    data: bytes = b""
    properties: dict[str, str] = {}

    @property
    def size(self) -> int:
        return len(self.data) + sum(len(key) + len(value) for key, value in self.properties.items())


# -- well formed


def check(schema: Schema) -> None:
    """Raises InvalidSchema unless the definition fits the type."""
    if schema.size > SCHEMA_SIZE_MAX:
        raise InvalidSchema(f"schema of {schema.size} bytes exceeds the limit of {SCHEMA_SIZE_MAX}")
    if schema.type is SchemaType.AUTO_CONSUME:
        raise InvalidSchema("AUTO_CONSUME is a schema of clients only and cannot be registered")
    if schema.type is SchemaType.KEY_VALUE:
        for part in key_and_value(schema):
            check(part)
    elif schema.type is SchemaType.PROTOBUF_NATIVE:
        root_message(schema.data)
    elif schema.type is SchemaType.JSON:
        if not is_jackson(schema.data):
            parse_avro(schema)
    elif schema.type is SchemaType.PROTOBUF:
        parse_avro(schema)
    elif schema.type is SchemaType.AVRO:
        if parse_avro(schema).type == "union":
            raise InvalidSchema("AVRO schema is a union: a record or another single type is expected")
    elif schema.type in PRIMITIVE and schema.data not in _empty(schema.type):
        raise InvalidSchema(f"{schema.type.name} schema needs no definition, {len(schema.data)} bytes are given")


def _empty(type: SchemaType) -> tuple[bytes, ...]:
    # The Python client says "null" where there is nothing to say.
    return (b"", b"null") if type in (SchemaType.NONE, SchemaType.STRING, SchemaType.BYTES) else (b"",)


def are_same(one: Schema, other: Schema) -> bool:
    """Both well formed. Spaces, the order of keys, docs and aliases make no difference to a definition in Avro."""
    if one.type is not other.type:
        return False
    if one.type is SchemaType.KEY_VALUE:
        pairs = zip(key_and_value(one), key_and_value(other), strict=True)
        return all(are_same(part, other_part) for part, other_part in pairs)
    if one.data == other.data or one.type in PRIMITIVE:
        return True
    if not one.type.is_avro or is_jackson(one.data) or is_jackson(other.data):
        return False
    from magnetar.broker.schema import avro as avro_notation

    return avro_notation.are_same(parse_avro(one), parse_avro(other))


def parse_avro(schema: Schema) -> Definition:
    """The definition of a schema in Avro's notation; raises InvalidSchema."""
    from magnetar.broker.schema import avro as avro_notation  # not before it is needed: see there

    return avro_notation.parse(schema.data, schema.type.name)


# -- JSON as clients before 2.1 described it


def is_jackson(data: bytes) -> bool:
    """A JSON schema document, as clients before 2.1 described JSON with; its types have other names than Avro's."""
    return _json_object(data).get("type") in ("object", "any", "number", "integer")


def jackson_id(data: bytes) -> object:
    """The class that such a document was made from."""
    return _json_object(data).get("id")


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


# -- key and value

_properties = msgspec.json.Decoder(dict[str, str])


def key_and_value(schema: Schema) -> tuple[Schema, Schema]:
    """The two parts of a KEY_VALUE schema; raises InvalidSchema."""
    key, rest = _cut(schema.data, "key")
    value, rest = _cut(rest, "value")
    if rest:
        raise InvalidSchema(f"KEY_VALUE schema has {len(rest)} bytes after the value's definition")
    return _part(schema, "key", key), _part(schema, "value", value)


def key_value_data(key: bytes, value: bytes) -> bytes:
    return _LENGTH.pack(len(key)) + key + _LENGTH.pack(len(value)) + value


def _cut(data: bytes, part: str) -> tuple[bytes, bytes]:
    if len(data) < _LENGTH.size:
        raise InvalidSchema(f"KEY_VALUE schema ends before the length of the {part}'s definition")
    length = max(0, _LENGTH.unpack_from(data)[0])  # -1 is how the C++ client writes an empty definition
    end = _LENGTH.size + length
    if end > len(data):
        raise InvalidSchema(f"KEY_VALUE schema ends before the {length} bytes of the {part}'s definition")
    return data[_LENGTH.size : end], data[end:]


def _part(schema: Schema, part: str, data: bytes) -> Schema:
    name = schema.properties.get(f"{part}.schema.type", SchemaType.BYTES.name)
    if name not in SchemaType.__members__:
        raise InvalidSchema(f"KEY_VALUE schema has the unknown {part}.schema.type {name[:100]!r}")
    try:
        properties = _properties.decode(schema.properties.get(f"{part}.schema.properties") or "{}")
    except msgspec.DecodeError as error:
        raise InvalidSchema(f"KEY_VALUE schema has {part}.schema.properties that cannot be read: {error}") from error
    return Schema(SchemaType[name], data, properties)


# -- protobuf


class ProtobufNativeData(msgspec.Struct, rename="camel"):
    file_descriptor_set: bytes  # in base64
    root_message_type_name: str
    root_file_descriptor_name: str


_protobuf_native = msgspec.json.Decoder(ProtobufNativeData)


def root_message(data: bytes) -> str:
    """The full name of the message that a PROTOBUF_NATIVE schema is about; raises InvalidSchema."""
    try:
        described = _protobuf_native.decode(data)
        files = {file.name: file for file in FileDescriptorSet.FromString(described.file_descriptor_set).file}
    except (msgspec.DecodeError, binascii.Error, DecodeError, UnicodeDecodeError) as error:
        raise InvalidSchema(f"PROTOBUF_NATIVE schema cannot be read: {error}") from error
    _check_imports(files, described.root_file_descriptor_name)
    root = files[described.root_file_descriptor_name]
    if described.root_message_type_name not in _messages(root):
        raise InvalidSchema(
            f"PROTOBUF_NATIVE schema has no message {described.root_message_type_name!r} in file {root.name!r}"
        )
    return described.root_message_type_name


def _check_imports(files: dict[str, FileDescriptorProto], root: str) -> None:
    waiting, seen = [root], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in files:
            raise InvalidSchema(f"PROTOBUF_NATIVE schema lacks the file {name!r}")
        if name not in seen:
            seen.add(name)
            waiting += files[name].dependency


def _messages(file: FileDescriptorProto) -> set[str]:
    found: set[str] = set()
    waiting: list[tuple[str, DescriptorProto]] = [(file.package, message) for message in file.message_type]
    while waiting:
        prefix, message = waiting.pop()
        full = f"{prefix}.{message.name}" if prefix else message.name
        found.add(full)
        waiting += [(full, nested) for nested in message.nested_type]
    return found

"""Schema definitions of every type: whether one is well formed, and whether two are the same.

Definitions in Avro's notation are left to `avro`. Knows neither topics, versions nor compatibility strategies.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

import msgspec
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from magnetar.errors import InvalidSchema
from magnetar.schema.avro import is_jackson
from magnetar.schema.key_value import KeyValueError, Part, parts_of
from magnetar.schema.types import PRIMITIVE, Schema, SchemaType

if TYPE_CHECKING:
    from avro.schema import Schema as Definition

SCHEMA_SIZE_MAX = 1 << 20
"""Bytes of one definition with its properties. Apache Pulsar's own limit is the size of a frame, 5 MB."""


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
    # The Python client sends "null" for an empty definition.
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
    from magnetar.broker.schema import avro as avro_definition

    return avro_definition.are_same(parse_avro(one), parse_avro(other))


def parse_avro(schema: Schema) -> Definition:
    """The definition of a schema in Avro's notation; raises InvalidSchema."""
    from magnetar.broker.schema import avro as avro_definition  # not before it is needed: see there

    return avro_definition.parse(schema.data, schema.type.name)


# -- key and value

_properties = msgspec.json.Decoder(dict[str, str])


def key_and_value(schema: Schema) -> tuple[Schema, Schema]:
    """The two schemas of a KEY_VALUE schema; raises InvalidSchema."""
    try:
        key, value = parts_of(schema.data, schema.properties)
    except KeyValueError as error:
        raise InvalidSchema(f"KEY_VALUE schema cannot be read: {error}") from error
    return _part("key", key), _part("value", value)


def _part(name: str, part: Part) -> Schema:
    if part.type not in SchemaType.__members__:
        raise InvalidSchema(f"KEY_VALUE schema has the unknown {name}.schema.type {part.type[:100]!r}")
    try:
        properties = _properties.decode(part.properties)
    except msgspec.DecodeError as error:
        raise InvalidSchema(f"KEY_VALUE schema has malformed {name}.schema.properties: {error}") from error
    return Schema(SchemaType[part.type], part.data, properties)


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

"""Schema definitions of every type: checks one, and compares two for equality.

Leaves definitions in Avro's notation to `avro`. Knows neither topics, versions nor compatibility strategies.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from magnetar.bounds import SCHEMA_SIZE, SCHEMAS_PARSED
from magnetar.broker.schema.protobuf_native import root_message
from magnetar.errors import InvalidSchema
from magnetar.schema.avro import AvroDefinitionError, AvroType, is_jackson, parse_definition
from magnetar.schema.key_value import KeyValueError, Part, parts_of
from magnetar.schema.types import PRIMITIVE, Schema, SchemaType

if TYPE_CHECKING:
    from avro.schema import Schema as Definition

SCHEMA_SIZE_MAX = SCHEMA_SIZE.limit
"""Bytes of one definition with its properties. Apache Pulsar's limit is the size of a frame, 5 MB."""


def check(schema: Schema) -> None:
    """Raises InvalidSchema unless the definition fits the type."""
    if schema.size > SCHEMA_SIZE_MAX:
        raise InvalidSchema(f"schema of {schema.size} bytes exceeds the limit of {SCHEMA_SIZE_MAX}")
    if schema.type is SchemaType.AUTO_CONSUME:
        raise InvalidSchema("an AUTO_CONSUME schema is for consumers only and cannot be registered")
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
        raise InvalidSchema(f"{schema.type.name} schema has no definition, but {len(schema.data)} bytes are given")


def _empty(type: SchemaType) -> tuple[bytes, ...]:
    # The Python client sends "null" for an empty definition.
    return (b"", b"null") if type in (SchemaType.NONE, SchemaType.STRING, SchemaType.BYTES) else (b"",)


def are_same(one: Schema, other: Schema) -> bool:
    """Of two checked schemas. Spaces, the order of keys, docs and aliases of an Avro definition are ignored."""
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
    return _parse_avro(schema.data, schema.type.name)


@lru_cache(maxsize=SCHEMAS_PARSED.limit)
def _parse_avro(data: bytes, type_name: str) -> Definition:
    from magnetar.broker.schema import avro as avro_definition  # a slow import, see there

    return avro_definition.parse(data, type_name)


def field_names(schema: Schema) -> list[str] | None:
    """The columns that Spark reads from values of a checked schema; None if only Spark knows."""
    if schema.type is SchemaType.KEY_VALUE:
        return ["key", "value"]
    if schema.type in PRIMITIVE:
        return ["value"]
    if schema.type not in (SchemaType.AVRO, SchemaType.JSON) or is_jackson(schema.data):
        return None
    definition = msgspec.json.decode(schema.data)
    if not isinstance(definition, dict) or definition.get("type") != "record":
        return None
    return [field["name"] for field in definition["fields"]]


def value_definition(schema: Schema) -> AvroType | None:
    """The definition of the values of a checked schema, AVRO or JSON; None if it has none."""
    if schema.type is SchemaType.KEY_VALUE:
        schema = key_and_value(schema)[1]
    if schema.type not in (SchemaType.AVRO, SchemaType.JSON) or is_jackson(schema.data):
        return None
    try:
        return parse_definition(schema.data)
    except AvroDefinitionError:
        return None


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

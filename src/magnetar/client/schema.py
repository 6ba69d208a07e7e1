"""Schemas as a client sees them, with their forms on the wire and in REST, and topics chosen by a pattern.

Sends nothing: requests are in `connection.lookup` and `connection.http_lookup`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Any

import msgspec

from magnetar.client.errors import InvalidArgument, ServerFailure
from magnetar.errors import InvalidName
from magnetar.names import TopicName
from magnetar.schema.key_value import encode_key_value
from magnetar.schema.types import SchemaType
from magnetar.wire import schema_pb2 as pb

_VERSION = struct.Struct(">q")

# Topics that a broker creates for itself in namespaces of users.
_SYSTEM = re.compile(r"__change_events|__transaction_.*|.*__transaction_pending_ack")


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """A schema of a topic. `type` is spelled as in REST (JSON, AVRO, INT32, KEY_VALUE), `data` is the definition.

    The definition of a KEY_VALUE schema has both definitions, each after its length as 4 bytes, big-endian. `version`
    is that of `Message.schema_version`: 8 bytes, big-endian.
    """

    type: str
    data: bytes = b""
    properties: dict[str, str] = {}
    version: bytes = b""
    name: str = ""


def schema_of_wire(response: pb.CommandGetSchemaResponse) -> Schema:
    schema = response.schema
    return Schema(
        type=SchemaType(schema.type).name,
        data=schema.schema_data,
        properties={pair.key: pair.value for pair in schema.properties},
        version=response.schema_version,
        name=schema.name,
    )


def schema_to_wire(schema: Schema) -> pb.Schema:
    """The schema as a producer sends it; raises `KeyError` for an unknown type."""
    return pb.Schema(
        name=schema.name,
        type=SchemaType[schema.type].value,  # type: ignore[arg-type]
        schema_data=schema.data,
        properties=[pb.KeyValue(key=key, value=value) for key, value in schema.properties.items()],
    )


class SchemaResponse(msgspec.Struct):
    """The JSON of REST; the definitions of a KEY_VALUE schema are two members of a JSON object."""

    version: int
    type: str
    data: str = ""
    properties: dict[str, str] | None = None


def schema_of_rest(response: SchemaResponse, name: str) -> Schema:
    data = _key_value_data(response.data, name) if response.type == "KEY_VALUE" else response.data.encode()
    return Schema(
        type=response.type,
        data=data,
        properties=response.properties or {},
        version=_VERSION.pack(response.version),
        name=name,
    )


def _key_value_data(text: str, name: str) -> bytes:
    try:
        parts: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ServerFailure(f"the KEY_VALUE schema of {name} is not a JSON object: {error}") from None
    # Primitive types have an empty text, others a definition in JSON.
    definitions = (parts.get("key") or "", parts.get("value") or "")
    key, value = (each.encode() if isinstance(each, str) else msgspec.json.encode(each) for each in definitions)
    return encode_key_value(key, value)


def version_number(version: bytes) -> int:
    if len(version) < _VERSION.size:
        raise InvalidArgument(f"schema version {version.hex()!r} has {len(version)} bytes instead of {_VERSION.size}")
    number: int = _VERSION.unpack_from(version)[0]
    return number


def chosen_topics(topics: Iterable[str], pattern: str | None) -> list[str]:
    """The topics whose full name, without the partition, matches the regular expression.

    A pattern without `://` is matched against the name without its domain.
    """
    try:
        names = [TopicName.parse(topic) for topic in topics]
    except InvalidName as error:
        raise ServerFailure(f"the broker lists a topic with an illegal name: {error}") from None
    users = [name for name in names if not _SYSTEM.fullmatch(name.base.local)]
    if pattern is not None:
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise InvalidArgument(f"pattern {pattern!r} is not a regular expression: {error}") from None
        users = [name for name in users if expression.fullmatch(_matched(name.base.full, pattern))]
    return sorted(name.full for name in users)


def _matched(full: str, pattern: str) -> str:
    return full if "://" in pattern else full.partition("://")[2]

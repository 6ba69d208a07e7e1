"""Payloads of dead letters, decoded by the schema of their topic.

Decoded here, by the schema that the broker sends: a hostile payload costs this process, not the broker, and it works
with Apache Pulsar too. A payload that cannot be decoded stays as it is, with the reason.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from magnetar.cli.rest import Refused, Rest
from magnetar.names import TopicName
from magnetar.schema.key_value import encode_key_value
from magnetar.schema.types import Schema, SchemaType
from magnetar.schema.values import decode_value

_VERSION_SIZE = 8
_AS_THEY_ARE = (SchemaType.NONE, SchemaType.BYTES, SchemaType.STRING, SchemaType.JSON)


class DeadLetterPayloads:
    """Decodes payloads of one topic; each version of its schema is requested once."""

    def __init__(self, rest: Rest, topic: TopicName) -> None:
        self._rest = rest
        self._topic = topic.base
        self._schemas: dict[bytes, Schema | str] = {}

    def decoded(self, letter: dict[str, Any]) -> dict[str, Any]:
        """A dead letter with its decoded payload and `schemaType`, or with a `payloadFault`."""
        version = base64.b64decode(letter.get("schemaVersionBase64") or "")
        if not version or letter.get("payload") is None or letter.get("isEncrypted") or "fault" in letter:
            return letter
        if version not in self._schemas:
            self._schemas[version] = self._requested(version)
        schema = self._schemas[version]
        if isinstance(schema, str):
            return {**letter, "payloadFault": schema}
        typed = {**letter, "schemaType": schema.type.name}
        if schema.type in _AS_THEY_ARE or letter["payloadEncoding"] == "json":
            return typed
        try:
            value = decode_value(schema, _bytes_of(letter), _key_of(letter))
        except ValueError as error:
            return {**typed, "payloadFault": f"not a value of the {schema.type.name} schema: {error}"}
        return {**typed, "payloadEncoding": schema.type.name.lower(), "payload": value}

    def _requested(self, version: bytes) -> Schema | str:
        """A version of the schema, or the reason why there is none."""
        if len(version) != _VERSION_SIZE:
            return f"the schema version has {len(version)} bytes, not {_VERSION_SIZE}"
        number = int.from_bytes(version, "big", signed=True)
        topic = self._topic
        try:
            reply = self._rest.get("schemas", topic.tenant, topic.namespace, topic.local, "schema", str(number))
        except Refused as error:
            return f"{topic.full} has no schema version {number}: {error}"
        if not isinstance(reply, dict) or reply.get("type") not in SchemaType.__members__:
            return f"schema version {number} has an unknown type"
        return _schema(SchemaType[reply["type"]], reply.get("data") or "", reply.get("properties") or {})


def _schema(type_: SchemaType, text: str, properties: dict[str, str]) -> Schema | str:
    if type_ is not SchemaType.KEY_VALUE:
        return Schema(type_, text.encode(), properties)
    try:
        pair = json.loads(text)
        parts = [_definition(pair.get(name)) for name in ("key", "value")]
    except (ValueError, AttributeError):
        return "the definition of the KEY_VALUE schema cannot be read"
    return Schema(type_, encode_key_value(*parts), properties)


def _definition(part: object) -> bytes:
    return part.encode() if isinstance(part, str) else json.dumps(part).encode()


def _bytes_of(letter: dict[str, Any]) -> bytes:
    payload: str = letter["payload"]
    return base64.b64decode(payload) if letter["payloadEncoding"] == "base64" else payload.encode()


def _key_of(letter: dict[str, Any]) -> bytes | None:
    key = letter.get("key")
    if key is None:
        return None
    return base64.b64decode(key) if letter.get("keyIsBase64") else str(key).encode()

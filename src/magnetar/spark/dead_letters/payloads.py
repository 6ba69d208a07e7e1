"""Payloads of dead letters as text: JSON by their schema, or text as it is.

A schema version is numbered by topic. Letters of a Magnetar broker and its pipelines have the version of the origin,
those of clients a version of the dead letter topic: both are tried, in that order or the other one. Payloads and
definitions are untrusted: `schema.values` bounds the work, and what cannot be decoded has a reason.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from magnetar.client.schema import Schema
from magnetar.deadletter.properties import DEATH_REASON, REAL_TOPIC
from magnetar.errors import InvalidName
from magnetar.names import TopicName
from magnetar.schema.types import Schema as TypedSchema
from magnetar.schema.types import SchemaType
from magnetar.schema.values import UndecodableValue, decode_value
from magnetar.spark.codec.column_builders import version_of
from magnetar.spark.codec.entry_view import Cells, EntryView

SCHEMAS_KEPT = 256
PAYLOAD_MAX = 4 << 20
"""Bytes of a payload that is decoded."""

SchemaRequest = Callable[[str, bytes], Schema | None]
"""Of a topic and a version; None if there is no such version."""

_AS_TEXT = (SchemaType.STRING,)
_UNTYPED = (SchemaType.NONE, SchemaType.BYTES)
_VERSION_SIZE = 8

_json = msgspec.json.Decoder(msgspec.Raw)


class PayloadDecoder:
    """Of one dead letter topic; each version of a schema is requested once."""

    def __init__(self, topic: TopicName, request: SchemaRequest) -> None:
        self._topic = topic.base.full
        self._request = request
        self._schemas: OrderedDict[tuple[str, bytes], TypedSchema | None] = OrderedDict()

    def decode(
        self, parts: list[EntryView], properties: list[dict[str, str]]
    ) -> tuple[list[str | None], list[str | None]]:
        """Texts and errors of all messages; the error of an entry that cannot be opened is one, too."""
        texts: list[str | None] = []
        errors: list[str | None] = []
        row = 0
        for part in parts:
            version = version_of(part)
            keys = part.keys()
            values = part.values()
            for index in range(part.count):
                key = None if keys is None else _cell(keys, index)
                text, error = self._decoded(_cell(values, index), key, version, properties[row])
                texts.append(text)
                errors.append(part.error or error)
                row += 1
        return texts, errors

    def _decoded(
        self, value: bytes | None, key: bytes | None, version: bytes | None, properties: Mapping[str, str]
    ) -> tuple[str | None, str | None]:
        if value is None:
            return None, None
        if len(value) > PAYLOAD_MAX:
            return None, f"the payload of {len(value)} bytes exceeds {PAYLOAD_MAX}"
        reason = ""
        for topic in self._topics(version, properties):
            schema = self._schema(topic, version or b"")
            if schema is None:
                continue
            try:
                return decoded_text(schema, value, key), None
            except UndecodableValue as error:
                reason = reason or f"not a value of the {schema.type.name} schema of {topic}: {error}"
        if reason:
            return None, reason
        text = untyped_text(value)
        if text is not None:
            return text, None
        if version:
            return None, f"schema version {version.hex()} does not exist, and the payload is no text"
        return None, "it has no schema, and the payload is no text"

    def _topics(self, version: bytes | None, properties: Mapping[str, str]) -> list[str]:
        """Those whose schema it may have; a message without a version has none."""
        if not version:
            return []
        origin = _base(properties.get(REAL_TOPIC))
        both = [origin, self._topic] if properties.get(DEATH_REASON) else [self._topic, origin]
        return [topic for topic in dict.fromkeys(both) if topic]

    def _schema(self, topic: str, version: bytes) -> TypedSchema | None:
        key = (topic, version)
        if key not in self._schemas:
            if len(self._schemas) >= SCHEMAS_KEPT:
                self._schemas.popitem(last=False)
            found = self._request(topic, version) if len(version) == _VERSION_SIZE else None
            self._schemas[key] = None if found is None else _typed(found)
        return self._schemas[key]


def decoded_text(schema: TypedSchema, value: bytes, key: bytes | None) -> str:
    """Raises `UndecodableValue`."""
    if schema.type in _UNTYPED:
        text = untyped_text(value)
        if text is None:
            raise UndecodableValue("the payload is no text")
        return text
    if schema.type in _AS_TEXT:
        return _text(value)
    if schema.type is SchemaType.JSON:
        if not _is_json(value):
            raise UndecodableValue("the payload is not JSON")
        return _text(value)
    try:
        return msgspec.json.encode(decode_value(schema, value, key)).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UndecodableValue(str(error)[:500]) from None


def untyped_text(value: bytes) -> str | None:
    """JSON and other text as it is; None for bytes that are no text."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UndecodableValue(f"the payload is no text: {error}") from None


def _is_json(value: bytes) -> bool:
    try:
        _json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def _typed(schema: Schema) -> TypedSchema | None:
    if schema.type not in SchemaType.__members__:
        return None
    return TypedSchema(SchemaType[schema.type], schema.data, schema.properties)


def _base(topic: str | None) -> str:
    try:
        return TopicName.parse(topic).base.full if topic else ""
    except InvalidName:
        return ""


def _cell(cells: np.ndarray | Cells, index: int) -> bytes | None:
    cell = cells[index]
    return bytes(cell) if isinstance(cell, np.ndarray) else cell

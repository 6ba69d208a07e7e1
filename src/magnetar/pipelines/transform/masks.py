"""Hiding fields in the values of messages: which way of doing it a schema asks for.

A value is never passed on unmasked because it was not understood: then it is `Refused`. Values of topics without a
schema are masked if they are JSON objects. Owns the choice by schema and its caching by version; the bytes are edited
in `json_masks` and `avro_masks`. Keys are not masked, nor those of KEY_VALUE schemas.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from magnetar.client.admin.schemas import Schema
from magnetar.pipelines.transform import avro_masks, json_masks
from magnetar.pipelines.transform.avro_types import UnreadableDefinition, parse
from magnetar.pipelines.transform.mask_paths import CannotMask, Wanted, wanted
from magnetar.replication.model import Mask

VERSIONS_MAX = 64
"""Of a topic's schema, whose maskers are kept."""

_LENGTH = struct.Struct(">i")
_TEXTS = frozenset({"NONE", "BYTES", "STRING"})

Masker = Callable[[bytes], bytes]
"""A value goes in, what may be seen of it comes out. Raises `CannotMask`."""


class Refused(Exception):
    """A message that cannot go this way; the text says why."""


class Masks:
    """The masks of one way for one topic. `schema_of` gives the schema of a version, None for messages without."""

    def __init__(self, masks: tuple[Mask, ...], topic: str, schema_of: Callable[[bytes | None], Schema | None]) -> None:
        self._wanted = wanted(masks)
        self._topic = topic
        self._schema_of = schema_of
        self._maskers: dict[bytes | None, Masker] = {}

    def masked(self, value: bytes, version: bytes | None) -> bytes:
        """Raises `Refused`."""
        version = version or None
        try:
            masker = self._maskers.get(version)
            if masker is None:
                masker = self._made(version)
            return masker(value)
        except (CannotMask, UnreadableDefinition, RecursionError) as error:
            fields = ", ".join(".".join(path) for path, _ in self._wanted)
            reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise Refused(f"a value of topic {self._topic} cannot be masked ({fields}): {reason}") from None

    def _made(self, version: bytes | None) -> Masker:
        schema = self._schema_of(version)
        if schema is None and version is not None:
            raise CannotMask(f"the registry has no schema of version {version.hex()}")
        masker = _masker(schema, self._wanted)
        if len(self._maskers) >= VERSIONS_MAX:
            del self._maskers[next(iter(self._maskers))]
        self._maskers[version] = masker
        return masker


def _masker(schema: Schema | None, fields: Wanted) -> Masker:
    if schema is None or schema.type in _TEXTS:
        return lambda value: json_masks.masked(value, fields, objects_only=True)
    if schema.type == "AVRO":
        return avro_masks.masker(parse(schema.data), fields)
    if schema.type == "JSON":
        _check_json(schema, fields)
        return lambda value: json_masks.masked(value, fields)
    if schema.type == "KEY_VALUE":
        return _key_value_masker(schema, fields)
    raise CannotMask(f"its schema is of type {schema.type}, and masks are for JSON and AVRO")


def _check_json(schema: Schema, fields: Wanted) -> None:
    """What is read by its definition has to fit it afterwards too. Fields that are not in it nobody reads by it."""
    try:
        definition = parse(schema.data)
    except UnreadableDefinition:  # clients before 2.1 described JSON in other words
        return
    avro_masks.check(definition, fields)


def _key_value_masker(schema: Schema, fields: Wanted) -> Masker:
    properties = schema.properties
    _, definition = _cut(schema.data, "its KEY_VALUE schema")
    inner = _masker(Schema(type=properties.get("value.schema.type", "BYTES"), data=definition or b""), fields)
    if properties.get("kv.encoding.type", "INLINE") == "SEPARATED":
        return inner

    def masked(payload: bytes) -> bytes:
        _, value = _cut(payload, "it")
        if value is None:
            return payload
        changed = inner(value)
        return payload[: len(payload) - len(value) - _LENGTH.size] + _LENGTH.pack(len(changed)) + changed

    return masked


def _cut(data: bytes, what: str) -> tuple[bytes | None, bytes | None]:
    """length i32 | key | length i32 | value; the length of what is null is -1."""
    parts: list[bytes | None] = []
    at = 0
    for _ in ("key", "value"):
        if at + _LENGTH.size > len(data):
            raise CannotMask(f"{what} ends before the lengths of key and value do")
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        parts.append(None if size < 0 else data[at : at + size])
        at += max(size, 0)
    if at != len(data):
        raise CannotMask(f"{what} has {len(data)} bytes, where key and value have {at}")
    return parts[0], parts[1]

"""Masks: hide fields in the values of messages, by the schema of the message.

A value that cannot be read is never copied unmasked: the message is refused. Values of topics without a schema are
masked if they are JSON objects. Owns the choice by schema and its cache by version; `json_masks` and `avro_masks` edit
the bytes. Keys are not masked, nor those of KEY_VALUE schemas.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.client.schema import Schema
from magnetar.pipelines.transform import avro_masks, json_masks
from magnetar.pipelines.transform.mask_paths import CannotMask, Wanted, wanted
from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.replication.model import Mask
from magnetar.schema.avro import AvroDefinitionError, parse_definition
from magnetar.schema.key_value import KeyValueError, decode_whole, encode_key_value, is_separated, parts_of

VERSIONS_MAX = 64
"""Schema versions of a topic whose maskers are kept."""

_TEXTS = frozenset({"NONE", "BYTES", "STRING"})

Masker = Callable[[bytes], bytes]
"""Returns the masked value. Raises `CannotMask`."""


class Masks:
    """The masks of one topic. `schema_of` returns the schema of a version, None for messages without one."""

    def __init__(self, masks: tuple[Mask, ...], topic: str, schema_of: Callable[[bytes | None], Schema | None]) -> None:
        self._wanted = wanted(masks)
        self._topic = topic
        self._schema_of = schema_of
        self._maskers: dict[bytes | None, Masker] = {}

    def masked(self, value: bytes, version: bytes | None) -> bytes:
        """Raises `MessageRefused`."""
        version = version or None
        try:
            masker = self._maskers.get(version)
            if masker is None:
                masker = self._made(version)
            return masker(value)
        except (CannotMask, AvroDefinitionError, KeyValueError, RecursionError) as error:
            fields = ", ".join(".".join(path) for path, _ in self._wanted)
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise MessageRefused(f"a value of topic {self._topic} cannot be masked ({fields}): {reason}") from None

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
        return avro_masks.masker(parse_definition(schema.data), fields)
    if schema.type == "JSON":
        _check_json(schema, fields)
        return lambda value: json_masks.masked(value, fields)
    if schema.type == "KEY_VALUE":
        return _key_value_masker(schema, fields)
    raise CannotMask(f"its schema has type {schema.type}, and masks need JSON or AVRO")


def _check_json(schema: Schema, fields: Wanted) -> None:
    """A value that fits its definition has to fit it after masking. Other fields are not in the definition."""
    try:
        definition = parse_definition(schema.data)
    except AvroDefinitionError:  # clients before 2.1 described JSON in other words
        return
    avro_masks.check(definition, fields)


def _key_value_masker(schema: Schema, fields: Wanted) -> Masker:
    _, part = parts_of(schema.data, schema.properties)
    inner = _masker(Schema(type=part.type, data=part.data), fields)
    if is_separated(schema.properties):
        return inner

    def masked(payload: bytes) -> bytes:
        key, value = decode_whole(payload)
        return payload if value is None else encode_key_value(key, inner(value))

    return masked

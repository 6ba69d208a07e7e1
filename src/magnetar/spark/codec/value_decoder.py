"""Value decoder: payloads as typed columns, by the schema of the topic.

Owns the columns of a schema, and the reader of each version. Does not know where schemas come from: older versions are
requested by their bytes. Payloads are read by `avro.reader`, `json` and `primitive`; those of PROTOBUF,
PROTOBUF_NATIVE, EXTERNAL and without a schema stay bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from magnetar.client.schema import Schema
from magnetar.schema.avro import is_jackson
from magnetar.schema.key_value import KeyValueError, decode_key_value, is_separated, parts_of
from magnetar.spark.codec import primitive
from magnetar.spark.codec.avro import fields as avro_fields
from magnetar.spark.codec.avro.fields import Node, UnsupportedSchema
from magnetar.spark.codec.avro.reader import AvroReader
from magnetar.spark.codec.avro.resolution import SchemaMismatch
from magnetar.spark.codec.columns import METADATA_NAMES, PAIR_KEY, VALUE
from magnetar.spark.codec.decoded import Decoded
from magnetar.spark.codec.json import JsonReader
from magnetar.spark.errors import InvalidOption

VERSIONS_MAX = 64
"""Versions whose readers are cached (LRU)."""


@dataclass(frozen=True)
class PayloadType:
    """The type of a payload: an Avro definition, a primitive type, or raw bytes (`raw`)."""

    type: str
    node: Node | None = None

    @property
    def is_record(self) -> bool:
        return self.node is not None and self.node.kind == "record"

    @property
    def spark_type(self) -> spark.DataType:
        if self.node is not None:
            return avro_fields.spark_type(self.node)
        return spark.BinaryType() if self.type == "raw" else primitive.spark_type(self.type)

    @property
    def arrow_type(self) -> pa.DataType:
        return to_arrow_type(self.spark_type, timezone="UTC")

    @property
    def fields(self) -> list[spark.StructField]:
        """The fields of a record, or one column."""
        if self.node is not None and self.node.kind == "record":
            return [spark.StructField(each.name, avro_fields.spark_type(each.node)) for each in self.node.fields]
        return [spark.StructField(VALUE, self.spark_type)]

    def only(self, names: Sequence[str]) -> PayloadType:
        if not self.is_record:
            return self
        assert self.node is not None
        chosen = {each.name: each for each in self.node.fields}
        return PayloadType(self.type, replace(self.node, fields=tuple(chosen[name] for name in names)))


def payload_type_of(schema: Schema) -> PayloadType:
    """Raises `UnsupportedSchema`."""
    if schema.type == "STRING" or schema.type in primitive.LAYOUTS:
        return PayloadType(schema.type)
    if schema.type == "AVRO" or (schema.type == "JSON" and not is_jackson(schema.data)):
        return PayloadType(schema.type, avro_fields.parse(schema.data))
    return PayloadType("raw")


def fields_of(schema: Schema) -> list[spark.StructField]:
    """The columns of a topic with this schema. Raises `UnsupportedSchema` and `InvalidOption`."""
    if schema.type == "KEY_VALUE":
        key, value = key_and_value(schema)
        return [spark.StructField(PAIR_KEY, key.spark_type), spark.StructField(VALUE, value.spark_type)]
    fields = payload_type_of(schema).fields
    for field in fields:
        if field.name in METADATA_NAMES:
            raise InvalidOption(
                f"the topic's schema has a field {field.name!r}, which is also a metadata column: set option decode=raw"
            )
    return fields


# -- key and value


def key_and_value(schema: Schema) -> tuple[PayloadType, PayloadType]:
    try:
        key, value = parts_of(schema.data, schema.properties)
    except KeyValueError as error:
        raise UnsupportedSchema(f"the schema cannot be read: {error}") from None
    return (
        payload_type_of(Schema(type=key.type, data=key.data)),
        payload_type_of(Schema(type=value.type, data=value.data)),
    )


_PARTS: dict[str, Callable[[Schema], PayloadType]] = {
    PAIR_KEY: lambda schema: key_and_value(schema)[0],
    VALUE: lambda schema: key_and_value(schema)[1],
}


def has_separate_keys(schema: Schema) -> bool:
    """Whether the key of a KEY_VALUE payload is the message key."""
    return schema.type == "KEY_VALUE" and is_separated(schema.properties)


def _inline(values: pa.Array) -> tuple[pa.Array, pa.Array, dict[int, str]]:
    keys: list[bytes | None] = []
    rest: list[bytes | None] = []
    errors = {}
    for row, payload in enumerate(values.to_pylist()):
        key = value = None
        if payload is not None:
            try:
                key, value, _ = decode_key_value(payload)
            except KeyValueError as error:
                errors[row] = str(error)
        keys.append(key)
        rest.append(value)
    return pa.array(keys, pa.binary()), pa.array(rest, pa.binary()), errors


# -- decoding


class _Reader(Protocol):
    def decode(self, values: pa.Array) -> Decoded: ...


class _RawReader:
    def decode(self, values: pa.Array) -> Decoded:
        return [values], {}


class _PrimitiveReader:
    def __init__(self, schema_type: str) -> None:
        self._type = schema_type

    def decode(self, values: pa.Array) -> Decoded:
        return primitive.decode(values, self._type)


class _RejectingReader:
    """Reader of an incompatible version: every row has the same error."""

    def __init__(self, payload_type: PayloadType, reason: str) -> None:
        self._types = [to_arrow_type(each.dataType, timezone="UTC") for each in payload_type.fields]
        self._reason = reason

    def decode(self, values: pa.Array) -> Decoded:
        columns = [pa.nulls(len(values), each) for each in self._types]
        rows = np.flatnonzero(np.asarray(values.is_valid())).tolist()
        return columns, dict.fromkeys(rows, self._reason)


def _reader(writer: PayloadType, reader: PayloadType) -> _Reader:
    if reader.type == "raw":
        return _RawReader()
    if writer.node is not None and reader.node is not None:
        return JsonReader(writer.node, reader.node) if writer.type == "JSON" else AvroReader(writer.node, reader.node)
    if writer.type == reader.type:
        return _PrimitiveReader(reader.type)
    return _RejectingReader(reader, f"it was written with schema type {writer.type}, not {reader.type}")


class ValueDecoder:
    """Decodes payloads of every version to the columns of one schema: the latest when the query is planned.

    `schema_of_version` returns the schema that a message was written with, or None. It is pickled with the decoder.
    """

    def __init__(self, schema: Schema, schema_of_version: Callable[[bytes], Schema | None]) -> None:
        self.schema = schema
        self.fields = fields_of(schema)
        self._schema_of_version = schema_of_version
        self._schemas: OrderedDict[bytes, Schema | None] = OrderedDict()
        self._readers: OrderedDict[Any, _Reader] = OrderedDict()

    def __getstate__(self) -> tuple[Schema, Callable[[bytes], Schema | None]]:
        return self.schema, self._schema_of_version

    def __setstate__(self, state: tuple[Schema, Callable[[bytes], Schema | None]]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @property
    def needs_keys(self) -> bool:
        """Whether the message keys are decoded too."""
        return has_separate_keys(self.schema)

    def decode(
        self, values: pa.Array, version: bytes | None, names: Sequence[str] | None = None, keys: pa.Array | None = None
    ) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """Columns by name, and errors by row; in a row with an error, the columns that could not be read are null.

        All payloads have the same version; None means that of the decoder's schema. A null payload is null in all
        columns, without an error.
        """
        chosen = [field.name for field in self.fields] if names is None else list(names)
        if self.schema.type == "KEY_VALUE":
            columns, errors = self._key_value(values, version, keys)
            columns = {name: columns[name] for name in chosen}
        else:
            decoded, errors = self._decode(values, version, VALUE, payload_type_of, chosen)
            columns = dict(zip(chosen, decoded, strict=True))
        return columns, errors

    def _key_value(
        self, values: pa.Array, version: bytes | None, keys: pa.Array | None
    ) -> tuple[dict[str, pa.Array], dict[int, str]]:
        errors: dict[int, str] = {}
        if self.needs_keys:
            keys = pa.nulls(len(values), pa.binary()) if keys is None else keys
        else:
            keys, values, errors = _inline(values)
        columns = {}
        for part, payloads in ((PAIR_KEY, keys), (VALUE, values)):
            decoded, found = self._decode(payloads, version, part, _PARTS[part])
            columns[part] = self._one_column(decoded, payloads, _PARTS[part](self.schema), found)
            errors |= {row: f"the {part}: {text}" for row, text in found.items() if row not in errors}
        return columns, errors

    @staticmethod
    def _one_column(
        decoded: list[pa.Array], payloads: pa.Array, payload_type: PayloadType, errors: dict[int, str]
    ) -> pa.Array:
        if not payload_type.is_record:
            return decoded[0]
        is_null = np.array(payloads.is_null())
        for row in errors:
            is_null[row] |= not any(column[row].is_valid for column in decoded)
        kind = payload_type.arrow_type
        return pa.StructArray.from_arrays(decoded, fields=list(kind), mask=pa.array(is_null))

    def _decode(
        self,
        values: pa.Array,
        version: bytes | None,
        part: str,
        type_of: Callable[[Schema], PayloadType],
        names: Sequence[str] | None = None,
    ) -> Decoded:
        key = (version or None, part, None if names is None else tuple(names))
        reader = self._readers.get(key)
        if reader is None:
            reader = self._create_reader(version or None, type_of, names)
            _keep(self._readers, key, reader)
        else:
            self._readers.move_to_end(key)
        return reader.decode(values)

    def _create_reader(
        self, version: bytes | None, type_of: Callable[[Schema], PayloadType], names: Sequence[str] | None
    ) -> _Reader:
        target = type_of(self.schema)
        reader = target if names is None else target.only(names)
        schema = self.schema if version is None or version == self.schema.version else self._schema(version)
        if schema is None:
            return _RejectingReader(reader, f"{_named(version)} no longer exists")
        if (schema.type == "KEY_VALUE") != (self.schema.type == "KEY_VALUE"):
            return _RejectingReader(reader, f"{_named(version)} has type {schema.type}, not {self.schema.type}")
        try:
            return _reader(type_of(schema), reader)
        except SchemaMismatch as error:
            return _RejectingReader(reader, f"{_named(version)} is incompatible with the latest: {error}")
        except UnsupportedSchema as error:
            return _RejectingReader(reader, f"{_named(version)} is not supported: {error}")

    def _schema(self, version: bytes) -> Schema | None:
        if version not in self._schemas:
            _keep(self._schemas, version, self._schema_of_version(version))
        return self._schemas[version]


def _keep(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    if len(kept) > VERSIONS_MAX:
        kept.popitem(last=False)


def _named(version: bytes | None) -> str:
    if version is None:
        return "the schema"
    return f"schema version {int.from_bytes(version, 'big') if len(version) == 8 else version.hex()}"

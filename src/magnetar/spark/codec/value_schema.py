"""Value schema: the one that all topics of a query share, or none.

Owns the check that several topics fit one table, and the decoder cache of a worker. Payloads are decoded in
`value_decoder`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec
from pyspark.sql.types import StructField

from magnetar.client.connection.retry import with_retry_blocking
from magnetar.client.schema import Schema
from magnetar.names import TopicName
from magnetar.spark.client_options import SparkClientOptions
from magnetar.spark.clients import inline_client
from magnetar.spark.codec.columns import RAW_VALUE
from magnetar.spark.codec.value_decoder import ValueDecoder, fields_of
from magnetar.spark.errors import InvalidOption

_DECODERS_MAX = 256

_decoders: dict[object, ValueDecoder] = {}


class SchemaLookup(Protocol):
    def schema(self, topic: str) -> Schema | None: ...


@dataclass(frozen=True)
class ValueSchema:
    """The schema that decodes the payloads of all topics: the latest one of `topic`."""

    topic: str
    schema: Schema

    @property
    def fields(self) -> list[StructField]:
        return fields_of(self.schema)

    def decoder(self, client: SparkClientOptions, partition: str) -> ValueDecoder:
        """The cached decoder of this process for a topic: schema versions are numbered by topic."""
        topic = TopicName.parse(partition).base.full
        key = (client, topic, self.topic, self.schema.type, self.schema.data, self.schema.version)
        decoder = _decoders.get(key)
        if decoder is None:
            own = topic == self.topic
            schema = self.schema if own else msgspec.structs.replace(self.schema, version=b"")
            if len(_decoders) >= _DECODERS_MAX:
                _decoders.clear()
            decoder = _decoders[key] = ValueDecoder(schema, RegistryVersions(client, topic))
        return decoder


@dataclass(frozen=True)
class RegistryVersions:
    """Looks up older versions from a worker."""

    client: SparkClientOptions
    topic: str

    def __call__(self, version: bytes) -> Schema | None:
        client = inline_client(self.client)
        return with_retry_blocking(
            lambda: client.run(client.client.schema(self.topic, version)), self.client.operation_timeout_s
        )


def common_schema(schemas: SchemaLookup, partitions: Iterable[str]) -> ValueSchema | None:
    """The schema of the first topic, if all have the same columns; None if payloads stay bytes."""
    first: tuple[str, Schema | None, list[StructField]] | None = None
    for topic in sorted({TopicName.parse(partition).base.full for partition in partitions}):
        schema = schemas.schema(topic)
        fields = [RAW_VALUE.field] if schema is None else fields_of(schema)
        if first is None:
            first = (topic, schema, fields)
        elif fields != first[2]:
            raise InvalidOption(
                f"the schemas of {first[0]} and {topic} have different columns, {_named(first[2])} and"
                f" {_named(fields)}: set option decode=raw"
            )
    if first is None or first[1] is None or first[2] == [RAW_VALUE.field]:
        return None
    return ValueSchema(first[0], first[1])


def _named(fields: list[StructField]) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)

"""Messages of a retry topic, made of bad rows; and made into rows again, with the columns that the stream has.

The payload is that of the origin. Because schema versions are numbered by topic, a property has the one that it was
written with there. Knows nothing of when a message is due.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import MapType, StringType, StructField, StructType

from magnetar.client.connection.retry import with_retry_blocking
from magnetar.deadletter.properties import (
    DELAY_TIME,
    ORIGIN_MESSAGE_ID,
    REAL_SUBSCRIPTION,
    REAL_TOPIC,
    RECONSUMETIMES,
)
from magnetar.names import TopicName
from magnetar.spark.client_options import SparkClientOptions
from magnetar.spark.clients import blocking_client
from magnetar.spark.codec.columns import METADATA_NAMES, RAW_VALUE, VALUE
from magnetar.spark.codec.value_decoder import fields_of
from magnetar.spark.codec.value_schema import ValueSchema
from magnetar.spark.errors import InvalidOption
from magnetar.spark.routing.arrow_function import arrow_function
from magnetar.spark.routing.letters import KEPT, MESSAGE_ID_TEXT, PAYLOAD
from magnetar.spark.sink.columns import DELIVER_AT, ERROR, KEY, PROPERTIES, TOPIC
from magnetar.spark.source.options import SourceOptions

SCHEMA_VERSION = "__schemaVersion"
REAL_SCHEMA_VERSION: Final = "REAL_SCHEMA_VERSION"
"""The number of the schema version in the origin topic."""

OWN = (REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID, RECONSUMETIMES, DELAY_TIME, REAL_SCHEMA_VERSION)
"""The properties of a message that is retried, which a message that succeeds in the end does not keep."""

_PROPERTIES_TYPE: Final = pa.map_(pa.string(), pa.string())
_VERSION = struct.Struct(">q")
_DECODED, _DECODED_ERROR = "__decoded", "__decodedError"


class _Failed(NamedTuple):
    topic: str
    message_id: str
    properties: list[tuple[str, str]] | None
    version: int | None


def retries_of(rows: DataFrame, subscription: str, attempt: int, now_ms: int, delay_ms: int) -> DataFrame:
    """The messages for attempt number `attempt`, the first one being 1, in the columns of the sink."""

    def added(topics: pa.Array, ids: pa.Array, properties: pa.Array, versions: pa.Array) -> pa.Array:
        failed = zip(*(column.to_pylist() for column in (topics, ids, properties, versions)), strict=True)
        found = [list(_added(_Failed(*row), subscription, attempt, delay_ms).items()) for row in failed]
        return pa.array(found, _PROPERTIES_TYPE)

    version = F.col(SCHEMA_VERSION) if SCHEMA_VERSION in rows.columns else F.lit(None)
    with_added = arrow_function(added, MapType(StringType(), StringType()))
    properties = with_added(F.col(TOPIC), F.col(MESSAGE_ID_TEXT), F.col(PROPERTIES), version.cast("bigint"))
    kept = [name for name in KEPT if name in rows.columns]
    due = F.lit(now_ms + delay_ms).cast("bigint").alias(DELIVER_AT)
    return rows.select(*kept, F.col(PAYLOAD).alias(VALUE), properties.alias(PROPERTIES), due)


def _added(row: _Failed, subscription: str, attempt: int, delay_ms: int) -> dict[str, str]:
    before = dict(row.properties or ())
    origin = {REAL_TOPIC: row.topic, ORIGIN_MESSAGE_ID: row.message_id}
    if row.version is not None:
        origin[REAL_SCHEMA_VERSION] = str(row.version)
    if attempt > 1:  # it comes from the retry topic, and names its origin
        origin = {name: before[name] for name in (*origin, REAL_SCHEMA_VERSION) if name in before}
    ladder = {REAL_SUBSCRIPTION: subscription, RECONSUMETIMES: str(attempt), DELAY_TIME: str(delay_ms)}
    return {name: text for name, text in before.items() if name not in OWN} | origin | ladder


def without_own_properties(rows: DataFrame) -> DataFrame:
    if PROPERTIES not in rows.columns:
        return rows
    kept = F.map_filter(PROPERTIES, lambda name, _: ~name.isin(*OWN))
    return rows.withColumn(PROPERTIES, kept)


@dataclass(frozen=True)
class SourceRows:
    """The columns of a stream, and the schema that decodes its payloads; None if they stay bytes."""

    columns: StructType
    values: ValueSchema | None
    client: SparkClientOptions
    origin: str

    @property
    def fields(self) -> list[StructField]:
        """The columns that come from the payload."""
        return [field for field in self.columns.fields if field.name not in METADATA_NAMES]

    @property
    def to_read(self) -> list[str]:
        """The columns to read from the retry topic."""
        asked = [field.name for field in self.columns.fields if field.name in METADATA_NAMES]
        return list(dict.fromkeys([VALUE, KEY, PROPERTIES, TOPIC, "__messageId", DELIVER_AT, ERROR, *asked]))

    def of(self, raw: DataFrame) -> DataFrame:
        """The columns of the stream, of messages read as bytes."""
        properties = F.col(PROPERTIES)
        version = F.try_element_at(properties, F.lit(REAL_SCHEMA_VERSION)).try_cast("bigint")
        made: dict[str, Column] = {PAYLOAD: F.col(VALUE), SCHEMA_VERSION: version}
        if self.values is None:
            return raw.select(*(made.get(name, F.col(name)).alias(name) for name in self.columns.names))
        decoded = raw.withColumn(_DECODED, self._decode(F.col(VALUE), version, F.col(KEY)))
        made |= {field.name: F.col(f"{_DECODED}.`{field.name}`") for field in self.fields}
        made[ERROR] = F.coalesce(F.col(ERROR), F.col(f"{_DECODED}.{_DECODED_ERROR}"))
        return decoded.select(*(made.get(name, F.col(name)).alias(name) for name in self.columns.names))

    def _decode(self, value: Column, version: Column, key: Column) -> Column:
        assert self.values is not None
        schema, client, origin, fields = self.values, self.client, self.origin, self.fields
        result = StructType([*fields, StructField(_DECODED_ERROR, StringType())])

        def decode(values: pa.Array, versions: pa.Array, keys: pa.Array) -> pa.Array:
            return decoded_rows(schema, client, origin, result, values, versions, keys)

        return arrow_function(decode, result)(value, version, key)


def source_rows(source: SourceOptions, columns: StructType) -> SourceRows:
    """Raises `InvalidOption` if the rows of a retry topic cannot have these columns."""
    origin = TopicName.parse(source.topics.names[0]).base.full
    if source.include_entries:
        raise InvalidOption("retry is not possible with option includeEntries: entries are not decoded")
    values: ValueSchema | None = None
    if source.decode == "auto":
        with closing(blocking_client(source.client)) as client:
            schema = with_retry_blocking(lambda: client.schema(origin), source.client.connect_timeout_s)
        if schema is not None and fields_of(schema) != [RAW_VALUE.field]:
            values = ValueSchema(origin, schema)
    rows = SourceRows(columns, values, source.client, origin)
    _check_columns(rows)
    return rows


def _check_columns(rows: SourceRows) -> None:
    known = {VALUE: RAW_VALUE.field} if rows.values is None else {field.name: field for field in rows.values.fields}
    for field in rows.fields:
        if field.name not in known or known[field.name].dataType != field.dataType:
            raise InvalidOption(
                f"the schema of {rows.origin} has changed: it has no column {field.name} of the stream; load it again"
            )
    if rows.values is not None and SCHEMA_VERSION not in rows.columns.names:
        raise InvalidOption(
            f"retry needs the column {SCHEMA_VERSION}, by which a message that comes back is decoded: read the"
            f" stream with option columns=*,{PAYLOAD},{MESSAGE_ID_TEXT},{SCHEMA_VERSION}"
        )


def decoded_rows(
    schema: ValueSchema,
    client: SparkClientOptions,
    origin: str,
    result: StructType,
    values: pa.Array,
    versions: pa.Array,
    keys: pa.Array,
) -> pa.Array:
    """Decodes payloads as the source does, the rows of each version together; the last column has errors."""
    decoder = schema.decoder(client, origin)
    names = result.names[:-1]
    target = to_arrow_schema(result, timezone="UTC")
    numbers = versions.to_pylist()
    order: list[int] = []
    parts: list[pa.Table] = []
    for number in dict.fromkeys(numbers):
        rows = [row for row, other in enumerate(numbers) if other == number]
        version = None if number is None else _VERSION.pack(number)
        columns, errors = decoder.decode(
            values.take(pa.array(rows)), version, names, keys.take(pa.array(rows)) if decoder.needs_keys else None
        )
        texts = pa.array([errors.get(index) for index in range(len(rows))], pa.string())
        parts.append(pa.table(_named(columns, names, texts, target), schema=target))
        order += rows
    if not parts:
        return pa.array([], pa.struct(list(target)))
    back = np.argsort(np.array(order))
    return pa.concat_tables(parts).take(pa.array(back)).to_struct_array().combine_chunks()


def _named(
    columns: Mapping[str, pa.Array], names: list[str], errors: pa.Array, target: pa.Schema
) -> dict[str, pa.Array]:
    found = {name: columns[name] for name in names} | {target.names[-1]: errors}
    return {
        name: array if array.type == target.field(name).type else array.cast(target.field(name).type)
        for name, array in found.items()
    }

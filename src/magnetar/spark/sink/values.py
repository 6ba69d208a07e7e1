"""Payloads of rows: raw bytes, or typed columns encoded by the schema of the target topic.

Owns the choice of the schema. Columns become bytes in `codec.value_encoder`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa

from magnetar.client.connection.retry import with_retry_blocking
from magnetar.client.inline import InlineClient
from magnetar.client.schema import Schema, SchemaResponse, schema_of_rest, schema_to_wire
from magnetar.spark.codec.columns import VALUE
from magnetar.spark.codec.frame_schema import KINDS
from magnetar.spark.errors import InvalidOption
from magnetar.spark.sink.columns import KEY, SinkColumns, binary, to_base64
from magnetar.spark.sink.options import SinkOptions
from magnetar.wire import schema_pb2 as pb

if TYPE_CHECKING:
    from magnetar.spark.codec.value_encoder import ValueEncoder

_ENCODERS_MAX = 64

_encoders: OrderedDict[tuple[str, bytes, bytes], ValueEncoder] = OrderedDict()


class _SchemaJson(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    schema: str = ""
    properties: dict[str, str] = {}


def parse_schema(text: str) -> Schema:
    """Parses option `schema`; raises `InvalidOption`."""
    kind, separator, definition = text.partition(":")
    if separator and kind in KINDS:  # as a Record class of the official client prints it
        text = schema_json(Schema(type=kind.upper(), data=definition.encode()))
    try:
        given = msgspec.json.decode(text, type=_SchemaJson)
    except msgspec.DecodeError as error:
        raise InvalidOption(f"option schema is not JSON as in the admin API: {error}") from None
    answer = SchemaResponse(version=0, type=given.type.upper(), data=given.schema, properties=given.properties)
    schema = schema_of_rest(answer, "option schema")
    try:
        schema_to_wire(schema)
    except KeyError:
        raise InvalidOption(f"option schema: unknown type {given.type!r}") from None
    return schema


def schema_json(schema: Schema) -> str:
    """The form that `parse_schema` reads."""
    return msgspec.json.encode(_SchemaJson(schema.type, schema.data.decode(), schema.properties)).decode()


class Payloads(NamedTuple):
    values: pa.Array
    keys: pa.Array | None = None
    """If the schema includes message keys: in base64, as Java's clients write them."""


@dataclass
class _Encoding:
    encoder: ValueEncoder
    schema: pb.Schema


class PayloadEncoder:
    """Encodes payloads of one task. Looks up schemas only if there are typed columns."""

    def __init__(self, client: InlineClient, options: SinkOptions, columns: SinkColumns) -> None:
        self._client = client
        self._options = options
        self._columns = columns
        self._encodings: dict[str, _Encoding] = {}

    def schema(self, topic: str) -> pb.Schema | None:
        """The schema for producers of the topic."""
        return self._encoding(topic).schema if self._columns.fields else None

    def payloads(self, topic: str, batch: pa.RecordBatch) -> Payloads:
        if self._columns.has_raw_value:
            return Payloads(binary(batch.column(VALUE)))
        encoder = self._encoding(topic).encoder
        values = encoder.encode(batch)
        if not encoder.has_keys:
            return Payloads(values)
        if KEY in self._columns:
            raise InvalidOption(f"the schema of {topic} includes keys: it cannot be combined with column {KEY}")
        return Payloads(values, pa.array(to_base64(encoder.encode_keys(batch)), pa.binary()))

    def _encoding(self, topic: str) -> _Encoding:
        encoding = self._encodings.get(topic)
        if encoding is None:
            schema = self._schema(topic)
            encoding = self._encodings[topic] = _Encoding(_encoder(schema), schema_to_wire(schema))
        return encoding

    def _schema(self, topic: str) -> Schema:
        if self._options.schema is not None:
            return parse_schema(self._options.schema)
        timeout_s = self._options.client.operation_timeout_s
        schema = with_retry_blocking(lambda: self._client.run(self._client.client.schema(topic)), timeout_s)
        if schema is None:
            raise InvalidOption(
                f"{topic} has no schema to encode columns {', '.join(self._columns.fields)}: set option schema, or"
                f" write a column {VALUE} of type binary or string"
            )
        return schema


def _encoder(schema: Schema) -> ValueEncoder:
    """Cached per process: creating one may take longer than using it."""
    from magnetar.spark.codec.value_encoder import ValueEncoder  # lazy: raw writes do not need it

    key = schema.type, schema.data, msgspec.json.encode(schema.properties, order="sorted")
    encoder = _encoders.pop(key, None) or ValueEncoder(schema)
    _encoders[key] = encoder
    while len(_encoders) > _ENCODERS_MAX:
        _encoders.popitem(last=False)
    return encoder

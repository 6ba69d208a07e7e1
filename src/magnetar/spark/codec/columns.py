"""The columns of the source: one table, and what a query chose of it.

Owns names, types and meanings; how a column is filled is in `rows`. Names and types of the first seven are those that
users of the Scala connector know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from magnetar.spark.errors import InvalidOption

VALUE = "value"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: DataType
    meaning: str

    @property
    def field(self) -> StructField:
        return StructField(self.name, self.type)


_TEXT, _BYTES, _TIME, _INT = StringType(), BinaryType(), TimestampType(), IntegerType()

RAW_VALUE = Column(VALUE, _BYTES, "the payload; null where the producer sent none, or where it cannot be read")

METADATA = (
    Column("__key", _BYTES, "the key; of a key of bytes the bytes, of a string its UTF-8"),
    Column("__topic", _TEXT, "full name of the topic; of a partitioned one, of the partition"),
    Column("__messageId", _BYTES, "the id in Pulsar's serialized form, with the place in the batch"),
    Column("__publishTime", _TIME, "when the producer published it"),
    Column("__eventTime", _TIME, "what the application set; null where it did not"),
    Column("__messageProperties", MapType(_TEXT, _TEXT), "the properties; empty where there are none"),
    Column("__batchIndex", _INT, "the place in the batch; null outside of one"),
    Column("__redeliveryCount", _INT, "how often the broker had delivered it before"),
    Column("__error", _TEXT, "why the message cannot be read (`onUnreadable` = row); null where it can"),
)
"""After the value, these are there unless a query chooses."""

ON_REQUEST = (
    Column("__partition", _INT, "index of the partition; null for a topic without partitions"),
    Column("__producerName", _TEXT, "who published it"),
    Column("__sequenceId", LongType(), "the producer's number of it"),
    Column("__orderingKey", _BYTES, "what Key_Shared orders by, where it is not the key"),
    Column("__schemaVersion", _BYTES, "the version of the schema as the registry has it; null without"),
    Column("__deliverAt", _TIME, "before which it is not delivered; null for at once"),
    Column("__replicatedFrom", _TEXT, "the cluster that it came from; null for this one"),
)
"""Chosen by `.schema(...)` or the option `columns`."""

ENTRIES = (
    Column("__topic", _TEXT, "full name of the topic; of a partitioned one, of the partition"),
    Column("__messageId", _BYTES, "the id of the entry in Pulsar's serialized form"),
    Column("__entry", _BYTES, "the entry as it is stored: metadata and payload, one message or a whole batch"),
    Column("__messages", _INT, "how many messages are in it"),
    Column("__publishTime", _TIME, "when the producer published it"),
)
"""With `includeEntries`: one row per stored entry."""

_BY_NAME = {column.name: column for column in (*METADATA, *ON_REQUEST)}
METADATA_NAMES = frozenset(_BY_NAME)


class SourceColumns:
    """What a query reads: fields in its order. `value_fields` are those that come out of the payload."""

    def __init__(self, fields: Sequence[StructField], value_names: Sequence[str], *, entries: bool = False) -> None:
        self.struct = StructType(list(fields))
        self.names = self.struct.fieldNames()
        self.value_names = [name for name in self.names if name in set(value_names)]
        self.is_entries = entries
        self._arrow: pa.Schema | None = None

    @property
    def arrow(self) -> pa.Schema:
        """What Spark derives: a record batch has to be equal to it."""
        if self._arrow is None:
            self._arrow = to_arrow_schema(self.struct, timezone="UTC")
        return self._arrow

    def __getstate__(self) -> tuple[StructType, list[str], bool]:
        return self.struct, self.value_names, self.is_entries

    def __setstate__(self, state: tuple[StructType, list[str], bool]) -> None:
        struct, value_names, entries = state
        self.__init__(struct.fields, value_names, entries=entries)  # type: ignore[misc]


def all_columns(value_fields: Sequence[StructField]) -> list[StructField]:
    """The value and the metadata, when nothing is chosen."""
    _refuse_clashes(value_fields)
    return [*value_fields, *(column.field for column in METADATA)]


def entry_columns() -> list[StructField]:
    return [column.field for column in ENTRIES]


def named_columns(names: Sequence[str], value_fields: Sequence[StructField]) -> list[StructField]:
    """Those of the option `columns`. `value` of a topic with a record schema means all of its fields."""
    _refuse_clashes(value_fields)
    of_value = {field.name: field for field in value_fields}
    fields: list[StructField] = []
    for name in names:
        if name in of_value:
            fields.append(of_value[name])
        elif name in _BY_NAME:
            fields.append(_BY_NAME[name].field)
        elif name == VALUE:
            fields.extend(value_fields)
        else:
            raise InvalidOption(
                f"option columns: there is no column {name!r}, only {', '.join((*of_value, *_BY_NAME))}"
            )
    twice = {field.name for field in fields if sum(other.name == field.name for other in fields) > 1}
    if twice:
        raise InvalidOption(f"option columns: {', '.join(sorted(twice))} is there twice")
    return fields


def select_columns(struct: StructType, value_fields: Sequence[StructField], *, entries: bool = False) -> SourceColumns:
    """What Spark asks a reader for, which is what `.schema(...)` said where it was said."""
    known = {column.name: column.field for column in ENTRIES}
    if not entries:
        known = {name: column.field for name, column in _BY_NAME.items()} | {
            field.name: field for field in value_fields
        }
    for field in struct.fields:
        wanted = known.get(field.name)
        if wanted is None:
            raise InvalidOption(f"schema: there is no column {field.name!r}, only {', '.join(known)}")
        if not _is_same_type(field.dataType, wanted.dataType):
            raise InvalidOption(
                f"schema: column {field.name!r} is {wanted.dataType.simpleString()},"
                f" not {field.dataType.simpleString()}"
            )
    return SourceColumns(struct.fields, [field.name for field in value_fields], entries=entries)


def _is_same_type(asked: DataType, there: DataType) -> bool:
    """Whether nulls are allowed inside is the query's own business."""
    return asked.simpleString() == there.simpleString()


def _refuse_clashes(value_fields: Sequence[StructField]) -> None:
    for field in value_fields:
        if field.name in METADATA_NAMES:
            raise InvalidOption(
                f"the topic's schema has a field {field.name!r}, which is the name of a column of every message:"
                " read it with option decode=raw"
            )

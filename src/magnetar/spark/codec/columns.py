"""Columns of the source: the table, and the selection of a query.

Owns names, types and meanings; `column_builders` fills the columns. The first seven have the names and types of the
Scala connector.
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

ALL = "*"
VALUE = "value"
PAIR_KEY = "key"
"""The column next to `value` for keys of a KEY_VALUE schema."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: DataType
    meaning: str

    @property
    def field(self) -> StructField:
        return StructField(self.name, self.type)


_TEXT, _BYTES, _TIME, _INT = StringType(), BinaryType(), TimestampType(), IntegerType()

RAW_VALUE = Column(VALUE, _BYTES, "the payload; null if the producer sent none, or if it is unreadable")

METADATA = (
    Column("__key", _BYTES, "the key: the bytes of a byte key, or the UTF-8 of a string key"),
    Column("__topic", _TEXT, "full name of the topic; of a partitioned one, of the partition"),
    Column("__messageId", _BYTES, "the message id in Pulsar's serialized form, with the batch index"),
    Column("__publishTime", _TIME, "when the producer published it"),
    Column("__eventTime", _TIME, "the event time set by the application, or null"),
    Column("__messageProperties", MapType(_TEXT, _TEXT), "the properties, possibly empty"),
    Column("__batchIndex", _INT, "the index in the batch; null for a message outside a batch"),
    Column("__redeliveryCount", _INT, "number of earlier deliveries by the broker"),
    Column("__error", _TEXT, "why the message, or which of its fields, is unreadable (`onUnreadable` = row), or null"),
)
"""After the value, the default columns."""

ON_REQUEST = (
    Column(
        "__payload",
        _BYTES,
        "the payload as bytes, next to typed columns; that of an unreadable message as stored: compressed, encrypted, "
        "or a whole batch",
    ),
    Column(
        "__messageIdText",
        _TEXT,
        "the message id as text, `ledger:entry:partition` and, in a batch, `:batch index`: the form of offsets and of "
        "the property ORIGIN_MESSAGE_ID",
    ),
    Column("__partition", _INT, "partition index; null for a topic without partitions"),
    Column("__producerName", _TEXT, "name of the producer"),
    Column("__sequenceId", LongType(), "sequence id set by the producer"),
    Column("__orderingKey", _BYTES, "the ordering key of Key_Shared subscriptions, if it differs from the key"),
    Column("__schemaVersion", LongType(), "number of the schema version that it was written with, or null"),
    Column("__deliverAt", _TIME, "earliest delivery time; null if not delayed"),
    Column("__replicatedFrom", _TEXT, "the cluster it was replicated from, or null"),
)
"""Selected by `.schema(...)` or the option `columns`."""

ENTRIES = (
    Column("__topic", _TEXT, "full name of the topic; of a partitioned one, of the partition"),
    Column("__messageId", _BYTES, "the entry's message id in Pulsar's serialized form"),
    Column("__entry", _BYTES, "the entry as stored: metadata and payload of one message or a whole batch"),
    Column("__messages", _INT, "number of messages in the entry"),
    Column("__publishTime", _TIME, "when the producer published it"),
)
"""With `includeEntries`: one row per stored entry."""

_BY_NAME = {column.name: column for column in (*METADATA, *ON_REQUEST)}
METADATA_NAMES = frozenset(_BY_NAME)


class SourceColumns:
    """The columns that a query reads, in its order. `value_names` are those decoded from the payload."""

    def __init__(self, fields: Sequence[StructField], value_names: Sequence[str], *, entries: bool = False) -> None:
        self.struct = StructType(list(fields))
        self.names = self.struct.fieldNames()
        self.value_names = [name for name in self.names if name in set(value_names)]
        self.is_entries = entries
        self._arrow: pa.Schema | None = None

    @property
    def arrow(self) -> pa.Schema:
        """The schema that Spark derives, and that every record batch must have."""
        if self._arrow is None:
            self._arrow = to_arrow_schema(self.struct, timezone="UTC")
        return self._arrow

    def __getstate__(self) -> tuple[StructType, list[str], bool]:
        return self.struct, self.value_names, self.is_entries

    def __setstate__(self, state: tuple[StructType, list[str], bool]) -> None:
        struct, value_names, entries = state
        self.__init__(struct.fields, value_names, entries=entries)  # type: ignore[misc]


def all_columns(value_fields: Sequence[StructField]) -> list[StructField]:
    """The default columns: value and metadata."""
    _reject_clashes(value_fields)
    return [*value_fields, *(column.field for column in METADATA)]


def entry_columns() -> list[StructField]:
    return [column.field for column in ENTRIES]


def named_columns(names: Sequence[str], value_fields: Sequence[StructField]) -> list[StructField]:
    """The columns of the option `columns`; `*` stands for the default ones."""
    defaults = all_columns(value_fields)
    known = {field.name: field for field in (*value_fields, *(column.field for column in _BY_NAME.values()))}
    fields: list[StructField] = []
    for name in names:
        if name == ALL:
            fields.extend(defaults)
        elif name in known:
            fields.append(known[name])
        elif name == VALUE:
            raise InvalidOption(
                f"option columns: the topic has a schema, whose fields are the columns {', '.join(known)}: name some of"
                f" them, {ALL} for the default columns, or __payload for the bytes"
            )
        else:
            raise InvalidOption(f"option columns: unknown column {name!r}, known are {', '.join((ALL, *known))}")
    twice = {field.name for field in fields if sum(other.name == field.name for other in fields) > 1}
    if twice:
        has = f"; {ALL} has the default columns" if ALL in names else ""
        raise InvalidOption(f"option columns: {', '.join(sorted(twice))} occurs twice{has}")
    return fields


def select_columns(struct: StructType, value_fields: Sequence[StructField], *, entries: bool = False) -> SourceColumns:
    """The columns that Spark requests from a reader: those of `.schema(...)`, if given."""
    known = {column.name: column.field for column in ENTRIES}
    if not entries:
        known = {name: column.field for name, column in _BY_NAME.items()} | {
            field.name: field for field in value_fields
        }
    for field in struct.fields:
        wanted = known.get(field.name)
        if wanted is None:
            raise InvalidOption(f"schema: unknown column {field.name!r}, known are {', '.join(known)}")
        if not _is_same_type(field.dataType, wanted.dataType):
            raise InvalidOption(
                f"schema: column {field.name!r} is {wanted.dataType.simpleString()},"
                f" not {field.dataType.simpleString()}"
            )
    return SourceColumns(struct.fields, [field.name for field in value_fields], entries=entries)


def _is_same_type(one: DataType, other: DataType) -> bool:
    """Ignores nullability."""
    return one.simpleString() == other.simpleString()


def _reject_clashes(value_fields: Sequence[StructField]) -> None:
    for field in value_fields:
        if field.name in METADATA_NAMES:
            raise InvalidOption(
                f"the topic's schema has a field {field.name!r}, which is also a metadata column: set option decode=raw"
            )

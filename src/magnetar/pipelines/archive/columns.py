"""Columns of an archive: those of the source under their names, the numbers of positions, and a hash of each row.

Owns names, types and the hash. Fills nothing: see `rows`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from magnetar.pipelines.archive.layout import DATE, TOPIC

LEDGER, ENTRY_ID, ENTRY, HASH, UNREADABLE = "__ledgerId", "__entryId", "__entry", "__hash", "__error"

_BYTES, _TEXT, _TIME, _LONG = BinaryType(), StringType(), TimestampType(), LongType()

READ = StructType(
    [
        StructField("value", _BYTES),
        StructField("__key", _BYTES),
        StructField("__orderingKey", _BYTES),
        StructField("__messageProperties", MapType(_TEXT, _TEXT)),
        StructField("__publishTime", _TIME),
        StructField("__eventTime", _TIME),
        StructField("__deliverAt", _TIME),
        StructField("__messageId", _BYTES),
        StructField("__messageIdText", _TEXT),
        StructField(LEDGER, _LONG),
        StructField(ENTRY_ID, _LONG),
        StructField("__batchIndex", IntegerType()),
        StructField("__partition", IntegerType()),
        StructField("__schemaVersion", _LONG),
        StructField("__producerName", _TEXT),
        StructField(UNREADABLE, _TEXT),
        StructField(ENTRY, _BYTES),
    ]
)
"""Read from a topic. An unreadable message, such as an encrypted one, has no value but its whole entry as stored."""

ROWS = StructType([*READ.fields, StructField(TOPIC, _TEXT), StructField(DATE, DateType())])
FILES = StructType([*READ.fields, StructField(HASH, _LONG), *ROWS.fields[-2:]])
"""Of the files, with the columns that are folders."""

_HASHED = ("__messageIdText", "value", "__key", "__orderingKey", "__eventTime", "__schemaVersion", ENTRY)


def row_hash() -> Column:
    """Of position, payload, key, properties, event time and schema version. A null is no empty text."""
    nulls = [F.col(name).isNull() for name in _HASHED[1:]]
    return F.xxhash64(F.col(TOPIC), *map(F.col, _HASHED), F.map_entries("__messageProperties"), *nulls)


def hashed(rows: DataFrame) -> DataFrame:
    return rows.withColumn(HASH, row_hash()).select(*FILES.fieldNames())

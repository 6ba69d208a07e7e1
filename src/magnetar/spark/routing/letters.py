"""Dead letters made of rows: the message as it was, with the properties that say why it failed.

Owns the columns that bad rows need. Rows become messages in the sink.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, TimestampType

from magnetar.deadletter.fingerprint import fingerprint
from magnetar.deadletter.properties import ORIGIN_MESSAGE_ID, REAL_TOPIC, FailureRecord
from magnetar.deadletter.stamp import Raised, stamped
from magnetar.spark.codec.columns import VALUE
from magnetar.spark.errors import InvalidOption, UnwritableRow
from magnetar.spark.routing.arrow_function import arrow_function
from magnetar.spark.routing.split import DESCRIPTION, REASON
from magnetar.spark.sink.columns import ERROR, EVENT_TIME, KEY, MESSAGE_ID, ORDERING_KEY, PROPERTIES, TOPIC

PAYLOAD, MESSAGE_ID_TEXT = "__payload", "__messageIdText"

_DESCRIPTION_MAX = 1000
_PROPERTIES_TYPE: Final = pa.map_(pa.string(), pa.string())

_NEEDED: dict[str, str] = {
    REASON: "rows of magnetar.spark.split have it",
    PAYLOAD: "read the stream with option columns=*,__payload,__messageIdText",
    MESSAGE_ID_TEXT: "read the stream with option columns=*,__payload,__messageIdText",
    TOPIC: "the stream has it: keep it",
    MESSAGE_ID: "the stream has it: keep it",
    KEY: "the stream has it: keep it",
    EVENT_TIME: "the stream has it: keep it",
    PROPERTIES: "the stream has it: keep it",
}

KEPT: dict[str, DataType] = {
    TOPIC: StringType(),
    MESSAGE_ID: BinaryType(),
    KEY: BinaryType(),
    EVENT_TIME: TimestampType(),
    ORDERING_KEY: BinaryType(),
}
"""The columns of a row that its message keeps, and those that its position is in."""


def check_bad_rows(name: str, frame: DataFrame) -> None:
    """Raises `InvalidOption`, which names the target and the column."""
    for column, hint in _NEEDED.items():
        if column not in frame.columns:
            raise InvalidOption(f"the rows of dead letter topic {name} have no column {column}: {hint}")
    for column, kind in {**KEPT, PAYLOAD: BinaryType(), REASON: StringType(), MESSAGE_ID_TEXT: StringType()}.items():
        if column in frame.columns and frame.schema[column].dataType.simpleString() != kind.simpleString():
            found = frame.schema[column].dataType.simpleString()
            raise InvalidOption(
                f"the rows of dead letter topic {name}: column {column} is {found}, not {kind.simpleString()}"
            )


def letters_of(rows: DataFrame, subscription: str, now_ms: int, retries: int = 0) -> DataFrame:
    """One letter per row, in the columns of the sink. After retries, a row is a message of the retry topic."""

    def stamps(
        topics: pa.Array,
        ids: pa.Array,
        properties: pa.Array,
        reasons: pa.Array,
        descriptions: pa.Array,
        errors: pa.Array,
    ) -> pa.Array:
        rows = zip(
            *(column.to_pylist() for column in (topics, ids, properties, reasons, descriptions, errors)), strict=True
        )
        return pa.array(
            [list(_stamp(_BadRow(*row), subscription, now_ms, retries).items()) for row in rows], _PROPERTIES_TYPE
        )

    stamped_by = arrow_function(stamps, MapType(StringType(), StringType()))
    inputs = [_column(rows, name) for name in (TOPIC, MESSAGE_ID_TEXT, PROPERTIES, REASON, DESCRIPTION, ERROR)]
    kept = [name for name in KEPT if name in rows.columns]
    return rows.select(*kept, F.col(PAYLOAD).alias(VALUE), stamped_by(*inputs).alias(PROPERTIES))


def _column(rows: DataFrame, name: str) -> Column:
    return F.col(name) if name in rows.columns else F.lit(None).cast("string").alias(name)


class _BadRow(NamedTuple):
    topic: str
    message_id: str
    properties: list[tuple[str, str]] | None
    reason: str | None
    description: str | None
    error: str | None


def _stamp(row: _BadRow, subscription: str, now_ms: int, retries: int) -> dict[str, str]:
    if not row.reason:
        raise UnwritableRow(f"column {REASON} of message {row.message_id} is null: a dead letter needs a reason")
    error = row.error or ""
    description = (row.description or error or row.reason)[:_DESCRIPTION_MAX]
    before = dict(row.properties or ())
    topic = before.get(REAL_TOPIC, row.topic) if retries else row.topic
    message_id = before.get(ORIGIN_MESSAGE_ID, row.message_id) if retries else row.message_id
    failure = FailureRecord(
        topic=topic, subscription=subscription, reason=row.reason, count=retries + 1, first=now_ms, last=now_ms
    )
    raised = Raised("", error, "", fingerprint(row.reason, error or description))
    return stamped(before, failure, message_id, description, raised)

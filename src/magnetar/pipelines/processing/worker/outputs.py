"""Rows to write: what a function returned, and failed messages on their way, with the positions they came from.

Owns their columns, which a `MoveTask` takes, and the limits of a message. Rows that exceed them fail on their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType, TimestampType

from magnetar.client.message import MessageId
from magnetar.pipelines.moving.task import SCHEMA_VERSION
from magnetar.pipelines.processing.call.message import (
    EVENT_TIME,
    KEY,
    MESSAGE_ID,
    ORDERING_KEY,
    PROPERTIES,
    VALUE,
    Message,
)
from magnetar.pipelines.processing.call.outcome import CallOutcome, Failure, unencodable
from magnetar.pipelines.processing.worker.encoding import OutputEncoder
from magnetar.pipelines.processing.worker.ladder import RetryLadder
from magnetar.spark.sink.columns import DELIVER_AT, SOURCE_TOPIC, TOPIC

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAYLOAD_MAX = 5 << 20
"""Bytes that may be stored together: Pulsar's `maxMessageSize`."""

_LARGE = PAYLOAD_MAX - (64 << 10)
"""Beyond this, a dead letter has no room for a stack trace."""

OUTPUT_STRUCT = StructType(
    [
        StructField(TOPIC, StringType()),
        StructField(VALUE, BinaryType()),
        StructField(KEY, BinaryType()),
        StructField(PROPERTIES, MapType(StringType(), StringType())),
        StructField(EVENT_TIME, TimestampType()),
        StructField(ORDERING_KEY, BinaryType()),
        StructField(MESSAGE_ID, BinaryType()),
        StructField(SOURCE_TOPIC, StringType()),
        StructField(SCHEMA_VERSION, LongType()),
    ]
)
FAILED_STRUCT = StructType([*OUTPUT_STRUCT.fields, StructField(DELIVER_AT, LongType())])

_OUTPUT: pa.Schema = to_arrow_schema(OUTPUT_STRUCT, timezone="UTC")
_FAILED: pa.Schema = to_arrow_schema(FAILED_STRUCT, timezone="UTC")


class OutputRows:
    """The rows that a function made of one record batch. `partitions` are those of the target."""

    def __init__(self, encoder: OutputEncoder, topic: str, partitions: int, batch: pa.RecordBatch) -> None:
        self._encoder = encoder
        self._topic = topic
        self._partitions = partitions
        self._batch = batch

    def of(self, outcome: CallOutcome) -> list[pa.RecordBatch]:
        """In the order of the messages; results that cannot be stored are added to the failures."""
        found = [self._of_batch(made, rows, outcome) for made, rows in outcome.batches]
        if outcome.messages:
            found.append(self._of_messages(outcome))
        elif outcome.plain:
            found.append(self._of_plain(outcome))
        return [batch for batch in found if batch.num_rows]

    def _of_plain(self, outcome: CallOutcome) -> pa.RecordBatch:
        """Bytes are payloads already, whatever the schema."""
        rows = np.concatenate([rows for rows, _ in outcome.plain])
        payloads = pa.concat_arrays([values for _, values in outcome.plain])
        if (np.diff(rows) < 0).any():
            order = np.argsort(rows)
            rows, payloads = rows[order], payloads.take(pa.array(order))
        return self._assembled(rows.tolist(), payloads, {}, {}, outcome)

    def _of_messages(self, outcome: CallOutcome) -> pa.RecordBatch:
        made: list[tuple[int, Message]] = []
        plain = outcome.values
        for row in sorted(plain.keys() | outcome.messages.keys()):
            own = outcome.messages.get(row) or [Message(plain[row])]
            if (error := self._together(own)) is not None:
                outcome.failures[row] = unencodable(error)
            else:
                made.extend((row, message) for message in own)
        rows = [row for row, _ in made]
        encoded = self._encoder.values([message.value for _, message in made])
        given = {
            KEY: [_key(message.key) for _, message in made],
            EVENT_TIME: [message.event_time for _, message in made],
            ORDERING_KEY: [message.ordering_key for _, message in made],
            PROPERTIES: [list(message.properties.items()) for _, message in made],
        }
        columns = {name: pa.array(values, _OUTPUT.field(name).type) for name, values in given.items()}
        return self._assembled(rows, encoded.payloads, encoded.errors, columns, outcome)

    def _together(self, messages: Sequence[Message]) -> str | None:
        """Why the messages made of one cannot be stored in one entry."""
        if self._partitions > 1 and len({_key(message.key) for message in messages}) > 1:
            return (
                f"the messages made of one have different keys, and {self._topic} has {self._partitions} partitions:"
                " they cannot be stored together"
            )
        return None

    def _of_batch(self, made: pa.RecordBatch, rows: list[int], outcome: CallOutcome) -> pa.RecordBatch:
        count = self._batch.num_rows
        wrong = next((row for row in rows if not 0 <= row < count), None)
        if wrong is not None:
            error = f"the function returned row {wrong}, and was given rows 0 to {count - 1}"
            outcome.failures.update((row, unencodable(error)) for row in range(count))
            return made.slice(0, 0)
        order = np.argsort(np.array(rows, np.int64), kind="stable")
        made, rows = made.take(pa.array(order)), [rows[index] for index in order.tolist()]
        encoded = self._encoder.batch(made)
        names = (KEY, EVENT_TIME, ORDERING_KEY, PROPERTIES)
        columns = {name: _cast(made.column(name), name) for name in names if name in made.schema.names}
        return self._assembled(rows, encoded.payloads, encoded.errors, columns, outcome)

    def _assembled(
        self,
        rows: list[int],
        payloads: pa.Array,
        errors: dict[int, str],
        given: dict[str, pa.Array],
        outcome: CallOutcome,
    ) -> pa.RecordBatch:
        """Keys and event times that are not given are those of the messages."""
        is_whole = len(rows) == self._batch.num_rows and rows == list(range(len(rows)))
        source = self._batch if is_whole else self._batch.take(pa.array(rows, pa.int64()))
        bad = {rows[index]: text for index, text in errors.items()}
        bad |= _too_large(rows, payloads)
        arrays: dict[str, pa.Array] = {
            TOPIC: _repeated(self._topic, len(rows), pa.string()),
            VALUE: payloads,
            PROPERTIES: given.get(PROPERTIES),
            ORDERING_KEY: given.get(ORDERING_KEY),
            MESSAGE_ID: source.column(MESSAGE_ID),
            SOURCE_TOPIC: source.column(TOPIC),
            SCHEMA_VERSION: _repeated(
                self._encoder.version if self._encoder.version >= 0 else None, len(rows), pa.int64()
            ),
        }
        for name in (KEY, EVENT_TIME):
            own = source.column(name) if name in source.schema.names else None
            mine = given.get(name)
            arrays[name] = own if mine is None else mine if own is None else pc.coalesce(mine, own)
        made = _record_batch(arrays, _OUTPUT, len(rows))
        if not bad:
            return made
        outcome.failures.update((row, unencodable(text)) for row, text in bad.items())
        return made.filter(pa.array([row not in bad for row in rows]))


def failed_rows(
    batch: pa.RecordBatch,
    payload: str,
    failures: dict[int, Failure],
    ladder: RetryLadder,
    now_ms: int,
    count: Callable[[str], None],
) -> pa.RecordBatch:
    """Failed messages on their way to the retry topic or a dead letter topic. `count` gets what happened to each."""
    rows = sorted(failures)
    chosen = batch.take(pa.array(rows, pa.int64()))
    payloads = chosen.column(payload)
    topics, properties, times = [], [], []
    given = zip(
        rows, chosen.column(PROPERTIES).to_pylist(), chosen.column(MESSAGE_ID).to_pylist(), payloads, strict=True
    )
    for row, own, message_id, value in given:
        failure = failures[row]
        if value.is_valid and len(value.as_buffer()) > _LARGE and failure.raised is not None:
            failure = replace(failure, raised=msgspec.structs.replace(failure.raised, stack_trace=""))
        step = ladder.next(failure, dict(own or ()), str(MessageId.from_bytes(message_id)), now_ms)
        topics.append(step.topic)
        properties.append(list(step.properties.items()))
        times.append(step.deliver_at_ms)
        count("dead" if step.deliver_at_ms is None else "retried")
    arrays = {
        TOPIC: pa.array(topics, pa.string()),
        VALUE: payloads,
        PROPERTIES: pa.array(properties, _FAILED.field(PROPERTIES).type),
        DELIVER_AT: pa.array(times, pa.int64()),
        SOURCE_TOPIC: chosen.column(TOPIC),
    }
    arrays |= {name: chosen.column(name) for name in (KEY, EVENT_TIME, ORDERING_KEY, MESSAGE_ID, SCHEMA_VERSION)}
    return _record_batch(arrays, _FAILED, len(rows))


def _too_large(rows: list[int], payloads: pa.Array) -> dict[int, str]:
    """Of all that is made of one message, which is stored together."""
    if payloads.nbytes <= PAYLOAD_MAX:
        return {}
    sizes: NDArray[np.int64] = pc.fill_null(pc.binary_length(payloads), 0).to_numpy(zero_copy_only=False)
    totals: dict[int, int] = {}
    for row, size in zip(rows, sizes.tolist(), strict=True):
        totals[row] = totals.get(row, 0) + size
    return {
        row: f"the result has {size} bytes, which exceeds the limit of {PAYLOAD_MAX}"
        for row, size in totals.items()
        if size > PAYLOAD_MAX
    }


def _record_batch(arrays: dict[str, Any], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    columns = []
    for field in schema:
        column = arrays[field.name]
        column = pa.nulls(rows, field.type) if column is None else column
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _repeated(value: object, count: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def _key(key: str | bytes | None) -> bytes | None:
    return key.encode(errors="replace") if isinstance(key, str) else key


def _cast(column: pa.Array, name: str) -> pa.Array:
    wanted = _OUTPUT.field(name).type
    return column if column.type == wanted else column.cast(wanted)

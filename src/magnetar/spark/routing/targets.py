"""Topic targets of a pipeline: rows of a micro-batch are written in the order of their source, exactly once.

The sink does the writing. Owns the order that it needs: a producer name has the rows of one source, in one task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType

from magnetar import errors as server_errors
from magnetar.names import TopicName
from magnetar.spark.client_options import CLIENT_OPTIONS
from magnetar.spark.codec.frame_schema import KINDS, NAME_DEFAULT, schema_of
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import Use
from magnetar.spark.routing.arrow_function import arrow_function
from magnetar.spark.sink.columns import MESSAGE_ID, NOT_WRITTEN, SOURCE_TOPIC, TOPIC, WRITTEN, SinkColumns, binary
from magnetar.spark.sink.options import PRODUCER_PREFIX
from magnetar.spark.sink.sequence_ids import source_positions
from magnetar.spark.sink.values import schema_json
from magnetar.spark.sink.writer import batch_writer

_PRODUCER_NAME = PRODUCER_PREFIX + "producerName"
_OWN = ("topic", "schema", _PRODUCER_NAME)
_POSITION = "__position"


@dataclass(frozen=True)
class TopicTarget:
    """`options` are those of the sink, besides the client options that the source has."""

    topic: str
    options: Mapping[str, str]

    def write(self, rows: DataFrame, client: Mapping[str, str], name: str) -> None:
        """Writes rows; those that were written under this name are skipped."""
        options = {**client, **self.options, _PRODUCER_NAME: name}
        _in_order(written(rows)).write.format("pulsar").mode("append").options(**options).save()


def topic_target(topic: str, rows: DataFrame, schema: str | None, options: Mapping[str, Any]) -> TopicTarget:
    """Raises `InvalidOption`, which names the target."""
    full = topic_name(topic)
    for name in options:
        if name.lower() in (own.lower() for own in _OWN):
            raise InvalidOption(f"target {topic}: option {name} cannot be set here")
    given = {name: _text(value) for name, value in options.items()}
    given.setdefault("exactlyOnce", "required")
    try:
        if schema is not None:
            given["schema"] = _schema(schema, rows, given)
        SinkColumns.of(written(rows).schema)
    except InvalidOption as error:
        raise InvalidOption(f"target {topic}: {error}") from None
    for column in (MESSAGE_ID, TOPIC if SOURCE_TOPIC not in rows.columns else SOURCE_TOPIC):
        if column not in rows.columns:
            raise InvalidOption(
                f"target {topic}: its rows have no column {column}, their position in the source: keep it"
            )
    return TopicTarget(full, {**given, "topic": full})


def check_target_options(target: TopicTarget, rows: DataFrame, client: Mapping[str, str]) -> None:
    """Checks everything that the sink can check without a broker."""
    try:
        batch_writer({**client, **target.options}, written(rows).schema, overwrite=False)
    except InvalidOption as error:
        raise InvalidOption(f"target {target.topic}: {error}") from None


def client_options(source: Mapping[str, str]) -> dict[str, str]:
    """The options of a source that its targets share, unless they have others."""
    names = {option.name.lower(): option.name for option in CLIENT_OPTIONS if Use.WRITE in option.use}
    return {names[name.lower()]: text for name, text in source.items() if name.lower() in names}


def topic_name(topic: str) -> str:
    try:
        return TopicName.parse(topic).full
    except server_errors.InvalidName as error:
        raise InvalidOption(f"target {topic!r}: {error}") from None


def written(rows: DataFrame) -> DataFrame:
    """Without the columns that a split has added, and other names that begin with `__` which the sink does not know."""
    return rows.drop(*(n for n in rows.columns if n.startswith("__") and n not in WRITTEN and n not in NOT_WRITTEN))


def _schema(schema: str, rows: DataFrame, options: Mapping[str, str]) -> str:
    """The schema of the frame as the program has it: stored rows no longer show which columns are never null."""
    if schema not in KINDS:
        return schema
    name, namespace = options.get("schema.name", NAME_DEFAULT), options.get("schema.namespace")
    return schema_json(schema_of(written(rows).schema, KINDS[schema], name, namespace))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- the order of rows


def _in_order(rows: DataFrame) -> DataFrame:
    """The rows of a source in one task, in the order of their positions; Spark sorts on disk if memory is short."""
    source = SOURCE_TOPIC if SOURCE_TOPIC in rows.columns else TOPIC
    tasks = rows.sparkSession.sparkContext.defaultParallelism
    key = arrow_function(position_keys, BinaryType())(MESSAGE_ID)
    spread = rows.withColumn(_POSITION, key).repartition(tasks, source)
    return spread.sortWithinPartitions(source, _POSITION).drop(_POSITION)


def position_keys(ids: pa.Array) -> pa.Array:
    """Keys that sort as the positions of messages do: ledger, entry and batch index."""
    positions = source_positions(MESSAGE_ID, binary(ids))
    keys = np.stack((positions.ledgers, positions.sequence_ids), axis=1).astype(">i8")
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(ids), [None, pa.py_buffer(keys.tobytes())]).cast(
        pa.binary()
    )

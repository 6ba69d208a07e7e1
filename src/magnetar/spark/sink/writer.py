"""Writers of `format("pulsar")`: the classes that Spark calls. Thin: see `write_task`.

Spark creates writers in the driver and sends them to workers, so they hold options only. Data is sent in `write`:
`commit` is not a transaction, it checks the results of the tasks.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from magnetar.spark.clients import inline_client
from magnetar.spark.codec.frame_schema import KINDS, schema_of
from magnetar.spark.errors import InvalidOption, SparkSourceError
from magnetar.spark.sink.columns import MESSAGE_ID, SOURCE_TOPIC, TOPIC, SinkColumns
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.sink.targets import target_topic
from magnetar.spark.sink.values import parse_schema, schema_json
from magnetar.spark.sink.write_task import (
    WriteResult,
    WriteScope,
    WriteTask,
    check_exactly_once,
    check_target,
    has_positions,
)

_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """The result of one task."""

    written: WriteResult
    has_positions: bool


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    if overwrite:
        raise InvalidOption("mode overwrite is not supported: topics are append-only; use mode append")
    return BatchWriter(*_checked(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    if overwrite:
        raise InvalidOption(
            "output mode complete is not supported: topics are append-only; use append, or"
            " foreachBatch(magnetar.spark.update_to(TOPIC, …)) with mode update"
        )
    return StreamWriter(*_checked(options, schema))


def _checked(options: Mapping[str, str], schema: StructType) -> tuple[SinkOptions, SinkColumns]:
    """Validates in the driver, without a broker."""
    given, columns = SinkOptions.of(options), SinkColumns.of(schema)
    if given.topic is None and TOPIC not in columns:
        raise InvalidOption(f"no target topic: set option `topic` or add a column `{TOPIC}`")
    if given.topic is None and MESSAGE_ID in columns and SOURCE_TOPIC not in columns:
        raise InvalidOption(
            f"rows would go back to the topics they come from: set option `topic`, or name the target of each row in"
            f" `{TOPIC}` and its source in `{SOURCE_TOPIC}`"
        )
    check_exactly_once(given, columns)
    if given.schema is not None:
        if not columns.fields:
            raise InvalidOption("option schema needs typed columns, and there are none")
        if given.schema in KINDS:
            derived = schema_of(schema, KINDS[given.schema], given.schema_name, given.schema_namespace)
            return replace(given, schema=schema_json(derived)), columns
        parse_schema(given.schema)
    return given, columns


class BatchWriter(DataSourceArrowWriter):
    """Tasks may be repeated. A repeated write stores rows again, unless it has a producer name."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._job = uuid.uuid4().hex

    def reach(self) -> None:
        """Finds the broker and the target topic once, in the driver: tasks would report a mistake three times."""
        if self._options.topic is not None:
            client = self._options.client
            target = target_topic(inline_client(client), client, self._options.topic, is_first=True)
            if has_positions(self._options, self._columns):
                check_target(self._options, target)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._options, self._columns, self._job, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        check_commits(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Stored messages stay stored."""


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        if query is None:
            raise SparkSourceError(f"unknown query: Spark has not set local property {_QUERY_ID}")
        return _write(self._options, self._columns, query, iterator, is_stream=True)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        check_commits(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Stored messages stay stored, and are skipped when Spark repeats the batch."""


def _write(
    options: SinkOptions, columns: SinkColumns, job: str, batches: Iterator[pa.RecordBatch], *, is_stream: bool = False
) -> WriterCommitMessage:
    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    given = options.producer_name
    scope = WriteScope(
        job if given is None else given,
        task,
        is_shared=given is not None,
        is_sorted=options.sort_by_position,
        is_stream=is_stream,
    )
    written = WriteTask(inline_client(options.client), options, columns, scope).write(batches)
    return TaskCommit(written, has_positions(options, columns))


def check_commits(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Detects tasks that shared a producer name, and so took each other's rows for duplicates."""
    producer_keys = Counter(
        key
        for message in messages
        if isinstance(message, TaskCommit) and message.has_positions
        for key in message.written.producer_keys
    )
    for key, tasks in producer_keys.items():
        if tasks > 1:
            raise InvalidOption(
                f"{tasks} tasks wrote to {key.topic} as producer {key.name!r}: rows of one source were spread"
                " over tasks, and some may have been dropped as duplicates. With option pulsar.producer.producerName"
                " the rows of a source must stay in one task: use coalesce(1), or no producer name"
            )

"""`format("pulsar")`: the classes that Spark calls. Thin: see `planner`, `read_task` and `sink.writer`.

Spark creates these objects in several processes and sends readers to workers, so they hold options only and connect
where they are used.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructField, StructType

from magnetar.client.message import LATEST, MessageId
from magnetar.spark.clients import blocking_client
from magnetar.spark.codec.columns import (
    RAW_VALUE,
    SourceColumns,
    all_columns,
    entry_columns,
    named_columns,
    select_columns,
)
from magnetar.spark.codec.value_schema import ValueSchema, common_schema
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import Use
from magnetar.spark.source.catalog_table import created_options, options_of, with_options
from magnetar.spark.source.entry_range import EntryRange, split_ranges
from magnetar.spark.source.offsets import Offsets, tasks_of, with_tasks
from magnetar.spark.source.options import SOURCE_OPTIONS, SourceOptions
from magnetar.spark.source.planner import Planner
from magnetar.spark.source.read_task import read_range
from magnetar.spark.source.subscription import StreamSubscription, SubscriptionCursor
from magnetar.spark.source.topics import ClientTopics

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ModuleNotFoundError as error:
    raise ImportError(
        "magnetar.spark needs pyspark 4.2 or later: older ones have no streams of a Python source"
    ) from error

if TYPE_CHECKING:
    import pyarrow as pa

_TASKS_MIN = 8

_CHECKPOINT = "the offset in the checkpoint"

_LEAVE_S = 3.0
"""A killed driver leaves a process that holds the subscription until its wait for messages, `pollTimeoutMs`, is over,
and this much longer."""


class PulsarSource(DataSource):
    """Pulsar topics as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "pulsar"

    def schema(self) -> StructType:
        created = created_options(self.options)
        if created is not None:
            return with_options(_columns_of(SourceOptions.of(created)), created)
        return _columns_of(SourceOptions.of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(_ReadSpec(SourceOptions.of(options_of(self.options, schema), Use.BATCH), schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(_ReadSpec(SourceOptions.of(options_of(self.options, schema), Use.STREAM), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from magnetar.spark.sink.writer import batch_writer

        writer = batch_writer(options_of(self.options, schema, without=_reading_only()), schema, overwrite)
        writer.reach()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from magnetar.spark.sink.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _reading_only() -> set[str]:
    from magnetar.spark.sink.options import SINK_OPTIONS

    return {option.name.lower() for option in SOURCE_OPTIONS} - {option.name.lower() for option in SINK_OPTIONS}


def _columns_of(options: SourceOptions) -> StructType:
    if options.include_entries:
        return StructType(entry_columns())
    fields = _fields(_value_schema(options))
    if options.columns is not None:
        return StructType(named_columns(options.columns, fields))
    return StructType(all_columns(fields))


def _program() -> str:
    """The module that Python was started with, or `""`."""
    return getattr(sys.modules["__main__"].__spec__, "name", "")


def _topics(options: SourceOptions) -> ClientTopics:
    client = options.client
    return ClientTopics(
        blocking_client(client), first_give_up_s=client.connect_timeout_s, give_up_s=client.operation_timeout_s
    )


def _value_schema(options: SourceOptions) -> ValueSchema | None:
    """Looks up the schema; raises `NotFound` if a topic does not exist."""
    with closing(_topics(options)) as topics:
        partitions = Planner(topics, options).partitions_to_describe()
        return common_schema(topics, partitions) if options.decode == "auto" else None


def _fields(values: ValueSchema | None) -> list[StructField]:
    return [RAW_VALUE.field] if values is None else values.fields


class _ReadSpec:
    """What a worker needs: options, columns and the schema of values."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self._values = None if options.include_entries else _value_schema(options)
        fields = _fields(self._values)
        self._columns: SourceColumns = select_columns(schema, fields, entries=options.include_entries)
        if options.columns is not None:
            _check_chosen(schema, named_columns(options.columns, fields))

    def rows(self, span: EntryRange) -> Iterator[pa.RecordBatch]:
        return read_range(self.options, self._columns, self._values, span)


def _check_chosen(schema: StructType, columns: list[StructField]) -> None:
    names = [field.name for field in columns]
    if schema.fieldNames() != names:
        raise InvalidOption(
            f"option columns has {', '.join(names)}, but the given schema has {', '.join(schema.fieldNames())}:"
            " use only one of them"
        )


class BatchReader(DataSourceReader):
    """Has no `pushFilters`: Spark keeps the plan of the first filter for every later use of the DataFrame."""

    def __init__(self, spec: _ReadSpec) -> None:
        self._spec = spec

    def partitions(self) -> Sequence[InputPartition]:
        options = self._spec.options
        with closing(_topics(options)) as topics:
            ranges = Planner(topics, options).batch_ranges()
        if options.tasks_min is not None:
            return split_ranges(ranges, options.tasks_min, entries_min=1)
        return split_ranges(ranges, max(_TASKS_MIN, 2 * (os.cpu_count() or 1)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, EntryRange):
            return iter(())  # Spark's placeholder if there are no partitions
        return self._spec.rows(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`read` runs in workers, everything else in the driver's long-lived process; `_connected` is not pickled."""

    def __init__(self, spec: _ReadSpec) -> None:
        self._spec = spec
        self._connected: _ConnectedStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_connected": None}

    @property
    def _stream(self) -> _ConnectedStream:
        if self._connected is None:
            self._connected = _ConnectedStream(self._spec.options)
        return self._connected

    def initialOffset(self) -> dict[str, Any]:
        return self._stream.begin().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Reports whether there is a limit; Trigger.Once overrides it."""
        options = self._spec.options
        rows_max = options.entries_max or options.messages_max
        if rows_max is not None:
            return ReadMaxRows(rows_max)
        return ReadAllAvailable() if options.bytes_max is None else ReadMaxBytes(options.bytes_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Waits for new messages. Spark calls it when the micro-batch up to `start` is committed."""
        offsets = _offsets(start)
        self._stream.acknowledge(offsets)
        end = self._stream.planner.next_end(offsets, limited=not isinstance(limit, ReadAllAvailable))
        self._stream.hold(end.keys() - offsets.keys())
        return start if end == offsets else with_tasks(end.to_json(), self._spec.options.tasks_min)

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.planner.prepare_available_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._stream.planner.latest_known().to_json() or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = self._stream.planner.ranges(_offsets(start), _offsets(end))
        tasks = tasks_of(_CHECKPOINT, end)
        return ranges if tasks is None else split_ranges(ranges, tasks, entries_min=1)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, EntryRange)
        return self._spec.rows(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._stream.acknowledge(_offsets(end))

    def stop(self) -> None:
        if self._connected is not None:
            self._connected.topics.close()
            self._connected = None


class _ConnectedStream:
    """A stream with its client, planner and subscription."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.topics = _topics(options)
        self.planner = Planner(self.topics, options)
        name = options.subscription
        self._subscription = None if name is None else StreamSubscription(self._open_cursor)

    def _open_cursor(self, topic: str, initial: MessageId) -> SubscriptionCursor:
        name = self._options.subscription
        assert name is not None
        return self.topics.cursor(topic, name, initial, busy_s=self._options.poll_timeout_s + _LEAVE_S)

    def begin(self) -> Offsets:
        if self._subscription is not None and self._options.starting is None:
            return self._subscription.positions(self.planner.partitions())
        return self.planner.resolved(self._options.starting, LATEST)

    def hold(self, partitions: Iterable[str]) -> None:
        if self._subscription is not None:
            self._subscription.hold(partitions)

    def acknowledge(self, offsets: Offsets) -> None:
        if self._subscription is not None:
            self._subscription.acknowledge(offsets)


def _offsets(value: dict[str, Any]) -> Offsets:
    return Offsets.of_json(_CHECKPOINT, value)


def _freeze_imports_in_worker() -> None:
    """Freezes imported objects in processes that Spark's daemon forked, as our `worker_daemon` does.

    The daemon runs the garbage collector after each task, which took longer than the task. Processes that plan and
    commit always use Spark's own daemon.
    """
    if _program() == "pyspark.daemon":
        import magnetar.spark.sink.writer  # noqa: F401  before the freeze

        gc.collect()
        gc.freeze()


_freeze_imports_in_worker()

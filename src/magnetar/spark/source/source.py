"""`format("pulsar")`: what Spark calls. Thin: planning is in `planner`, rows in `rows`, writing in `writer`.

Spark makes these objects in several processes and sends readers to workers, so that they hold options only; what is
connected is made where it is used.
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
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
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
from magnetar.spark.source.entry_range import EntryRange, split_ranges
from magnetar.spark.source.filters import RangeFilter, range_filter
from magnetar.spark.source.offsets import Offsets
from magnetar.spark.source.options import SourceOptions
from magnetar.spark.source.planner import Planner
from magnetar.spark.source.read_task import read_range
from magnetar.spark.source.subscription import StreamSubscription, SubscriptionCursor
from magnetar.spark.source.topics import ClientTopics

if TYPE_CHECKING:
    import pyarrow as pa

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_TASKS_MIN = 8


class PulsarSource(DataSource):
    """Topics of Apache Pulsar's protocol as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "pulsar"

    def schema(self) -> StructType:
        options = SourceOptions.of(self.options)
        if options.include_entries:
            return StructType(entry_columns())
        fields = _fields(_value_schema(options))
        if options.columns is not None:
            return StructType(named_columns(options.columns, fields))
        return StructType(all_columns(fields))

    def reader(self, schema: StructType) -> DataSourceReader:
        what = _ReadSpec(SourceOptions.of(self.options, Use.BATCH), schema)
        return PushdownBatchReader(what) if _is_pushdown_worker() else BatchReader(what)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(_ReadSpec(SourceOptions.of(self.options, Use.STREAM), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from magnetar.spark.sink.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from magnetar.spark.sink.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)


def _is_pushdown_worker() -> bool:
    """Whether Spark made this process to push filters down.

    A reader that has `pushFilters` is refused by sessions in which that is switched off, as it is by default.
    """
    return _PUSHDOWN_WORKER in sys.modules or _program() == _PUSHDOWN_WORKER


def _program() -> str:
    """The module that Python was started with, `""` where it was none."""
    return getattr(sys.modules["__main__"].__spec__, "name", "")


def _topics(options: SourceOptions) -> ClientTopics:
    client = options.client
    return ClientTopics(
        blocking_client(client), first_give_up_s=client.connect_timeout_s, give_up_s=client.operation_timeout_s
    )


def _value_schema(options: SourceOptions) -> ValueSchema | None:
    """Asks the registry; whether the topics exist is found out with it."""
    with closing(_topics(options)) as topics:
        partitions = Planner(topics, options).partitions_to_describe()
        return common_schema(topics, partitions) if options.decode == "auto" else None


def _fields(values: ValueSchema | None) -> list[StructField]:
    return [RAW_VALUE.field] if values is None else values.fields


class _ReadSpec:
    """What a worker has to know: the options, the columns that are wanted, and how payloads become columns."""

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
            f"option columns has {', '.join(names)}, and the schema that was given {', '.join(schema.fieldNames())}:"
            " one of the two is enough"
        )


class BatchReader(DataSourceReader):
    def __init__(self, reading: _ReadSpec) -> None:
        self._reading = reading
        self._range_filter = RangeFilter()

    def partitions(self) -> Sequence[InputPartition]:
        options = self._reading.options
        with closing(_topics(options)) as topics:
            ranges = self._range_filter.ranges(topics, Planner(topics, options).batch_ranges())
        return split_ranges(ranges, max(_TASKS_MIN, 2 * (os.cpu_count() or 1)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, EntryRange):
            return iter(())  # Spark's own, where there is no partition at all
        return self._reading.rows(partition)


class PushdownBatchReader(BatchReader):
    def pushFilters(self, filters: list[Filter]) -> Sequence[Filter]:
        """All are handed back: ranges are narrowed to what can hold such rows, and Spark filters what is in them."""
        self._range_filter = range_filter(filters)
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In the driver's long-lived process, all but `read`; `read` in workers, to which `_running` does not go."""

    def __init__(self, reading: _ReadSpec) -> None:
        self._reading = reading
        self._running: _ConnectedStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_running": None}

    @property
    def _run(self) -> _ConnectedStream:
        if self._running is None:
            self._running = _ConnectedStream(self._reading.options)
        return self._running

    def initialOffset(self) -> dict[str, Any]:
        return self._run.begin().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Says whether there is a limit at all: Trigger.Once asks without one."""
        options = self._reading.options
        if options.entries_max is not None:
            return ReadMaxRows(options.entries_max)
        return ReadAllAvailable() if options.bytes_max is None else ReadMaxBytes(options.bytes_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Waits for news. Spark asks when the micro-batch before is done for good, which was up to `start`."""
        offsets = _offsets(start)
        self._run.acknowledge(offsets)
        end = self._run.planner.next_end(offsets, limited=not isinstance(limit, ReadAllAvailable))
        self._run.hold(end.keys() - offsets.keys())
        return end.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._run.planner.prepare_available_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._run.planner.latest_known().to_json() or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._run.planner.ranges(_offsets(start), _offsets(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, EntryRange)
        return self._reading.rows(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._run.acknowledge(_offsets(end))

    def stop(self) -> None:
        if self._running is not None:
            self._running.topics.close()
            self._running = None


class _ConnectedStream:
    """A stream that is connected."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.topics = _topics(options)
        self.planner = Planner(self.topics, options)
        name = options.subscription
        self._subscription = None if name is None else StreamSubscription(self._open_cursor)

    def _open_cursor(self, topic: str, initial: MessageId) -> SubscriptionCursor:
        name = self._options.subscription
        assert name is not None
        return self.topics.cursor(topic, name, initial)

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
    return Offsets.of_json("the offset of the checkpoint", value)


def _freeze_imports_in_worker() -> None:
    """Takes what is imported by now out of the sight of the garbage collector, in processes that Spark started.

    Their daemon lets it run after each task, and walking all modules each time took longer than the task. Not all of
    these processes are of our own daemon, which does the same: those that plan and commit are always Spark's.
    """
    if _program() == "pyspark.daemon":
        import magnetar.spark.sink.writer  # noqa: F401  or it would be imported after this

        gc.collect()
        gc.freeze()


_freeze_imports_in_worker()

"""Rows of an archive, read by workers: each task reads one range of entries, from a topic that the driver planned.

Owns the columns that the source does not have: numbers of positions, the date, and the whole entry of a message that
cannot be read, so that nothing is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from magnetar.client.connection.retry import with_retry_blocking
from magnetar.client.consume.entry import Entry
from magnetar.client.errors import UnreadableMessage
from magnetar.client.inline import InlineClient
from magnetar.client.message import MessageId
from magnetar.names import TopicName
from magnetar.pipelines.archive.clients import OPERATION_S, worker_client
from magnetar.pipelines.archive.columns import ENTRY, ENTRY_ID, LEDGER, READ, ROWS
from magnetar.pipelines.archive.layout import short_name
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.spark.codec.columns import VALUE, SourceColumns
from magnetar.spark.codec.entry_view import EntryView, UnreadableEntry
from magnetar.spark.codec.record_batches import CHUNKS_BACK_MAX, RowReader
from magnetar.spark.source.entry_range import EntryRange
from magnetar.wire.errors import EntryError

_SOURCE, _RANGES = "magnetar.archive", "ranges"

_DAY_US = 86_400_000_000


class TopicRows:
    """Rows of a cluster's topics. `spark` is a session of archives, in which a source for the cluster is registered."""

    def __init__(self, spark: SparkSession, endpoint: ClusterEndpoint) -> None:
        class Source(_RangeSource):  # pickled with its attributes, which are no options of a plan that Spark shows
            cluster = endpoint

        spark.dataSource.register(Source)
        self._spark = spark

    def of(self, ranges: Sequence[EntryRange]) -> DataFrame:
        """One task per range."""
        planned = [(each.topic, str(each.start), str(each.end)) for each in ranges]
        return self._spark.read.format(_SOURCE).option(_RANGES, json.dumps(planned)).load()


class _RangeSource(DataSource):
    """Spark creates it in several processes: it holds options only."""

    cluster: ClassVar[ClusterEndpoint]

    @classmethod
    def name(cls) -> str:
        return _SOURCE

    def schema(self) -> StructType:
        return ROWS

    def reader(self, schema: StructType) -> DataSourceReader:
        planned = json.loads(self.options[_RANGES])
        ranges = [EntryRange(topic, MessageId.parse(start), MessageId.parse(end)) for topic, start, end in planned]
        return _RangeReader(self.cluster, ranges)


class _RangeReader(DataSourceReader):
    def __init__(self, endpoint: ClusterEndpoint, ranges: list[EntryRange]) -> None:
        self._endpoint = endpoint
        self._ranges = ranges

    def partitions(self) -> Sequence[InputPartition]:
        return self._ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, EntryRange):
            return iter(())  # Spark's placeholder if there are no ranges
        return read_range(worker_client(self._endpoint), partition)


def read_range(client: InlineClient, span: EntryRange) -> Iterator[pa.RecordBatch]:
    def earlier(before: MessageId) -> Iterator[list[Entry]]:
        first = MessageId(before.ledger_id, max(-1, before.entry_id - 1 - CHUNKS_BACK_MAX), before.partition)
        last = MessageId(before.ledger_id, before.entry_id - 1, before.partition)
        return _entries(client, EntryRange(span.topic, first, last))

    reader = _ArchiveReader(SourceColumns(READ.fields, [VALUE]), None, "row", earlier)
    topic = short_name(TopicName.parse(span.topic))
    for batch in reader.read(_entries(client, span), span):
        yield _with_folders(batch, topic)


class _ArchiveReader(RowReader):
    """Reads rows with the columns of an archive."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._builders |= {LEDGER: _ledgers, ENTRY_ID: _entry_ids, ENTRY: _whole_entries}

    def _unreadable(self, entry: Entry, error: EntryError | UnreadableMessage) -> EntryView:
        is_complete = isinstance(error, UnreadableMessage)
        return UnreadableEntry(entry, str(error) if is_complete else f"message {entry.id} cannot be read: {error}")


def _ledgers(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
    return _repeated(parts, [part.entry.id.ledger_id for part in parts])


def _entry_ids(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
    return _repeated(parts, [part.entry.id.entry_id for part in parts])


def _repeated(parts: list[EntryView], values: list[int]) -> pa.Array:
    return pa.array(np.repeat(np.array(values, np.int64), [part.count for part in parts]))


def _whole_entries(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    if not any(part.error for part in parts):
        return None
    blobs: list[bytes | None] = []
    for part in parts:
        blobs.extend([part.entry.blob if part.error else None] * part.count)
    return pa.array(blobs, type_)


def _with_folders(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Adds the topic, and the date of publishing in UTC."""
    times = batch.column(batch.schema.get_field_index("__publishTime")).cast(pa.int64())
    days = np.floor_divide(times.fill_null(0).to_numpy(zero_copy_only=False), _DAY_US).astype(np.int32)
    names, fields = list(batch.columns), list(batch.schema)
    names += [pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows), pa.array(days).cast(pa.date32())]
    fields += [pa.field("topic", pa.string()), pa.field("date", pa.date32())]
    return pa.RecordBatch.from_arrays(names, schema=pa.schema(fields))


def _entries(client: InlineClient, span: EntryRange) -> Iterator[list[Entry]]:
    reader = with_retry_blocking(
        lambda: client.run(client.client.entries(span.topic, span.start, span.end)), OPERATION_S
    )
    try:
        while entries := client.run(reader.next()):
            yield entries
    finally:
        client.run(reader.close())

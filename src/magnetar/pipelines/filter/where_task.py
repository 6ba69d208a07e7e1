"""The task of a filter: reads the unread messages of topics into rows for a condition in SQL.

Owns how much of a topic one query reads, and the columns about a topic instead of a message. Runs in a Spark task, with
the clients of the copier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from magnetar.client import EARLIEST, AsyncClient, Entry, MessageId, Schema
from magnetar.client.errors import ClientError
from magnetar.names import TopicName
from magnetar.pipelines.clusters import Clusters, clusters
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.spark.codec.columns import SourceColumns
from magnetar.spark.codec.record_batches import Decoder, RowReader
from magnetar.spark.codec.value_decoder import ValueDecoder
from magnetar.spark.source.entry_range import EntryRange
from magnetar.wire.metadata import MetadataError, messages_in, metadata_of

ENTRIES_MAX = 20_000
"""Of all topics of a query, in equal shares."""
MESSAGES_MAX = 50_000
BYTES_MAX = 32 << 20
_ENTRIES_MIN = 200
_FETCHED_BYTES = 4 << 20

ROUTE, UP_TO, FAILURE = "__route", "__upTo", "__failure"
REPORT_FIELDS = (
    StructField(ROUTE, IntegerType()),
    StructField(UP_TO, BinaryType()),
    StructField(FAILURE, StringType()),
)
"""The number of the row's topic. The last row of a topic has the position up to which it was read, or the error."""


@dataclass(frozen=True)
class UnreadTopic:
    """One topic after a position, or after that of the subscription if there is none."""

    endpoint: ClusterEndpoint
    topic: str
    subscription: str
    after: MessageId | None


@dataclass(frozen=True)
class Reading:
    """One query: topics whose messages have the same columns."""

    unread: tuple[UnreadTopic, ...]
    columns: SourceColumns  # with __messageId and __error
    schema: Schema | None

    @property
    def struct(self) -> StructType:
        return StructType([*self.columns.struct.fields, *REPORT_FIELDS])

    def rows(self) -> Iterator[pa.RecordBatch]:
        """In a worker. The error of one topic is in its last row."""
        own = clusters()
        for route, unread in enumerate(self.unread):
            share = _Share(len(self.unread))
            try:
                with_end = _ReadTopic(own, unread, share)
                for batch in with_end.batches(self):
                    yield _with_report(batch, route, None, None)
                yield self._last_row(route, with_end.end.to_bytes(), None)
            except ClientError as error:
                yield self._last_row(route, None, f"the source cluster: {error.text}")

    def _last_row(self, route: int, up_to: bytes | None, failure: str | None) -> pa.RecordBatch:
        schema = self.columns.arrow
        empty = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
        return _with_report(empty, route, up_to, failure)


def _with_report(batch: pa.RecordBatch, route: int, up_to: bytes | None, failure: str | None) -> pa.RecordBatch:
    rows = batch.num_rows
    report = [
        pa.repeat(pa.scalar(route, pa.int32()), rows),
        pa.nulls(rows, pa.binary()) if up_to is None else pa.array([up_to] * rows, pa.binary()),
        pa.nulls(rows, pa.string()) if failure is None else pa.array([failure] * rows, pa.string()),
    ]
    names = [*batch.schema.names, *(field.name for field in REPORT_FIELDS)]
    return pa.RecordBatch.from_arrays([*batch.columns, *report], names=names)


class _Share:
    """The share of one topic."""

    def __init__(self, topics: int) -> None:
        self._entries = max(_ENTRIES_MIN, ENTRIES_MAX // topics)
        self._messages = max(_ENTRIES_MIN, MESSAGES_MAX // topics)
        self._bytes = BYTES_MAX // topics

    def takes(self, blob: bytes) -> bool:
        """Whether one more entry may be read after this one."""
        self._entries -= 1
        self._messages -= messages_in(blob)
        self._bytes -= len(blob)
        return self._entries > 0 and self._messages > 0 and self._bytes > 0


class _ReadTopic:
    """`end` is the last position that was read, after the last batch."""

    def __init__(self, own: Clusters, unread: UnreadTopic, share: _Share) -> None:
        self._own = own
        self._news = unread
        self._share = share
        self._client: AsyncClient = own.client(unread.endpoint)
        self._chunks: list[Entry] = []
        self.end = EARLIEST

    def batches(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        start, self.end = self._own.loop.run(self._bounds())
        span = EntryRange(self._news.topic, start, self.end)
        rows = RowReader(reading.columns, self._decoder(reading.schema), "row")
        yield from rows.read(self._entries(span), span)
        if self._chunks:
            yield _unknown(reading.columns, self._chunks)

    def _decoder(self, schema: Schema | None) -> Decoder | None:
        if schema is None:
            return None
        base = TopicName.parse(self._news.topic).base.full
        return WithoutValues(
            ValueDecoder(schema, lambda version: self._own.loop.run(self._client.schema(base, version)))
        )

    async def _bounds(self) -> tuple[MessageId, MessageId]:
        unread = self._news
        start = unread.after
        if start is None:
            cursor = await self._client.cursor(unread.topic, unread.subscription, initial_position=EARLIEST)
            try:
                start = await cursor.position()
            finally:
                await cursor.close_and_wait()
        async with await self._client.tail(unread.topic) as watch:
            last = await watch.last()
        end = MessageId(last.ledger_id, last.entry_id, last.partition)  # a batch is read as a whole
        return start, end if end.position > start.position else start

    def _entries(self, span: EntryRange) -> Iterator[list[Entry]]:
        if span.end.position <= span.start.position:
            return
        run = self._own.loop.run
        reader = run(self._client.entries(span.topic, span.start, span.end, bytes_max=_FETCHED_BYTES))
        try:
            while entries := run(reader.next()):
                for number, entry in enumerate(entries, 1):
                    if not self._share.takes(entry.blob):
                        self.end = entry.id
                        yield self._looked_at(entries[:number])
                        return
                yield self._looked_at(entries)
        finally:
            run(reader.close())

    def _looked_at(self, entries: list[Entry]) -> list[Entry]:
        """Without copies, which are not copied again, and without chunks, which cannot be filtered."""
        whole: list[Entry] = []
        for entry in entries:
            try:
                metadata = metadata_of(entry.blob)
            except MetadataError:  # the reader reports it
                whole.append(entry)
                continue
            if metadata.num_chunks_from_msg > 1:
                self._chunks.append(entry)
            elif not metadata.replicated_from:
                whole.append(entry)
        return whole


class WithoutValues:
    """A decoder whose errors name a field, and no value: they become the reason of a state, which more may read."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    @property
    def needs_keys(self) -> bool:
        return self._decoder.needs_keys

    def decode(
        self, values: pa.Array, version: bytes | None, names: Sequence[str], keys: pa.Array | None
    ) -> tuple[dict[str, pa.Array], dict[int, str]]:
        columns, errors = self._decoder.decode(values, version, names, keys)
        return columns, {
            row: f"the value does not match the topic's schema{_field(text)}" for row, text in errors.items()
        }


def _field(text: str) -> str:
    found = re.search(r"(?:^|: |; )field ([\w.\[\]]+):", text)
    return f" in field {found[1]}" if found else ""


def _unknown(columns: SourceColumns, entries: list[Entry]) -> pa.RecordBatch:
    """The rows of chunks, which are refused."""
    report = {
        "__messageId": [entry.id.to_bytes() for entry in entries],
        "__error": ["it is a chunk of a message: chunked messages cannot be filtered"] * len(entries),
    }
    arrays = [
        pa.array(report[field.name], field.type) if field.name in report else pa.nulls(len(entries), field.type)
        for field in columns.arrow
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.arrow)

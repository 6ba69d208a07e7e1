"""Read task of a worker: reads the entries of one range and returns them as record batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from magnetar.client.connection.retry import with_retry_blocking
from magnetar.client.consume.entry import Entry
from magnetar.client.consume.raw_consumer import Bounds
from magnetar.client.errors import NotFound
from magnetar.client.inline import InlineClient
from magnetar.client.message import MessageId
from magnetar.spark.clients import inline_client
from magnetar.spark.codec.columns import SourceColumns
from magnetar.spark.codec.record_batches import CHUNKS_BACK_MAX, Earlier, RowReader
from magnetar.spark.codec.value_schema import ValueSchema
from magnetar.spark.source.data_loss import DataLossReporter, messages_deleted, topic_deleted
from magnetar.spark.source.entry_range import EntryRange
from magnetar.spark.source.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


def read_range(
    options: SourceOptions, columns: SourceColumns, values: ValueSchema | None, span: EntryRange
) -> Iterator[pa.RecordBatch]:
    """Record batches of a range, as its entries arrive."""
    decoder = None if values is None else values.decoder(options.client, span.topic)
    rows = RowReader(columns, decoder, options.on_unreadable, earlier_entries(options, span.topic))
    yield from rows.read(entries_of(options, span), span)


def earlier_entries(options: SourceOptions, topic: str) -> Earlier:
    client = inline_client(options.client)

    def earlier(before: MessageId) -> Iterator[list[Entry]]:
        """Searches this ledger only: the chunks of a message rarely span two."""
        first = MessageId(before.ledger_id, max(-1, before.entry_id - 1 - CHUNKS_BACK_MAX), before.partition)
        last = MessageId(before.ledger_id, before.entry_id - 1, before.partition)
        return _entries(client, options, EntryRange(topic, first, last))

    return earlier


def entries_of(options: SourceOptions, span: EntryRange) -> Iterator[list[Entry]]:
    """The entries of a range; reports those deleted since it was planned."""
    client = inline_client(options.client)
    data_loss = DataLossReporter(fail=options.fail_on_data_loss)
    is_first = True
    try:
        for entries in _entries(client, options, span):
            if is_first and _is_gap(span, entries[0].id):
                _check_deleted(client, options, span, data_loss)
            is_first = False
            yield entries
        if is_first:
            _check_deleted(client, options, span, data_loss)
    except NotFound:
        data_loss.report(topic_deleted(span.topic, span.start))


def _is_gap(span: EntryRange, first: MessageId) -> bool:
    """Whether entries are missing at the start; broker-internal ones leave gaps too."""
    expected = span.start.entry_id + (span.start.batch_index < 0)
    return span.start.ledger_id >= 0 and first.position != (span.start.ledger_id, expected)


def _check_deleted(client: InlineClient, options: SourceOptions, span: EntryRange, data_loss: DataLossReporter) -> None:
    async def bounds() -> Bounds:
        async with await client.client.tail(span.topic) as watch:
            return await watch.bounds()

    before_first = with_retry_blocking(lambda: client.run(bounds()), options.client.operation_timeout_s).before_first
    start = span.start
    if start.ledger_id == before_first.ledger_id and start.entry_id < before_first.entry_id:
        data_loss.report(messages_deleted(span.topic, start, before_first))


def _entries(client: InlineClient, options: SourceOptions, span: EntryRange) -> Iterator[list[Entry]]:
    reader = with_retry_blocking(
        lambda: client.run(client.client.entries(span.topic, span.start, span.end)), options.client.operation_timeout_s
    )
    try:
        while entries := client.run(reader.next()):
            yield entries
    finally:
        client.run(reader.close())

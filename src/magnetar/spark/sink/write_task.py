"""Write task of a worker: takes rows, sends entries, and counts the stored messages.

Owns the delivery guarantee. For rows with a source position, producers are named after the source and its ledger, the
sequence id is the position, and rows that the target already has are skipped: deduplication would drop a batch that
overlaps them as a whole. Knows nothing of Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from magnetar.client.errors import ClientError
from magnetar.client.inline import InlineClient
from magnetar.client.produce.entry_producers import EntryProducers, ProducerKey
from magnetar.names import TopicName
from magnetar.spark.errors import InvalidOption, SparkSourceError
from magnetar.spark.sink.batch_encoder import MessageRows
from magnetar.spark.sink.columns import ENTRY, MESSAGE_ID, SOURCE_TOPIC, TOPIC, SinkColumns, binary
from magnetar.spark.sink.entry_builder import BuiltEntry, EntryBuilder, forwarded_entry
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.sink.origins import OrderCheck, RowOrigins, distinct_topics, row_groups
from magnetar.spark.sink.sequence_ids import source_positions
from magnetar.spark.sink.targets import TargetTopic, choose_partitions, clear_target_cache, target_topic
from magnetar.spark.sink.values import PayloadEncoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OPEN_TIMEOUT_S = 90.0
"""Longer than the minute in which brokers detect that a producer of the same name has died."""

_PIECE_ROWS = 8192
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True)
class WriteScope:
    """The write that a task belongs to, and its number."""

    name: str
    task: int
    is_shared: bool
    """Whether other tasks, and later writes, use the same producer names."""

    is_sorted: bool = False
    """Whether rows are sorted first; an unsorted write does not tell which rows are already stored."""

    is_stream: bool = False
    """Whether the write goes on as long as its source grows."""

    def producer_name(self, source: str, ledger_id: int) -> str:
        name = f"{self.name}/{source}/{ledger_id}{'/sorted' if self.is_sorted else ''}"
        return name if self.is_shared else f"{name}/{self.task}"


@dataclass
class WriteResult:
    """Counts of a task; `messages` have the broker's receipt."""

    messages: int = 0
    skipped: int = 0
    entries: int = 0
    bytes: int = 0
    producer_keys: tuple[ProducerKey, ...] = ()


def has_positions(options: SinkOptions, columns: SinkColumns) -> bool:
    """Whether rows are written by source position."""
    return options.exactly_once != "off" and _has_position_columns(options, columns)


def _has_position_columns(options: SinkOptions, columns: SinkColumns) -> bool:
    return MESSAGE_ID in columns and (SOURCE_TOPIC in columns or (TOPIC in columns and options.topic is not None))


def check_exactly_once(options: SinkOptions, columns: SinkColumns) -> None:
    """Raises `InvalidOption` if exactly once is required but cannot be promised, whatever the broker replies."""
    if options.exactly_once != "required":
        return
    if not _has_position_columns(options, columns):
        raise InvalidOption(
            f"option exactlyOnce=required needs the source position of rows: columns {MESSAGE_ID} and"
            f" {SOURCE_TOPIC}, or {MESSAGE_ID}, {TOPIC} and option topic"
        )
    if not options.client.has_admin:
        raise InvalidOption(
            "option exactlyOnce=required needs option admin.url: only the admin API reports whether a topic"
            " deduplicates"
        )


def check_target(options: SinkOptions, target: TargetTopic) -> None:
    """Raises `InvalidOption` if rows with positions cannot be written to the topic exactly once."""
    if target.deduplicates is None and options.exactly_once == "required":
        raise InvalidOption(
            f"the admin API does not report whether {target.topic} deduplicates, and option exactlyOnce is required:"
            " the role needs the right to read its policies"
        )
    if target.deduplicates is False:
        raise InvalidOption(
            f"{target.topic} does not deduplicate, so rows cannot be written to it exactly once: enable"
            " deduplication for the topic or its namespace, or set option exactlyOnce=off"
        )


class WriteTask:
    """Writes rows once; Spark repeats a failed task from its first row."""

    def __init__(self, client: InlineClient, options: SinkOptions, columns: SinkColumns, scope: WriteScope) -> None:
        self._client = client
        self._options = options
        self._columns = columns
        self._scope = scope
        self._has_positions = has_positions(options, columns)
        self._values = PayloadEncoder(client, options, columns)
        self._order_checks: defaultdict[str, OrderCheck] = defaultdict(OrderCheck)
        self._turn = scope.task
        self._builders: dict[ProducerKey, EntryBuilder] = {}
        self._next_ids: dict[ProducerKey, int] = {}
        self._written = WriteResult()
        self._sent = 0
        self._producers = {
            deduplicated: EntryProducers(
                client.client,
                deduplicated=deduplicated,
                open_timeout_s=_OPEN_TIMEOUT_S,
                send_timeout_s=options.send_timeout_s,
            )
            for deduplicated in (True, False)
        }

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriteResult:
        try:
            for batch in self._sorted(batches) if self._options.sort_by_position else _merged(batches):
                self._write_batch(batch)
            self._client.run(self._finish())
        except ClientError:
            clear_target_cache()
            raise
        finally:
            for producers in self._producers.values():
                self._client.run(producers.close())
        return self._written

    # -- rows

    def _sorted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows of the task, sorted by source topic and position."""
        collected = [batch for batch in batches if batch.num_rows]
        if not collected or not self._has_positions:
            return iter(collected)
        names = [name for name in (MESSAGE_ID, SOURCE_TOPIC, TOPIC) if name in self._columns]
        order = self._origins(_combined([batch.select(names) for batch in collected])).order()
        return _merged(pa.Table.from_batches(collected).take(pa.array(order)).to_batches())

    def _origins(self, batch: pa.RecordBatch) -> RowOrigins:
        name = SOURCE_TOPIC if SOURCE_TOPIC in self._columns else TOPIC
        topics, codes = distinct_topics(name, batch.column(name))
        return RowOrigins(topics, codes, source_positions(MESSAGE_ID, binary(batch.column(MESSAGE_ID))))

    def _write_batch(self, batch: pa.RecordBatch) -> None:
        self._columns.reject_unreadable(batch)
        if self._options.topic is not None:
            self._write_to(self._options.topic, batch)
            return
        if TOPIC not in self._columns:
            raise InvalidOption(f"no target topic: set option `topic` or add a column `{TOPIC}`")
        topics, codes = distinct_topics(TOPIC, batch.column(TOPIC))
        for (code,), rows in row_groups(codes):
            self._write_to(topics[code], batch if rows is None else batch.take(pa.array(rows)))

    def _write_to(self, topic: str, batch: pa.RecordBatch) -> None:
        self._check_source(topic, batch)
        target = target_topic(self._client, self._options.client, topic)
        origins = self._origins(batch) if self._has_positions else None
        if origins is not None:
            check_target(self._options, target)
            self._order_checks[topic].check(origins)
        rows = self._rows(target, batch)
        self._turn += 1
        keyless = np.full(len(rows), self._turn) if origins is None else origins.partitions
        chosen = choose_partitions(rows.keys, keyless, len(target.partitions), self._options.hashing_scheme)
        self._client.run(self._send_rows(target, rows, chosen, origins))

    def _check_source(self, topic: str, batch: pa.RecordBatch) -> None:
        """A stream that writes to its own source never ends; an explicit `__sourceTopic` says that this is wanted."""
        if not self._scope.is_stream or SOURCE_TOPIC in self._columns or not {MESSAGE_ID, TOPIC} <= self._columns.names:
            return
        sources, _ = distinct_topics(TOPIC, batch.column(TOPIC))
        if TopicName.parse(topic).base in (TopicName.parse(source).base for source in sources):
            raise InvalidOption(
                f"rows of {topic} would go back to it, and the stream would never end: set option `topic` to another"
                f" topic, or, if this is wanted, name the source of each row in `{SOURCE_TOPIC}`"
            )

    def _rows(self, target: TargetTopic, batch: pa.RecordBatch) -> MessageRows:
        if self._columns.has_entries:
            return MessageRows(values=binary(batch.column(ENTRY)))
        values, base64_keys = self._values.payloads(target.topic, batch)
        return self._columns.rows(batch, values, base64_keys)

    # -- sending

    async def _send_rows(
        self, target: TargetTopic, rows: MessageRows, chosen: NDArray[np.int64], origins: RowOrigins | None
    ) -> None:
        codes = (chosen,) if origins is None else (chosen, origins.codes, origins.positions.ledgers)
        groups = [(self._producer_key(target, group, origins), indexes) for group, indexes in row_groups(*codes)]
        producers = self._producers[origins is not None]
        await producers.open((key for key, _ in groups), self._values.schema(target.topic))
        for key, indexes in groups:
            ids = None if origins is None else origins.positions.sequence_ids
            if indexes is None:
                await self._send_group(producers, key, rows, ids)
            else:
                await self._send_group(producers, key, rows.take(indexes), None if ids is None else ids[indexes])

    def _producer_key(self, target: TargetTopic, group: tuple[int, ...], origins: RowOrigins | None) -> ProducerKey:
        topic = target.partitions[group[0]]
        if origins is not None:
            return ProducerKey(topic, self._scope.producer_name(origins.topics[group[1]], group[2]))
        given = self._options.producer_name
        return ProducerKey(topic, None if given is None else f"{given}/{self._scope.task}")

    async def _send_group(
        self, producers: EntryProducers, key: ProducerKey, rows: MessageRows, ids: NDArray[np.int64] | None
    ) -> None:
        """Sends the rows of a group to one producer, in order."""
        producer = producers[key]
        if ids is None:
            first = self._next_ids.get(key, producer.last_sequence_id + 1)
            self._next_ids[key] = first + len(rows)
            ids = np.arange(first, first + len(rows))
        else:
            known = int(np.searchsorted(ids, producer.last_sequence_id, side="right"))
            self._written.skipped += known
            rows, ids = rows.slice(known, len(rows) - known), ids[known:]
            if not len(rows):
                return
        if self._columns.has_entries:
            entries = _forwarded_entries(rows, ids, key)
        else:
            entries = self._builder(producers, key).add(rows, ids)
        await self._send_entries(producers, key, entries)

    def _builder(self, producers: EntryProducers, key: ProducerKey) -> EntryBuilder:
        builder = self._builders.get(key)
        if builder is None:
            producer = producers[key]
            builder = EntryBuilder(producer.name, self._options.batches, producer.schema_version)
            self._builders[key] = builder
        return builder

    async def _send_entries(self, producers: EntryProducers, key: ProducerKey, entries: Iterable[BuiltEntry]) -> None:
        producer = producers[key]
        for entry in entries:
            await producer.send(
                entry.blob,
                sequence_id=entry.sequence_id,
                highest_sequence_id=entry.highest_sequence_id,
                messages=entry.messages,
            )
            self._sent += entry.messages
            self._written.entries += 1
            self._written.bytes += len(entry.blob)
            if entry.is_delayed and self._has_positions:
                # A broker may reject a delivery time. If later messages were stored, the rejected one would count as
                # written.
                await producer.flush()

    async def _finish(self) -> None:
        """Sends everything and waits for every receipt."""
        producers = self._producers[self._has_positions]
        for key, builder in self._builders.items():
            await self._send_entries(producers, key, builder.seal())
        await producers.flush()
        self._written.producer_keys = producers.keys
        self._written.messages = sum(producers[key].messages_stored for key in producers.keys)
        if self._written.messages != self._sent:
            raise SparkSourceError(f"{self._sent} messages were sent, but only {self._written.messages} are stored")


def _merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in larger batches, to save cost per batch."""
    collected: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        collected.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _PIECE_ROWS or size >= _PIECE_BYTES:
            yield _combined(collected)
            collected, rows, size = [], 0, 0
    if collected:
        yield _combined(collected)


def _combined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    [batch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _forwarded_entries(rows: MessageRows, ids: NDArray[np.int64], key: ProducerKey) -> Iterator[BuiltEntry]:
    for blob, number in zip(rows.values, ids.tolist(), strict=True):
        address = None if key.name is None else (key.name, number)
        entry, messages = forwarded_entry(f"column {ENTRY} for {key.topic}", blob.as_py() or b"", address)
        yield BuiltEntry(entry, number, number, messages)

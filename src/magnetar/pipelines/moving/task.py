"""The write task of a move, in a worker: takes rows with the positions of their messages, and stores them in topics.

Owns the guarantee. On a Magnetar cluster an entry is stored and its messages are acknowledged in one commit, see
`wire.moves`. On Apache Pulsar the caller acknowledges after `finish`; until then a repeated task stores rows twice,
unless the sequence ids of a topic that deduplicates absorb them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from magnetar.client.errors import ClientError
from magnetar.client.inline import InlineClient
from magnetar.client.produce.entry_producers import EntryProducers, ProducerKey
from magnetar.client.schema import Schema, schema_to_wire
from magnetar.pipelines.moving.positions import positions_text, row_positions
from magnetar.spark.sink.batch_encoder import MessageRows
from magnetar.spark.sink.columns import MESSAGE_ID, SOURCE_TOPIC, TOPIC, SinkColumns
from magnetar.spark.sink.entry_builder import BuiltEntry, EntryBuilder
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.sink.origins import distinct_topics, row_groups
from magnetar.spark.sink.targets import choose_partitions, clear_target_cache, partition_of, target_topic
from magnetar.spark.sink.values import PayloadEncoder
from magnetar.wire.moves import MOVE_ONLY, MOVE_SUBSCRIPTION, MOVE_TOPIC

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql.types import StructType

ONLY = "__only"
"""The column with the only subscription of its topic that a row is for; null for all."""

SCHEMA_VERSION = "__schemaVersion"

PRODUCER_PREFIX = "magnetar.pipeline."

_OPEN_TIMEOUT_S = 90.0
_PRODUCERS_MAX = 500
"""Open producers of a task; the next one closes all of them first."""

_PIECE_ROWS = 16_384
_PIECE_BYTES = 24 << 20


@dataclass(frozen=True)
class MoveScope:
    """What is moved by whom: `pipeline` begins the names of producers.

    `subscription` may be `wire.moves.ALL_SUBSCRIPTIONS`. `is_ours`: the cluster is a Magnetar one. `deduplicates`: rows
    are decided in the same way each time, and every topic they go to deduplicates.
    """

    pipeline: str
    topic: str
    subscription: str
    is_ours: bool
    deduplicates: bool = False


@dataclass
class MoveResult:
    """`known` are messages that were stored before: by a task that was killed, of which this one is a repetition.
    `topics` has all of them, by the topic or partition that they are in."""

    messages: int = 0
    known: int = 0
    entries: int = 0
    bytes: int = 0
    topics: dict[str, int] = field(default_factory=dict)


class MoveTask:
    """Writes the rows of frames with one set of columns, which ascend by position for each source partition.

    Rows with the same position stay in one entry. Unless `mixes_keys`, the messages of a batch have one key, since
    subscriptions of type Key_Shared dispatch a batch by its first key; the order is kept per key then.
    """

    def __init__(
        self,
        client: InlineClient,
        options: SinkOptions,
        struct: StructType,
        scope: MoveScope,
        *,
        mixes_keys: bool = False,
        schema: Schema | None = None,
    ) -> None:
        """`schema` is that of raw values, for topics that take no producer without one."""
        self._client = client
        self._options = options
        self._scope = scope
        names = [column for column in struct.fields if column.name not in (ONLY, SCHEMA_VERSION)]
        self._columns = SinkColumns.of(type(struct)(names))
        self._values = PayloadEncoder(client, options, self._columns)
        self._schema = None if schema is None else schema_to_wire(schema)
        self._mixes_keys = mixes_keys
        self._token = secrets.token_hex(4)
        self._collected: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._flows: dict[_Flow, _Sending] = {}
        self._opened = 0
        self._is_positional = scope.deduplicates and not scope.is_ours
        """Sequence ids are positions, under a name that a repetition has as well."""
        self._result = MoveResult()
        self._producers = EntryProducers(
            client.client,
            deduplicated=self._is_positional,
            open_timeout_s=_OPEN_TIMEOUT_S,
            send_timeout_s=options.send_timeout_s,
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Rows are collected: the more of them, the larger the batches of a key."""
        if not batch.num_rows:
            return
        self._collected.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _PIECE_ROWS or self._bytes >= _PIECE_BYTES:
            self._write_collected()

    def _write_collected(self) -> None:
        if not self._collected:
            return
        [batch] = pa.Table.from_batches(self._collected).combine_chunks().to_batches()
        self._collected, self._rows, self._bytes = [], 0, 0
        try:
            topics, topic_codes = distinct_topics(TOPIC, batch.column(TOPIC))
            onlies, only_codes = _distinct(batch, ONLY, "")
            for codes, rows in row_groups(topic_codes, only_codes):
                part = batch if rows is None else batch.take(pa.array(rows))
                for version, run in _runs_by_version(part):
                    self._write_to(topics[codes[0]], onlies[codes[1]], version, run)
        except ClientError:
            clear_target_cache()
            raise

    def finish(self) -> MoveResult:
        """Returns when every entry is stored."""
        try:
            self._write_collected()
            self._client.run(self._flush())
        finally:
            self.close()
        return self._result

    def close(self) -> None:
        self._client.run(self._producers.close())

    # -- rows

    def _write_to(self, topic: str, only: str, version: bytes | None, batch: pa.RecordBatch) -> None:
        target = target_topic(self._client, self._options.client, topic)
        values, base64_keys = self._values.payloads(topic, batch)
        rows = self._columns.rows(batch, values, base64_keys)
        sources, source_codes = distinct_topics(SOURCE_TOPIC, batch.column(SOURCE_TOPIC))
        positions = row_positions(MESSAGE_ID, batch.column(MESSAGE_ID))
        keyless = np.array([partition_of(source) for source in sources], np.int64)[source_codes]
        chosen = choose_partitions(rows.keys, keyless, len(target.partitions), self._options.hashing_scheme)
        for codes, indexes in row_groups(chosen, source_codes, positions.ledgers):
            flow = _Flow(target.partitions[codes[0]], len(target.partitions), only, sources[codes[1]], codes[2])
            part, numbers = rows, positions.numbers
            if indexes is not None:
                part, numbers = rows.take(indexes), numbers[indexes]
            self._client.run(self._send(flow, topic, version, part, numbers))

    # -- sending

    async def _send(
        self, flow: _Flow, topic: str, version: bytes | None, rows: MessageRows, numbers: NDArray[np.int64]
    ) -> None:
        sending = self._flows.get(flow)
        if sending is None:
            sending = await self._open(flow, topic)
        if self._is_positional:
            known = int(np.searchsorted(numbers, self._producers[sending.key].last_sequence_id, side="right"))
            self._count(sending.key.topic, 0, known)
            rows, numbers = rows.slice(known, len(rows) - known), numbers[known:]
        if not len(rows):
            return
        if sending.builder is None or sending.version != version:
            await self._seal(sending)  # what was sent before comes before
            sending.builder = self._builder(sending.key, flow, version)
            sending.version = version
        if self._scope.is_ours and self._options.batches.batching and not self._mixes_keys:
            rows, numbers = _sorted_by_key(rows, numbers)
        await self._send_entries(sending, sending.builder.add(rows, numbers))

    async def _open(self, flow: _Flow, topic: str) -> _Sending:
        if len(self._flows) >= _PRODUCERS_MAX:
            await self._flush()
            await self._producers.close()
            self._flows = {}
        scope, metadata = self._scope, {}
        if scope.is_ours:
            metadata = {MOVE_TOPIC: scope.topic, MOVE_SUBSCRIPTION: scope.subscription}
            if flow.only:
                metadata[MOVE_ONLY] = flow.only
        if self._is_positional:
            name = f"{PRODUCER_PREFIX}{scope.pipeline}/{flow.source}/{flow.ledger_id}/{flow.partitions}"
        else:
            name = f"{PRODUCER_PREFIX}{scope.pipeline}/{self._token}-{self._opened}"
        self._opened += 1
        key = ProducerKey(flow.target, name, tuple(metadata.items()))
        await self._producers.open([key], self._schema or self._values.schema(topic))
        sending = self._flows[flow] = _Sending(key)
        return sending

    def _builder(self, key: ProducerKey, flow: _Flow, version: bytes | None) -> EntryBuilder:
        producer = self._producers[key]
        moved = partial(positions_text, flow.ledger_id) if self._scope.is_ours else None
        version = producer.schema_version if version is None else version
        return EntryBuilder(producer.name, self._options.batches, version, moved, mixes_keys=self._mixes_keys)

    async def _send_entries(self, sending: _Sending, entries: Iterable[BuiltEntry]) -> None:
        producer, result = self._producers[sending.key], self._result
        for entry in entries:
            first, last = entry.sequence_id, entry.highest_sequence_id
            if not self._is_positional:  # a name is used once, and the positions of a key do not ascend
                first = last = sending.count
                sending.count += 1
            await producer.send(entry.blob, sequence_id=first, highest_sequence_id=last, messages=entry.messages)
            result.entries += 1
            result.bytes += len(entry.blob)

    async def _seal(self, sending: _Sending) -> None:
        if sending.builder is not None:
            await self._send_entries(sending, sending.builder.seal())

    async def _flush(self) -> None:
        for sending in self._flows.values():
            await self._seal(sending)
        await self._producers.flush()
        for key in self._producers.keys:
            producer = self._producers[key]
            self._count(key.topic, producer.messages_stored - producer.messages_dropped, producer.messages_dropped)

    def _count(self, topic: str, stored: int, known: int) -> None:
        self._result.messages += stored
        self._result.known += known
        self._result.topics[topic] = self._result.topics.get(topic, 0) + stored + known


class _Flow(NamedTuple):
    """Rows that stay in order: from one ledger to one partition. `only` is empty for all subscriptions.

    `partitions` is how many the target has: with another number rows go elsewhere, where other ids are known.
    """

    target: str
    partitions: int
    only: str
    source: str
    ledger_id: int


@dataclass
class _Sending:
    """The producer of a flow, and the entry that it is filling."""

    key: ProducerKey
    builder: EntryBuilder | None = None
    version: bytes | None = None
    count: int = 0


def _sorted_by_key(rows: MessageRows, numbers: NDArray[np.int64]) -> tuple[MessageRows, NDArray[np.int64]]:
    """In order for each key; as they are without keys, or where a message became several, which stay together."""
    if rows.keys is None or rows.keys.null_count == len(rows.keys) or (np.diff(numbers) == 0).any():
        return rows, numbers
    codes = rows.keys.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    return rows.take(order), numbers[order]


def _distinct(batch: pa.RecordBatch, name: str, default: str) -> tuple[list[str], NDArray[np.int64]]:
    if name not in batch.schema.names:
        return [default], np.zeros(batch.num_rows, np.int64)
    encoded = batch.column(name).fill_null(default).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _runs_by_version(batch: pa.RecordBatch) -> Iterator[tuple[bytes | None, pa.RecordBatch]]:
    """Neighbours with the same schema version; None without that column, or where the row has none."""
    if SCHEMA_VERSION not in batch.schema.names:
        yield None, batch
        return
    versions = batch.column(SCHEMA_VERSION).fill_null(-1).to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero(np.diff(versions)) + 1).tolist(), len(versions)]
    for start, end in pairwise(starts):
        version = int(versions[start])
        yield (version.to_bytes(8, "big") if version >= 0 else None), batch.slice(start, end - start)

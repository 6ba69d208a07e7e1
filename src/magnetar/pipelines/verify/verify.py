"""Verification of topics against their copies in another cluster: one Spark task per topic or partition.

A task reads both topics at the same time and merges them (see `comparison`); only ranges come back. Owns what is read,
up to where and in which order, so that entries copied meanwhile are no finding. Knows no command line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from magnetar.client.async_client import AsyncClient
from magnetar.client.consume.entry import Entry
from magnetar.client.consume.raw_consumer import Bounds
from magnetar.client.errors import ClientError, NotFound
from magnetar.client.message import EARLIEST, MessageId, Position
from magnetar.errors import MagnetarError
from magnetar.pipelines.clusters import Clusters, clusters
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.copy.copy_encoder import is_for
from magnetar.pipelines.output import held_back
from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.pipelines.verify.comparison import Compared, Comparison, Copy, PositionSet, SourceEntry
from magnetar.pipelines.verify.repair import REPAIRED, Repair
from magnetar.replication.model import SOURCE_POSITION
from magnetar.wire.metadata import MetadataError, metadata_and_payload_start
from magnetar.wire.schema_pb2 import MessageMetadata
from magnetar.wire.text import readable

_DIGEST_BYTES = 16
_POSITION = re.compile(r"(\d{1,19}):(\d{1,19})", re.ASCII)
_EMPTY = Bounds(EARLIEST, EARLIEST)


class SparkMissing(MagnetarError):
    """Spark is not installed."""


class Pair(msgspec.Struct, frozen=True):
    """A source topic or partition, and the topic with its copies.

    `mark` is the copied position, None if unknown. `is_trimmed`: the target has deleted entries. `is_shared`: other
    topics are copied into the same target, so extra entries cannot be attributed.
    """

    assignment: Assignment
    mark: Position | None = None
    is_trimmed: bool = False
    is_shared: bool = False
    repairs: bool = False
    from_first_copy: bool = False  # replication began after the first entries of the source
    restores_trimmed: bool = False  # what the target has deleted is missing


def verify(pairs: Sequence[Pair], master: str | None = None) -> list[Compared]:
    """The results in the order of the pairs. Uses a running Spark session, and leaves it running."""
    if not pairs:
        return []
    try:
        from pyspark.sql import SparkSession

        import magnetar.spark
    except ImportError as error:
        raise SparkMissing(str(error)) from error
    was_running = SparkSession.getActiveSession() is not None
    quiet: dict[str, Any] = {} if was_running else {"spark.log.level": "ERROR"}
    with held_back():
        spark = magnetar.spark.session(master, "magnetar replication verify", **quiet)
    try:
        context = spark.sparkContext
        context.setJobDescription(f"comparing {len(pairs)} topics and partitions with their copies")
        return list(context.parallelize(pairs, len(pairs)).map(compare).collect())
    finally:
        if not was_running:
            spark.stop()


def compare(pair: Pair) -> Compared:
    """In a task. The error of one topic is in its result, and the others are compared."""
    assignment = pair.assignment
    try:
        result = _Task(clusters(), pair).run()
    except ClientError as error:
        result = Compared(error=error.text)
    except (MessageRefused, MetadataError) as error:
        result = Compared(error=str(error))
    result.topic, result.target = assignment.topic, assignment.target
    return result


class _Task:
    def __init__(self, connected: Clusters, pair: Pair) -> None:
        self._clusters = connected
        self._pair = pair
        self._assignment = pair.assignment
        self._source = connected.client(pair.assignment.source)
        self._remote = connected.client(pair.assignment.remote)
        self._unplaced = 0

    def run(self) -> Compared:
        assignment, policy = self._assignment, self._assignment.policy
        # The target first: its entries were in the source before, so new ones do not look like extra entries.
        target = self._bounds(self._remote, assignment.target, may_be_missing=True)
        source = self._bounds(self._source, assignment.topic)
        merged = Comparison(self._originals(source), compares_payloads=not policy.changes_messages)
        for copy in self._copies(target):
            merged.add(copy)
        before_first = self._bounds(self._source, assignment.topic).before_first.position
        result, missing = merged.finish(
            mark=self._pair.mark,
            before_first=before_first,
            is_trimmed=not self._pair.restores_trimmed and (self._pair.is_trimmed or target.before_first.entry_id >= 0),
            is_filtered=bool(policy.where),
            from_first_copy=self._pair.from_first_copy,
        )
        result.unplaced = self._unplaced
        if self._pair.is_shared:
            result.extra = type(result.extra)()
        if self._pair.repairs and len(missing):
            self._repair(result, source, missing)
        return result

    def _repair(self, result: Compared, source: Bounds, missing: PositionSet) -> None:
        first = next(iter(missing))
        repair = Repair(self._clusters, self._assignment)
        start = MessageId(first[0], first[1] - 1)
        try:
            repair.run(self._read(self._source, self._assignment.topic, start, source.last), missing)
        except (ClientError, MessageRefused) as error:
            result.error = f"repair stopped: {error}"
        result.published = repair.published

    def _bounds(self, client: AsyncClient, topic: str, *, may_be_missing: bool = False) -> Bounds:
        async def read() -> Bounds:
            async with await client.tail(topic) as watch:
                return await watch.bounds()

        try:
            return self._clusters.loop.run(read())
        except NotFound:
            if not may_be_missing:
                raise
            return _EMPTY

    def _read(self, client: AsyncClient, topic: str, start: MessageId, end: MessageId) -> Iterator[list[Entry]]:
        run = self._clusters.loop.run
        reader = run(client.entries(topic, start, end))
        try:
            while entries := run(reader.next()):
                yield entries
        finally:
            run(reader.close())

    def _originals(self, bounds: Bounds) -> Iterator[SourceEntry]:
        remote = self._assignment.remote.name
        if bounds.is_empty:
            return
        for entries in self._read(self._source, self._assignment.topic, EARLIEST, bounds.last):
            for entry in entries:
                metadata, start = metadata_and_payload_start(entry.blob)
                if is_for(metadata, remote):
                    yield SourceEntry(entry.id.position, _digest(entry.blob, start))

    def _copies(self, bounds: Bounds) -> Iterator[Copy]:
        source = self._assignment.source.name
        if bounds.is_empty:
            return
        for entries in self._read(self._remote, self._assignment.target, EARLIEST, bounds.last):
            for entry in entries:
                metadata, start = metadata_and_payload_start(entry.blob)
                if metadata.replicated_from != source or metadata.HasField("marker_type"):
                    continue
                position, is_repair = _origin(metadata)
                if position is None:
                    self._unplaced += 1
                else:
                    yield Copy(position, _digest(entry.blob, start), is_repair)


def _digest(blob: bytes, start: int) -> bytes:
    return hashlib.blake2b(memoryview(blob)[start:], digest_size=_DIGEST_BYTES).digest()


def _origin(metadata: MessageMetadata) -> tuple[Position | None, bool]:
    """The position of a copy in its source, and whether a repair published it."""
    position: Position | None = None
    is_repair = False
    for pair in metadata.properties:
        if pair.key == SOURCE_POSITION:
            match = _POSITION.fullmatch(readable(pair.value))
            if match is not None:
                position = Position(int(match[1]), int(match[2]))
        elif pair.key == REPAIRED:
            is_repair = True
    return position, is_repair

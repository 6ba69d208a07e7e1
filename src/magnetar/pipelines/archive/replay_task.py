"""The write task of a replay, in a worker: takes sorted rows and sends them, at a rate if one is given.

Messages are encoded anew, by `moving.task`; one that could not be read when it was archived, such as an encrypted one,
is sent as the entry that it was stored in.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from magnetar.client.produce.routing import HASHING_DEFAULT
from magnetar.pipelines.archive.clients import sink_client, worker_client
from magnetar.pipelines.archive.columns import ENTRY
from magnetar.pipelines.moving.task import MoveScope, MoveTask
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.spark.sink.columns import MESSAGE_ID, SOURCE_TOPIC, TOPIC, SinkColumns
from magnetar.spark.sink.entry_builder import BatchOptions
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.sink.write_task import WriteScope, WriteTask

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SEND_TIMEOUT_S = 120.0
_PACE_S = 0.2
"""How often messages are sent at a rate."""

_ENTRY_COLUMNS = [TOPIC, ENTRY, MESSAGE_ID, SOURCE_TOPIC]


@dataclass(frozen=True)
class ReplayPlan:
    """`targets` by archived topic; topics in `kept` go to partitions of the same number."""

    endpoint: ClusterEndpoint
    name: str
    targets: dict[str, str]
    kept: frozenset[str]
    deduplicates: bool
    rate: float | None = None


COUNTS = "sent bigint, known bigint"


class Counts(NamedTuple):
    """Messages that were sent, and that an earlier replay of the same name had sent."""

    sent: int
    known: int


def written(plan: ReplayPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the rows of a task: one row with the counts."""
    counts = ReplayTask(plan).write(batches)
    yield pa.record_batch({"sent": [counts.sent], "known": [counts.known]})


class ReplayTask:
    def __init__(self, plan: ReplayPlan) -> None:
        self._plan = plan
        self._client = worker_client(plan.endpoint)
        self._messages: MoveTask | None = None
        self._sent = self._known = 0
        self._due_s = time.monotonic()

    def write(self, batches: Iterable[pa.RecordBatch]) -> Counts:
        try:
            for batch in batches:
                for is_entry, rows in _runs(batch):
                    for piece in self._paced(rows):
                        self._write(piece, is_entry=is_entry)
            self._finish()
        finally:
            if self._messages is not None:
                self._messages.close()
        return Counts(self._sent, self._known)

    def _paced(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows, or, with a rate, pieces of them when they are due."""
        if self._plan.rate is None:
            yield rows
            return
        size = max(1, round(self._plan.rate * _PACE_S))
        for start in range(0, rows.num_rows, size):
            piece = rows.slice(start, size)
            time.sleep(max(0.0, self._due_s - time.monotonic()))
            self._due_s = max(self._due_s, time.monotonic() - 1) + piece.num_rows / self._plan.rate
            yield piece
            self._finish()

    def _write(self, rows: pa.RecordBatch, *, is_entry: bool) -> None:
        if is_entry:
            self._finish()  # what comes before is stored before
            self._write_entries(rows.select(_ENTRY_COLUMNS))
            return
        rows = rows.select([name for name in rows.schema.names if name != ENTRY])
        if self._messages is None:
            scope = MoveScope(self._plan.name, "", "", is_ours=False, deduplicates=self._plan.deduplicates)
            self._messages = MoveTask(self._client, self._options(), _struct(rows), scope)
        self._messages.write(rows)

    def _write_entries(self, rows: pa.RecordBatch) -> None:
        scope = WriteScope(f"{self._plan.name}.entries", 0, is_shared=True)
        task = WriteTask(self._client, self._options(), SinkColumns.of(_struct(rows)), scope)
        written = task.write([rows])
        self._sent += written.messages
        self._known += written.skipped

    def _finish(self) -> None:
        task, self._messages = self._messages, None
        if task is not None:
            result = task.finish()
            self._sent += result.messages
            self._known += result.known

    def _options(self) -> SinkOptions:
        return SinkOptions(
            client=sink_client(self._plan.endpoint),
            topic=None,
            exactly_once="auto" if self._plan.deduplicates else "off",
            sort_by_position=False,
            schema=None,
            schema_name="",
            schema_namespace=None,
            producer_name=None,
            batches=BatchOptions(),
            hashing_scheme=HASHING_DEFAULT,
            send_timeout_s=_SEND_TIMEOUT_S,
        )


def _struct(rows: pa.RecordBatch) -> StructType:
    return from_arrow_schema(rows.schema)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[bool, pa.RecordBatch]]:
    """Neighbours that are whole entries, and neighbours that are messages."""
    are_entries = batch.column(batch.schema.get_field_index(ENTRY)).is_valid().to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero(are_entries[1:] != are_entries[:-1]) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(starts):
        if end > start:
            yield bool(are_entries[start]), batch.slice(start, end - start)

"""The way of a micro-batch to all targets: decided and stored once, then written to one target after the other.

Each step can be repeated: topics skip what they have, the archive knows its files. A failure anywhere ends the query,
and the next start goes through the same steps with the same rows. Knows nothing of how a stream is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from magnetar.clock import Clock
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.routing.archive import ArchiveTarget
from magnetar.spark.routing.kept_letters import keep_letters
from magnetar.spark.routing.letters import letters_of
from magnetar.spark.routing.plan import Plans
from magnetar.spark.routing.retry_rows import retries_of, without_own_properties
from magnetar.spark.routing.stored_batches import StoredBatches
from magnetar.spark.routing.targets import TopicTarget
from magnetar.spark.sink.columns import ERROR

ARCHIVED: Final = "archive"
"""The name of the frame of an archive that has its own."""

_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True)
class RetryTarget:
    """The retry topic, and how long a row waits before its second attempt, its third, and so on."""

    topic: TopicTarget
    delays_ms: tuple[int, ...]


@dataclass(frozen=True)
class LetterTarget:
    """The dead letter topic, and the subscription that its letters name; `retry` is what a row goes through before."""

    topic: TopicTarget
    subscription: str
    retry: RetryTarget | None = None


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch: its number in a store, the name that its rows are written under, and the retries they had."""

    store: StoredBatches
    number: int
    name: str
    retries: int = 0


@dataclass(frozen=True)
class Targets:
    topics: Mapping[str, TopicTarget]
    letters: LetterTarget | None
    archive: ArchiveTarget | None

    @property
    def names(self) -> list[str]:
        return [*self.topics, *([] if self.letters is None else [self.letters.topic.topic])]


class BatchRun:
    def __init__(
        self,
        spark: SparkSession,
        plans: Plans,
        targets: Targets,
        client: Mapping[str, str],
        clock: Clock,
        store: StoredBatches,
    ) -> None:
        self._spark = spark
        self._plans = plans
        self._targets = targets
        self._client = client
        self._clock = clock
        self._store = store
        self._keeps_letters = False
        self._archiving = threading.Lock()  # retries have a thread of their own

    def write(self, rows: DataFrame, number: int) -> None:
        """The function for `foreachBatch`: `rows` are those of the first cut."""
        query = rows.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if query is None:
            raise SparkSourceError(f"unknown query: Spark has not set local property {_QUERY_ID}")
        self.route(MicroBatch(self._store, number, query), lambda: rows)

    def route_read(self, batch: MicroBatch, read: Callable[[], DataFrame]) -> None:
        """The same for rows that have the columns of the stream, but come from elsewhere."""
        first = self._plans.cuts[0]
        self.route(batch, lambda: self._plans.cut_rows(first, {"": read()}) if first.name else read())

    def route(self, batch: MicroBatch, decide: Callable[[], DataFrame]) -> None:
        batch.store.forget_before(batch.number)
        at_cuts = self._at_cuts(batch, decide)
        rows = {name: self._rows(batch, name, at_cuts) for name in self._targets.names}
        for name, target in self._targets.topics.items():
            target.write(without_own_properties(rows[name]) if batch.retries else rows[name], self._client, batch.name)
        if self._targets.letters is not None:
            name = self._targets.letters.topic.topic
            rows[name] = self._write_bad_rows(batch, self._targets.letters, rows[name])
        if self._targets.archive is not None:
            self._archive(batch, self._targets.archive, rows, at_cuts)

    def _at_cuts(self, batch: MicroBatch, decide: Callable[[], DataFrame]) -> dict[str, DataFrame]:
        """The rows where frames meet: from here on, everything comes from what is stored."""
        stored: dict[str, DataFrame] = {}
        for index, cut in enumerate(self._plans.cuts):
            part = f"rows-{index}"
            if index == 0:
                rows = batch.store.rows(batch.number, part, batch.name, decide)
            else:
                later, earlier = cut, dict(stored)
                rows = batch.store.rows(
                    batch.number,
                    part,
                    batch.name,
                    lambda: self._plans.cut_rows(later, earlier),  # noqa: B023  called at once
                )
            batch.store.check_columns(batch.number, rows, self._plans.columns(cut))
            stored[cut.name] = rows
        return stored

    def _rows(self, batch: MicroBatch, name: str, at_cuts: Mapping[str, DataFrame]) -> DataFrame:
        """The rows of a target; they are stored too, if another attempt could make others of them."""
        if self._plans.is_certain(name):
            return self._plans.rows(name, at_cuts)
        part = f"target-{sha256(name.encode()).hexdigest()[:12]}"
        return batch.store.rows(batch.number, part, batch.name, lambda: self._plans.rows(name, at_cuts))

    def _write_bad_rows(self, batch: MicroBatch, target: LetterTarget, rows: DataFrame) -> DataFrame:
        """Returns those that are dead letters: the others are retried."""
        now_ms, retry = self._clock.now_ms(), target.retry
        if retry is not None and batch.retries < len(retry.delays_ms):
            is_final = F.col(ERROR).isNotNull() if ERROR in rows.columns else F.lit(False)  # it stays unreadable
            delay_ms = retry.delays_ms[batch.retries]
            retried = retries_of(rows.where(~is_final), target.subscription, batch.retries + 1, now_ms, delay_ms)
            retry.topic.write(retried, self._client, batch.name)
            rows = rows.where(is_final)
        letters = letters_of(rows, target.subscription, now_ms, batch.retries)
        if not self._keeps_letters:
            keep_letters(target.topic.topic, {**self._client, **target.topic.options})
            self._keeps_letters = True
        target.topic.write(letters, self._client, batch.name)
        return rows

    def _archive(
        self, batch: MicroBatch, archive: ArchiveTarget, rows: Mapping[str, DataFrame], at_cuts: Mapping[str, DataFrame]
    ) -> None:
        if ARCHIVED in self._plans.names and batch.retries:
            return  # it has the rows since they were read first
        with self._archiving:
            if not batch.store.is_done(batch.number, ARCHIVED, batch.name):
                archive.append(self._spark, self._archived(rows, at_cuts), batch.name, batch.number)
                batch.store.set_done(batch.number, ARCHIVED, batch.name)
            archive.clean(self._spark, batch.name, batch.number)

    def _archived(self, rows: Mapping[str, DataFrame], at_cuts: Mapping[str, DataFrame]) -> DataFrame:
        if ARCHIVED in self._plans.names:
            return self._plans.rows(ARCHIVED, at_cuts)
        whole, *others = rows.values()
        for other in others:
            whole = whole.unionByName(other, allowMissingColumns=True)
        return whole

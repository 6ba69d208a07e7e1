"""The retry ladder of a pipeline: bad rows wait in a retry topic, and go the way of a micro-batch again when due.

A Spark stream reads delayed messages when they are published, so the retry topic is no stream. Batches read what is due
of it. The rows of one attempt are due in the order of the topic, because each waits equally long: a batch takes them up
to the first that still waits, so positions never go back, as the sink needs. What a batch takes is stored before it
begins, and a batch that was interrupted is repeated with the same rows.

    {checkpoint}/retries/{batch}/plan    the attempt, how far it was done before, and where it ends, by partition
                                /committed.done

Never early, by the clock of the pipeline: at most late. The subscription of the pipeline holds the messages of the
retry topic, and is acknowledged up to the first that waits.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from magnetar.client import EARLIEST, Client, MessageId
from magnetar.client.blocking.readers import Cursor, TopicTail
from magnetar.clock import Clock
from magnetar.deadletter.properties import RECONSUMETIMES
from magnetar.names import TopicName
from magnetar.spark.clients import blocking_client
from magnetar.spark.routing.arrow_function import arrow_function
from magnetar.spark.routing.batch_run import BatchRun, MicroBatch
from magnetar.spark.routing.retry_rows import SourceRows
from magnetar.spark.routing.stored_batches import StoredBatches
from magnetar.spark.routing.targets import position_keys
from magnetar.spark.sink.columns import DELIVER_AT, MESSAGE_ID, PROPERTIES, TOPIC

log = logging.getLogger(__name__)

_PLAN, _COMMITTED = "plan", "committed"
_KEY, _ATTEMPT = "__position", "__attempt"
_ENTRY_BITS: Final = 16  # of a sequence id, below the entry

Ends = dict[str, str]
"""By attempt and partition, as `2/{partition}`: the position before which everything is done, in hexadecimal digits."""


class RetryPlan(msgspec.Struct, frozen=True):
    """A batch: the rows of an attempt between what was done and these ends. Another query has its own."""

    query: str
    attempt: int
    done: Ends
    ends: Ends

    @property
    def done_after(self) -> Ends:
        return self.done | self.ends


@dataclass(frozen=True)
class RetryTopic:
    topic: str
    subscription: str
    attempts_max: int


class RetryFeed:
    """`run_due` is called by one thread."""

    def __init__(
        self,
        spark: SparkSession,
        retry: RetryTopic,
        source: SourceRows,
        client: dict[str, str],
        run: BatchRun,
        store: StoredBatches,
        clock: Clock,
    ) -> None:
        self._spark = spark
        self._retry = retry
        self._source = source
        self._options = client
        self._run = run
        self._store = store
        self._clock = clock
        self._client: Client | None = None
        self._tails: dict[str, TopicTail] = {}
        self._cursors: dict[str, Cursor] = {}
        self._seen: dict[str, str] | None = None
        self._next_due_ms: int | None = None

    def open(self) -> None:
        """Creates the topic and its subscription, before anything is published to it."""
        self._client = blocking_client(self._source.client)
        for partition in self._client.get_partitions_for_topic(self._retry.topic):
            self._client.producer(partition).close()
            self._cursors[partition] = self._client.cursor(
                partition, self._retry.subscription, initial_position=EARLIEST
            )
            self._cursors[partition].position()
            self._tails[partition] = self._client.tail(partition)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def run_due(self, query: str, is_stopping: Callable[[], bool]) -> None:
        """Handles everything that is due; `query` is the id that producer names begin with."""
        number, plan = self._last_plan(query)
        if plan is not None and not self._store.is_done(number, _COMMITTED, plan.query):
            self._pass(query, number, plan)
            self._seen = None
        while not is_stopping() and self._is_worth_a_look():
            number, plan = self._last_plan(query)
            done = {} if plan is None else plan.done_after
            due = self._due(done)
            for attempt, ends in due.items():
                number += 1
                plan = RetryPlan(query, attempt, done, ends)
                self._store.write_text(number, _PLAN, msgspec.json.encode(plan).decode())
                self._pass(query, number, plan)
                done = plan.done_after
            if due:
                self._seen = None  # their own retries may be due already

    def _last_plan(self, query: str) -> tuple[int, RetryPlan | None]:
        for number in reversed(self._store.numbers()):
            text = self._store.read_text(number, _PLAN)
            if text is not None:
                plan = msgspec.json.decode(text, type=RetryPlan)
                return number, plan if plan.query == query else None
        return -1, None

    def _is_worth_a_look(self) -> bool:
        """Whether there are messages that were not seen yet, or one is due."""
        last = {partition: str(tail.last()) for partition, tail in self._tails.items()}
        is_new, self._seen = last != self._seen, last
        return is_new or (self._next_due_ms is not None and self._next_due_ms <= self._clock.now_ms())

    # -- what is due

    def _due(self, done: Ends) -> dict[int, Ends]:
        """The ends of what is due, by attempt; notes when the next one is."""
        now_ms = self._clock.now_ms()
        due_ms = F.coalesce(F.unix_millis(DELIVER_AT), F.lit(0))
        is_waiting = due_ms > now_ms
        waiting = self._waiting(done).groupBy(_ATTEMPT, TOPIC)
        found = waiting.agg(
            F.min(_KEY).alias("first"),
            F.max(_KEY).alias("last"),
            F.min(F.when(is_waiting, F.col(_KEY))).alias("waiting"),
            F.min_by(due_ms, F.when(is_waiting, F.col(_KEY))).alias("next_ms"),
        ).collect()
        self._next_due_ms = min((row.next_ms for row in found if row.waiting is not None), default=None)
        self._acknowledge(found, done)
        due: dict[int, Ends] = {}
        for row in found:
            end = bytes(row.last) + b"\0" if row.waiting is None else bytes(row.waiting)
            if bytes(row.first) < end:
                due.setdefault(row[_ATTEMPT], {})[f"{row[_ATTEMPT]}/{row[TOPIC]}"] = end.hex()
        return dict(sorted(due.items(), reverse=True))

    def _waiting(self, done: Ends) -> DataFrame:
        """All messages that are not done, as bytes, with attempt and position."""
        options = self._options | {"topic": self._retry.topic, "decode": "raw", "onUnreadable": "row"}
        options |= {"columns": ",".join(self._source.to_read), "startingOffsets": self._starts()}
        raw = self._spark.read.format("pulsar").options(**options).load()
        count = F.try_element_at(PROPERTIES, F.lit(RECONSUMETIMES)).try_cast("int")
        attempt = F.least(F.greatest(F.coalesce(count, F.lit(1)), F.lit(1)), F.lit(self._retry.attempts_max))
        key = arrow_function(position_keys, BinaryType())(MESSAGE_ID)
        keyed = raw.withColumn(_ATTEMPT, attempt).withColumn(_KEY, key)
        return keyed.where(F.col(_KEY) >= self._end_of_row(done))

    def _end_of_row(self, ends: Ends) -> Column:
        """The end for the attempt and the partition of a row; empty if there is none."""
        end = F.unhex(F.lit(""))
        for name, text in ends.items():
            attempt, _, partition = name.partition("/")
            is_it = (F.col(_ATTEMPT) == int(attempt)) & (F.col(TOPIC) == partition)
            end = F.when(is_it, F.unhex(F.lit(text))).otherwise(end)
        return end

    def _starts(self) -> str:
        """Where to read: what is acknowledged is done."""
        starts = {partition: str(cursor.position()) for partition, cursor in self._cursors.items()}
        return json.dumps({self._retry.topic: "earliest"} | starts)

    def _acknowledge(self, found: list[Row], done: Ends) -> None:
        """Up to the first message that is not done; what is done and not acknowledged is read again and left out."""
        for partition, cursor in self._cursors.items():
            firsts = [bytes(row.first) for row in found if row[TOPIC] == partition]
            ends = [bytes.fromhex(end) for name, end in done.items() if name.partition("/")[2] == partition]
            if firsts or ends:
                before = _before(min(firsts) if firsts else max(ends), partition, is_end=not firsts)
                if before.entry_id >= 0:
                    cursor.acknowledge_up_to(before)

    # -- one batch

    def _pass(self, query: str, number: int, plan: RetryPlan) -> None:
        rows = self._waiting(plan.done).where(F.col(_ATTEMPT) == plan.attempt)
        due = rows.where(F.col(_KEY) < self._end_of_row(plan.ends))
        batch = MicroBatch(self._store, number, f"{query}/retry-{plan.attempt}", plan.attempt)
        log.info("attempt %d of rows from %s", plan.attempt + 1, self._retry.topic)
        self._run.route_read(batch, lambda: self._source.of(due))
        self._store.set_done(number, _COMMITTED, query)


def _before(key: bytes, partition: str, *, is_end: bool = False) -> MessageId:
    """The entry before the one of a position, or that entry itself if the position is the end of what is done."""
    ledger, sequence_id = (int.from_bytes(key[start : start + 8], "big") for start in (0, 8))
    entry = sequence_id >> _ENTRY_BITS
    is_whole = is_end and len(key) > 16
    return MessageId(ledger, entry if is_whole else entry - 1, TopicName.parse(partition).partition)

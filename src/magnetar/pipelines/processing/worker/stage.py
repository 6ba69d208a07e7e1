"""The stage of a process in a worker: reads a task's messages, calls the function, and writes what came of it.

Owns the order of these, and the runners that a worker keeps. Every output, retry and dead letter is a move, see
`magnetar.pipelines.moving`.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from magnetar.client.connection.retry import is_retriable
from magnetar.client.errors import ClientError, NotFound
from magnetar.client.message import EARLIEST
from magnetar.clock import SystemClock
from magnetar.deadletter.properties import Reason
from magnetar.deadletter.topics import HANDLED_SUBSCRIPTION
from magnetar.pipelines.moving.task import MoveScope, MoveTask
from magnetar.pipelines.processing.call.function import InvalidProcess
from magnetar.pipelines.processing.call.message import (
    ATTEMPT,
    EVENT_TIME,
    IS_NULL,
    KEY,
    MESSAGE_ID,
    PROPERTIES,
    PUBLISH_TIME,
    ROW,
    TOPIC,
)
from magnetar.pipelines.processing.call.outcome import CallOutcome, Failure, unreadable
from magnetar.pipelines.processing.call.runner import FunctionRunner, RunOptions
from magnetar.pipelines.processing.plan import ProcessPlan
from magnetar.pipelines.processing.task import RoundTask, TaskResult
from magnetar.pipelines.processing.worker.encoding import OutputEncoder, encoder_for
from magnetar.pipelines.processing.worker.ladder import RetryLadder, attempt_of
from magnetar.pipelines.processing.worker.outputs import FAILED_STRUCT, OUTPUT_STRUCT, OutputRows, failed_rows
from magnetar.pipelines.processing.worker.source import ERROR, MessageSource
from magnetar.spark.client_options import SparkClientOptions
from magnetar.spark.clients import inline_client
from magnetar.spark.dead_letters.cursor_admin import CursorAdmin
from magnetar.spark.dead_letters.plan import cursor_admin
from magnetar.spark.dead_letters.unacknowledged import Unacknowledged
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.sink.targets import target_topic

log = logging.getLogger(__name__)

_RUNNERS_MAX = 4
_ENSURED_MAX = 10_000
_ADMINS_MAX = 16
_REASONS = {Reason.TimedOut: "timed_out", Reason.ConsumerCrash: "crashed", Reason.Unreadable: "unreadable"}


@dataclass(frozen=True)
class ProcessStage:
    """What all tasks of a run share; `id` differs for each run, so that a worker keeps the runner of one."""

    id: str
    plan: ProcessPlan
    source: MessageSource
    sink: SinkOptions
    is_ours: bool

    def writer(self, *, is_retry: bool) -> Writer:
        """For the messages of one topic."""
        return Writer(self, self.plan.retry_topic if is_retry else self.plan.topic)


_runners: OrderedDict[tuple[int, str], FunctionRunner] = OrderedDict()
_admins: dict[tuple[int, SparkClientOptions], CursorAdmin] = {}
_ensured: set[tuple[int, SparkClientOptions, str]] = set()


def run_task(stage: ProcessStage, task: RoundTask) -> TaskResult:
    """Never raises: an error comes back as a result, so that a failed job means a worker that died."""
    result = TaskResult()
    try:
        Stage(stage, task, result).run()
    except ClientError as error:
        _ensured.clear()  # a topic may have been deleted
        result.error, result.is_final = str(error), not is_retriable(error)
    except (InvalidProcess, SparkSourceError) as error:
        result.error, result.is_final = str(error), True
    except Exception as error:  # a bug of ours: shown, and tried again
        log.exception("a task of %s failed", task.span.topic)
        result.error = f"{type(error).__name__}: {error}"
    return result


class Stage:
    def __init__(self, stage: ProcessStage, task: RoundTask, result: TaskResult) -> None:
        self._stage = stage
        self._plan = stage.plan
        self._task = task
        self._result = result
        self._clock = SystemClock()
        self._ladder = RetryLadder(stage.plan, is_retry=task.is_retry)

    def run(self) -> None:
        runner = None if self._task.condemned else self._runner()  # forked before the first connection
        with self._stage.writer(is_retry=self._task.is_retry) as writer:
            for batch in self._batches():
                self._result.read += batch.num_rows
                self._process(runner, batch, writer)
            writer.finish()

    def readable(self) -> Iterator[pa.RecordBatch]:
        """The messages without a call, for a transform; unreadable ones are dead letters."""
        with self._stage.writer(is_retry=self._task.is_retry) as writer:
            for batch in self._batches():
                failures = self._unreadable(batch)
                self._fail(batch, failures, writer)
                yield batch.filter(pc.is_null(batch.column(ERROR))) if failures else batch
            writer.finish()

    def _runner(self) -> FunctionRunner:
        function = self._plan.function
        assert function is not None
        key = (os.getpid(), self._stage.id)
        runner = _runners.get(key)
        if runner is None:
            while len(_runners) >= _RUNNERS_MAX:
                _, oldest = _runners.popitem(last=False)
                oldest.close()
            runner = _runners[key] = FunctionRunner(function, RunOptions(self._plan.limit_s, self._plan.concurrency))
        _runners.move_to_end(key)
        runner.start()
        return runner

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Of about `batch_rows` rows."""
        unacknowledged = _unacknowledged(self._stage, self._task)
        waiting: list[pa.RecordBatch] = []
        rows, most = 0, self._plan.batch_rows
        for batch in self._stage.source.read(self._task, unacknowledged):
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= most:
                yield from _batches_of(waiting, most)
                waiting, rows = [], 0
        yield from _batches_of(waiting, most)

    def _process(self, runner: FunctionRunner | None, batch: pa.RecordBatch, writer: Writer) -> None:
        failures = self._unreadable(batch)
        if self._task.condemned is not None:
            failures = dict.fromkeys(range(batch.num_rows), self._task.condemned) | failures
        left = [row for row in range(batch.num_rows) if row not in failures] if failures else None
        readable = batch if left is None else batch.take(pa.array(left, pa.int64()))
        if readable.num_rows and runner is not None:
            outcome = runner.process(self._given(readable))
            self._result.count("produced", writer.write_outputs(readable, outcome))
            failures |= outcome.failures if left is None else {left[row]: f for row, f in outcome.failures.items()}
        self._result.count("processed", batch.num_rows - len(failures))
        self._fail(batch, failures, writer)

    def _fail(self, batch: pa.RecordBatch, failures: dict[int, Failure], writer: Writer) -> None:
        if not failures:
            return
        for failure in failures.values():
            self._result.count(_REASONS.get(failure.reason, "failed"), 1)
        now_ms = self._clock.now_ms() + self._task.offset_ms
        payload = self._stage.source.payload
        writer.write_failed(
            failed_rows(batch, payload, failures, self._ladder, now_ms, lambda name: self._result.count(name, 1))
        )

    @staticmethod
    def _unreadable(batch: pa.RecordBatch) -> dict[int, Failure]:
        errors = batch.column(ERROR)
        if errors.null_count == len(errors):
            return {}
        return {row: unreadable(text) for row, text in enumerate(errors.to_pylist()) if text is not None}

    def _given(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that the function gets."""
        source = self._stage.source
        names = [*source.columns.value_names, KEY, PROPERTIES, EVENT_TIME, MESSAGE_ID, TOPIC, PUBLISH_TIME]
        arrays = [batch.column(name) for name in names]
        attempts = [0] * batch.num_rows
        if self._task.is_retry:
            attempts = [attempt_of(dict(own or ())) for own in batch.column(PROPERTIES).to_pylist()]
        arrays += [pa.array(attempts, pa.int32()), pa.array(range(batch.num_rows), pa.int32())]
        names += [ATTEMPT, ROW]
        payloads = batch.column(source.payload)
        if source.values is not None and payloads.null_count:
            arrays.append(pc.is_null(payloads))
            names.append(IS_NULL)
        return pa.RecordBatch.from_arrays(arrays, names=names)


class Writer:
    """The writes of one task. Failed messages are stored one by one, outputs in batches."""

    def __init__(self, stage: ProcessStage, topic: str) -> None:
        self._client = inline_client(stage.sink.client)
        self._stage = stage
        plan = stage.plan
        self._scope = MoveScope(
            pipeline=f"process/{plan.subscription}",
            topic=topic,
            subscription=plan.subscription,
            is_ours=stage.is_ours,
        )
        self._outputs: MoveTask | None = None
        self._failed: MoveTask | None = None
        self._encoder: OutputEncoder | None = None

    def write_outputs(self, batch: pa.RecordBatch, outcome: CallOutcome) -> int:
        """The number of messages made."""
        into = self._stage.plan.into
        if into is None or outcome.is_empty:
            return 0
        sink = self._stage.sink
        encoder = encoder_for(sink.client, into)
        if self._outputs is None:
            schema = encoder.schema if encoder.is_typed else None
            self._outputs = MoveTask(self._client, sink, OUTPUT_STRUCT, self._scope, schema=schema)
        partitions = len(target_topic(self._client, sink.client, into).partitions)
        made = OutputRows(encoder, into, partitions, batch).of(outcome)
        for rows in made:
            self._outputs.write(rows)
        return sum(rows.num_rows for rows in made)

    def write_failed(self, rows: pa.RecordBatch) -> None:
        if self._failed is None:
            sink = self._stage.sink
            unbatched = replace(sink, batches=replace(sink.batches, batching=False))
            self._failed = MoveTask(self._client, unbatched, FAILED_STRUCT, self._scope)
        for topic in rows.column(TOPIC).unique().to_pylist():
            self._ensure(topic)
        self._failed.write(rows)

    def _ensure(self, topic: str) -> None:
        """A retry or dead letter topic exists, also where nothing is created by itself, and keeps its messages."""
        key = (os.getpid(), self._stage.sink.client, topic)
        if key in _ensured:
            return
        client = self._client.client
        try:
            self._client.run(client.get_partitions_for_topic(topic))
        except NotFound:
            self._client.run(client.create_topic(topic))
        if not self._stage.is_ours and topic != self._stage.plan.retry_topic:  # that one has our subscription
            self._client.run(self._subscribe(topic))  # a topic without subscriptions keeps nothing there
        if len(_ensured) >= _ENSURED_MAX:
            _ensured.clear()
        _ensured.add(key)

    async def _subscribe(self, topic: str) -> None:
        consumer = await self._client.client.consumer(
            topic, HANDLED_SUBSCRIPTION, subscription_type="Shared", initial_position=EARLIEST, queue_size=1
        )
        await consumer.close()

    def finish(self) -> None:
        for task in (self._outputs, self._failed):
            if task is not None:
                task.finish()
        self._outputs = self._failed = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *reason: object) -> None:
        for task in (self._outputs, self._failed):
            if task is not None:
                task.close()


def _unacknowledged(stage: ProcessStage, task: RoundTask) -> Unacknowledged | None:
    options = stage.source.options.client
    if not task.checks or not options.has_admin:
        return None
    key = (os.getpid(), options)
    admin = _admins.get(key)
    if admin is None:
        while len(_admins) >= _ADMINS_MAX:
            _admins.pop(next(iter(_admins))).close()
        admin = _admins[key] = cursor_admin(options)
    return admin.unacknowledged(task.span.topic, stage.plan.subscription)


def _batches_of(waiting: list[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    found = [batch for batch in waiting if batch.num_rows]
    if len(found) == 1 and found[0].num_rows <= most:
        yield found[0]
    elif found:
        yield from pa.Table.from_batches(found).combine_chunks().to_batches(max_chunksize=most)

"""The driver of a process: rounds of jobs until nothing is left, or the run is stopped.

A round takes a range of each partition and the retries that are due, runs them, and acknowledges what is done. Nothing
is kept but the subscription: a round that was killed is repeated, and everything it had stored is known to the broker.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from magnetar.client import Client
from magnetar.client.connection.retry import Backoff, is_retriable
from magnetar.client.errors import ClientError
from magnetar.clock import Clock, SystemClock
from magnetar.pipelines.processing.call.outcome import Failure, crash
from magnetar.pipelines.processing.job import LOOK_S, BrokerFailed, RoundJobs, Stopped, WorkerDied
from magnetar.pipelines.processing.partitions import Primary, Retries, split
from magnetar.pipelines.processing.task import RoundTask, TaskResult
from magnetar.pipelines.processing.transform import RowsFailed, Transformer
from magnetar.pipelines.processing.worker.stage import ProcessStage
from magnetar.pipelines.run import Progress, RunContext, RunFailed
from magnetar.spark.source.topics import ClientTopics
from magnetar.wire.metadata import messages_in

log = logging.getLogger("magnetar.pipelines")

Until = Literal["stopped", "caught-up"]

DEATHS_MAX = 3
"""Workers that one message may kill while it is alone with them."""

_FIRST_MESSAGES = 200
_GROWTH = 8.0
_ROUND_S = 10.0
_FAILURES_MAX = 10  # rounds in a row that end with the same error
_SHOWN = ("processed", "produced", "retried", "dead", "failed", "timed_out", "crashed", "unreadable")


class ProcessDriver:
    """For one run, in one thread. `clock` decides what is due."""

    def __init__(
        self,
        context: RunContext,
        stage: ProcessStage,
        client: Client,
        topics: ClientTopics,
        primary: Primary,
        retries: Retries,
        transformer: Transformer | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._context = context
        self._stage = stage
        self._client = client
        self._topics = topics
        self._primary = primary
        self._retries = retries
        self._clock = clock or SystemClock()
        self._jobs = RoundJobs(context, stage, transformer)
        self._messages = min(_FIRST_MESSAGES, stage.plan.round_messages)
        self._backoff = Backoff(first_s=0.5, last_s=15.0)
        self._failures = 0
        self._done = 0
        self._counts: Counter[str] = Counter()

    def run(self, until: Until) -> Progress:
        """Raises `RunFailed` when it cannot go on."""
        try:
            while not self._context.is_stopping:
                tasks = self._tasks()
                if tasks:
                    self._round(tasks)
                elif until == "caught-up":
                    break
                else:
                    self._wait()
        except Stopped:
            log.info("process of %s: the round is given up, the next run repeats it", self._stage.plan.topic)
        finally:
            self._jobs.close()
        return self.progress()

    def progress(self) -> Progress:
        counts = {name: self._counts[name] for name in _SHOWN if self._counts[name]}
        waiting = self._retries.waiting
        return Progress(done=self._done, counts=counts, note=f"{waiting} waiting for a retry" if waiting else "")

    # -- rounds

    def _tasks(self) -> list[RoundTask]:
        offset_ms = self._clock.now_ms() - SystemClock().now_ms()
        now_ms = self._clock.now_ms()
        try:
            tasks = [*self._primary.tasks(self._messages, is_ours=self._stage.is_ours), *self._retries.tasks(now_ms)]
        except ClientError as error:
            self._failed(str(error), is_final=not is_retriable(error))
            return self._tasks() if not self._context.is_stopping else []
        return [replace(task, offset_ms=offset_ms) for task in tasks]

    def _round(self, tasks: Sequence[RoundTask]) -> None:
        began_s = time.monotonic()
        try:
            results = self._jobs.run(tasks)
        except BrokerFailed as error:
            self._failed(str(error), is_final=False)
            return
        except (WorkerDied, RowsFailed) as death:
            log.warning("%s; each part of the round is tried alone", death)
            for task in tasks:
                self._isolate(task)
            self._context.report(self.progress())
            return
        for task, result in zip(tasks, results, strict=True):
            self._take(task, result)
        self._context.report(self.progress())
        self._adapt(time.monotonic() - began_s)
        errors = [result for result in results if result.error]
        if errors:
            self._failed(errors[0].error, is_final=errors[0].is_final)
        else:
            self._failures = 0
            self._backoff.reset()

    def _take(self, task: RoundTask, result: TaskResult, *, settles: bool = True) -> None:
        if result.error:
            return
        self._done += result.read
        self._counts.update(result.counts)
        if settles:
            self._settle(task)

    def _settle(self, task: RoundTask) -> None:
        try:
            (self._retries if task.is_retry else self._primary).settle(task)
        except ClientError as error:
            self._failed(str(error), is_final=not is_retriable(error))

    def _failed(self, text: str, *, is_final: bool) -> None:
        """Waits before the round is repeated."""
        self._failures += 1
        if is_final or self._failures > _FAILURES_MAX:
            raise RunFailed(text)
        log.warning("a round of %s is repeated: %s", self._stage.plan.topic, text)
        self._context.wait(self._backoff.next_s())

    def _adapt(self, took_s: float) -> None:
        """Rounds of about ten seconds: what a killed run repeats is bounded, whatever a call takes."""
        factor = min(_GROWTH, _ROUND_S / max(took_s, 0.001))
        self._messages = max(1, min(self._stage.plan.round_messages, int(self._messages * factor)))

    # -- workers that die

    def _isolate(self, task: RoundTask) -> None:
        """Runs the parts of a task one by one, and smaller ones, until only the message that kills is left."""
        self._run_part(task)
        self._settle(task)

    def _run_part(self, task: RoundTask) -> None:
        deaths = 0
        while True:
            self._check_stopping()
            try:
                result = self._jobs.run([task])[0]
            except BrokerFailed as error:
                self._failed(str(error), is_final=False)
            except (WorkerDied, RowsFailed) as death:
                parts = split(task, self._messages_in(task))
                if parts is not None:
                    for part in parts:
                        self._run_part(part)
                    return
                if isinstance(death, RowsFailed):
                    self._condemn(task, death.failure)
                    return
                deaths += 1
                if deaths >= DEATHS_MAX:
                    self._condemn(
                        task, crash(f"{deaths} workers died while they processed it alone: {death}", is_final=True)
                    )
                    return
            else:
                if not result.error:
                    self._take(task, result, settles=False)
                    return
                self._failed(result.error, is_final=result.is_final)

    def _condemn(self, task: RoundTask, failure: Failure) -> None:
        """The messages of the task fail without being processed, for good."""
        while True:
            self._check_stopping()
            result = self._jobs.run([replace(task, condemned=failure)])[0]
            if not result.error:
                self._take(task, result, settles=False)
                return
            self._failed(result.error, is_final=result.is_final)

    def _check_stopping(self) -> None:
        if self._context.is_stopping:
            raise Stopped

    def _messages_in(self, task: RoundTask) -> int:
        found = 1
        for entries in self._client.entries(task.span.topic, task.span.start, task.span.end):
            found = max(messages_in(entries[0].blob), 1)
            break
        return found

    # -- waiting

    def _wait(self) -> None:
        """Until a message arrives or a retry is due. The clock may be moved meanwhile, so it is looked at often."""
        after = {**self._primary.positions(), **self._retries.positions()}
        while not self._context.is_stopping:
            due_ms = self._retries.next_ms
            if due_ms is not None and due_ms <= self._clock.now_ms():
                return
            try:
                if self._topics.wait(after, LOOK_S):
                    return
            except ClientError as error:
                self._failed(str(error), is_final=not is_retriable(error))
                return

"""The Spark job of a round: one task for each partition, and what a dead worker means.

A task reports its errors as results, so a job that fails has lost a worker, or an executor with all its workers. Owns
the wait for a job, which ends early when the run is stopping.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from magnetar.pipelines.jobs import Jobs, SparkFailed, failure_text
from magnetar.pipelines.processing.task import RoundTask, TaskResult
from magnetar.pipelines.processing.transform import OF_BROKER, RowsFailed, Transformer
from magnetar.pipelines.processing.worker.stage import ProcessStage, run_task

if TYPE_CHECKING:
    from pyspark import SparkContext

    from magnetar.pipelines.run import RunContext

LOOK_S = 0.2
GRACE_S = 10.0
"""The time that a round may take to its end when the run is stopping."""

_DEATHS = ("Python worker exited unexpectedly", "ExecutorLostFailure", "worker lost", "Worker died", "EOFException")


class WorkerDied(Exception):
    """A worker died while it ran one of the tasks."""


class BrokerFailed(Exception):
    """A transform met an error of the broker."""


class Stopped(Exception):
    """The run is stopping, and the job was given up."""


class RoundJobs:
    """For one thread. Jobs run in another one, so that a signal is noticed."""

    def __init__(self, context: RunContext, stage: ProcessStage, transformer: Transformer | None = None) -> None:
        self._context = context
        self._stage = stage
        self._transformer = transformer
        self._jobs = Jobs(context.spark.sparkContext)
        self._group = f"magnetar-process-{stage.id}"
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="process")

    def run(self, tasks: Sequence[RoundTask]) -> list[TaskResult]:
        """Raises `WorkerDied`, `RowsFailed`, `Stopped` or `SparkFailed`."""
        return self._wait(self._pool.submit(self._run, tasks))

    def _wait(self, job: Future[list[TaskResult]]) -> list[TaskResult]:
        over = threading.Event()
        job.add_done_callback(lambda _: over.set())
        left_s = GRACE_S
        while not over.wait(LOOK_S):
            if self._context.is_stopping:
                left_s -= LOOK_S
                if left_s <= 0:
                    self._jobs.cancel(self._group)
                    over.wait()
        try:
            return job.result()
        except (SparkFailed, RowsFailed):
            raise
        except Exception as failure:
            if self._context.is_stopping:
                raise Stopped from failure
            if self._jobs.is_dead:
                raise SparkFailed(failure_text(failure)) from failure
            if OF_BROKER in str(failure):
                raise BrokerFailed(failure_text(failure)) from failure
            if any(text in str(failure) for text in _DEATHS):
                raise WorkerDied(failure_text(failure)) from failure
            raise SparkFailed(failure_text(failure)) from failure

    def _run(self, tasks: Sequence[RoundTask]) -> list[TaskResult]:
        Jobs.ran += 1
        self._jobs.begin(self._group, self._group)
        if self._transformer is not None and tasks[0].condemned is None:
            return self._transformed(self._transformer, tasks)
        context: SparkContext = self._context.spark.sparkContext
        return context.parallelize(tasks, len(tasks)).map(partial(run_task, self._stage)).collect()

    @staticmethod
    def _transformed(transformer: Transformer, tasks: Sequence[RoundTask]) -> list[TaskResult]:
        """Of each topic on its own, whose messages are moved together."""
        results: dict[RoundTask, TaskResult] = {}
        for is_retry in (False, True):
            own = [task for task in tasks if task.is_retry == is_retry]
            if own:
                results.update(zip(own, transformer.run(own), strict=True))
        return [results[task] for task in tasks]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

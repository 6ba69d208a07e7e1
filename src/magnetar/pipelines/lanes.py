"""Spark jobs, side by side: lanes, each a thread that runs one small job at a time, for each core of the session one.

A job has one task. Owns the threads, what a failed job means, and that Python workers stay warm. Which topics a job
copies is decided in `replicate`, how in `copying`.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import InheritableThread, SparkContext
from pyspark.sql import SparkSession

from magnetar.pipelines.copy.assignment import Assignment, Outcome
from magnetar.pipelines.replicate import task
from magnetar.pipelines.replicate.row import Job

log = logging.getLogger(__name__)

_T = TypeVar("_T")

WARM_S = 40.0
"""Spark ends workers after a minute without a task."""

WARM_UP_JOBS = 60
"""The first jobs of a JVM take 0.1 s each, for it compiles what it has run often; later ones take 0.03 s."""

_POOL_PROPERTY = "spark.scheduler.pool"
_STOP_S = 2.0
_ERROR_SIZE_MAX = 500

Prepare = Callable[[Job], tuple[list[Assignment], list[Outcome]]]
"""What is left to be copied of a job, and outcomes of what cannot be."""

OnDone = Callable[[Job, list[Outcome], bool], None]
OnFailed = Callable[[Job, str], None]


class Jobs:
    """Jobs with one task each, on one session."""

    ran = 0
    """By all of this process, which has one JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: SparkContext = spark.sparkContext
        self._one = self._context.parallelize([0], 1)

    def copy(self, assignments: list[Assignment], slice_s: float, linger_s: float) -> list[Outcome]:
        return self.run(partial(task.copy, assignments, slice_s, linger_s))

    def stay_warm(self) -> None:
        self.run(task.stay_warm)

    def run(self, function: Callable[..., list[_T]]) -> list[_T]:
        """What the function, which is pickled by reference, returns in a worker for no rows."""
        Jobs.ran += 1
        return self._context.runJob(self._one, function, [0])

    def begin(self, group: str, pool: str) -> None:
        """For the thread that calls it: its jobs may be cancelled together, and share the cores fairly with others."""
        self._context.setJobGroup(group, group, interruptOnCancel=True)
        self._context.setLocalProperty(_POOL_PROPERTY, pool)

    def cancel(self, group: str) -> None:
        if not self.is_dead:
            self._context.cancelJobGroup(group)

    @property
    def cores(self) -> int:
        """How many tasks run at the same time; machines may join a cluster at any time."""
        try:
            return max(1, self._context.defaultParallelism)
        except (Py4JError, OSError):  # who runs the next job tells that the JVM is gone
            return 1

    @property
    def is_dead(self) -> bool:
        try:
            return self._context._jsc is None or bool(self._context._jsc.sc().isStopped())
        except (Py4JError, OSError):
            return True


class JobLanes:
    """`free` goes down when a job is given, and up before its outcome is told."""

    def __init__(
        self,
        jobs: Jobs,
        count: int,
        *,
        on_done: OnDone,
        on_failed: OnFailed,
        on_dead: Callable[[str], None],
        prepare: Prepare | None = None,
        name: str = "copy",
        warm_s: float = WARM_S,
    ) -> None:
        self._jobs = jobs
        self._on_done = on_done
        self._on_failed = on_failed
        self._on_dead = on_dead
        self._prepare = prepare
        self._name = name
        self._warm_s = warm_s
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        self._ran_at_s = time.monotonic()
        self._warming_up = threading.Lock()
        self._is_stopped = False
        self._threads: list[InheritableThread] = []
        self.grow_to(count)

    @property
    def free(self) -> int:
        return self._free

    def grow_to(self, count: int) -> None:
        """Lanes that there are stay: with fewer cores than lanes, jobs wait for each other."""
        with self._lock:
            for number in range(len(self._threads), 0 if self._is_stopped else count):
                thread = InheritableThread(target=self._lane, args=(f"{self._name}-{number}",), daemon=True)
                self._threads.append(thread)
                self._free += 1
                thread.start()

    def run(self, job: Job) -> None:
        with self._lock:
            self._free -= 1
        self._queue.put(job)

    def stop(self) -> None:
        """Jobs that run come to their end, unless that takes too long."""
        with self._lock:
            self._is_stopped = True
        for _ in self._threads:
            self._queue.put(None)
        deadline_s = time.monotonic() + _STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            for number in range(len(self._threads)):
                self._jobs.cancel(f"{self._name}-{number}")
            for thread in self._threads:
                thread.join(_STOP_S)

    def _lane(self, group: str) -> None:
        self._jobs.begin(group, self._name)
        self._warm()  # the first worker of a session takes seconds
        self._warm_up()
        while not self._is_stopped:
            try:
                job = self._queue.get(timeout=self._warm_s / 2)
            except queue.Empty:
                self._stay_warm()
                continue
            if job is None:
                return
            self._do(job)

    def _do(self, job: Job) -> None:
        outcomes: list[Outcome] = []
        error = ""
        started_s = time.monotonic()
        try:
            assignments, outcomes = (job.assignments, []) if self._prepare is None else self._prepare(job)
            started_s = time.monotonic()
            if assignments:
                outcomes += self._jobs.copy(assignments, job.slice_s, job.linger_s)
        except Exception as failure:  # of whatever kind: the job is done again, and its error is said
            error = failure_text(failure)
            log.debug("a job failed", exc_info=True)
            if not self._is_stopped and (isinstance(failure, Py4JNetworkError) or self._jobs.is_dead):
                self._on_dead(error)
        self._ran_at_s = time.monotonic()
        with self._lock:
            self._free += 1
        if error:
            self._on_failed(job, error)
        else:
            self._on_done(job, outcomes, self._ran_at_s - started_s >= job.slice_s)

    def _stay_warm(self) -> None:
        with self._lock:
            is_due = time.monotonic() - self._ran_at_s >= self._warm_s / 2
            if is_due:
                self._ran_at_s = time.monotonic()
        if is_due:
            self._warm()

    def _warm_up(self) -> None:
        """Until there is something to copy, and in one lane at a time: another one is free."""
        if not self._warming_up.acquire(blocking=False):
            return
        try:
            for _ in range(WARM_UP_JOBS - Jobs.ran):
                if self._is_stopped or not self._queue.empty():
                    return
                self._warm()
        finally:
            self._warming_up.release()

    def _warm(self) -> None:
        try:
            self._jobs.stay_warm()
        except Exception as failure:  # whatever is wrong, the next job says it
            if not self._is_stopped and self._jobs.is_dead:
                self._on_dead(failure_text(failure))


def failure_text(failure: Exception) -> str:
    """The last line of a traceback says what happened; Java's say it in the first."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    told = next((line for line in lines if "Exception" in line or "Error" in line), lines[0] if lines else "")
    return f"a job of Spark failed: {told or repr(failure)}"[:_ERROR_SIZE_MAX]

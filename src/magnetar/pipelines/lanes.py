"""Job lanes: threads that each run one small job at a time, one lane for each core of the session.

Owns the threads, the consequences of a failed job, and that Python workers stay warm. The verb decides which jobs there
are and what a job does.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import InheritableThread

from magnetar.pipelines.jobs import Jobs, failure_text

log = logging.getLogger(__name__)

J = TypeVar("J")
R = TypeVar("R")

WARM_S = 40.0
"""Spark ends workers after a minute without a task."""

WARM_UP_JOBS = 60
"""The first jobs of a JVM take 0.1 s each, until its compiler has seen enough of them; later ones take 0.03 s."""

_STOP_S = 2.0


class JobLanes(Generic[J, R]):
    """`work` runs a job in a lane's thread. `free` goes down with `run`, and up before the outcome is reported."""

    def __init__(
        self,
        work: Callable[[J], R],
        *,
        on_done: Callable[[J, R], None],
        on_failed: Callable[[J, str], None],
        on_dead: Callable[[str], None],
        name: str,
        warm_s: float = WARM_S,
    ) -> None:
        self._jobs: Jobs | None = None
        self._work = work
        self._on_done = on_done
        self._on_failed = on_failed
        self._on_dead = on_dead
        self._name = name
        self._warm_s = warm_s
        self._queue: queue.SimpleQueue[J | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        self._ran_at_s = time.monotonic()
        self._warming_up = threading.Lock()
        self._is_stopped = False
        self._threads: list[InheritableThread] = []

    @property
    def free(self) -> int:
        return self._free

    def start(self, jobs: Jobs, count: int) -> None:
        """Until then no lane is free."""
        self._jobs = jobs
        self.grow_to(count)

    def grow_to(self, count: int) -> None:
        """Existing lanes stay: with fewer cores than lanes, jobs wait for each other."""
        jobs = self._jobs
        assert jobs is not None, "start comes first"
        with self._lock:
            for number in range(len(self._threads), 0 if self._is_stopped else count):
                thread = InheritableThread(target=self._lane, args=(jobs, f"{self._name}-{number}"), daemon=True)
                self._threads.append(thread)
                self._free += 1
                thread.start()

    def run(self, job: J) -> None:
        with self._lock:
            self._free -= 1
        self._queue.put(job)

    def stop(self) -> None:
        """Running jobs end by themselves, or are cancelled after a while."""
        with self._lock:
            self._is_stopped = True
        for _ in self._threads:
            self._queue.put(None)
        deadline_s = time.monotonic() + _STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        if self._jobs is not None and any(thread.is_alive() for thread in self._threads):
            for number in range(len(self._threads)):
                self._jobs.cancel(f"{self._name}-{number}")
            for thread in self._threads:
                thread.join(_STOP_S)

    def _lane(self, jobs: Jobs, group: str) -> None:
        jobs.begin(group, self._name)
        self._warm_up(jobs)
        while not self._is_stopped:
            try:
                job = self._queue.get(timeout=self._warm_s / 2)
            except queue.Empty:
                self._stay_warm(jobs)
                continue
            if job is None:
                return
            self._do(jobs, job)

    def _do(self, jobs: Jobs, job: J) -> None:
        try:
            result = self._work(job)
        except Exception as failure:  # of any kind: the verb runs the job again, and reports the error
            error = failure_text(failure)
            log.debug("a job failed", exc_info=True)
            if not self._is_stopped and (isinstance(failure, Py4JNetworkError) or jobs.is_dead):
                self._on_dead(error)
            self._release()
            self._on_failed(job, error)
        else:
            self._release()
            self._on_done(job, result)

    def _release(self) -> None:
        self._ran_at_s = time.monotonic()
        with self._lock:
            self._free += 1

    def _stay_warm(self, jobs: Jobs) -> None:
        with self._lock:
            is_due = time.monotonic() - self._ran_at_s >= self._warm_s / 2
            if is_due:
                self._ran_at_s = time.monotonic()
        if is_due:
            self._warm(jobs)

    def _warm_up(self, jobs: Jobs) -> None:
        """Until there is a job, and in one lane: the others are free, and have a worker forked when they need one."""
        if not self._warming_up.acquire(blocking=False):
            return
        try:
            for _ in range(max(1, WARM_UP_JOBS - Jobs.ran)):
                if self._is_stopped or not self._queue.empty():
                    return
                self._warm(jobs)
        finally:
            self._warming_up.release()

    def _warm(self, jobs: Jobs) -> None:
        try:
            jobs.stay_warm()
        except Exception as failure:  # any other error is reported by the next job
            if not self._is_stopped and jobs.is_dead:
                self._on_dead(failure_text(failure))

"""A pipeline that runs: the threads that wait for something, and one that decides.

Owns the threads and the queue between them: declarations, decisions about remote topics, news and finished jobs all
arrive there, and `replicate` is told one after another. Also sends the reports, and runs the rounds that let
subscriptions follow.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from magnetar.client import Client
from magnetar.client.errors import ClientError, Closed
from magnetar.clock import SystemClock
from magnetar.errors import MagnetarError
from magnetar.pipelines.copy.assignment import Assignment, Outcome
from magnetar.pipelines.declared_sources import Source
from magnetar.pipelines.lanes import JobLanes, Jobs
from magnetar.pipelines.replicate.remote_topics import Remotes, Route
from magnetar.pipelines.replicate.row import Job
from magnetar.pipelines.replicate.scheduler import Scheduler
from magnetar.pipelines.status_board import StatusBoard
from magnetar.pipelines.subscriptions.rounds import SubscriptionRounds
from magnetar.replication.model import Declaration
from magnetar.replication.partitions import Decision

if TYPE_CHECKING:
    from magnetar.pipelines.transform.where import Filter

log = logging.getLogger(__name__)

HEARTBEAT_S = 2.0
_COALESCE_S = 0.05
_ALL_EVERY = 15  # reports: a broker that was started again in between has forgotten the rest
_RECONNECT_S = 60.0

Event = Callable[[float], None]


class PipelineFailed(MagnetarError):
    """Nothing can be copied any more: the session of Spark is gone."""


class Pipeline:
    """Copies the routes that one source declares, from `start` until `stop`."""

    def __init__(
        self, spark: SparkSession, source: Source, *, lanes: int | None = None, retry_max_s: float = 10.0
    ) -> None:
        self._source = source
        self._spark = spark
        self._filters: Filter | None = None
        self._filter_lock = threading.Lock()
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._is_stopped = threading.Event()
        self._is_over = threading.Event()
        self._reports_due = threading.Event()
        self._failure = ""
        self._name = secrets.token_hex(4)
        self.board = StatusBoard(self._name, SystemClock(), self._reports_due.set)
        self._client = Client(
            source.endpoint.service_url, security=source.endpoint.security, reconnect_timeout_s=_RECONNECT_S
        )
        self._watcher = self._client.topic_watcher()
        self._remotes = Remotes(self._on_decision, retry_max_s=retry_max_s)
        self._jobs = jobs = Jobs(spark)
        self._is_growing = lanes is None
        self._lanes = JobLanes(
            jobs,
            lanes or jobs.cores,
            on_done=self._on_done,
            on_failed=self._on_failed,
            on_dead=self._on_dead,
            prepare=self._filter,
            name=f"copy-{self._name}",
        )
        self._replication = Scheduler(
            self._remotes,
            self._watcher,
            self._lanes,
            self.board,
            prefix=source.subscription_prefix,
            retry_max_s=retry_max_s,
        )
        self._rounds = SubscriptionRounds(jobs, f"positions-{self._name}")
        self._threads = [
            threading.Thread(target=self._decide, name="replicate", daemon=True),
            threading.Thread(target=self._listen, name="news", daemon=True),
            threading.Thread(target=self._report, name="reports", daemon=True),
        ]

    # -- life

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        self._rounds.start()
        self._source.follow(self._on_declared)

    def stop(self) -> None:
        """What is copied now comes to its end; whatever was not acknowledged is copied by the next pipeline."""
        if self._is_stopped.is_set():
            return
        self._is_stopped.set()
        self._is_over.set()
        self._events.put(None)
        self._reports_due.set()
        self._rounds.stop()
        self._lanes.stop()
        self._remotes.stop()
        self._client.close()  # which ends the wait for news
        for thread in self._threads:
            thread.join()
        self._source.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """False after `timeout_s`."""
        is_over = self._is_over.wait(timeout_s)
        if self._failure:
            raise PipelineFailed(self._failure)
        return is_over

    # -- from other threads

    def _filter(self, job: Job) -> tuple[list[Assignment], list[Outcome]]:
        """In a lane. Ways with a condition need it to be asked first; most have none, and load nothing for it."""
        if not any(assignment.policy.where for assignment in job.assignments):
            return job.assignments, []
        from magnetar.pipelines.transform.where import Filter

        with self._filter_lock:
            if self._filters is None:
                self._filters = Filter(self._spark, self._client)
        return self._filters.prepare(job.assignments, job.starts)

    def _on_declared(self, declaration: Declaration) -> None:
        source = self._source.endpoint
        self._events.put(lambda now_s: self._replication.on_declared(declaration, source, now_s))
        self._rounds.declare(declaration, source)

    def _on_decision(self, route: Route, decision: Decision) -> None:
        self._events.put(lambda now_s: self._replication.on_decision(route, decision, now_s))

    def _on_done(self, job: Job, outcomes: list[Outcome], is_full: bool) -> None:
        self._events.put(lambda now_s: self._replication.on_done(job, outcomes, is_full, now_s))

    def _on_failed(self, job: Job, error: str) -> None:
        self._events.put(lambda now_s: self._replication.on_failed(job, error, now_s))

    def _on_dead(self, error: str) -> None:
        if not self._failure:
            self._failure = f"the session of Spark is gone: {error}"
            self._is_over.set()

    # -- threads

    def _decide(self) -> None:
        next_s: float | None = None
        while True:
            event: Event | None = None
            is_event = True
            try:
                event = self._events.get(timeout=None if next_s is None else max(0.0, next_s - time.monotonic()))
            except queue.Empty:
                is_event = False
            if self._is_stopped.is_set() or (is_event and event is None):
                return
            try:
                if event is not None:
                    event(time.monotonic())
                next_s = self._replication.tick(time.monotonic())
            except Exception:
                if self._is_stopped.is_set():
                    return  # what it would have used is closed
                log.exception("an event could not be handled, please report it")

    def _listen(self) -> None:
        while not self._is_stopped.is_set():
            try:
                told = self._watcher.next(None)
            except Closed:
                return
            self._put_news(told)

    def _put_news(self, told: dict[str, ClientError | None]) -> None:
        self._events.put(lambda now_s: self._replication.on_news(told, now_s))

    def _grow(self) -> None:
        """A cluster may have had no machine for us yet when the session began."""
        if self._is_growing:
            self._lanes.grow_to(self._jobs.cores)

    def _report(self) -> None:
        number = 0
        while not self._is_stopped.is_set():
            if self._reports_due.wait(HEARTBEAT_S):
                self._is_stopped.wait(_COALESCE_S)
            self._reports_due.clear()
            self._grow()
            reports = self.board.take(is_all=number % _ALL_EVERY == 0)
            if self._source.report(reports):
                number += 1
            else:
                self.board.put_back()
                self._is_stopped.wait(HEARTBEAT_S / 2)

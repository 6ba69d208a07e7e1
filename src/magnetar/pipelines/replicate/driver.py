"""The driver of replication: the threads that wait for something, and the one that decides.

Declarations, decisions about remote topics, topics with unread entries and finished jobs are events, which `scheduler`
handles one after another. Owns the threads; also sends the reports, and runs the rounds of replicated subscriptions.
"""

from __future__ import annotations

import secrets
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkContext

from magnetar.client import Client
from magnetar.client.errors import ClientError, Closed
from magnetar.clock import SystemClock
from magnetar.log.events import REPLICATION_STATE
from magnetar.pipelines.copy import task
from magnetar.pipelines.copy.assignment import Assignment, Outcome
from magnetar.pipelines.events import EventThread
from magnetar.pipelines.filter import suspects
from magnetar.pipelines.filter.suspects import ConditionSuspects
from magnetar.pipelines.heartbeats import Heartbeats
from magnetar.pipelines.jobs import Jobs, SparkFailed
from magnetar.pipelines.lanes import JobLanes
from magnetar.pipelines.replicate.remote_topics import RemoteTopics, Route
from magnetar.pipelines.replicate.reports import log_level, reports_of
from magnetar.pipelines.replicate.row import Copied, CopyJob
from magnetar.pipelines.replicate.scheduler import Scheduler
from magnetar.pipelines.replicate.sources import ReplicationSource
from magnetar.pipelines.status_board import Snapshot, StatusBoard
from magnetar.pipelines.subscriptions.rounds import SubscriptionRounds
from magnetar.replication.model import PIPELINE, Declaration, State
from magnetar.replication.partitions import Decision

if TYPE_CHECKING:
    from magnetar.pipelines.filter.where import Filter

_RECONNECT_S = 60.0


class Pipeline:
    """Copies the routes that one source declares, from `start` until `stop`.

    What needs no Spark is done from `prepare` on: by the time Spark is up, remote topics are checked or created. In
    `folder` the next process finds the conditions with which Spark ended.
    """

    def __init__(
        self,
        source: ReplicationSource,
        *,
        lanes: int | None = None,
        retry_max_s: float = 10.0,
        folder: Path | None = None,
    ) -> None:
        self._source = source
        self._jobs: Jobs | None = None
        self._life = ""  # of the broker that declares: another one after a restart
        self._suspects = ConditionSuspects(None if folder is None else folder / suspects.FILE, self._is_dead)
        self._filter: Filter | None = None
        self._filter_lock = threading.Lock()
        self._is_stopped = False
        self._failure = ""
        self._name = secrets.token_hex(4)
        endpoint = source.endpoint
        self._client = Client(endpoint.service_url, security=source.security, reconnect_timeout_s=_RECONNECT_S)
        self._watcher = self._client.topic_watcher({PIPELINE: self._name})
        self._remotes = RemoteTopics(self._on_decision, retry_max_s=retry_max_s)
        self._lanes_given = lanes
        self._lanes = JobLanes(
            self._copy,
            on_done=self._on_done,
            on_failed=self._on_failed,
            on_dead=self._on_dead,
            name=f"copy-{self._name}",
        )
        self.board = StatusBoard[State](SystemClock(), REPLICATION_STATE, log_level)
        self._scheduler = Scheduler(
            self._remotes,
            self._watcher,
            self._lanes,
            self.board,
            prefix=source.subscription_prefix,
            retry_max_s=retry_max_s,
        )
        self._events = EventThread("replicate", self._scheduler.tick)
        self._heartbeats = Heartbeats(self.board, self._report, before=self._grow)
        self._rounds = SubscriptionRounds(f"subscriptions-{self._name}")
        self._watching = threading.Thread(target=self._watch, name="watcher", daemon=True)

    # -- life

    def prepare(self) -> None:
        self._events.start()
        self._watching.start()
        self._source.follow(self._on_declared, self._name)

    def start(self, context: SparkContext) -> None:
        self._jobs = jobs = Jobs(context)
        self._lanes.start(jobs, self._lanes_given or jobs.cores)
        self._events.put(lambda now_s: None)  # the tick after it gives the lanes what waits for them
        self._heartbeats.start()
        self._rounds.start(jobs)

    def stop(self) -> None:
        """Entries that are not acknowledged by then are copied by the next pipeline."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._events.stop()
        self._heartbeats.stop()
        self._rounds.stop()
        self._lanes.stop()
        self._remotes.stop()
        self._client.close()  # which ends the wait of the watcher
        self._events.join()
        self._watching.join()
        if self._jobs is not None:
            self._heartbeats.join()
        self._source.stop()

    def check(self) -> None:
        """Raises `SparkFailed` when nothing can be copied any more."""
        if self._failure:
            self._suspects.on_spark_ended()
            raise SparkFailed(self._failure)

    # -- in a lane

    def _copy(self, job: CopyJob) -> Copied:
        assert self._jobs is not None, "lanes start with it"
        assignments, outcomes = self._filtered(job)
        started_s = time.monotonic()
        if assignments:
            outcomes += self._jobs.run(partial(task.copy, assignments, job.slice_s, job.linger_s))
        return Copied(outcomes, is_full=time.monotonic() - started_s >= job.slice_s)

    def _filtered(self, job: CopyJob) -> tuple[list[Assignment], list[Outcome]]:
        """Route policies with a condition need a query first; most have none, and load no Spark SQL for it."""
        if not any(assignment.policy.where for assignment in job.assignments):
            return job.assignments, []
        from pyspark.sql import SparkSession

        from magnetar.pipelines.filter.where import Filter

        with self._filter_lock:
            if self._filter is None:
                self._filter = Filter(SparkSession.builder.getOrCreate(), self._client, self._suspects)
        return self._filter.prepare(job.assignments, job.starts)

    # -- from other threads

    def _on_declared(self, declaration: Declaration) -> None:
        source = self._source.endpoint
        life = declaration.version.rpartition("-")[0]
        if life != self._life:
            self._life = life
            self._heartbeats.start_over()
        self._events.put(lambda now_s: self._scheduler.on_declared(declaration, source, now_s))
        self._rounds.declare(declaration, source)

    def _on_decision(self, route: Route, decision: Decision) -> None:
        self._events.put(lambda now_s: self._scheduler.on_decision(route, decision, now_s))

    def _on_done(self, job: CopyJob, copied: Copied) -> None:
        self._events.put(lambda now_s: self._scheduler.on_done(job, copied.outcomes, copied.is_full, now_s))

    def _on_failed(self, job: CopyJob, error: str) -> None:
        self._events.put(lambda now_s: self._scheduler.on_failed(job, error, now_s))

    def _is_dead(self) -> bool:
        return self._jobs is not None and self._jobs.is_dead

    def _on_dead(self, error: str) -> None:
        if not self._failure:
            self._failure = f"the Spark session is gone: {error}"

    # -- threads

    def _watch(self) -> None:
        while not self._is_stopped:
            try:
                found = self._watcher.next(None)
            except Closed:
                return
            self._on_unread(found)

    def _on_unread(self, topics: dict[str, ClientError | None]) -> None:
        self._events.put(lambda now_s: self._scheduler.on_unread(topics, now_s))

    def _grow(self) -> None:
        """A Spark cluster may have had no machine for us yet when the session began."""
        if self._jobs is not None and self._lanes_given is None:
            self._lanes.grow_to(self._jobs.cores)

    def _report(self, snapshot: Snapshot[State]) -> bool:
        return self._source.report(reports_of(self._name, snapshot))

"""The declared pipelines of one broker, as the process runs them: the threads that wait, and the one that decides.

Declarations and ends of runs are events, which `runs` handles one after another. Owns the threads, and sends reports.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from magnetar.clock import SystemClock
from magnetar.declared.model import DeclaredPipeline, PipelinesDeclaration, Progress, RunReport, RunReports, RunState
from magnetar.log.events import PIPELINE_STATE
from magnetar.pipelines.declared.attempts import Attempts
from magnetar.pipelines.declared.context import DeclaredRun
from magnetar.pipelines.declared.runners import RUNNERS, run_verb
from magnetar.pipelines.declared.runs import Runs
from magnetar.pipelines.declared_sources import BrokerSource, DeclaringBroker
from magnetar.pipelines.events import EventThread
from magnetar.pipelines.heartbeats import Heartbeats
from magnetar.pipelines.jobs import Jobs, SparkFailed
from magnetar.pipelines.status_board import Key, Snapshot, StatusBoard, StatusRow
from magnetar.spark.runtime.start import session_on

log = logging.getLogger(__name__)

PATH = "pipelines"

_STOP_S = 8.0  # the process ends some seconds later, whatever hangs


class DeclaredRuns:
    """The verb. `runners` are the functions of the verbs of pipelines; `open_session` opens a session for a run."""

    def __init__(
        self,
        broker: DeclaringBroker,
        retry_max_s: float,
        folder: Path | None = None,
        *,
        runners: Mapping[str, str] = RUNNERS,
        open_session: Callable[[SparkContext], SparkSession] = session_on,
    ) -> None:
        self._broker = broker
        self._retry_max_s = retry_max_s
        self._runners = runners
        self._open_session = open_session
        self._name = secrets.token_hex(4)
        self._source: BrokerSource[PipelinesDeclaration] | None = None
        self._context: SparkContext | None = None
        self._jobs: Jobs | None = None
        self._life = ""  # of the broker: another one after a restart
        self._failure = ""
        self._is_stopped = False
        self._active: dict[Key, Attempts] = {}  # the last of each declared run, for its progress
        self.board = StatusBoard[RunState](SystemClock(), PIPELINE_STATE, log_level)
        self._runs = Runs(self.board, self._begin)
        self._events = EventThread("declared pipelines", self._runs.tick)
        self._heartbeats = Heartbeats(self.board, self._report)

    # -- life

    def open(self) -> None:
        self._source = BrokerSource(self._broker, PATH, PipelinesDeclaration)
        self._events.start()
        self._source.follow(self._on_declared, self._name)

    def start(self, context: SparkContext) -> None:
        self._context, self._jobs = context, Jobs(context)
        self._events.put(lambda now_s: self._runs.allow())
        self._heartbeats.start()

    def check(self) -> None:
        """Raises `SparkFailed` when nothing can run any more."""
        if self._failure:
            raise SparkFailed(self._failure)

    def stop(self) -> None:
        """Runs end at a point from which the next process continues them; those that do not are abandoned."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._events.stop()
        self._heartbeats.stop()
        active = list(self._active.values())
        for one in active:
            one.stop()
        self._join(active, time.monotonic() + _STOP_S)
        if self._source is None:
            return
        self._events.join()
        if self._jobs is not None:
            self._heartbeats.join()
        self._source.stop()

    def _join(self, active: list[Attempts], deadline_s: float) -> None:
        for one in active:
            if not one.join(max(0.0, deadline_s - time.monotonic())):
                one.cancel_jobs()

    # -- runs

    def _begin(self, key: Key, pipeline: DeclaredPipeline) -> Attempts:
        """In the thread of events, once Spark is up."""
        source, jobs, running = self._source, self._jobs, self._context
        assert source is not None and jobs is not None and running is not None, "nothing begins before Spark is up"
        context = DeclaredRun(
            partial(self._open_session, running), lambda: source.endpoint, lambda: self.board.count(key)
        )
        known = self._active.get(key)
        if known is not None:
            context.progress = known.context.progress  # of before a pause, until the first report
        self._active[key] = attempts = Attempts(
            lambda given: run_verb(given, pipeline.verb, pipeline.spec, self._runners),
            context,
            _Events(key, self._events, self._runs, self._on_dead),
            jobs,
            f"{pipeline.full}.{pipeline.run}",
            retry_max_s=self._retry_max_s,
        )
        return attempts

    def _on_dead(self, error: str) -> None:
        if not self._failure:
            self._failure = f"the Spark session is gone: {error}"
            self._events.put(lambda now_s: self._runs.allow(0))

    # -- from other threads

    def _on_declared(self, declaration: PipelinesDeclaration) -> None:
        life = declaration.version.rpartition("-")[0]
        if life != self._life:
            self._life = life
            self._heartbeats.start_over()
        self._events.put(partial(self._take, declaration))

    def _take(self, declaration: PipelinesDeclaration, now_s: float) -> None:
        self._runs.on_declared(declaration.pipelines, now_s)
        declared = {f"{one.id}.{one.run}" for one in declaration.pipelines}
        ended = [key for key, one in self._active.items() if key[-1] not in declared and one.join(0.0)]
        for key in ended:
            self._active.pop(key)

    def _report(self, snapshot: Snapshot[RunState]) -> bool:
        assert self._source is not None, "heartbeats start after it is open"
        rows = [self._report_of(key, row) for key, row in snapshot.rows.items()]
        return self._source.report(RunReports(self._name, snapshot.is_all, rows))

    def _report_of(self, key: Key, row: StatusRow[RunState]) -> RunReport:
        pipeline_id, _, run = key[-1].partition(".")
        attempts = self._active.get(key)
        return RunReport(
            id=int(pipeline_id),
            run=int(run),
            state=row.state,
            reason=row.reason,
            error=row.error,
            progress=Progress() if attempts is None else attempts.context.progress,
            rate=0.0 if attempts is None or row.state is not RunState.RUNNING else attempts.context.rate,
            since_ms=row.since_ms,
            error_ms=row.error_ms,
        )


class _Events:
    """The listener of a run: its events go to the thread that decides."""

    def __init__(self, key: Key, events: EventThread, runs: Runs, on_dead: Callable[[str], None]) -> None:
        self._key = key
        self._events = events
        self._runs = runs
        self.on_dead = on_dead

    def on_failing(self, error: str, delay_s: float) -> None:
        self._events.put(lambda now_s: self._runs.on_failing(self._key, error, delay_s))

    def on_running(self) -> None:
        self._events.put(lambda now_s: self._runs.on_running(self._key))

    def on_ended(self, state: RunState | None, error: str) -> None:
        self._events.put(lambda now_s: self._runs.on_ended(self._key, state, error))


def log_level(before: RunState | None, state: RunState) -> int:
    return logging.ERROR if state is RunState.FAILED else logging.INFO

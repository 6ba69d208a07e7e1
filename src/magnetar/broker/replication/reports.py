"""Reports of pipelines processes on each route, and the state of routes that have none.

In memory only: a process reports everything again to a broker that knows nothing. Owns the states that no process can
report: starting, stopped, and the result of the broker's own check of the remote topic. Knows no topics: backlogs are
added by `declaration`.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.rates import Rates
from magnetar.names import TopicName
from magnetar.replication.model import DeclaredRoute, Problem, Process, Report, Reports, State, Status
from magnetar.replication.partitions import Decision

HEARTBEAT_MAX_MS = 10_000
"""A pipelines process without a report for this long counts as gone."""

LEAVING_MS = 1000
"""A report of a process that left, within this time, was sent before."""

ERROR_SHOWN_MS = 600_000
"""An error that is over is shown for this long."""

TEXT_SIZE_MAX = 2000  # of a reason or an error


class _Row:
    """`messages` and `bytes` only grow, whereas a pipelines process counts from its own start."""

    __slots__ = ("bytes", "messages", "pipeline", "rates", "report")

    def __init__(self, pipeline: str, report: Report) -> None:
        self.pipeline = pipeline
        self.report = report
        self.messages = self.bytes = 0  # what was copied before the first report is not part of any rate
        self.rates = Rates(2)

    def update(self, pipeline: str, report: Report) -> None:
        before = self.report
        is_same = pipeline == self.pipeline and report.messages_out >= before.messages_out
        self.messages += report.messages_out - (before.messages_out if is_same else 0)
        self.bytes += report.bytes_out - (before.bytes_out if is_same else 0)
        if not report.error:
            report.error, report.error_ms = before.error, before.error_ms  # the last one, which may be over
        self.pipeline, self.report = pipeline, report


class ReplicationReports:
    def __init__(self, now_ms: int) -> None:
        self._rows: dict[tuple[str, str], _Row] = {}
        self._remote_topics: dict[tuple[str, str], tuple[Decision, int]] = {}  # by route, with the time of the check
        self._paused_ms: dict[tuple[str, str], int] = {}  # by route scope; unknown after a restart
        self._started_ms = now_ms
        self._heartbeat_ms: int | None = None
        self._pipeline = ""
        self._pipeline_ms = now_ms  # first report of the present pipelines process
        self._expected_ms: int | None = None  # when the broker began to start a process
        self._left_ms: int | None = None  # when the present process ended, where the broker noticed
        self._absence = ""  # why there is no process, where the broker knows
        self._absent = Process.ABSENT

    # -- the pipelines process

    def expect_process(self, now_ms: int) -> None:
        """The broker is starting a pipelines process."""
        self._expected_ms, self._absence, self._absent = now_ms, "", Process.STARTING

    def no_process(self, reason: str, now_ms: int, process: Process = Process.ABSENT) -> None:
        """There is no pipelines process, for a reason that the broker knows. Another one, which somebody else started,
        is known again by its next report."""
        self._expected_ms, self._absence, self._absent = None, reason, process
        if self.has_heartbeat(now_ms):
            self._left_ms = now_ms

    def process_left(self, pipeline: str, now_ms: int) -> None:
        """The connection of a pipelines process ended."""
        if pipeline == self._pipeline and self.has_heartbeat(now_ms):
            self._left_ms = now_ms

    def receive(self, reports: Reports, now_ms: int, is_declared: Callable[[str, str], bool]) -> None:
        """Keeps the reports on declared routes and drops the others."""
        is_same = reports.pipeline == self._pipeline
        if not (is_same and self._left_ms is not None and now_ms - self._left_ms < LEAVING_MS):
            if not is_same or not self.has_heartbeat(now_ms):
                self._pipeline, self._pipeline_ms = reports.pipeline, now_ms
            self._heartbeat_ms, self._left_ms, self._expected_ms = now_ms, None, None
            self._absence, self._absent = "", Process.ABSENT
        reported = {(row.topic, row.remote): row for row in reports.rows if is_declared(row.topic, row.remote)}
        if reports.is_all:
            self._rows = {key: row for key, row in self._rows.items() if key in reported}
        for key, report in reported.items():
            report.reason, report.error = report.reason[:TEXT_SIZE_MAX], report.error[:TEXT_SIZE_MAX]
            known = self._rows.get(key)
            if known is None:
                self._rows[key] = _Row(reports.pipeline, report)
            else:
                known.update(reports.pipeline, report)

    def has_heartbeat(self, now_ms: int) -> bool:
        if self._heartbeat_ms is None or self._left_ms is not None:
            return False
        return now_ms - self._heartbeat_ms <= HEARTBEAT_MAX_MS  # a clock that was set back is no silence

    def process(self, now_ms: int) -> Process:
        return Process.REPORTING if self.has_heartbeat(now_ms) else self._absent

    # -- what the broker itself knows

    def remote_topic_checked(self, topic: str, remote: str, decision: Decision, now_ms: int) -> None:
        """The broker checked or created a remote topic; `topic` is the one here, without a partition."""
        before = self._remote_topics.get((topic, remote))
        since_ms = before[1] if before is not None and before[0].state is decision.state else now_ms
        self._remote_topics[topic, remote] = decision, since_ms

    def paused(self, remote: str, scope: str, now_ms: int) -> None:
        self._paused_ms[remote, scope] = now_ms

    def resumed(self, remote: str, scope: str) -> None:
        self._paused_ms.pop((remote, scope), None)

    # -- upkeep

    def retain(self, is_declared: Callable[[str, str], bool], is_route: Callable[[str, str], bool]) -> None:
        """Forgets what is no longer declared."""
        self._rows = {key: row for key, row in self._rows.items() if is_declared(*key)}
        self._remote_topics = {key: check for key, check in self._remote_topics.items() if is_route(*key)}

    def update_rates(self, seconds: float) -> None:
        for row in self._rows.values():
            row.rates.update(seconds, row.messages, row.bytes)

    # -- status

    def status(self, name: TopicName, route: DeclaredRoute, paused_scope: str, now_ms: int) -> Status:
        """Of a topic without partitions, or one partition; `paused_scope` is where its route policy is set."""
        row = self._rows.get((name.full, route.remote))
        state, reason, since_ms = self._state(row, name, route, paused_scope, now_ms)
        is_reported = row is not None and state is row.report.state and reason == row.report.reason
        status = Status(
            topic=name.full,
            remote=route.remote,
            state=state,
            reason=reason,
            since_ms=since_ms,
            process=self.process(now_ms),
            last_error="",
            last_error_ms=0,
            backlog=0,
            backlog_bytes=0,
            delay_s=0.0,
            rate_out=0.0,
            throughput_out=0.0,
            policy=route.policy,
        )
        if row is not None:
            status.problem = row.report.problem if is_reported else Problem.OTHER
            if not state.is_copying or now_ms - row.report.error_ms <= ERROR_SHOWN_MS:
                status.last_error, status.last_error_ms = row.report.error, row.report.error_ms
            status.rate_out, status.throughput_out = row.rates
            status.messages_out, status.bytes_out = row.report.messages_out, row.report.bytes_out
        elif (checked := self._remote_topics.get((route.topic, route.remote))) and reason == checked[0].reason:
            status.problem = checked[0].problem
        return status

    def _state(
        self, row: _Row | None, name: TopicName, route: DeclaredRoute, paused_scope: str, now_ms: int
    ) -> tuple[State, str, int]:
        if not self.has_heartbeat(now_ms) and (stopped := self._stopped(now_ms)):
            return State.STOPPED, *stopped
        if route.policy.paused:
            since_ms = self._paused_ms.get((route.remote, paused_scope), self._started_ms)
            return State.PAUSED, f"the route policy of {paused_scope} to {route.remote} is paused", since_ms
        if row is not None:
            return row.report.state, row.report.reason, row.report.since_ms
        checked, checked_ms = self._remote_topics.get((route.topic, route.remote), (None, 0))
        if checked is not None and not checked.copies(name.partition):
            return checked.state, checked.reason, checked_ms
        return State.STARTING, *self._starting()

    def _stopped(self, now_ms: int) -> tuple[str, int] | None:
        """Without a heartbeat: why nothing is replicated, and since when; None if a process is expected to report."""
        if self._heartbeat_ms is not None:
            again = "the broker is starting it again" if self._expected_ms is not None else ""
            known = f" ({self._absence or again})" if self._absence or again else ""
            if self._left_ms is not None:
                return f"the pipelines process is gone{known}", self._left_ms
            silent_s = (now_ms - self._heartbeat_ms) // 1000
            return f"no heartbeat from the pipelines process for {silent_s} s{known}", self._heartbeat_ms
        if self._absence:
            return f"no pipelines process: {self._absence}", self._started_ms
        if self._expected_ms is None and now_ms - self._started_ms > HEARTBEAT_MAX_MS:
            return "no pipelines process has reported since the broker started", self._started_ms
        return None

    def _starting(self) -> tuple[str, int]:
        if self._heartbeat_ms is not None:
            return "the pipelines process has not reported this topic yet", self._pipeline_ms
        if self._expected_ms is not None:
            return "the pipelines process is starting", self._expected_ms
        return "no pipelines process has reported yet", self._started_ms

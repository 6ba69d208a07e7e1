"""Reports of pipelines processes on each route, and the state of routes that have none.

In memory only: a process reports everything again to a broker that knows nothing. Owns the states that no process can
report: starting, stopped, and the result of the broker's own check of the remote topic. Knows no topics: backlogs are
added by `declaration`.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.pipelines.presence import ProcessPresence
from magnetar.broker.rates import Rates
from magnetar.names import TopicName
from magnetar.replication.model import DeclaredRoute, Problem, Report, Reports, State, Status
from magnetar.replication.partitions import Decision

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
        self.presence = ProcessPresence(now_ms)

    # -- the pipelines process

    def receive(self, reports: Reports, now_ms: int, is_declared: Callable[[str, str], bool]) -> None:
        """Keeps the reports on declared routes and drops the others."""
        self.presence.heartbeat(reports.pipeline, now_ms)
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
            process=self.presence.process(now_ms),
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
        if not self.presence.has_heartbeat(now_ms) and (stopped := self.presence.why_stopped(now_ms)):
            return State.STOPPED, *stopped
        if route.policy.paused:
            since_ms = self._paused_ms.get((route.remote, paused_scope), self._started_ms)
            return State.PAUSED, f"the route policy of {paused_scope} to {route.remote} is paused", since_ms
        if row is not None:
            return row.report.state, row.report.reason, row.report.since_ms
        checked, checked_ms = self._remote_topics.get((route.topic, route.remote), (None, 0))
        if checked is not None and not checked.copies(name.partition):
            return checked.state, checked.reason, checked_ms
        return State.STARTING, *self.presence.why_unknown("this topic")

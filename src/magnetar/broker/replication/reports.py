"""What pipelines reported of each topic and remote cluster, and what follows when they tell nothing.

In memory only: a pipeline tells everything again when it meets a broker that knows nothing. Owns the states that a
pipeline cannot tell itself, because it is not there. Knows no topics: backlogs are added by `replication`.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.rates import Rates
from magnetar.replication.model import Report, Reports, RoutePolicy, State, Status

HEARTBEAT_MAX_MS = 10_000
"""Without a word from a pipelines process for so long, nothing is being replicated."""

TEXT_SIZE_MAX = 2000  # of a reason or an error


class _Row:
    """`messages` and `bytes` only grow, whereas a pipeline counts from its own start."""

    __slots__ = ("bytes", "messages", "pipeline", "rates", "report")

    def __init__(self, pipeline: str, report: Report) -> None:
        self.pipeline = pipeline
        self.report = report
        self.messages = self.bytes = 0  # what was copied before this broker heard of it is no rate of now
        self.rates = Rates(2)

    def take(self, pipeline: str, report: Report) -> None:
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
        self._paused_ms: dict[tuple[str, str], int] = {}  # since when a way pauses; not known after a restart
        self._started_ms = now_ms
        self._heartbeat_ms: int | None = None
        self._pipeline = ""
        self._pipeline_ms = now_ms  # when the present pipelines process was heard of first
        self.absence = ""  # why there is no pipelines process, where somebody knows

    def take(self, reports: Reports, now_ms: int, is_declared: Callable[[str, str], bool]) -> None:
        """Of what is not declared, or no longer, nothing is kept."""
        if reports.pipeline != self._pipeline or not self.has_heartbeat(now_ms):
            self._pipeline, self._pipeline_ms = reports.pipeline, now_ms
        self._heartbeat_ms = now_ms
        self.absence = ""
        reported = {(row.topic, row.remote): row for row in reports.rows if is_declared(row.topic, row.remote)}
        if reports.is_all:
            self._rows = {key: row for key, row in self._rows.items() if key in reported}
        for key, report in reported.items():
            report.reason, report.error = report.reason[:TEXT_SIZE_MAX], report.error[:TEXT_SIZE_MAX]
            known = self._rows.get(key)
            if known is None:
                self._rows[key] = _Row(reports.pipeline, report)
            else:
                known.take(reports.pipeline, report)

    def retain(self, is_declared: Callable[[str, str], bool]) -> None:
        """Forgets what is no longer declared."""
        self._rows = {key: row for key, row in self._rows.items() if is_declared(*key)}

    def update_rates(self, seconds: float) -> None:
        for row in self._rows.values():
            row.rates.update(seconds, row.messages, row.bytes)

    def has_heartbeat(self, now_ms: int) -> bool:
        # A clock that was set back is no silence.
        return self._heartbeat_ms is not None and now_ms - self._heartbeat_ms <= HEARTBEAT_MAX_MS

    def paused(self, remote: str, scope: str, now_ms: int) -> None:
        self._paused_ms[remote, scope] = now_ms

    def resumed(self, remote: str, scope: str) -> None:
        self._paused_ms.pop((remote, scope), None)

    def status(self, topic: str, remote: str, policy: RoutePolicy, paused_scope: str, now_ms: int) -> Status:
        """`paused_scope` is the namespace or topic that the way was set for."""
        row = self._rows.get((topic, remote))
        state, reason, since_ms = self._state(row, remote, policy, paused_scope, now_ms)
        status = Status(
            topic=topic,
            remote=remote,
            state=state,
            reason=reason,
            since_ms=since_ms,
            last_error="",
            last_error_ms=0,
            backlog=0,
            backlog_bytes=0,
            delay_s=0.0,
            rate_out=0.0,
            throughput_out=0.0,
            policy=policy,
        )
        if row is not None:
            status.last_error, status.last_error_ms = row.report.error, row.report.error_ms
            status.rate_out, status.throughput_out = row.rates
            status.messages_out, status.bytes_out = row.report.messages_out, row.report.bytes_out
        return status

    def _state(
        self, row: _Row | None, remote: str, policy: RoutePolicy, paused_scope: str, now_ms: int
    ) -> tuple[State, str, int]:
        if self._heartbeat_ms is None:
            why = f"reports: {self.absence}" if self.absence else "has reported since the broker started"
            reason = f"no pipelines process {why}"
            return State.STOPPED, reason, self._started_ms
        if not self.has_heartbeat(now_ms):
            silent_s = (now_ms - self._heartbeat_ms) // 1000
            known = f" ({self.absence})" if self.absence else ""
            reason = f"no pipelines process reports: the last word came {silent_s} s ago{known}"
            return State.STOPPED, reason, self._heartbeat_ms
        if policy.paused:
            since_ms = self._paused_ms.get((remote, paused_scope), self._started_ms)
            return State.PAUSED, f"the way of {paused_scope} to {remote} is paused", since_ms
        if row is None:
            return State.STOPPED, "not started yet: the pipelines process has not reported it", self._pipeline_ms
        return row.report.state, row.report.reason, row.report.since_ms

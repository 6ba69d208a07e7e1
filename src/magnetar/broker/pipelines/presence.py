"""The presence of a pipelines process: its heartbeats for one verb, and why there are none.

Owns the states of the process: starting, reporting, gone. Knows nothing of what it reports.
"""

from __future__ import annotations

from magnetar.replication.model import Process

HEARTBEAT_MAX_MS = 10_000
"""A pipelines process without a report for this long counts as gone."""

LEAVING_MS = 1000
"""A report of a process that left, within this time, was sent before."""


class ProcessPresence:
    def __init__(self, now_ms: int) -> None:
        self._started_ms = now_ms
        self._heartbeat_ms: int | None = None
        self._pipeline = ""
        self._pipeline_ms = now_ms  # first report of the present pipelines process
        self._expected_ms: int | None = None  # when the broker began to start a process
        self._left_ms: int | None = None  # when the present process ended, where the broker noticed
        self._absence = ""  # why there is no process, where the broker knows
        self._absent = Process.ABSENT

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

    def heartbeat(self, pipeline: str, now_ms: int) -> None:
        """A report of the process with this id."""
        is_same = pipeline == self._pipeline
        if is_same and self._left_ms is not None and now_ms - self._left_ms < LEAVING_MS:
            return
        if not is_same or not self.has_heartbeat(now_ms):
            self._pipeline, self._pipeline_ms = pipeline, now_ms
        self._heartbeat_ms, self._left_ms, self._expected_ms = now_ms, None, None
        self._absence, self._absent = "", Process.ABSENT

    def has_heartbeat(self, now_ms: int) -> bool:
        if self._heartbeat_ms is None or self._left_ms is not None:
            return False
        return now_ms - self._heartbeat_ms <= HEARTBEAT_MAX_MS  # a clock that was set back is no silence

    def process(self, now_ms: int) -> Process:
        return Process.REPORTING if self.has_heartbeat(now_ms) else self._absent

    def why_stopped(self, now_ms: int) -> tuple[str, int] | None:
        """Without a heartbeat: why nothing runs, and since when; None if a process is expected to report."""
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

    def why_unknown(self, subject: str) -> tuple[str, int]:
        """For a `subject` without a report, such as `this topic`: the reason, and since when."""
        if self._heartbeat_ms is not None:
            return f"the pipelines process has not reported {subject} yet", self._pipeline_ms
        if self._expected_ms is not None:
            return "the pipelines process is starting", self._expected_ms
        return "no pipelines process has reported yet", self._started_ms

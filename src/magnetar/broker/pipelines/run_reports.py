"""Reports of the pipelines process on each run, in memory only: it reports all again to a broker that knows none.

Owns their bounds. Knows no records: which runs are declared is for `declared` to say.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import msgspec

from magnetar.declared.model import RunReport, RunReports
from magnetar.pipeline_bounds import PIPELINE_COUNTS

TEXT_SIZE_MAX = 2000  # of a reason, an error or a note
_NAME_SIZE_MAX = 100  # of a count

RunKey = tuple[int, int]
"""The id of a record, and the number of a run."""


class KnownRun(NamedTuple):
    report: RunReport
    updated_ms: int


class LiveRuns:
    def __init__(self) -> None:
        self._rows: dict[RunKey, KnownRun] = {}

    def receive(self, reports: RunReports, now_ms: int, is_declared: Callable[[RunKey], bool]) -> list[RunReport]:
        """Keeps the reports on declared runs, which it returns, and drops the others."""
        reported = {(row.id, row.run): row for row in reports.rows if is_declared((row.id, row.run))}
        if reports.is_all:
            self._rows = {key: row for key, row in self._rows.items() if key in reported}
        for key, report in reported.items():
            bounded = _bounded(report)
            before = self._rows.get(key)
            if not bounded.error and before is not None:
                bounded.error, bounded.error_ms = before.report.error, before.report.error_ms  # which may be over
            self._rows[key] = KnownRun(bounded, now_ms)
        return list(reported.values())

    def of(self, key: RunKey) -> KnownRun | None:
        return self._rows.get(key)

    def forget(self, key: RunKey) -> None:
        self._rows.pop(key, None)


def _bounded(report: RunReport) -> RunReport:
    report.reason, report.error = report.reason[:TEXT_SIZE_MAX], report.error[:TEXT_SIZE_MAX]
    progress = report.progress
    kept = islice(progress.counts.items(), PIPELINE_COUNTS.limit)
    counts = {name[:_NAME_SIZE_MAX]: count for name, count in kept}
    report.progress = msgspec.structs.replace(progress, counts=counts, note=progress.note[:TEXT_SIZE_MAX])
    return report

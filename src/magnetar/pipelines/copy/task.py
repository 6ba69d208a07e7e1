"""The task that copies, which Spark's Python workers import by reference (see `pipelines.worker_daemon`)."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.pipelines.copy.assignment import Assignment, Outcome


def copy(assignments: list[Assignment], slice_s: float, linger_s: float, rows: Iterable[object]) -> list[Outcome]:
    from magnetar.pipelines.copy import copier  # the driver does not need it

    list(rows)
    return copier.copy(assignments, slice_s, linger_s)

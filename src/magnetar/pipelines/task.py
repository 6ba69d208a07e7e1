"""The task that keeps Spark's Python workers alive. Imported by workers, so it imports nothing itself."""

from __future__ import annotations

from collections.abc import Iterable


def stay_warm(rows: Iterable[object]) -> list[object]:
    """Spark ends workers that were idle for a minute; new ones would have to connect again.

    Like every task, it reads its rows to the end: Spark ends a worker that leaves some, and its connections with it.
    """
    list(rows)
    return []

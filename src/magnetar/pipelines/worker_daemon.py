"""The parent of the pipelines' Python workers: Spark's, with what copying needs, and without Arrow and SQL.

Also the task that keeps the workers alive, which they import by reference.

A worker that filters imports those itself: few do, and they are half of a worker's memory and start.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.spark.runtime import worker_daemon

PRELOADED = ("magnetar.pipelines.copy.copier", "magnetar.pipelines.subscriptions.follow")


def stay_warm(rows: Iterable[object]) -> list[object]:
    """Spark ends workers that were idle for a minute; new ones would have to connect again.

    Like every task, it reads its rows to the end: Spark ends a worker that leaves some, and its connections with it.
    """
    list(rows)
    return []


if __name__ == "__main__":
    worker_daemon.main(PRELOADED)

"""The parent of the pipelines' Python workers: Spark's, with what copying needs, and without Arrow and SQL.

A worker that filters imports those itself: few do, and they are half of a worker's memory and start.
"""

from __future__ import annotations

from magnetar.spark.runtime import worker_daemon

PRELOADED = ("magnetar.pipelines.copy.copier", "magnetar.pipelines.subscriptions.follow")

if __name__ == "__main__":
    worker_daemon.main(PRELOADED)

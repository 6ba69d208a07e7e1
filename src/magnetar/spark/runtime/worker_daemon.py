"""The parent of Spark's Python workers: pyspark's own daemon, which Spark starts by name, with three changes.

Everything a worker needs is imported before the first fork, so a new worker is ready at once and shares that memory.
And what is imported is taken out of the sight of the garbage collector: the daemon lets it run after each task, and
walking all modules each time took most of the time of a small micro-batch. And a query that has seen enough rows is no
reason for a traceback.

Knows pyspark's daemon from the inside; a test starts it, so that a new pyspark cannot change it unnoticed.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

import pyspark.daemon

# No thread may run when the daemon forks. None of these starts one that it does not start again in the child.
_PRELOADED = (
    "numpy",
    "pyarrow",
    "pyspark.sql.datasource",
    "magnetar.spark.source.source",
    "magnetar.spark.sink.writer",
    "magnetar.pipelines.copy.copier",
    "magnetar.pipelines.subscriptions.follow",
)
_WORKER_MODULE_DEFAULT = "pyspark.worker"

_serve_task = pyspark.daemon.worker
_has_served = False


def main() -> None:
    preload([sys.argv[1] if len(sys.argv) > 1 else _WORKER_MODULE_DEFAULT, *_PRELOADED])
    pyspark.daemon.worker = _serve_then_freeze
    pyspark.daemon.print = _say  # type: ignore[attr-defined]
    pyspark.daemon.manager()


def preload(names: list[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # the task that needs it fails with this error, and its text then reaches the user
    _freeze()


def _serve_then_freeze(sock: Any, authenticated: bool) -> int:
    """Serves a task. After the first one, what it imported and opened for good is kept from the collector too."""
    global _has_served
    code = _serve_task(sock, authenticated)
    if not _has_served:
        _has_served = True
        _freeze()
    return code


def _say(text: str, **options: Any) -> None:
    """What pyspark's daemon prints, but for the traceback of every task whose rows were enough before it had ended.

    That is what `show` and `limit` do, and nothing is wrong with it.
    """
    if "BrokenPipeError" not in text:
        print(text, **options)


def _freeze() -> None:
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()

"""Worker daemon: the parent of Spark's Python workers, pyspark's own daemon with three changes.

- It imports everything a worker needs before the first fork: new workers start at once and share that memory.
- It freezes imported objects: the daemon runs the garbage collector after each task, which took most of the time of a
  small micro-batch.
- It prints no traceback when a query stops reading early.

Depends on internals of pyspark's daemon; a test starts it, so that a change in pyspark is noticed.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

import pyspark.daemon

# No thread may run when the daemon forks: none of these starts one, or it restarts it in the child.
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
    pyspark.daemon.print = _print_errors  # type: ignore[attr-defined]
    pyspark.daemon.manager()


def preload(names: list[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # a task that needs it fails with this error, which reaches the user
    _freeze()


def _serve_then_freeze(sock: Any, authenticated: bool) -> int:
    """Serves a task; after the first one, freezes what it imported and opened."""
    global _has_served
    code = _serve_task(sock, authenticated)
    if not _has_served:
        _has_served = True
        _freeze()
    return code


def _print_errors(text: str, **options: Any) -> None:
    """Omits the traceback of a task that is stopped early, which is normal with `show` and `limit`."""
    if "BrokenPipeError" not in text:
        print(text, **options)


def _freeze() -> None:
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main()

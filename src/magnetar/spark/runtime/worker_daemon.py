"""Worker daemon: the parent of Spark's Python workers, pyspark's own daemon with four changes.

- It imports pyspark from where it is installed. Spark prefers the archive of the same files, which has to be compiled
  again at every start.
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
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

# No thread may run when the daemon forks: none of these starts one, or it restarts it in the child.
_PRELOADED = (
    "numpy",
    "pyarrow",
    "pyspark.sql.datasource",
    "magnetar.spark.source.source",
    "magnetar.spark.sink.writer",
)
_WORKER_MODULE_DEFAULT = "pyspark.worker"
_STOPPED_EARLY = 1  # the query has read enough; the worker ends, without a traceback

_ZIPPED = Path("python", "lib", "pyspark.zip")  # in pyspark's folder

_has_served = False


def main(preloaded: Sequence[str] = _PRELOADED) -> None:
    sys.path[:] = without_archives(sys.path)
    daemon = importlib.import_module("pyspark.daemon")
    preload([sys.argv[1] if len(sys.argv) > 1 else _WORKER_MODULE_DEFAULT, *preloaded])
    vars(daemon).update(worker=partial(_serve_then_freeze, daemon.worker), print=_print_errors)
    daemon.manager()


def without_archives(places: list[str]) -> list[str]:
    """Without pyspark's archive and the one of its py4j, if the archive is part of an installed pyspark."""
    others = [place for place in places if not place.endswith(".zip")]
    found, py4j = (PathFinder.find_spec(name, others) for name in ("pyspark", "py4j"))
    if found is None or py4j is None or found.origin is None:
        return places
    zipped = Path(found.origin).parent / _ZIPPED
    if str(zipped) not in places:
        return places  # that of another Spark
    return [place for place in places if Path(place).parent != zipped.parent]


def preload(names: list[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # a task that needs it fails with this error, which reaches the user
    _freeze()


def _serve_then_freeze(serve: Callable[[Any, bool], int], sock: Any, authenticated: bool) -> int:
    """Serves a task; after the first one, freezes what it imported and opened."""
    global _has_served
    try:
        code = serve(sock, authenticated)
    except BrokenPipeError:
        return _STOPPED_EARLY
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

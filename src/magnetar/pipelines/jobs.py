"""Spark jobs with one task each, on one context.

Owns the calls to the Spark context, and the text of a failed job. Knows no verb: a job is a function for a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from magnetar.errors import MagnetarError
from magnetar.pipelines.worker_daemon import stay_warm

_T = TypeVar("_T")

_POOL_PROPERTY = "spark.scheduler.pool"
_ERROR_SIZE_MAX = 500


class SparkFailed(MagnetarError):
    """Spark did not start, or its session is gone."""


class Jobs:
    ran = 0
    """Jobs of this process, which has one JVM."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._one = self._context.parallelize([0], 1)

    def run(self, function: Callable[..., list[_T]]) -> list[_T]:
        """Calls the function, which is pickled by reference, in a worker, and returns its result."""
        Jobs.ran += 1
        return self._context.runJob(self._one, function, [0])

    def stay_warm(self) -> None:
        self.run(stay_warm)

    def begin(self, group: str, pool: str) -> None:
        """For the calling thread: its jobs can be cancelled together, and share the cores fairly with other pools."""
        self._context.setJobGroup(group, group, interruptOnCancel=True)
        self._context.setLocalProperty(_POOL_PROPERTY, pool)

    def cancel(self, group: str) -> None:
        if not self.is_dead:
            self._context.cancelJobGroup(group)

    @property
    def cores(self) -> int:
        """The number of tasks that run at the same time; machines may join a cluster at any time."""
        try:
            return max(1, self._context.defaultParallelism)
        except (Py4JError, OSError):  # the next job reports that the JVM is gone
            return 1

    @property
    def is_dead(self) -> bool:
        try:
            return self._context._jsc is None or bool(self._context._jsc.sc().isStopped())
        except (Py4JError, OSError):
            return True


def failure_text(failure: Exception) -> str:
    """The line of a traceback that names the error: Python's is the last one, Java's the first."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    found = next((line for line in lines if "Exception" in line or "Error" in line), lines[0] if lines else "")
    return f"a Spark job failed: {found or repr(failure)}"[:_ERROR_SIZE_MAX]

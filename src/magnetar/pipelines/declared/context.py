"""The context of a declared run: its Spark session, the broker that declared it, its progress and its end."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from pyspark.sql import SparkSession

from magnetar.pipelines.run import Progress
from magnetar.replication.cluster import ClusterEndpoint

_RATE_OVER_S = 10.0
_POINT_EVERY_S = 0.5


class DeclaredRun:
    """A `RunContext`. The session is opened when the verb wants it."""

    def __init__(
        self,
        open_session: Callable[[], SparkSession],
        endpoint: Callable[[], ClusterEndpoint],
        on_report: Callable[[], None],
    ) -> None:
        self._open_session = open_session
        self._endpoint = endpoint
        self._on_report = on_report
        self._session: SparkSession | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._points: deque[tuple[float, int]] = deque()  # of time and progress, in the last seconds
        self.progress = Progress()

    @property
    def spark(self) -> SparkSession:
        with self._lock:
            if self._session is None:
                self._session = self._open_session()
            return self._session

    @property
    def endpoint(self) -> ClusterEndpoint:
        return self._endpoint()

    def report(self, progress: Progress) -> None:
        with self._lock:
            self.progress = progress
            self._note(time.monotonic())
        self._on_report()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def wait(self, seconds: float) -> bool:
        return self._stopping.wait(seconds)

    # -- for its thread and the reports

    def stop(self) -> None:
        self._stopping.set()

    def start_over(self) -> None:
        """For another attempt: the verb counts anew."""
        with self._lock:
            self._points.clear()

    @property
    def rate(self) -> float:
        """Messages a second, in the last seconds; 0 once nothing is reported any more."""
        with self._lock:
            now_s = time.monotonic()
            self._note(now_s)
            first_s, first = self._points[0]
            return max(0.0, (self.progress.done - first) / (now_s - first_s)) if now_s > first_s else 0.0

    def _note(self, now_s: float) -> None:
        if not self._points or now_s - self._points[-1][0] >= _POINT_EVERY_S:
            self._points.append((now_s, self.progress.done))
        while len(self._points) > 2 and now_s - self._points[1][0] > _RATE_OVER_S:
            self._points.popleft()

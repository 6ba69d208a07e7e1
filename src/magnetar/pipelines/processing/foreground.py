"""A run in the foreground: its own Spark session, signals that end it, and its progress for the caller."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pyspark.sql import SparkSession

from magnetar.pipelines.run import Progress
from magnetar.replication.cluster import ClusterEndpoint


class ForegroundRun:
    """A `RunContext`. `show` gets every report."""

    def __init__(self, spark: SparkSession, endpoint: ClusterEndpoint, show: Callable[[Progress], None]) -> None:
        self.spark = spark
        self.endpoint = endpoint
        self._show = show
        self._stopping = threading.Event()

    def report(self, progress: Progress) -> None:
        self._show(progress)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def wait(self, seconds: float) -> bool:
        return self._stopping.wait(seconds)

    def stop(self) -> None:
        """From any thread: the run ends soon."""
        self._stopping.set()


@contextmanager
def stopped_by_signals(run: ForegroundRun) -> Iterator[None]:
    """The first SIGINT or SIGTERM ends the run cleanly, a second one as Python does. Elsewhere than in the main thread
    signals are not ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, frame: FrameType | None) -> None:
        run.stop()
        restore()

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()

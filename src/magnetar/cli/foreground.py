"""A run of a verb in the foreground of a command: its own Spark session, a progress bar, and a clean end by a signal.

Owns what is printed meanwhile, all of it to stderr. Knows no verb.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from magnetar.cli.rest import Rest
from magnetar.errors import InvalidSetting

if TYPE_CHECKING:
    from magnetar.declared.model import Progress
    from magnetar.replication.cluster import ClusterEndpoint

Master = Annotated[
    str | None,
    typer.Option(
        "--master", metavar="URL", help="The Spark master.", show_default="local[*,3], or MAGNETAR_SPARK_MASTER"
    ),
]

_LINE_S = 10.0
"""Without a terminal, one line of progress in this time."""


class Foreground:
    """The context of a run; see `pipelines.run.RunContext`. The first SIGINT or SIGTERM stops it, the second ends the
    command at once: nothing is lost by either."""

    def __init__(self, spark: Any, endpoint: ClusterEndpoint, title: str) -> None:
        self.spark = spark
        self.endpoint = endpoint
        self._stopping = threading.Event()
        self._display = progress_display(title)

    def report(self, progress: Progress) -> None:
        self._display.show(progress)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def wait(self, seconds: float) -> bool:
        return self._stopping.wait(seconds)

    def stop(self, *_: object) -> None:
        if self._stopping.is_set():
            raise KeyboardInterrupt
        self._stopping.set()

    def close(self) -> None:
        self._display.close()


@contextmanager
def foreground(rest: Rest, service_url: str | None, master: str | None, title: str) -> Iterator[Foreground]:
    """Uses a running Spark session, and leaves it running. Raises `InvalidSetting` without Spark."""
    from magnetar.replication.cluster import ClusterEndpoint

    try:
        from magnetar.spark.runtime.command_session import command_session
    except ImportError as error:
        raise InvalidSetting(f'{error}; this command needs Spark: pip install "magnetar[spark]"') from error
    if sys.stderr.isatty():
        print(f"{title}: starting Spark", end="\r", file=sys.stderr, flush=True)
    endpoint = ClusterEndpoint("", service_url or rest.service_url or rest.url, rest.url, rest.security)
    with command_session(master, f"magnetar {title}", is_short=False) as spark:
        running = Foreground(spark, endpoint, title)
        handlers = {number: signal.signal(number, running.stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield running
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            running.close()


def progress_display(title: str) -> Display:
    return _Bar(title) if sys.stderr.isatty() else _Lines(title)


class Display(Protocol):
    """Where progress is shown."""

    def show(self, progress: Progress) -> None: ...

    def close(self) -> None: ...


class _Bar:
    """On a terminal: a bar with rate and time left."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        rate = TextColumn("{task.fields[rate]}")
        note = TextColumn("{task.fields[note]}")
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            rate,
            TimeRemainingColumn(),
            note,
        )
        self._progress = RichProgress(*columns, console=Console(stderr=True), transient=False)
        self._task = self._progress.add_task(title, total=None, rate="", note="")
        self._speed = _Speed()
        self._progress.start()

    def show(self, progress: Progress) -> None:
        speed = self._speed.of(progress)
        rate = f"{speed:,.0f}/s" if progress.done else ""
        self._progress.update(
            self._task, total=progress.total, completed=progress.done, rate=rate, note=progress.note[:100]
        )

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    """In a log or a pipe: a line when the step changes, and now and then."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._note = ""
        self._printed_s = 0.0
        self._speed = _Speed()

    def show(self, progress: Progress) -> None:
        now_s = time.monotonic()
        rate = self._speed.of(progress)
        if progress.note == self._note and now_s - self._printed_s < _LINE_S:
            return
        self._note, self._printed_s = progress.note, now_s
        total = "" if progress.total is None else f" of {progress.total}"
        speed = f", {rate:,.0f}/s" if rate else ""
        done = f"{progress.done}{total}{speed}" if progress.done or progress.total else ""
        print(f"{self._title}: {', '.join(filter(None, (progress.note, done)))}", file=sys.stderr, flush=True)

    def close(self) -> None:
        return


class _Speed:
    """Messages a second since the first report with a total."""

    def __init__(self) -> None:
        self._began_s: float | None = None

    def of(self, progress: Progress) -> float:
        now_s = time.monotonic()
        if self._began_s is None:
            if progress.total is not None or progress.done:
                self._began_s = now_s
            return 0.0
        return progress.done / max(now_s - self._began_s, 0.001)

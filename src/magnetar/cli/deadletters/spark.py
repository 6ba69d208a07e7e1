"""Spark for one command over dead letters: its session, the options of the cluster, and progress on stderr."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from magnetar.cli.rest import Rest
from magnetar.errors import InvalidSetting, MagnetarError

if TYPE_CHECKING:
    from rich.progress import Progress

    from magnetar.spark.dead_letters.letter_session import LetterSession

_POLL_S = 0.25


class CommandFailed(MagnetarError):
    """The letters are not those that were expected."""


class Work:
    """What a command shows of its progress; nothing is shown without a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def begin(self, text: str, total: float | None = None) -> None:
        self._progress.reset(self._task, description=text, total=total)

    def advance(self, count: float) -> None:
        self._progress.advance(self._task, count)

    @contextmanager
    def reading(self, session: LetterSession, text: str) -> Iterator[None]:
        """Shows the finished tasks of Spark's jobs meanwhile."""
        self.begin(text)
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_POLL_S):
                with suppress(Exception):  # the numbers are a courtesy
                    if (tasks := session.tasks) is not None:
                        self._progress.update(self._task, completed=tasks[0], total=tasks[1])

        thread = threading.Thread(target=watch, daemon=True)
        if not self._progress.disable:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            if thread.is_alive():
                thread.join()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """For a question."""
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()


@contextmanager
def shown_work() -> Iterator[Work]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with os.fdopen(os.dup(sys.__stderr__.fileno()), "w") if sys.__stderr__ else open(os.devnull, "w") as stream:
        console = Console(file=stream, highlight=False)
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            yield Work(progress)


@contextmanager
def letter_session(master: str | None, work: Work) -> Iterator[LetterSession]:
    """Raises `InvalidSetting` without pyspark, and for wrong topics."""
    try:
        from magnetar.spark.dead_letters.letter_session import LetterSession
        from magnetar.spark.errors import SparkSourceError
        from magnetar.spark.runtime.command_session import command_session
    except ImportError as error:
        raise InvalidSetting(f'{error}; this command needs Spark: pip install "magnetar[spark]"') from error
    work.begin("starting Spark")
    with command_session(master, "magnetar deadletters") as spark:
        try:
            yield LetterSession(spark)
        except SparkSourceError as error:
            raise InvalidSetting(str(error)) from error


def client_options(rest: Rest, service_url: str | None) -> dict[str, str]:
    """The options of `format("pulsar")` for the cluster of a command."""
    from magnetar.security.pulsar_parameters import parameters_of

    options = {"service.url": service_url or rest.service_url or rest.url, "admin.url": rest.url}
    if rest.security is not None:
        options |= {f"pulsar.client.{name}": text for name, text in parameters_of(rest.security).items()}
    return options

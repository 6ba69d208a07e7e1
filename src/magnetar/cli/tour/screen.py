"""The screen of the tour: acts, commands, their output, and a line of progress. Knows no story."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

_LINES_MAX = 16


class Screen:
    """Without a terminal, progress is not shown."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._acts = 0
        self._status = self._console.status("") if self._console.is_terminal else None

    def act(self, title: str, text: str) -> None:
        self._acts += 1
        self._console.print()
        self._console.print(Rule(Text(f"{self._acts}. {title}", "bold"), align="left"))
        self._console.print(Text(text))
        self._console.print()

    def line(self, text: str) -> None:
        self._console.print(Text(text))

    def command(self, words: str) -> None:
        self._console.print(Text(f"$ magnetar {words}", "bold cyan"), soft_wrap=True)  # so that it can be copied

    def output(self, text: str) -> None:
        lines = text.rstrip("\n").splitlines()
        for line in lines[:_LINES_MAX]:
            self._console.print(Text(f"  {line}", "dim"), no_wrap=True, overflow="ellipsis", crop=True)
        if len(lines) > _LINES_MAX:
            self._console.print(Text(f"  … {len(lines) - _LINES_MAX} more lines", "dim"))

    def progress(self, text: str) -> None:
        """Empty ends it."""
        if self._status is None:
            return
        if text:
            self._status.update(text)
            self._status.start()
        else:
            self._status.stop()

    def tick(self) -> None:
        """While nothing is new."""

    def summary(self, rows: Iterable[tuple[str, bool, str]]) -> None:
        table = Table.grid(padding=(0, 2))
        for what, holds, figure in rows:
            table.add_row(Text("ok", "green") if holds else Text("FAILED", "bold red"), Text(what), Text(figure))
        self._console.print()
        self._console.print(Rule(Text("Summary", "bold"), align="left"))
        self._console.print(table)

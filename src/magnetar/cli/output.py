"""Output of commands: tables for people, JSON for programs.

A command returns one of these. With `--json` stdout gets exactly one JSON document, or one per line from a `Stream`. It
knows no broker.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PAGE_WIDTH = 1_000_000
"""Without a terminal no line is wrapped, so that the output can be searched and cut."""


@dataclass(frozen=True, slots=True)
class Done:
    """A change was made, or a summary line."""

    text: str

    def raw(self) -> object:
        return {"done": self.text}

    def write(self, console: Console) -> None:
        console.print(self.text, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Names:
    """A list of names, one per line."""

    names: Sequence[str]
    none: str = ""

    def raw(self) -> object:
        return list(self.names)

    def write(self, console: Console) -> None:
        for name in self.names:
            console.print(name, soft_wrap=True)
        if not self.names and self.none:
            print_note(self.none)


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of one object; `value` is the reply of the broker."""

    value: Any
    title: str = ""
    fields: Mapping[str, object] | None = None
    none: str = "nothing is set"

    def raw(self) -> object:
        return self.value

    def write(self, console: Console) -> None:
        from rich.table import Table as RichTable
        from rich.text import Text

        shown = self.value if self.fields is None else self.fields
        if shown is None or shown in ({}, []):
            print_note(self.none)
            return
        if not isinstance(shown, Mapping):
            for item in shown if isinstance(shown, list) else [shown]:
                console.print(shown_value(item), soft_wrap=True)
            return
        table = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in shown.items():
            table.add_row(Text(str(name)), Text(shown_value(value)))
        _write_title(console, self.title)
        console.print(table)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text and numbers; numbers are right-aligned."""

    value: Any
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    none: str = ""

    def raw(self) -> object:
        return self.value

    def write(self, console: Console) -> None:
        from rich.table import Table as RichTable
        from rich.text import Text

        if not self.rows:
            if self.none:
                print_note(self.none)
            return
        table = RichTable(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for index, column in enumerate(self.columns):
            is_number = all(isinstance(row[index], int | float) for row in self.rows)
            table.add_column(column, justify="right" if is_number else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(shown_value(value)) for value in row))
        _write_title(console, self.title)
        console.print(table)


@dataclass(frozen=True, slots=True)
class Page:
    """Several parts, separated by empty lines; `code` is the exit code."""

    value: Any
    parts: Sequence[Done | Names | Record | Table]
    code: int = 0

    def raw(self) -> object:
        return self.value

    def write(self, console: Console) -> None:
        for index, part in enumerate(self.parts):
            if index:
                console.print()
            part.write(console)


@dataclass(frozen=True, slots=True)
class Stream:
    """Items that arrive one by one, possibly without end: `items` for programs, `show` for people."""

    items: Iterator[dict[str, object]]
    show: Callable[[dict[str, object]], str]
    none: str = ""


Output = Done | Names | Record | Table | Page | Stream


def present(output: Output, *, as_json: bool) -> int:
    """Prints the output and returns the exit code."""
    if isinstance(output, Stream):
        _present_stream(output, as_json=as_json)
    elif as_json:
        print(json.dumps(output.raw(), indent=2, ensure_ascii=False))
    else:
        _present_page(output)
    sys.stdout.flush()
    return output.code if isinstance(output, Page) else 0


def _present_page(output: Done | Names | Record | Table | Page) -> None:
    screen = console()
    if screen.is_terminal:
        output.write(screen)
        return
    with screen.capture() as captured:
        output.write(screen)
    text = captured.get()
    if text:
        lines = text.removesuffix("\n").split("\n")
        print("\n".join(line.rstrip(" ") for line in lines))  # tables fill their last column with spaces


def _present_stream(output: Stream, *, as_json: bool) -> None:
    is_empty = True
    for item in output.items:
        print(json.dumps(item, ensure_ascii=False) if as_json else output.show(item), flush=True)
        is_empty = False
    if is_empty and output.none:
        print_note(output.none)


def console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else PAGE_WIDTH
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def print_note(line: str) -> None:
    """A note for people on stderr: stdout is for results."""
    print(line, file=sys.stderr)


def _write_title(console: Console, title: str) -> None:
    if title:
        console.print(title, style="bold")


def shown_value(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, list | tuple | set):
        return ", ".join(_nested(item) for item in value) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_nested(item)}" for name, item in value.items()) or "-"
    return str(value)


def _nested(value: object) -> str:
    """In parentheses if it contains commas."""
    text = shown_value(value)
    return f"({text})" if isinstance(value, list | tuple | set | Mapping) and value else text


def counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def shown_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def shown_bytes(count: object) -> str:
    if not isinstance(count, int | float) or count < 0:
        return "-"
    size = float(count)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1024 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")

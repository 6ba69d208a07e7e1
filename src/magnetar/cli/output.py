"""What a command has to say, and how it is printed: tables for people, JSON for programs.

A command returns one of these. With `--json` exactly one JSON document goes to stdout (one per line from a `Stream`)
and nothing else does. It knows nothing of brokers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PAGE_WIDTH = 1_000_000
"""Where the output is no terminal nothing is folded, so that names can be searched and cut."""


@dataclass(frozen=True, slots=True)
class Done:
    """Something was changed."""

    text: str

    def raw(self) -> object:
        return {"done": self.text}

    def write(self, console: Console) -> None:
        console.print(self.text, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Names:
    """A plain list, one on each line."""

    names: Sequence[str]
    none: str = ""

    def raw(self) -> object:
        return list(self.names)

    def write(self, console: Console) -> None:
        for name in self.names:
            console.print(name, soft_wrap=True)
        if not self.names and self.none:
            complain(self.none)


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of one thing; `value` is it as the broker said it."""

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
            complain(self.none)
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
    """Rows of texts and numbers; numbers stand to the right."""

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
                complain(self.none)
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
    """Several parts under each other, with an empty line between; `code` is the exit code."""

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
    """What comes one by one, perhaps for ever: `items` as programs see them, `show` as people do."""

    items: Iterator[dict[str, object]]
    show: Callable[[dict[str, object]], str]
    none: str = ""


Output = Done | Names | Record | Table | Page | Stream


def present(answer: Output, *, as_json: bool) -> int:
    """Prints it and returns the exit code."""
    if isinstance(answer, Stream):
        _present_stream(answer, as_json=as_json)
    elif as_json:
        print(json.dumps(answer.raw(), indent=2, ensure_ascii=False))
    else:
        _present_page(answer)
    sys.stdout.flush()
    return answer.code if isinstance(answer, Page) else 0


def _present_page(answer: Done | Names | Record | Table | Page) -> None:
    screen = console()
    if screen.is_terminal:
        answer.write(screen)
        return
    with screen.capture() as captured:
        answer.write(screen)
    text = captured.get()
    if text:
        lines = text.removesuffix("\n").split("\n")
        print("\n".join(line.rstrip(" ") for line in lines))  # tables fill their last column with spaces


def _present_stream(answer: Stream, *, as_json: bool) -> None:
    is_empty = True
    for item in answer.items:
        print(json.dumps(item, ensure_ascii=False) if as_json else answer.show(item), flush=True)
        is_empty = False
    if is_empty and answer.none:
        complain(answer.none)


def console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else PAGE_WIDTH
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def complain(line: str) -> None:
    """A remark for people: not on stdout, where only answers are."""
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
    """In brackets, where it has commas of its own."""
    text = shown_value(value)
    return f"({text})" if isinstance(value, list | tuple | set | Mapping) and value else text


def counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def shown_bytes(count: object) -> str:
    if not isinstance(count, int | float) or count < 0:
        return "-"
    size = float(count)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1024 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")

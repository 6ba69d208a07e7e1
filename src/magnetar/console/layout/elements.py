"""Plain HTML elements with text that is always escaped, links, tables, empty states and errors.

Text goes to the browser as data and becomes a text node there: no function here takes markup. Names of attributes are
ours; only their values may be from a broker, and the address of a link is made by `href`, below this console.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlencode

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from magnetar.console.options import TEXT_SHOWN_MAX

Cell = str | Callable[[], None]
"""Text, or a function that builds what is in the cell."""


def text(tag: str, content: str, classes: str = "", **attributes: str) -> TextElement:
    element = TextElement(tag=tag, text=cut(content))
    _dress(element, classes, attributes)
    return element


def box(tag: str, classes: str = "", **attributes: str) -> ui.element:
    element = ui.element(tag)
    _dress(element, classes, attributes)
    return element


def _dress(element: ui.element, classes: str, attributes: Mapping[str, str]) -> None:
    if classes:
        element.classes(classes)
    for name, value in attributes.items():
        element.props[name.rstrip("_").replace("_", "-")] = value


def cut(content: str, limit: int = TEXT_SHOWN_MAX) -> str:
    return content if len(content) <= limit else f"{content[:limit]}… ({len(content):,} characters)"


def href(*segments: str, query: Mapping[str, object] | None = None) -> str:
    """An address of this console."""
    path = "/" + "/".join(quote(one, safe="") for one in segments)
    given = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def link(content: str, address: str, classes: str = "", **attributes: str) -> ui.element:
    return text("a", content, classes, href=address, **attributes)


def link_cell(content: str, address: str) -> Callable[[], None]:
    def build() -> None:
        link(content, address)

    return build


def button(content: str, on_click: Callable[[], object], classes: str = "", **attributes: str) -> TextElement:
    """A plain one: it looks the same in both themes."""
    element = text("button", content, f"button {classes}", type="button", **attributes)
    element.on("click", lambda: on_click())
    return element


class TableColumn(NamedTuple):
    """`address` is where its heading leads, to sort by it. `order` is `ascending` or `descending` if it is sorted.
    What `is_short` stays on one line."""

    name: str
    is_number: bool = False
    address: str = ""
    order: str = ""
    is_short: bool = False


def table(caption: str, columns: Sequence[TableColumn], rows: Iterable[Sequence[Cell]], classes: str = "") -> None:
    """On a phone each row becomes a card: a cell has the name of its column in `data-label`."""
    with box("div", f"table-box {classes}"), box("table"):
        text("caption", caption, "hidden-text")
        with box("thead"), box("tr"):
            for column in columns:
                _heading(column)
        with box("tbody"):
            for row in rows:
                with box("tr"):
                    for index, (column, cell) in enumerate(zip(columns, row, strict=True)):
                        _cell(column, cell, is_first=index == 0)


def _heading(column: TableColumn) -> None:
    attributes = {"scope": "col"} | ({"aria_sort": column.order} if column.order else {})
    with box("th", "number" if column.is_number else "", **attributes):
        if not column.address:
            text("span", column.name)
            return
        mark = {"ascending": " ▲", "descending": " ▼"}.get(column.order, "")
        link(f"{column.name}{mark}", column.address, "sort", aria_label=f"Sort by {column.name}")


def _cell(column: TableColumn, cell: Cell, *, is_first: bool) -> None:
    classes = "number" if column.is_number else "short" if column.is_short else ""
    attributes = {"data_label": column.name}
    tag = "th" if is_first else "td"
    if is_first:
        attributes["scope"] = "row"
    if isinstance(cell, str):
        text(tag, cell, classes, **attributes)
        return
    with box(tag, classes, **attributes):
        cell()


def fields(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Names and values, as a description list."""
    with box("dl", "fields"):
        for name, value in pairs:
            text("dt", name)
            if isinstance(value, str):
                text("dd", value)
            else:
                with box("dd"):
                    value()


def tiles(pairs: Iterable[tuple[str, str, str]]) -> None:
    """Large numbers: name, value with unit, address or nothing."""
    with box("dl", "tiles"):
        for name, value, address in pairs:
            with box("div", "tile"):
                text("dt", name)
                with box("dd"):
                    if address:
                        link(value, address)
                    else:
                        text("span", value)


def empty(title: str, hint: str, command: str = "") -> None:
    """What to do next where there is nothing."""
    with box("div", "empty"):
        text("p", title, "empty-title")
        text("p", hint)
        if command:
            text("pre", command, "command", tabindex="0", aria_label="Command")


def fault(message: str, hint: str = "") -> None:
    with box("div", "error", role="alert"):
        text("p", message)
        if hint:
            text("p", hint, "hint")


def badge(content: str, kind: str = "") -> None:
    text("span", content, f"badge {kind}")

"""Topics of all namespaces or of one: search, sort, pages of fifty.

The query is in the address, so a list can be linked, and the buttons of a browser work. Read from `brokers/topics`;
without it, names by namespace, without numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from magnetar.console.layout.elements import Cell, TableColumn, badge, box, empty, href, link, table, text
from magnetar.console.layout.paging import offset_of, page_links
from magnetar.console.layout.units import count, counted, rate, size
from magnetar.console.layout.view import ConsoleView
from magnetar.console.options import ROWS_PER_PAGE
from magnetar.console.pages.overview import PUBLISH_HINT, topic_address
from magnetar.console.rest.listing import topic_page, topic_rows_by_name
from magnetar.console.rest.model import TopicRow

SORTS = {
    "name": "Topic",
    "rateIn": "In",
    "rateOut": "Out",
    "backlog": "Backlog",
    "storedBytes": "Stored",
    "deadLetters": "Dead letters",
}
_SEARCH_MAX = 200
_ORDERS = {"asc": "ascending", "desc": "descending"}
_CALM_STATES = ("", "ok", "idle", "active", "unloaded", "terminated")


class Listed(msgspec.Struct, frozen=True):
    """`has_numbers`: the broker sorts and counts; otherwise there are names alone."""

    rows: list[TopicRow]
    total: int
    has_numbers: bool


def chosen(query: Mapping[str, str]) -> dict[str, str]:
    """The valid part of a query."""
    sort = query.get("sort", "name")
    found = {
        "search": query.get("search", "").strip()[:_SEARCH_MAX],
        "namespace": query.get("namespace", "").strip()[:_SEARCH_MAX],
        "sort": sort if sort in SORTS else "name",
    }
    default = "asc" if found["sort"] == "name" else "desc"
    order = query.get("order", default)
    return {**found, "order": order if order in _ORDERS else default}


def show(view: ConsoleView) -> None:
    query, offset = chosen(view.query), offset_of(view.query)
    _filters(query)

    async def load() -> Listed:
        given = {name: value for name, value in query.items() if value}
        page = await topic_page(view.api, {**given, "offset": offset})
        if page is not None:
            return Listed(page.topics, page.total, True)
        rows = await topic_rows_by_name(view.api, query["namespace"], query["search"])
        if query["order"] == "desc":
            rows.reverse()
        return Listed(rows[offset : offset + ROWS_PER_PAGE], len(rows), False)

    view.part(load, lambda found: _list(found, query, offset))


def _filters(query: Mapping[str, str]) -> None:
    with box("form", "filters", action="/topics", method="get", role="search", aria_label="Filter topics"):
        for name, title in (("search", "Name contains"), ("namespace", "Namespace")):
            with box("label"):
                text("span", title)
                hint = "" if name == "search" else "tenant/namespace"
                box("input", type="text", name=name, value=query[name], placeholder=hint, maxlength=str(_SEARCH_MAX))
        text("button", "Search", "button", type="submit")
        if query["search"] or query["namespace"]:
            link("Clear", "/topics", "button")


def _list(found: Listed, query: Mapping[str, str], offset: int) -> None:
    if not found.rows:
        if query["search"] or query["namespace"]:
            empty("No topic matches", "Try a part of its name, or clear the search to see all topics.")
        else:
            empty("There are no topics yet", "Publish a first message, and its topic is created:", PUBLISH_HINT)
        return
    table("Topics", _columns(query, found.has_numbers), [_row(one, found.has_numbers) for one in found.rows])
    page_links(("topics",), query, offset, found.total, "topics")


def _columns(query: Mapping[str, str], has_numbers: bool) -> list[TableColumn]:
    names = SORTS if has_numbers else {"name": "Topic"}
    columns = []
    for sort, title in names.items():
        is_sorted = query["sort"] == sort
        first = "asc" if sort == "name" else "desc"
        order = {"asc": "desc", "desc": "asc"}[query["order"]] if is_sorted else first
        address = href("topics", query={**query, "sort": sort, "order": order})
        columns.append(TableColumn(title, sort != "name", address, _ORDERS[query["order"]] if is_sorted else ""))
    if has_numbers:
        columns += [TableColumn("Subscriptions", is_number=True), TableColumn("State", is_short=True)]
    return columns


def _row(one: TopicRow, has_numbers: bool) -> list[Cell]:
    def name() -> None:
        link(one.topic.removeprefix("persistent://"), topic_address(one.topic))
        if one.partitions:
            text("span", f" {counted(one.partitions, 'partition')}", "hint")

    if not has_numbers:
        return [name]

    def state() -> None:
        name = one.state or ""
        if name in _CALM_STATES:
            text("span", name or "ok")
        else:
            badge(name, "failed" if name == "damaged" else "warning")

    return [
        name,
        rate(one.rate_in),
        rate(one.rate_out),
        f"{count(one.backlog)} msg",
        size(one.stored_bytes),
        f"{count(one.dead_letters)} msg",
        count(one.subscriptions),
        state,
    ]

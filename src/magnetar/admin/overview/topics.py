"""A page of topics: searched, sorted and cut. All of it in time slices: ten thousand rows are no trouble."""

from __future__ import annotations

from collections.abc import Callable
from heapq import merge
from typing import Any, NamedTuple

from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.overview.model import TopicPage, TopicRow
from magnetar.admin.overview.snapshot import BrokerSnapshot
from magnetar.admin.overview.visible import Seen

_SORTED_AT_A_TIME = 500

Key = Callable[[TopicRow], Any]

SORTS: dict[str, Key] = {
    "name": lambda row: row.topic,
    "rateIn": lambda row: row.rate_in,
    "rateOut": lambda row: row.rate_out,
    "backlog": lambda row: row.backlog,
    "storedBytes": lambda row: row.stored_bytes,
    "deadLetters": lambda row: row.dead_letters,
}


class TopicQuery(NamedTuple):
    """`search` is part of a name, in any case."""

    search: str
    namespace: str
    sort: str
    is_descending: bool
    limit: int
    offset: int


async def page_of(snapshot: BrokerSnapshot, seen: Seen, wanted: TopicQuery, time_slice: TimeSlice) -> TopicPage:
    """Rows that are equal in what they are sorted by are in the order of their names.

    All of them in one order are kept with the snapshot: consoles ask for the same every few seconds.
    """
    order = (wanted.sort, wanted.is_descending)
    is_everything = seen.is_all and not wanted.search and not wanted.namespace
    rows = snapshot.orders.get(order) if is_everything else None
    if rows is None:
        rows = await _sorted(await _matching(seen, wanted, time_slice), wanted, time_slice)
        if is_everything:
            snapshot.orders[order] = rows
    return TopicPage(len(rows), rows[wanted.offset : wanted.offset + wanted.limit])


async def _matching(seen: Seen, wanted: TopicQuery, time_slice: TimeSlice) -> list[TopicRow]:
    found: list[TopicRow] = []
    search = wanted.search.lower()
    for part, *_ in seen.parts:
        if wanted.namespace not in ("", part.name):
            continue
        for row in part.rows:
            if not search or search in row.topic.lower():
                found.append(row)
            if time_slice.is_over:
                await time_slice.restart()
    return found


async def _sorted(rows: list[TopicRow], wanted: TopicQuery, time_slice: TimeSlice) -> list[TopicRow]:
    """Short runs are sorted at once, and then merged."""
    key, is_reversed = SORTS[wanted.sort], wanted.is_descending and wanted.sort == "name"
    sign = -1 if wanted.is_descending else 1

    def by_number(row: TopicRow) -> Any:
        return sign * key(row), row.topic

    order = key if wanted.sort == "name" else by_number
    runs = []
    for start in range(0, len(rows), _SORTED_AT_A_TIME):
        runs.append(sorted(rows[start : start + _SORTED_AT_A_TIME], key=order, reverse=is_reversed))
        await time_slice.checkpoint()
    found: list[TopicRow] = []
    for row in merge(*runs, key=order, reverse=is_reversed):
        found.append(row)
        if time_slice.is_over:
            await time_slice.restart()
    return found

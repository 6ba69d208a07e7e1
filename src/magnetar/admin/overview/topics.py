"""A page of topics: searched, sorted and cut. All of it in time slices: ten thousand rows are no trouble."""

from __future__ import annotations

from collections.abc import Callable
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.overview.model import TopicPage, TopicRow
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


class Wanted(NamedTuple):
    """`search` is part of a name, in any case."""

    search: str
    namespace: str
    sort: str
    is_descending: bool
    limit: int
    offset: int


async def page_of(seen: Seen, wanted: Wanted, time_slice: TimeSlice) -> TopicPage:
    """Rows that are equal in what they are sorted by are in the order of their names."""
    rows: list[TopicRow] = []
    search = wanted.search.lower()
    for part, *_ in seen.parts:
        if wanted.namespace not in ("", part.name):
            continue
        for row in part.rows:
            if not search or search in row.topic.lower():
                rows.append(row)
            if time_slice.is_over:
                await time_slice.restart()
    page: list[TopicRow] = []
    key, sign = SORTS[wanted.sort], -1 if wanted.is_descending else 1

    def by_number(row: TopicRow) -> Any:
        return sign * key(row), row.topic

    by_name = wanted.sort == "name"
    order = key if by_name else by_number
    runs = []
    for start in range(0, len(rows), _SORTED_AT_A_TIME):
        runs.append(sorted(rows[start : start + _SORTED_AT_A_TIME], key=order, reverse=by_name and sign < 0))
        await time_slice.checkpoint()
    merged = merge(*runs, key=order, reverse=by_name and sign < 0)
    for row in islice(merged, wanted.offset + wanted.limit):
        page.append(row)
        if time_slice.is_over:
            await time_slice.restart()
    return TopicPage(len(rows), page[wanted.offset :])

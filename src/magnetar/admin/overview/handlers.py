"""The calls: the overview of the broker, and a page of its topics, from the snapshot that all callers share."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.request import Call
from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.overview.answer import overview_of
from magnetar.admin.overview.model import Overview, TopicPage
from magnetar.admin.overview.snapshots import Snapshots
from magnetar.admin.overview.topics import SORTS, TopicQuery, page_of
from magnetar.admin.overview.visible import seen_by

LIMIT_DEFAULT, LIMIT_MAX = 100, 500
_OFFSET_MAX = 10_000_000


def _snapshots(call: Call) -> Snapshots:
    return call.shared_by_all(Snapshots, lambda: Snapshots(call.broker, call.vitals))


async def get_overview(call: Call) -> Response | Overview:
    """Show the whole broker in one answer: numbers, dead letters, replication, pipelines, what needs attention.

    Of the namespaces whose topics the caller may list.
    """
    snapshot = await _snapshots(call).current(call.alarm)
    time_slice = TimeSlice()
    seen = await seen_by(call, snapshot, time_slice)
    if not seen.is_all:
        return await overview_of(call.broker, snapshot, seen, time_slice)
    if not snapshot.whole:
        snapshot.whole = msgspec.json.encode(await overview_of(call.broker, snapshot, seen, time_slice))
    return Response(snapshot.whole, media_type="application/json")


async def get_topics(call: Call) -> TopicPage:
    """Search and sort the topics that the caller may list, with their numbers; `limit` (1 to 500) from `offset` on.

    Partitions are counted together. `search` is part of a name, `sort` one of name, rateIn, rateOut, backlog,
    storedBytes, deadLetters, `order` asc or desc.
    """
    query = call.query
    sort, order = query.get("sort", "name"), query.get("order", "")
    if sort not in SORTS:
        raise BadRequest(f"parameter sort={sort[:100]!r} is not one of {', '.join(SORTS)}")
    if order not in ("", "asc", "desc"):
        raise BadRequest(f"parameter order={order[:100]!r} is not asc or desc")
    wanted = TopicQuery(
        search=query.get("search", ""),
        namespace=query.get("namespace", ""),
        sort=sort,
        is_descending=order == "desc" or (not order and sort != "name"),
        limit=call.number("limit", 1, LIMIT_MAX, default=LIMIT_DEFAULT),
        offset=call.number("offset", 0, _OFFSET_MAX, default=0),
    )
    snapshot = await _snapshots(call).current(call.alarm)
    time_slice = TimeSlice()
    return await page_of(snapshot, await seen_by(call, snapshot, time_slice), wanted, time_slice)

"""Lists of namespaces and topics: Magnetar's summaries, or put together from calls that Apache Pulsar has too."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec

from magnetar.console.options import ROWS_PER_PAGE
from magnetar.console.rest.admin import AdminApi, Query
from magnetar.console.rest.errors import BrokerError, BrokerUnreachable, LoginRefused, RequestRefused, RightRefused
from magnetar.console.rest.model import Overview, TopicPage, TopicRow

T = TypeVar("T")

_TENANTS_MAX = 200
_NAMESPACES_MAX = 500


async def overview_of(api: AdminApi) -> Overview | None:
    """None without the path, or for a role that may not ask for it."""
    return await _summary(api, Overview, "overview", None)


async def topic_page(api: AdminApi, query: Query) -> TopicPage | None:
    """None as above."""
    return await _summary(api, TopicPage, "topics", {"limit": ROWS_PER_PAGE, **query})


async def _summary(api: AdminApi, type_: type[T], name: str, query: Query | None) -> T | None:
    try:
        response = await api.request("GET", ("brokers", name), query=query)
    except RightRefused:
        return None
    except LoginRefused:
        raise
    except RequestRefused as error:
        if error.is_missing:
            return None
        raise
    try:
        return msgspec.json.decode(response.content, type=type_)
    except msgspec.MsgspecError:  # the path names a cluster where it has no meaning of its own: a list of brokers
        return None


async def namespaces_of(api: AdminApi) -> list[str]:
    """Those that this role may list."""
    tenants = await api.get(list[str], "tenants")

    async def of(tenant: str) -> list[str]:
        try:
            return await api.get(list[str], "namespaces", tenant)
        except RightRefused:
            return []

    found = await asyncio.gather(*map(of, tenants[:_TENANTS_MAX]))
    return sorted(name for names in found for name in names)[:_NAMESPACES_MAX]


async def topic_names_of(api: AdminApi, namespace: str) -> list[str]:
    """Persistent topics of a namespace, a partitioned topic once."""
    tenant, _, local = namespace.partition("/")
    names, partitioned = await asyncio.gather(
        api.get(list[str], "persistent", tenant, local), api.get(list[str], "persistent", tenant, local, "partitioned")
    )
    shown = [name for name in names if name.rpartition("-partition-")[0] not in partitioned]
    return sorted({*shown, *partitioned})


async def topic_rows_by_name(api: AdminApi, namespace: str, search: str) -> list[TopicRow]:
    """Names alone, of one namespace or all that this role may list."""
    namespaces = [namespace] if namespace else await namespaces_of(api)

    async def of(name: str) -> list[str]:
        try:
            return await topic_names_of(api, name)
        except (LoginRefused, BrokerUnreachable):
            raise
        except BrokerError:
            if namespace:
                raise
            return []

    found = await asyncio.gather(*map(of, namespaces))
    return [TopicRow(topic=name) for names in found for name in names if search.lower() in name.lower()]

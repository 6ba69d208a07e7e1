"""What a caller may see of a snapshot: the namespaces whose topics it may list.

The reasons of dead letters come from messages, so they need the right to consume; pipelines need that to administer.
Asked anew for each request: a permission that is taken away counts at once.
"""

from __future__ import annotations

from typing import NamedTuple

from magnetar.access.needs import Need, Right, right_on_namespace
from magnetar.admin.http.request import Call
from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.overview.snapshot import BrokerSnapshot, NamespacePart


class SeenPart(NamedTuple):
    part: NamespacePart
    sees_reasons: bool = True
    sees_pipelines: bool = True


class Seen(NamedTuple):
    """`is_all`: the caller is a super user, or there is no authorization."""

    parts: list[SeenPart]
    is_all: bool


async def seen_by(call: Call, snapshot: BrokerSnapshot, time_slice: TimeSlice) -> Seen:
    if _may(call, Right(Need.SUPER_USER)):
        return Seen([SeenPart(part) for part in snapshot.parts.values()], is_all=True)
    parts = []
    for name, part in snapshot.parts.items():
        if _may(call, right_on_namespace(Need.LIST_TOPICS, name)):
            reasons = _may(call, right_on_namespace(Need.CONSUME_ALL, name))
            parts.append(SeenPart(part, reasons, _may(call, right_on_namespace(Need.TENANT_ADMIN, name))))
        await time_slice.checkpoint()
    return Seen(parts, is_all=False)


def _may(call: Call, right: Right) -> bool:
    return call.broker.authorization.allows(call.principal, (right,))

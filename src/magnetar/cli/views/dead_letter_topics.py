"""Dead letter topics of a namespace, as `deadletters overview` shows them.

Requested by REST. If the broker does not have the path, as Apache Pulsar, they are found by their names and counted by
their statistics, which do not tell when dead letters arrived.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from magnetar.cli.argument import NamespaceName
from magnetar.cli.path import namespace_path, topic_path
from magnetar.cli.rest import Refused, Rest
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX, possible_primaries
from magnetar.names import TopicName
from magnetar.replication.model import is_replication_subscription

Position = tuple[int, int]  # ledger and entry

_NO_SUCH_PATH = (404, 405, 501)
_POSITION = r"(\d+):(-?\d+)"
_RANGE = re.compile(rf"\({_POSITION}\.\.{_POSITION}\]")


def overview(rest: Rest, namespace: NamespaceName, limit: int, after: str | None) -> dict[str, Any]:
    """`topics` with their numbers, and the `next` to continue after."""
    try:
        query = {"limit": limit, "after": after}
        reply: dict[str, Any] = rest.get(*namespace_path(namespace, "deadLetters"), query=query)
        return reply
    except Refused as error:
        if error.status not in _NO_SUCH_PATH:
            raise
    names = _topics(rest, namespace)
    bases: dict[str, list[TopicName]] = {}
    for name in map(TopicName.parse, names):
        if name.base.local.endswith(DEAD_LETTER_SUFFIX):
            bases.setdefault(name.base.full, []).append(name)
    wanted = sorted(full for full in bases if full > (after or ""))
    known = {TopicName.parse(name).base.full for name in names}
    rows = [_counted(rest, bases[full], known) for full in wanted[:limit]]
    return {"topics": rows, "next": wanted[limit - 1] if len(wanted) > limit else None}


def dead_letter_topics_of(rest: Rest, topic: TopicName) -> list[str]:
    """The names of a topic's dead letter topics."""
    names = _topics(rest, NamespaceName(*topic.namespace_full.split("/")))
    known = {TopicName.parse(name).base.full for name in names}
    return sorted(
        full
        for full in known
        if full.endswith(DEAD_LETTER_SUFFIX) and _origin(TopicName.parse(full), known)[0] == topic.base.full
    )


def _topics(rest: Rest, namespace: NamespaceName) -> list[str]:
    names: list[str] = rest.get("persistent", namespace.tenant, namespace.namespace)
    return names


def _origin(name: TopicName, known: set[str]) -> tuple[str, str]:
    primary = max((full for full in possible_primaries(name) if full in known), key=len, default="")
    return primary, name.full[len(primary) + 1 : -len(DEAD_LETTER_SUFFIX)] if primary else ""


def _counted(rest: Rest, partitions: list[TopicName], known: set[str]) -> dict[str, Any]:
    waiting = stored = 0
    for name in partitions:
        entries = int(rest.get(*topic_path(name, "internalStats"))["numberOfEntries"])
        backlogs = [one["msgBacklog"] for one in _durable(rest, name).values()]
        waiting += max(backlogs) if backlogs else entries
        stored += entries
    topic, subscription = _origin(partitions[0].base, known)
    return {
        "topic": partitions[0].base.full,
        "originTopic": topic,
        "originSubscription": subscription,
        "waiting": waiting,
        "handled": max(0, stored - waiting),
        "lastHour": None,
        "oldest": None,
        "oldestAgeSeconds": None,
    }


def _durable(rest: Rest, name: TopicName) -> dict[str, Any]:
    subscriptions = rest.get(*topic_path(name, "stats"))["subscriptions"]
    return {
        subscription: stats
        for subscription, stats in subscriptions.items()
        if stats.get("isDurable", True) and not is_replication_subscription(subscription)
    }


# -- handled messages


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The positions that every durable subscription of a topic has acknowledged."""

    cursors: tuple[tuple[Position, list[tuple[Position, Position]]], ...]

    @classmethod
    def of(cls, rest: Rest, name: TopicName) -> Acknowledged:
        found = rest.get(*topic_path(name, "internalStats"))["cursors"]
        return cls(tuple(_cursor(found[one]) for one in _durable(rest, name) if one in found))

    def __contains__(self, position: Position) -> bool:
        return bool(self.cursors) and all(
            position <= mark or any(before < position <= last for before, last in ranges)
            for mark, ranges in self.cursors
        )


def _cursor(stats: dict[str, Any]) -> tuple[Position, list[tuple[Position, Position]]]:
    """The mark-delete position, and the ranges above it as the position before the first and the last."""
    ledger, _, entry = stats["markDeletePosition"].partition(":")
    ranges = _RANGE.findall(stats.get("individuallyDeletedMessages") or "")
    return (int(ledger), int(entry)), [((int(a), int(b)), (int(c), int(d))) for a, b, c, d in ranges]

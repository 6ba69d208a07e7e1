"""Subscriptions that do not move, and why.

Owns when each last moved, as far as it was looked at: a subscription that acknowledges and delivers nothing between
two looks is watched, and after a while has a reason. Reasons that are plain at once (paused, blocked, no consumer) do
not wait. Knows no caller and no text of other kinds.
"""

from __future__ import annotations

from typing import NamedTuple

from magnetar.admin.overview.model import AttentionKind, Severity
from magnetar.broker.subscription.subscription import Subscription

STILL_MS = 60_000
"""Without an acknowledgement or a delivery for this long, a subscription with permits does not move."""

HELD_MS = 300_000
"""The same where consumers hold messages: they may work on them for minutes."""

_SHOWN_MAX = 300  # of a reason that a client may have written


class Stuck(NamedTuple):
    severity: Severity
    kind: AttentionKind
    text: str


class _Still(NamedTuple):
    """Delivered messages, mark-delete position, positions above it; and since when they are the same."""

    delivered: int
    mark_delete: int
    acked: int
    since_ms: int


class Movements:
    """Of subscriptions with a backlog and consumers; `look` is called once for each in a snapshot."""

    def __init__(self) -> None:
        self._still: dict[tuple[str, str], _Still] = {}
        self._looked_at: dict[tuple[str, str], _Still] = {}

    def begin(self) -> None:
        self._looked_at = {}

    def end(self) -> None:
        """Forgets subscriptions that were not looked at."""
        self._still = self._looked_at

    def why_stuck(self, one: Subscription, now_ms: int) -> Stuck | None:
        """`now_ms` is of the monotonic clock; called for durable subscriptions of clients with a backlog."""
        if one.record.paused:
            return Stuck("error", AttentionKind.PAUSED, f"is paused: {one.record.paused[:_SHOWN_MAX]}")
        if one.dead_letters.problem:
            problem = one.dead_letters.problem[:_SHOWN_MAX]
            return Stuck("error", AttentionKind.DEAD_LETTER_PROBLEM, f"cannot write a dead letter: {problem}")
        if not one.consumers:
            return Stuck("warning", AttentionKind.NO_CONSUMER, "has no consumer")
        still_ms = self._still_ms(one, now_ms)
        if one.deliveries.is_blocked or all(consumer.is_blocked for consumer in one.consumers):
            text = f"is blocked: its consumers hold {_messages(one.places.unacked)} unacknowledged, the limit"
            return Stuck("error", AttentionKind.BLOCKED, text)
        return None if still_ms < STILL_MS else _why_still(one, still_ms)

    def _still_ms(self, one: Subscription, now_ms: int) -> int:
        found = (one.deliveries.messages, one.cursor.mark_delete, len(one.cursor.acked))
        known = self._still.get(one.where)
        since_ms = known.since_ms if known is not None and known[:3] == found else now_ms
        self._looked_at[one.where] = _Still(*found, since_ms)
        return now_ms - since_ms


def _why_still(one: Subscription, still_ms: int) -> Stuck | None:
    places, span = one.places, f"for {still_ms // 60_000} min"
    ready = [consumer for consumer in one.consumers if consumer.can_receive]
    if places.keys is not None and places.keys.waiting and ready:
        holders = {
            held[0].name for key_hash in places.keys.waiting if (held := places.keys.holders.get(key_hash)) is not None
        }
        who = f"consumer {min(holders)[:_SHOWN_MAX]} holds" if len(holders) == 1 else f"{len(holders)} consumers hold"
        text = f"waits for {_keys(len(places.keys.waiting))} {span}: {who} earlier messages unacknowledged"
        return Stuck("warning", AttentionKind.KEY, text) if holders else None
    if not ready and still_ms >= STILL_MS and not places.unacked:
        return Stuck("warning", AttentionKind.SLOW, f"does not move {span}: its consumers ask for no messages")
    if places.unacked and still_ms >= HELD_MS:
        text = f"does not move {span}: its consumers hold {_messages(places.unacked)} and acknowledge none"
        return Stuck("warning", AttentionKind.SLOW, text)
    return None


def _keys(count: int) -> str:
    return "a key" if count == 1 else f"{count} keys"


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"

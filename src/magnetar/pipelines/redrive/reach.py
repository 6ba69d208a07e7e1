"""The reach of a redrive: letters that a subscription of their topic can acknowledge.

Letters older than every durable subscription of their topic wait for good: no cursor covers them. Owns the cut.
"""

from __future__ import annotations

from dataclasses import replace

from magnetar.client.message import MessageId
from magnetar.names import TopicName
from magnetar.spark.dead_letters.cursor_admin import CursorAdmin
from magnetar.spark.dead_letters.plan import LetterPlan, LetterRange

_NOTHING_OPEN = 1 << 62


def split_by_reach(plan: LetterPlan, admin: CursorAdmin) -> tuple[LetterPlan, list[LetterRange]]:
    """The plan with what can be acknowledged, and the ranges that cannot. A topic without a durable subscription is
    left as it is: a run creates one."""
    reached: list[LetterRange] = []
    older: list[LetterRange] = []
    for one in plan.ranges:
        start, end = one.span.start, one.span.end
        first = _first_open(one, admin)
        if first is not None and start.entry_id < first - 1 and start.ledger_id == end.ledger_id:
            cut = MessageId(start.ledger_id, min(first - 1, end.entry_id), start.partition)
            older.append(replace(one, span=replace(one.span, end=cut)))
            if cut.entry_id == end.entry_id:
                continue
            one = replace(one, span=replace(one.span, start=cut))
        reached.append(one)
    return replace(plan, ranges=tuple(reached)), older


def _first_open(one: LetterRange, admin: CursorAdmin) -> int | None:
    """The first entry that a durable subscription has not acknowledged; None without a subscription."""
    topic = one.span.topic
    names = admin.durable_subscriptions(topic)
    if not names:
        return None
    firsts = [admin.unacknowledged(topic, name).first for name in names]
    return min((first[1] for first in firsts if first is not None), default=_NOTHING_OPEN)


def out_of_reach(letter_topic: str) -> str:
    """Why such letters stay."""
    topic = TopicName.parse(letter_topic).base.full
    return f"the letter is older than the subscriptions of {topic}: reset one of them to the earliest message"

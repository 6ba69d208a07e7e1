"""Skipping what cannot be read, by an administrator's decision: a subscription goes on after it.

Owns how far is skipped. Nothing is deleted: the entries that cannot be read go with the others when the topic is
trimmed, and other subscriptions decide for themselves. Knows no HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from magnetar.bounds import DAMAGE_SKIPPED
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.errors import SubscriptionNotFound
from magnetar.log.events import DAMAGE_SKIPPED as SKIPPED_EVENT

if TYPE_CHECKING:
    from magnetar.broker.subscription.subscription import Subscription
    from magnetar.broker.topic.persistent import PersistentTopic


class Skipped(msgspec.Struct, rename="camel", kw_only=True):
    """`first` and `last` are positions. `started_over`: the position was lost, the first message is delivered again.

    `is_left`: there is more to skip, by another call.
    """

    entries: int = 0
    first: str = ""
    last: str = ""
    started_over: bool = False
    is_left: bool = False


def skip_damaged(topic: PersistentTopic, name: str) -> Skipped:
    """Moves a subscription past the entries that it cannot read; one without a readable position starts over."""
    if name in topic.damaged:
        return _start_over(topic, name)
    subscription = topic.subscription(name)
    if subscription is None:
        raise SubscriptionNotFound(f"Subscription {name} not found for topic {topic.name.full}")
    known = topic.broker.damage.of("subscription", *subscription.where)
    start = subscription.cursor.next_open(subscription.cursor.mark_delete + 1)
    if known is not None and known.position:
        start = max(start, int(known.position.partition(":")[2]))
    count = topic.log.unreadable_from(start, DAMAGE_SKIPPED.limit)
    topic.broker.damage.clear("subscription", *subscription.where)
    if not count:
        subscription.schedule_pump()
        return Skipped()
    last = start + count - 1
    _acknowledge(subscription, start, last)
    subscription.schedule_pump()
    first, end = f"{topic.ledger_id}:{start}", f"{topic.ledger_id}:{last}"
    what = f"{count} entries, {first} to {end}, are acknowledged unread"
    topic.broker.event(SKIPPED_EVENT, name=f"subscription {name} of {topic.name.full}", what=what)
    return Skipped(entries=count, first=first, last=end, is_left=count >= DAMAGE_SKIPPED.limit)


def _acknowledge(subscription: Subscription, first: int, last: int) -> None:
    if first <= subscription.cursor.next_open(subscription.cursor.mark_delete + 1):
        subscription.advance(last)
        return
    for entry_id in range(first, last + 1):
        subscription.ack(entry_id)


def _start_over(topic: PersistentTopic, name: str) -> Skipped:
    reason = topic.damaged.reasons[name]
    topic.damaged.erase(name, topic.broker.commits.batch())
    topic.start_over(SubscribeRequest(name, from_earliest=True))
    what = f"it starts over with the first message and without properties and policies, because {reason}"
    topic.broker.event(SKIPPED_EVENT, name=f"subscription {name} of {topic.name.full}", what=what)
    return Skipped(started_over=True)

"""Expiry by dead-lettering: what is too old, or evicted by a quota, goes to the dead letter topic, some per turn.

Owns the turns. The subscription moves each entry; the topic and its quota decide up to where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.deadletter.properties import Reason

if TYPE_CHECKING:
    from magnetar.broker.subscription.subscription import Subscription
    from magnetar.broker.topic.persistent import PersistentTopic

_MOVED_PER_TURN = 100


def dead_letter_up_to(topic: PersistentTopic, subscription: Subscription, last: int, reason: Reason, text: str) -> None:
    """Dead-letters everything up to `last`, some entries per turn of the loop, until one cannot be moved."""
    if topic.is_unloaded or topic.subscriptions.get(subscription.name) is not subscription:
        return  # deleted between two turns
    for _ in range(_MOVED_PER_TURN):
        if subscription.cursor.mark_delete >= last or not subscription.dead_letter_first(reason, text):
            return
    broker = topic.broker
    broker.wake_after(0, lambda: dead_letter_up_to(topic, subscription, last, reason, text))

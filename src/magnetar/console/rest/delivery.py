"""Why a subscription does not move, from its statistics; in the order in which to look at the causes."""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.console.rest.model import SubscriptionAnswer


def reasons(one: SubscriptionAnswer) -> Iterator[str]:
    """Sentences; none if it moves, or has nothing to deliver."""
    if one.damaged:
        yield f"Damaged: {one.damaged}"
    if one.paused_reason:
        yield f"Paused: {one.paused_reason}. Resume it with `magnetar subscriptions resume`."
    if one.dead_letter_problem:
        yield f"A message cannot become a dead letter: {one.dead_letter_problem}"
    if not one.msg_backlog:
        return
    if not one.consumers:
        yield "No consumer is connected: the backlog waits for one."
        return
    if one.blocked_subscription_on_unacked_msgs:
        yield f"Delivery stopped at {one.unacked_messages:,} unacknowledged messages: acknowledge or nack them."
    yield from _of_consumers(one)
    if one.msg_delayed >= one.msg_backlog > 0:
        yield "All messages of the backlog are delayed: they wait for their time."
    if one.backing_off:
        yield f"{one.backing_off:,} failed entries wait until their redelivery back-off is over."


def _of_consumers(one: SubscriptionAnswer) -> Iterator[str]:
    blocked = [consumer for consumer in one.consumers if consumer.blocked_consumer_on_unacked_msgs]
    if blocked:
        yield f"{len(blocked):,} of {len(one.consumers):,} consumers have too many unacknowledged messages."
    active = [consumer for consumer in one.consumers if consumer.consumer_name == one.active_consumer_name]
    receiving = active or one.consumers
    if not blocked and all(consumer.available_permits <= 0 for consumer in receiving):
        yield "No consumer asks for messages (0 permits): full receiver queues, of consumers that are slow or hang."

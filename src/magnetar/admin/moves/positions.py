"""Positions of a topic: those that are not acknowledged, and acknowledging them. What moves messages needs both.

Positions are those of one partition.
"""

from __future__ import annotations

import msgspec

from magnetar.access.needs import Need, Right, right_on_topic
from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.request import Call
from magnetar.admin.needs import CONSUME, Needs, may_use, right_on_subscription
from magnetar.admin.opened import open_persistent
from magnetar.admin.resource.subscriptions import LONG_MAX
from magnetar.broker.moves.move import check_is_kept_by_one, check_stored, subscriptions_of
from magnetar.broker.moves.positions import Acknowledgement
from magnetar.broker.moves.publish import parse_bounded
from magnetar.broker.moves.unacknowledged import page_after
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.errors import RightMissing
from magnetar.pipeline_bounds import UNACKNOWLEDGED_PAGE
from magnetar.wire.moves import ALL_SUBSCRIPTIONS


class UnacknowledgedPage(msgspec.Struct, rename="camel"):
    """`next` is the parameter `after` of the next page, null on the last one."""

    ledger_id: int
    positions: str
    next: int | None


class AcknowledgeBody(msgspec.Struct, forbid_unknown_fields=True):
    positions: str
    subscription: str


_acknowledge: BodyReader[AcknowledgeBody] = BodyReader(AcknowledgeBody)


def _acknowledge_body(call: Call) -> AcknowledgeBody:
    body = call.body_as(_acknowledge)
    if body is None:
        raise BadRequest("the request body is empty: positions and a subscription are expected")
    return body


def _right_on(call: Call, subscription: str) -> Right:
    if subscription == ALL_SUBSCRIPTIONS:
        return right_on_topic(Need.CONSUME, call.topic)
    return right_on_subscription(call.topic, subscription)


READ_POSITIONS = Needs(
    Need.CONSUME.value, lambda call: (_right_on(call, call.query.get("subscription", ALL_SUBSCRIPTIONS)),)
)
ACKNOWLEDGE = CONSUME.with_targets(
    "on the subscription, or on every one of the topic",
    lambda call: (_right_on(call, _acknowledge_body(call).subscription),),
)


def _with_positions(call: Call) -> PersistentTopic:
    name, partitioned = call.topic.full, call.broker.catalog.partitioned.get(call.topic.full)
    last = 0 if partitioned is None else partitioned.partitions - 1
    return open_persistent(
        call,
        partitioned=f"Positions are those of one partition: {name}-partition-0 to {name}-partition-{last}",
        non_persistent="A non-persistent topic has no positions",
    )


def unacknowledged(call: Call) -> UnacknowledgedPage:
    """Show the positions that a subscription, or with `*` any durable one, has not acknowledged; pages by `after`."""
    topic, name = _with_positions(call), call.query.get("subscription", ALL_SUBSCRIPTIONS)
    after = call.number("after", -1, LONG_MAX, -1)
    limit = call.number("limit", 1, UNACKNOWLEDGED_PAGE.limit, UNACKNOWLEDGED_PAGE.limit)
    if name == ALL_SUBSCRIPTIONS:
        found, unread = [one for one in topic.cursors if one.durable and not one.is_internal], topic.read_from
    else:
        found, unread = subscriptions_of(topic, name), 0
    page = page_after(topic, [one.cursor for one in found], unread, after, limit)
    return UnacknowledgedPage(topic.ledger_id, ",".join(part.text for part in page.ranges), page.after_next)


def acknowledge(call: Call) -> None:
    """Acknowledge positions for a subscription, or with `*` for all durable ones, whatever their consumers hold."""
    body, topic = _acknowledge_body(call), _with_positions(call)
    positions = parse_bounded(body.positions, "positions")
    check_stored(topic, positions)
    subscriptions = subscriptions_of(topic, body.subscription)
    if body.subscription == ALL_SUBSCRIPTIONS:
        check_is_kept_by_one(topic, positions)
        for one in subscriptions:
            if not may_use(call, topic.name, one.name):
                raise RightMissing(f"subscription {one.name!r} of {topic.name.full} is not for this role")
    acknowledgements = [Acknowledgement.of(one, positions.ranges) for one in subscriptions]
    call.broker.commits.batch()  # durable, and before the first one, so that all are in this group
    for acknowledgement in acknowledgements:
        acknowledgement.apply()
    for acknowledgement in acknowledgements:
        acknowledgement.settle()

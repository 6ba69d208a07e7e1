"""Subscriptions of a topic: list, create at a position, delete. On a partitioned topic, of all its partitions."""

from __future__ import annotations

import msgspec

from magnetar.admin.call import Call
from magnetar.admin.refusal import BadRequest, Conflict
from magnetar.admin.topics import opened_partitions
from magnetar.broker.persistent import PersistentTopic
from magnetar.broker.topic import SubscribeRequest, Topic
from magnetar.errors import NotAllowed, SubscriptionNotFound

LONG_MAX = (1 << 63) - 1


class Position(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A message id, and what the subscription should carry. The defaults are Pulsar's "latest"."""

    ledger_id: int = LONG_MAX
    entry_id: int = LONG_MAX
    partition_index: int = -1
    batch_index: int = -1
    is_excluded: bool = False
    excluded: bool = False
    properties: dict[str, str] | None = None


_LATEST, _EARLIEST = Position(), Position(ledger_id=-1, entry_id=-1)
_position: msgspec.json.Decoder[Position | str] = msgspec.json.Decoder(Position | str)


def list_subscriptions(call: Call) -> list[str]:
    return sorted({name for topic in opened_partitions(call) for name in topic.subscriptions})


def create(call: Call) -> None:
    name, broker = call.topic, call.broker
    if not name.is_persistent:
        raise BadRequest("Create subscription on non-persistent topic can only be done through client")
    position = _position_of(call)
    request = SubscribeRequest(
        call.subscription,
        from_earliest=position.ledger_id < 0,
        properties=position.properties or {},
        replicated=call.flag("replicated"),
    )
    partitions = broker.catalog.partitions(name, create=True)
    names = [name.with_partition(index) for index in range(partitions)] or [name]
    topics = [broker.topic(one, create=True) for one in names]
    missing = [topic for topic in topics if request.name not in topic.subscriptions]
    if not missing:
        raise Conflict("Subscription already exists for topic")
    for topic in missing:
        _create(topic, request, position)


def _position_of(call: Call) -> Position:
    position = call.body_as(_position)
    if isinstance(position, Position):
        return position
    if position in (None, "", "latest"):
        return _LATEST
    if position == "earliest":
        return _EARLIEST
    ledger_id, separator, entry_id = str(position).partition(":")
    if not separator or not ledger_id.isdecimal() or not entry_id.isdecimal():
        raise BadRequest(f"position {str(position)[:100]!r} is not earliest, latest or ledgerId:entryId")
    return Position(min(int(ledger_id[:20]), LONG_MAX), min(int(entry_id[:20]), LONG_MAX))


def _create(topic: Topic, request: SubscribeRequest, position: Position) -> None:
    assert isinstance(topic, PersistentTopic)
    subscription = topic.create_subscription(request)
    if 0 <= position.ledger_id < LONG_MAX:
        # The id is of the first message to come, as with a seek.
        subscription.seek(topic.entry_after(position.ledger_id, position.entry_id - 1))


def delete(call: Call) -> None:
    name, force = call.subscription, call.flag("force")
    topics = [topic for topic in opened_partitions(call) if name in topic.subscriptions]
    if not topics:
        raise SubscriptionNotFound(f"Subscription {name} not found for topic {call.topic.full}")
    # All or none: a partition with consumers must not be found after others are gone.
    if not force and any(topic.subscriptions[name].consumers for topic in topics):
        raise NotAllowed("Subscription has active connected consumers")
    for topic in topics:
        topic.delete_subscription(name, force=force)

"""Subscriptions of a topic: list, create at a position, delete, pause and properties; `backlog` has their messages.

On a partitioned topic a request applies to every partition.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest, Conflict, MessageNotFound
from magnetar.admin.http.request import Call, check_map
from magnetar.admin.opened import (
    find_durable_subscriptions,
    find_persistent_subscriptions,
    find_subscriptions,
    open_partitions,
    subscription_not_found,
)
from magnetar.bounds import PAUSE_REASON
from magnetar.broker.catalog import creation
from magnetar.broker.subscription.single_messages import SINGLE_ID_MIN, parse_id
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import SubscribeRequest, Topic
from magnetar.deadletter.properties import ERROR_MAX, parse_message_id
from magnetar.errors import NotAllowed
from magnetar.replication.model import is_replication_subscription

LONG_MAX = (1 << 63) - 1
PAUSE_REASON_MAX = PAUSE_REASON.limit
PAUSE_REASON_DEFAULT = "paused by an administrator"

Id = Annotated[int, msgspec.Meta(ge=-1, le=LONG_MAX)]
Index = Annotated[int, msgspec.Meta(ge=-1, le=(1 << 31) - 1)]


class StartPosition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A message id, and properties of the new subscription. The defaults are Pulsar's "latest"."""

    ledger_id: Id = LONG_MAX
    entry_id: Id = LONG_MAX
    partition_index: Index = -1
    batch_index: Index = -1
    batch_size: Index = 0  # sent by pulsar-admin, not needed
    partitioned_index: Index = -1  # pulsarctl's spelling of partition_index
    is_excluded: bool = False
    excluded: bool = False
    properties: dict[str, str] | None = None


_LATEST, _EARLIEST = StartPosition(), StartPosition(ledger_id=-1, entry_id=-1)
_position: BodyReader[StartPosition | str] = BodyReader(StartPosition | str)
_properties: BodyReader[dict[str, str]] = BodyReader(dict[str, str])
_flag: BodyReader[bool] = BodyReader(bool)


# -- create and delete


def list_subscriptions(call: Call) -> list[str]:
    """List the subscriptions of a topic or its partitions, except those of replication and of waiting readers."""
    topics = open_partitions(call)
    found = [one for topic in topics for one in topic.client_subscriptions]
    damaged = {name for topic in topics if isinstance(topic, PersistentTopic) for name in topic.damaged.reasons}
    return sorted({one.name for one in found if not one.is_anonymous} | damaged)


def create(call: Call) -> None:
    """Create a subscription; the body is `earliest`, `latest` (the default) or a message id."""
    name, broker = call.topic, call.broker
    if not name.is_persistent:
        raise BadRequest("Create subscription on non-persistent topic can only be done through client")
    if is_replication_subscription(call.subscription):
        raise NotAllowed(f"subscription name {call.subscription!r} is reserved for replication")
    position = _start_position(call)
    properties = position.properties or {}
    check_map("properties of the subscription", properties)
    request = SubscribeRequest(
        call.subscription,
        from_earliest=position.ledger_id < 0,
        properties=properties,
        replicated=call.flag("replicated"),
    )
    partitions = creation.partitions(broker.catalog, name, create=True)
    names = [name.with_partition(index) for index in range(partitions)] or [name]
    topics = [broker.topic(one, create=True) for one in names]
    missing = [topic for topic in topics if request.name not in topic.subscriptions]
    if not missing:
        raise Conflict("Subscription already exists for topic")
    for topic in missing:
        topic.check_subscription_limit()
    for topic in missing:
        _create(topic, request, position)


def _start_position(call: Call) -> StartPosition:
    position = call.body_as(_position)
    if isinstance(position, StartPosition):
        return position
    return _LATEST if position is None else parse_start_position(position)


def parse_start_position(text: str) -> StartPosition:
    if text in ("", "latest"):
        return _LATEST
    if text == "earliest":
        return _EARLIEST
    ledger_id, separator, entry_id = text.partition(":")
    if not separator or not ledger_id.isdecimal() or not entry_id.isdecimal():
        raise BadRequest(f"position {text[:100]!r} is not earliest, latest or ledgerId:entryId")
    return StartPosition(min(int(ledger_id[:20]), LONG_MAX), min(int(entry_id[:20]), LONG_MAX))


def _create(topic: Topic, request: SubscribeRequest, position: StartPosition) -> None:
    assert isinstance(topic, PersistentTopic)
    subscription = topic.create_subscription(request)
    if 0 <= position.ledger_id < LONG_MAX:
        # The id is the first message to deliver, as in a seek.
        subscription.seek(topic.entry_after(position.ledger_id, position.entry_id - 1))


def delete(call: Call) -> None:
    """Delete a subscription; one in use only with `force`."""
    name, force = call.subscription, call.flag("force")
    partitions = open_partitions(call)
    damaged = [topic for topic in partitions if isinstance(topic, PersistentTopic) and name in topic.damaged]
    topics = [topic for topic in partitions if name in topic.subscriptions]
    if not topics and not damaged:
        raise subscription_not_found(call.topic.full, name)
    if topics:
        topics[0].check_not_internal(topics[0].subscriptions[name])
    # All or none: check every partition for consumers before deleting anything.
    if not force and any(topic.subscriptions[name].consumers for topic in topics):
        raise NotAllowed("Subscription has active connected consumers")
    for topic in (*damaged, *topics):  # damaged ones first: without force they refuse
        topic.delete_subscription(name, force=force)


# -- properties


def get_properties(call: Call) -> dict[str, str]:
    """Show the properties of a subscription."""
    properties: dict[str, str] = {}
    for _, subscription in find_subscriptions(call):
        properties |= subscription.properties
    return properties


def set_properties(call: Call) -> None:
    """Replace the properties of a subscription."""
    properties = call.body_as(_properties) or {}
    check_map("properties of the subscription", properties)
    for _, subscription in find_subscriptions(call):
        subscription.set_properties(dict(properties))


def get_replicated(call: Call) -> dict[str, bool]:
    """Show whether the subscription is replicated, by partition."""
    found = find_persistent_subscriptions(call, "Cannot get replicated subscriptions on non-persistent topics")
    return {topic.name.full: subscription.record.replicated for topic, subscription in found}


def set_replicated(call: Call) -> None:
    """Turn replication of the subscription on or off; the body is `true` or `false`."""
    replicated = call.body_as(_flag)
    if replicated is None:
        raise BadRequest("the request body is empty: true or false is expected")
    refusal = "Cannot enable/disable replicated subscriptions on non-persistent topics"
    for _, subscription in find_persistent_subscriptions(call, refusal):
        subscription.set_replicated(replicated)


# -- pause


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=PAUSE_REASON_MAX)] = PAUSE_REASON_DEFAULT


_pause: BodyReader[PauseBody] = BodyReader(PauseBody)


def pause(call: Call) -> None:
    """Stop delivery until the subscription is resumed; the body may have a `reason`, which the statistics show."""
    found = find_durable_subscriptions(call, "pausing")
    body = call.body_as(_pause) or PauseBody()
    for _, subscription in found:
        subscription.pause(body.reason)


def resume(call: Call) -> None:
    """Resume delivery after `pause` or after a circuit breaker paused it."""
    for _, subscription in find_durable_subscriptions(call, "resuming"):
        subscription.resume()


# -- failures


class FailureBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    message_id: str
    error: Annotated[str, msgspec.Meta(min_length=1)]


_failure_report = msgspec.json.Decoder(FailureBody)


def report_failure(call: Call) -> None:
    """Remember why a message failed (`messageId`, `error`), for its dead letter. Report before the negative ack."""
    found = find_durable_subscriptions(call, "an error report")
    body = call.body_as(_failure_report)
    if body is None:
        raise BadRequest("the request body is empty: messageId and error are expected")
    parsed = parse_message_id(body.message_id)
    if parsed is None:
        raise BadRequest(
            f"messageId {body.message_id[:100]!r} is not ledger:entry[:partition[:batch index]]"
            " or (ledger,entry,partition,batch index)"
        )
    ledger_id, entry_id, index = parsed
    if entry_id >= SINGLE_ID_MIN:
        entry_id, index = parse_id(entry_id)
    subscription = next((one for topic, one in found if topic.ledger_id == ledger_id), None)
    if subscription is None or not subscription.places.is_open(entry_id, index):
        raise MessageNotFound(
            f"message {body.message_id[:100]} is not waiting in subscription {call.subscription!r} of"
            f" {call.topic.full}: it was acknowledged, is dead, or never existed"
        )
    subscription.cursor.report_error(entry_id, index, body.error[:ERROR_MAX])
    call.broker.commits.batch()  # durable before the reply

"""The backlog of a subscription: skip, reset, expire and analyze.

Counts entries, as Pulsar does: a batch is one. On a partitioned topic everything is checked on all partitions before
one is changed; requests with a message id are for a single partition.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest, Conflict, OperationNotAllowed
from magnetar.admin.http.request import Call
from magnetar.admin.http.time_slice import Checkpoint
from magnetar.admin.needs import may_use
from magnetar.admin.opened import (
    find_persistent_subscriptions,
    find_subscription,
    open_persistent,
    open_persistent_partitions,
    subscription_not_found,
)
from magnetar.admin.resource.subscriptions import LONG_MAX, Id, Index, StartPosition, parse_start_position
from magnetar.admin.stats.topic import storage_size
from magnetar.broker.damage import skip as damage_skip
from magnetar.broker.damage.skip import Skipped
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.run import Entry
from magnetar.errors import NotAllowed
from magnetar.wire.metadata import MetadataError, metadata_of

INT_MAX = (1 << 31) - 1

# A smaller backlog is left to its connected consumers, unless its oldest message has expired.
_BACKLOG_LEFT_TO_CONSUMERS = 1000


class ResetPosition(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A required message id. Java sends `excluded`, other clients `isExcluded`."""

    ledger_id: Id
    entry_id: Id
    partition_index: Index = -1
    batch_index: Index = -1
    is_excluded: bool = False
    excluded: bool = False
    properties: Annotated[dict[str, str], msgspec.Meta(max_length=0)] | None = None

    @property
    def is_past(self) -> bool:
        """The message itself is not included."""
        return self.is_excluded or self.excluded


class MessageIdBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Java's message id; its fields for batches and chunks are ignored."""

    ledger_id: Id
    entry_id: Id
    partition_index: Index = -1
    batch_index: Index = -1
    batch_size: int = 0
    ack_set: Any = None
    first_chunk_message_id: Any = None


_target: BodyReader[ResetPosition | str] = BodyReader(ResetPosition | str)
_message_id: BodyReader[MessageIdBody] = BodyReader(MessageIdBody)


def _target_of(call: Call) -> ResetPosition | None:
    body = call.body_as(_target)
    if isinstance(body, str):
        position: StartPosition = parse_start_position(body)
        return ResetPosition(position.ledger_id, position.entry_id)
    return body


def _required_target(call: Call) -> ResetPosition:
    target = _target_of(call)
    if target is None:
        raise BadRequest("the request body is empty: a message id with ledgerId and entryId is expected")
    return target


def _must_be_durable(call: Call) -> None:
    """A client's ack may be lost, which only means one more delivery; an administrator's change may not."""
    call.broker.commits.batch()


# -- skip


def skip(call: Call) -> None:
    """Skip the first entries of the backlog."""
    count = call.number("numMessages", 0, INT_MAX)
    topic = open_persistent(
        call,
        partitioned="Skip messages on a partitioned topic is not allowed",
        non_persistent="Skip messages on a non-persistent topic is not allowed",
    )
    find_subscription(topic, call.subscription).skip(count)
    _must_be_durable(call)


def skip_damaged(call: Call) -> dict[str, Skipped]:
    """Skip the messages that the subscription cannot read; one without a readable position starts over."""
    topics = _persistent_topics(call)
    name = call.subscription
    found = [topic for topic in topics if name in topic.damaged or topic.subscription(name) is not None]
    if not found:
        raise subscription_not_found(call.topic.full, name)
    return {topic.name.full: damage_skip.skip_damaged(topic, name) for topic in found}


def skip_damaged_of_topic(call: Call) -> dict[str, dict[str, Skipped]]:
    """Skip what cannot be read for all subscriptions of a topic that the caller may use."""
    return {
        topic.name.full: {
            name: damage_skip.skip_damaged(topic, name)
            for name in (*topic.damaged.reasons, *topic.subscriptions)
            if may_use(call, topic.name, name)
        }
        for topic in _persistent_topics(call)
    }


def _persistent_topics(call: Call) -> list[PersistentTopic]:
    if not call.topic.is_persistent:
        raise OperationNotAllowed("a non-persistent topic has nothing that could be damaged")
    return open_persistent_partitions(call)


def skip_all(call: Call) -> None:
    """Skip the whole backlog."""
    for topic, subscription in find_persistent_subscriptions(
        call, "Skip messages on a non-persistent topic is not allowed"
    ):
        subscription.advance(topic.log.confirmed)
    _must_be_durable(call)


# -- reset


def reset_to_time(call: Call) -> None:
    """Reset to the first message published at or after a time; consumers are disconnected and reconnect."""
    time_ms = call.number("timestamp", 0, LONG_MAX)
    for topic, subscription in find_persistent_subscriptions(
        call, "Reset-cursor on a non-persistent topic is not allowed"
    ):
        subscription.seek(topic.log.first_published_from(time_ms))
    _must_be_durable(call)


def reset_to_position(call: Call) -> None:
    """Reset to the message id in the body, or with `isExcluded` to the message after it."""
    target = _required_target(call)
    topic = open_persistent(
        call,
        partitioned="Reset-cursor at position is not allowed for partitioned-topic",
        non_persistent="Reset-cursor on a non-persistent topic is not allowed",
    )
    find_subscription(topic, call.subscription).seek(*_seek_of(topic, target))
    _must_be_durable(call)


def _seek_of(topic: PersistentTopic, target: ResetPosition) -> tuple[int, int | None]:
    """The entry to continue with, and the unacknowledged bits of it if it is a partly read batch."""
    entry_id = topic.entry_after(target.ledger_id, target.entry_id - 1)
    if not _holds(topic, target):
        return entry_id, None  # trimmed, or not published yet: the next one after it
    if target.batch_index < 0:
        return entry_id + target.is_past, None
    return _in_batch(topic, entry_id, target.batch_index + target.is_past)


def _in_batch(topic: PersistentTopic, entry_id: int, first_open: int) -> tuple[int, int | None]:
    """From index `first_open` of the batch on; beyond its last message, the next entry."""
    messages = (topic.log.header(entry_id) or (1,))[0]
    if first_open >= messages:
        return entry_id + 1, None
    return entry_id, (1 << messages) - (1 << first_open) if first_open else None


def _holds(topic: PersistentTopic, target: ResetPosition) -> bool:
    log = topic.log
    return target.ledger_id == topic.ledger_id and log.first <= target.entry_id <= log.confirmed


# -- expire


def expire_by_time(call: Call) -> None:
    """Expire older messages; 409 if a small backlog is left to its connected consumers."""
    seconds = call.number("expireTimeInSeconds", 0, INT_MAX)
    refusal = "Expire messages on a non-persistent topic is not allowed"
    _expire_all(call, find_persistent_subscriptions(call, refusal), seconds)


def expire_all_by_time(call: Call) -> None:
    """Expire older messages of all subscriptions of a topic that the caller may use."""
    seconds = call.number("expireTimeInSeconds", 0, INT_MAX)
    if not call.topic.is_persistent:
        raise OperationNotAllowed("Expire messages for all subscriptions on a non-persistent topic is not allowed")
    found = [(topic, one) for topic in open_persistent_partitions(call) for one in topic.cursors]
    _expire_all(call, [(topic, one) for topic, one in found if may_use(call, topic.name, one.name)], seconds)


def _expire_all(call: Call, found: list[tuple[PersistentTopic, Subscription]], seconds: int) -> None:
    """A conflict if nothing could be expired; Apache Pulsar reports one even if some partitions were."""
    tried = [_expire(topic, subscription, seconds) for topic, subscription in found]
    if found and not any(tried):
        topic, subscription = found[0]
        raise Conflict(
            f"Expire message by timestamp not issued on topic {topic.name.full} for subscription {subscription.name}:"
            f" its backlog of {subscription.backlog} entries is left to its {len(subscription.consumers)} consumers"
        )
    _must_be_durable(call)


def _expire(topic: PersistentTopic, subscription: Subscription, seconds: int) -> bool:
    """False if the backlog is left alone."""
    first_alive = topic.log.first_received_after(topic.broker.steady.now_ms() - seconds * 1000)
    is_old = first_alive > subscription.cursor.mark_delete + 1
    is_worked_on = subscription.consumers and subscription.backlog < _BACKLOG_LEFT_TO_CONSUMERS
    if not subscription.backlog or (is_worked_on and not is_old):
        return False
    subscription.expire(first_alive - 1)
    return True


def expire_to_position(call: Call) -> None:
    """Expire all messages up to the message id in the body, with `isExcluded` without that message."""
    target = _required_target(call)
    if target.partition_index != call.topic.partition:
        raise NotAllowed(
            "Invalid parameter for expire message by position, partition index of passed in message position"
            f" doesn't match partition index for the topic: partitionIndex is {target.partition_index},"
            f" the topic's is {call.topic.partition}"
        )
    topic = open_persistent(
        call,
        partitioned="Expire message at position is not supported for partitioned-topic",
        non_persistent="Expire messages on a non-persistent topic is not allowed",
    )
    subscription = find_subscription(topic, call.subscription)
    if (target.ledger_id, target.entry_id) > (topic.ledger_id, topic.log.confirmed):
        raise Conflict(
            f"Expire message by position not issued on topic {topic.name.full} for subscription {subscription.name}:"
            f" {target.ledger_id}:{target.entry_id} is after its last message {topic.ledger_id}:{topic.log.confirmed}"
        )
    if _holds(topic, target):
        _expire_to(topic, subscription, target)
        _must_be_durable(call)


def _expire_to(topic: PersistentTopic, subscription: Subscription, target: ResetPosition) -> None:
    """All messages before the target, and the target itself unless it is excluded."""
    if target.batch_index < 0:
        subscription.expire(target.entry_id - target.is_past)
        return
    next_id, open_bits = _in_batch(topic, target.entry_id, target.batch_index + (not target.is_past))
    subscription.expire(next_id - 1)
    if open_bits is not None:
        subscription.expire(next_id, open_bits)


# -- analyze


class Analysis(msgspec.Struct, rename="camel"):
    """All messages are accepted: there are no filters. `aborted` if a limit ended the scan early."""

    entries: int = 0
    messages: int = 0
    marker_messages: int = 0
    filter_rejected_entries: int = 0
    filter_accepted_entries: int = 0
    filter_rescheduled_entries: int = 0
    filter_rejected_messages: int = 0
    filter_accepted_messages: int = 0
    filter_rescheduled_messages: int = 0
    aborted: bool = False
    first_message_id: str | msgspec.UnsetType = msgspec.UNSET
    last_message_id: str | msgspec.UnsetType = msgspec.UNSET


async def analyze(call: Call) -> Analysis:
    """Count the messages in the backlog, from a message id in the body on; `aborted` if a limit ended it early."""
    target = _target_of(call)
    topic = open_persistent(
        call,
        partitioned="Analyze backlog on a partitioned topic is not allowed,"
        " please try do it on specific topic partition",
        non_persistent="Analyze backlog on a non-persistent topic is not allowed",
    )
    subscription = find_subscription(topic, call.subscription)
    settings, analysis = call.broker.settings, Analysis()
    end_ms = call.broker.clock.monotonic_ms() + settings.subscriptionBacklogScanMaxTimeMs
    left, last = settings.subscriptionBacklogScanMaxEntries, topic.log.confirmed
    next_id = 0 if target is None else topic.entry_after(target.ledger_id, target.entry_id - 1)
    while True:
        start = max(subscription.cursor.next_open(next_id), topic.log.first)
        entries = topic.log.read(start, settings.dispatcherMaxReadBatchSize, settings.dispatcherMaxReadSizeBytes)
        if not entries or start > last:
            return analysis
        for entry in entries:
            if entry[0] > last or subscription.cursor.is_acked(entry[0]):
                continue
            if left == 0 or call.broker.clock.monotonic_ms() > end_ms:
                analysis.aborted = True
                return analysis
            left -= 1
            _count(analysis, topic, entry)
        next_id = entries[-1][0] + 1
        await Checkpoint()


def _count(analysis: Analysis, topic: PersistentTopic, entry: Entry) -> None:
    entry_id, messages, _, blob = entry
    analysis.last_message_id = f"{topic.ledger_id}:{entry_id}"
    if analysis.first_message_id is msgspec.UNSET:
        analysis.first_message_id = analysis.last_message_id
    try:
        is_marker = metadata_of(blob).HasField("marker_type")
    except MetadataError:
        is_marker = False
    if is_marker:
        analysis.marker_messages += 1
        return
    analysis.entries += 1
    analysis.messages += messages
    analysis.filter_accepted_entries += 1
    analysis.filter_accepted_messages += messages


def size_after(call: Call) -> int:
    """Show the size in bytes of all messages after the message id in the body; -1 is the whole topic."""
    target = call.body_as(_message_id)
    if target is None:
        raise BadRequest("the request body is empty: a message id with ledgerId and entryId is expected")
    topic = open_persistent(
        call,
        partitioned="calculate backlog size is not allowed for partitioned-topic",
        non_persistent="calculate backlog size is not allowed for a non-persistent topic",
    )
    if target.ledger_id < 0:
        return storage_size(topic)
    return topic.log.size_from(topic.entry_after(target.ledger_id, target.entry_id))

"""What is going on in a topic, in Pulsar's words: stats, internal stats, and the sum over partitions.

Counters run from the start of the process. Sizes are bytes as published; a backlog counts entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from magnetar.broker.consumer import Consumer
from magnetar.broker.persistent import PersistentTopic
from magnetar.broker.producer import Producer
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic, TopicSubscription


class PublisherStats(msgspec.Struct, rename="camel", kw_only=True):
    producer_id: int
    producer_name: str
    access_mode: str
    address: str
    connected_since: str
    client_version: str
    metadata: dict[str, str]
    average_msg_size: float = 0.0
    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0


class ConsumerStats(msgspec.Struct, rename="camel", kw_only=True):
    consumer_name: str
    address: str
    connected_since: str
    client_version: str
    available_permits: int
    unacked_messages: int
    blocked_consumer_on_unacked_msgs: bool
    msg_out_counter: int
    bytes_out_counter: int
    msg_rate_out: float
    msg_throughput_out: float
    msg_rate_redeliver: float
    metadata: dict[str, str]


class SubscriptionStats(msgspec.Struct, rename="camel", kw_only=True):
    type: str
    durable: bool
    is_durable: bool
    replicated: bool = False
    is_replicated: bool = False
    msg_backlog: int = 0
    msg_backlog_no_delayed: int = 0
    backlog_size: int = 0
    msg_delayed: int = 0
    msg_in_replay: int = 0
    unacked_messages: int = 0
    blocked_subscription_on_unacked_msgs: bool = False
    msg_out_counter: int = 0
    bytes_out_counter: int = 0
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    msg_rate_redeliver: float = 0.0
    total_msg_expired: int = 0
    consumers: list[ConsumerStats] = []
    subscription_properties: dict[str, str] = {}


class TopicStats(msgspec.Struct, rename="camel", kw_only=True):
    msg_in_counter: int = 0
    bytes_in_counter: int = 0
    msg_out_counter: int = 0
    bytes_out_counter: int = 0
    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_out: float = 0.0
    average_msg_size: float = 0.0
    storage_size: int = 0
    backlog_size: int = 0
    waiting_publishers: int = 0
    last_publish_time_stamp: int = 0
    topic_epoch: int | None = None
    deduplication_status: str = "Disabled"
    publishers: list[PublisherStats] = []
    subscriptions: dict[str, SubscriptionStats] = {}
    replication: dict[str, object] = {}


class PartitionedMetadataStats(msgspec.Struct):
    partitions: int


class PartitionedStats(TopicStats, rename="camel", kw_only=True):
    metadata: PartitionedMetadataStats
    partitions: dict[str, TopicStats] = {}


class LedgerStats(msgspec.Struct, rename="camel", kw_only=True):
    ledger_id: int
    entries: int
    size: int
    offloaded: bool = False
    under_replicated: bool = False


class CursorStats(msgspec.Struct, rename="camel", kw_only=True):
    """Positions are `ledger:entry`."""

    mark_delete_position: str
    read_position: str
    waiting_read_op: bool
    pending_read_ops: int = 0
    number_of_entries_since_first_not_acked_message: int
    state: str = "Open"
    active: bool
    properties: dict[str, int] = {}


class InternalStats(msgspec.Struct, rename="camel", kw_only=True):
    entries_added_counter: int = 0
    number_of_entries: int = 0
    total_size: int = 0
    current_ledger_entries: int = 0
    current_ledger_size: int = 0
    waiting_cursors_count: int = 0
    pending_add_entries_count: int = 0
    last_confirmed_entry: str | None = None
    state: str = "LedgerOpened"
    ledgers: list[LedgerStats] = []
    cursors: dict[str, CursorStats] = {}
    properties: dict[str, str] = {}


# -- one topic


def topic_stats(topic: Topic) -> TopicStats:
    subscriptions = {name: _subscription_stats(one) for name, one in topic.subscriptions.items()}
    stats = TopicStats(
        msg_in_counter=topic.messages_in,
        bytes_in_counter=topic.bytes_in,
        msg_out_counter=sum(one.msg_out_counter for one in subscriptions.values()),
        bytes_out_counter=sum(one.bytes_out_counter for one in subscriptions.values()),
        msg_rate_in=topic.rates_in[0],
        msg_throughput_in=topic.rates_in[1],
        msg_rate_out=sum((one.msg_rate_out for one in subscriptions.values()), 0.0),
        msg_throughput_out=sum((one.msg_throughput_out for one in subscriptions.values()), 0.0),
        average_msg_size=_average(topic.bytes_in, topic.messages_in),
        waiting_publishers=len(topic.producers.waiting),
        topic_epoch=topic.epoch if topic.epoch >= 0 else None,
        publishers=[_publisher_stats(producer) for producer in topic.producers.by_name.values()],
        subscriptions=subscriptions,
    )
    if isinstance(topic, PersistentTopic):
        stats.storage_size = storage_size(topic)
        stats.backlog_size = backlog_size(topic)
        stats.last_publish_time_stamp = (topic.log.header(topic.log.confirmed) or (0, 0))[1]
        stats.deduplication_status = "Disabled" if topic.deduplication is None else "Enabled"
    return stats


def storage_size(topic: PersistentTopic) -> int:
    return topic.log.size_from(topic.log.first)


def backlog_size(topic: PersistentTopic) -> int:
    """From the first entry that some durable subscription has not acknowledged."""
    slowest = min((one.cursor.mark_delete for one in topic.cursors if one.durable), default=topic.log.confirmed)
    return topic.log.size_from(slowest + 1)


def _publisher_stats(producer: Producer) -> PublisherStats:
    return PublisherStats(
        producer_id=producer.producer_id,
        producer_name=producer.name,
        access_mode=producer.access_mode.name,
        address=producer.peer.address,
        connected_since=_time(producer.connected_at_ms),
        client_version=producer.peer.client_version,
        msg_rate_in=producer.rates[0],
        msg_throughput_in=producer.rates[1],
        metadata=producer.metadata,
        average_msg_size=_average(producer.bytes_in, producer.messages_in),
    )


def _subscription_stats(subscription: TopicSubscription) -> SubscriptionStats:
    consumers = [_consumer_stats(consumer) for consumer in subscription.consumers]
    stats = SubscriptionStats(
        type=subscription.type.name if consumers else "None",
        durable=subscription.durable,
        is_durable=subscription.durable,
        unacked_messages=sum(consumer.unacked_messages for consumer in consumers),
        msg_out_counter=sum(consumer.msg_out_counter for consumer in consumers),
        bytes_out_counter=sum(consumer.bytes_out_counter for consumer in consumers),
        msg_rate_out=sum((consumer.msg_rate_out for consumer in consumers), 0.0),
        msg_throughput_out=sum((consumer.msg_throughput_out for consumer in consumers), 0.0),
        msg_rate_redeliver=sum((consumer.msg_rate_redeliver for consumer in consumers), 0.0),
        consumers=consumers,
    )
    if isinstance(subscription, Subscription):
        _add_backlog(stats, subscription)
    return stats


def _add_backlog(stats: SubscriptionStats, subscription: Subscription) -> None:
    """What a subscription that keeps its place knows more, and its counters that outlive consumers."""
    stats.msg_backlog = subscription.backlog
    stats.msg_backlog_no_delayed = subscription.backlog - subscription.delayed
    stats.backlog_size = subscription.backlog_size()
    stats.msg_delayed = subscription.delayed
    stats.msg_in_replay = len(subscription.pending)
    stats.blocked_subscription_on_unacked_msgs = subscription.is_blocked
    stats.msg_out_counter = subscription.delivered_messages
    stats.bytes_out_counter = subscription.delivered_bytes
    stats.total_msg_expired = subscription.expired_messages
    stats.replicated = stats.is_replicated = subscription.record.replicated
    stats.subscription_properties = subscription.record.properties


def _consumer_stats(consumer: Consumer) -> ConsumerStats:
    rate_out, throughput_out, rate_redeliver = consumer.rates
    return ConsumerStats(
        consumer_name=consumer.name,
        address=consumer.peer.address,
        connected_since=_time(consumer.connected_at_ms),
        client_version=consumer.peer.client_version,
        available_permits=consumer.permits,
        unacked_messages=consumer.unacked,
        blocked_consumer_on_unacked_msgs=consumer.is_blocked,
        msg_out_counter=consumer.delivered_messages,
        bytes_out_counter=consumer.delivered_bytes,
        msg_rate_out=rate_out,
        msg_throughput_out=throughput_out,
        msg_rate_redeliver=rate_redeliver,
        metadata=consumer.metadata,
    )


def _average(size: int, count: int) -> float:
    return size / count if count else 0.0


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- internal


def internal_stats(topic: Topic) -> InternalStats:
    if not isinstance(topic, PersistentTopic):
        return InternalStats()
    log, size = topic.log, storage_size(topic)
    entries = log.confirmed + 1 - log.first
    return InternalStats(
        entries_added_counter=log.last + 1,
        number_of_entries=entries,
        total_size=size,
        current_ledger_entries=entries,
        current_ledger_size=size,
        waiting_cursors_count=sum(_waits(one) for one in topic.cursors),
        pending_add_entries_count=log.last - log.confirmed,
        last_confirmed_entry=f"{topic.ledger_id}:{log.confirmed}",
        state="Terminated" if topic.is_terminated else "LedgerOpened",
        ledgers=[LedgerStats(ledger_id=topic.ledger_id, entries=entries, size=size)],
        cursors={one.name: _cursor_stats(topic, one) for one in topic.cursors},
        properties=topic.record.properties,
    )


def _cursor_stats(topic: PersistentTopic, subscription: Subscription) -> CursorStats:
    return CursorStats(
        mark_delete_position=f"{topic.ledger_id}:{subscription.cursor.mark_delete}",
        read_position=f"{topic.ledger_id}:{subscription.read_id}",
        waiting_read_op=_waits(subscription),
        number_of_entries_since_first_not_acked_message=topic.log.confirmed - subscription.cursor.mark_delete,
        active=bool(subscription.consumers),
    )


def _waits(subscription: Subscription) -> bool:
    """It has consumers and has read everything."""
    return bool(subscription.consumers) and not subscription.has_unread


# -- partitioned


def partitioned_stats(count: int, partitions: Iterable[Topic], *, per_partition: bool) -> PartitionedStats:
    total = PartitionedStats(metadata=PartitionedMetadataStats(count))
    for topic in partitions:
        stats = topic_stats(topic)
        _add(total, stats)
        for name, subscription in stats.subscriptions.items():
            if name in total.subscriptions:
                _add(total.subscriptions[name], subscription)
            else:
                total.subscriptions[name] = msgspec.structs.replace(subscription)
        if per_partition:
            total.partitions[topic.name.full] = stats
    total.average_msg_size = _average(total.bytes_in_counter, total.msg_in_counter)
    return total


_NOT_ADDED = frozenset({"topic_epoch"})
_LATEST = frozenset({"last_publish_time_stamp"})


def _add(total: msgspec.Struct, part: msgspec.Struct) -> None:
    """Adds the numbers and lists of `part`; a fact is true of the whole when it is of one part."""
    for name in part.__struct_fields__:
        ours, theirs = getattr(total, name), getattr(part, name)
        if name in _LATEST:
            setattr(total, name, max(ours, theirs))
        elif isinstance(theirs, bool):
            setattr(total, name, ours or theirs)
        elif name not in _NOT_ADDED and isinstance(theirs, int | float | list):
            setattr(total, name, ours + theirs)
        elif name in ("type", "deduplication_status") and theirs not in ("None", "Disabled"):
            setattr(total, name, theirs)

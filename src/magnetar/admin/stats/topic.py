"""Topic statistics with Pulsar's fields, and their sum over partitions.

Counters start with the process. Sizes are bytes as published; a backlog counts entries. Fields of features that this
broker does not have (transactions, offloading, compaction) are zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from magnetar.admin.iso_time import iso_time
from magnetar.admin.stats.replication import ReplicatorStats, replication_of, summed
from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.subscription.dispatch import SingleActive
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.throttling.dispatching import LimitLevel
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.topic import Topic, TopicSubscription
from magnetar.errors import EntriesDamaged


@dataclass(frozen=True, slots=True)
class StatsOptions:
    """Optional parts of the statistics."""

    backlog_size: bool = True
    earliest_time: bool = False
    publishers: bool = True
    consumers: bool = True


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
    last_consumed_flow_timestamp: int
    metadata: dict[str, str]


class PolicyInForce(msgspec.Struct, rename="camel", omit_defaults=True):
    """A dead letter policy. `source` is where it was set, `differs` names the partitions that have another one."""

    max_redeliver_count: int
    dead_letter_topic: str
    initial_subscription_name: str | None = None
    source: str = ""
    differs: list[str] = []


class SubscriptionStats(msgspec.Struct, rename="camel", kw_only=True):
    type: str
    durable: bool
    is_durable: bool
    replicated: bool = False
    is_replicated: bool = False
    msg_backlog: int = 0
    msg_backlog_no_delayed: int = 0
    backlog_size: int = 0  # -1: not requested
    earliest_msg_publish_time_in_backlog: int = 0  # -1: requested, and there is none
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
    active_consumer_name: str | UnsetType = UNSET
    non_contiguous_deleted_messages_ranges: int = 0
    last_consumed_flow_timestamp: int = 0
    consumers: list[ConsumerStats] = []
    consumers_after_mark_delete_position: dict[str, str] = {}  # of Key_Shared before Pulsar 4.0
    subscription_properties: dict[str, str] = {}
    dispatch_throttled_msg_events_by_subscription_limit: int = 0
    dispatch_throttled_msg_events_by_topic_limit: int = 0
    dispatch_throttled_msg_events_by_broker_limit: int = 0
    dispatch_throttled_bytes_events_by_subscription_limit: int = 0
    dispatch_throttled_bytes_events_by_topic_limit: int = 0
    dispatch_throttled_bytes_events_by_broker_limit: int = 0
    msg_redeliver_counter: int = 0
    dead_letter_policy: PolicyInForce | UnsetType = UNSET
    dead_letter_problem: str | UnsetType = UNSET  # why the last message could not become a dead letter
    dead_lettered: dict[str, int] = {}  # by reason
    suspects: int = 0  # entries in delivery when their consumer crashed
    nacked_batches: int = 0  # nacked as a whole
    split_batches: int = 0  # delivered again as single messages
    backing_off: int = 0  # failed entries whose back-off is not over
    paused_reason: str | UnsetType = UNSET
    damaged: str | UnsetType = UNSET  # why it cannot be read, or cannot read on


class CompactionStats(msgspec.Struct, rename="camel"):
    last_compaction_removed_event_count: int = 0
    last_compaction_succeed_timestamp: int = 0
    last_compaction_failed_timestamp: int = 0
    last_compaction_duration_time_in_mills: int = 0


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
    earliest_msg_publish_time_in_backlogs: int = 0
    offloaded_storage_size: int = 0
    last_offload_ledger_id: int = 0
    last_offload_success_time_stamp: int = 0
    last_offload_failure_time_stamp: int = 0
    ongoing_txn_count: int = 0
    aborted_txn_count: int = 0
    committed_txn_count: int = 0
    system_topic_bytes_in_counter: int = 0
    bytes_out_internal_counter: int = 0
    publish_rate_limited_times: int = 0
    delayed_message_index_size_in_bytes: int = 0
    compaction: CompactionStats = msgspec.field(default_factory=CompactionStats)
    non_contiguous_deleted_messages_ranges: int = 0
    backlog_quota_limit_size: int = 0
    backlog_quota_limit_time: int = 0
    oldest_backlog_message_age_seconds: int = -1
    oldest_backlog_message_subscription_name: str | UnsetType = UNSET
    owner_broker: str = ""
    topic_creation_time_stamp: int = 0
    waiting_publishers: int = 0
    last_publish_time_stamp: int = 0
    topic_epoch: int | UnsetType = UNSET
    deduplication_status: str | UnsetType = UNSET
    publishers: list[PublisherStats] = []
    subscriptions: dict[str, SubscriptionStats] = {}
    replication: dict[str, ReplicatorStats] = {}
    damaged: str | UnsetType = UNSET  # which entries cannot be read, and why


class PartitionedMetadataStats(msgspec.Struct):
    partitions: int
    deleted: bool = False


class PartitionedStats(TopicStats, rename="camel", kw_only=True):
    metadata: PartitionedMetadataStats
    partitions: dict[str, TopicStats] = {}


# -- one topic


def topic_stats(topic: Topic, options: StatsOptions | None = None, *, owner: str = "") -> TopicStats:
    """`owner` is the address of the broker that serves the topic."""
    options = options or StatsOptions()
    every = {one: _subscription_stats(topic, one, options) for one in topic.client_subscriptions}
    subscriptions = {one.name: stats for one, stats in every.items() if not one.is_anonymous}
    replication = replication_of(topic)
    outgoing: list[SubscriptionStats | ReplicatorStats] = [*every.values(), *replication.values()]
    stats = TopicStats(
        msg_in_counter=topic.messages_in,
        bytes_in_counter=topic.bytes_in,
        msg_out_counter=sum(one.msg_out_counter for one in every.values()),
        bytes_out_counter=sum(one.bytes_out_counter for one in every.values()),
        msg_rate_in=topic.rates_in[0],
        msg_throughput_in=topic.rates_in[1],
        msg_rate_out=sum((one.msg_rate_out for one in outgoing), 0.0),
        msg_throughput_out=sum((one.msg_throughput_out for one in outgoing), 0.0),
        average_msg_size=_average(topic.bytes_in, topic.messages_in),
        publish_rate_limited_times=topic.limits.publish_limited_times,
        waiting_publishers=len(topic.producers.waiting),
        topic_epoch=topic.epoch if topic.epoch >= 0 else UNSET,
        publishers=[
            _publisher_stats(producer) for producer in topic.producers.by_name.values() if not producer.is_replicator
        ]
        if options.publishers
        else [],
        subscriptions=subscriptions,
        replication=replication,
        owner_broker=owner,
    )
    if isinstance(topic, PersistentTopic):
        _add_storage(stats, topic, options)
        _add_damage(stats, topic)
    return stats


def _add_damage(stats: TopicStats, topic: PersistentTopic) -> None:
    damage, full = topic.broker.damage, topic.name.full
    if not damage:
        return
    if (known := damage.of("topic", full)) is not None:
        stats.damaged = known.reason
    for name, one in stats.subscriptions.items():
        if (known := damage.of("subscription", full, name)) is not None:
            one.damaged = known.reason
    for name, reason in topic.damaged.reasons.items():
        stats.subscriptions[name] = SubscriptionStats(type="None", durable=True, is_durable=True, damaged=reason)


def _add_storage(stats: TopicStats, topic: PersistentTopic, options: StatsOptions) -> None:
    """The fields of a persistent topic."""
    log, policies = topic.log, topic.policies
    stats.storage_size = storage_size(topic)
    stats.last_publish_time_stamp = (log.known_header(log.confirmed) or (0, 0))[1]
    stats.deduplication_status = "Disabled" if topic.deduplication is None else "Enabled"
    stats.topic_creation_time_stamp = topic.record.created_ms
    stats.non_contiguous_deleted_messages_ranges = sum(
        one.non_contiguous_deleted_messages_ranges for one in stats.subscriptions.values()
    )
    stats.backlog_quota_limit_size = policies.quota_bytes or -1
    stats.backlog_quota_limit_time = policies.quota_ms // 1000 or -1
    slowest = _slowest(topic)
    if slowest is None or not slowest.backlog:
        return
    first = slowest.cursor.mark_delete + 1
    stats.backlog_size = log.size_from(first)
    header = log.known_header(max(first, log.first))
    if header is not None:
        stats.oldest_backlog_message_age_seconds = max(0, (topic.broker.now_ms() - header[1]) // 1000)
        stats.oldest_backlog_message_subscription_name = slowest.name
    if options.earliest_time:
        stats.earliest_msg_publish_time_in_backlogs = _published_ms(topic, max(first, log.first))


def _published_ms(topic: PersistentTopic, entry_id: int) -> int:
    """-1 if the entry cannot be read."""
    try:
        return topic.log.published_ms(entry_id)
    except EntriesDamaged:
        return -1


def _slowest(topic: PersistentTopic) -> Subscription | None:
    """The durable subscription that is furthest behind."""
    durable = [one for one in topic.cursors if one.durable]
    return min(durable, key=lambda one: one.cursor.mark_delete, default=None)


def storage_size(topic: PersistentTopic) -> int:
    return topic.log.size_from(topic.log.first)


def backlog_size(topic: PersistentTopic) -> int:
    """From the first entry that a durable subscription has not acknowledged."""
    slowest = _slowest(topic)
    return 0 if slowest is None else topic.log.size_from(slowest.cursor.mark_delete + 1)


def _publisher_stats(producer: Producer) -> PublisherStats:
    return PublisherStats(
        producer_id=producer.producer_id,
        producer_name=producer.name,
        access_mode=producer.access_mode.name,
        address=producer.peer.address,
        connected_since=iso_time(producer.connected_at_ms),
        client_version=producer.peer.client_version,
        msg_rate_in=producer.rates[0],
        msg_throughput_in=producer.rates[1],
        metadata=producer.metadata,
        average_msg_size=_average(producer.bytes_in, producer.messages_in),
    )


def _subscription_stats(topic: Topic, subscription: TopicSubscription, options: StatsOptions) -> SubscriptionStats:
    consumers = [_consumer_stats(consumer) for consumer in subscription.consumers]
    is_kept = subscription.durable and topic.name.is_persistent
    stats = SubscriptionStats(
        type=subscription.type.name if consumers else "None",
        durable=is_kept,
        is_durable=is_kept,
        unacked_messages=sum(consumer.unacked_messages for consumer in consumers),
        msg_out_counter=sum(consumer.msg_out_counter for consumer in consumers),
        bytes_out_counter=sum(consumer.bytes_out_counter for consumer in consumers),
        msg_rate_out=sum((consumer.msg_rate_out for consumer in consumers), 0.0),
        msg_throughput_out=sum((consumer.msg_throughput_out for consumer in consumers), 0.0),
        msg_rate_redeliver=sum((consumer.msg_rate_redeliver for consumer in consumers), 0.0),
        last_consumed_flow_timestamp=max((one.last_consumed_flow_timestamp for one in consumers), default=0),
        consumers=consumers if options.consumers else [],
        subscription_properties=subscription.properties,
    )
    if isinstance(topic, PersistentTopic) and isinstance(subscription, Subscription):
        _add_backlog(stats, topic, subscription, options)
    return stats


def _add_backlog(
    stats: SubscriptionStats, topic: PersistentTopic, subscription: Subscription, options: StatsOptions
) -> None:
    """The fields of a subscription with a cursor, and its counters, which outlive consumers."""
    stats.msg_backlog = subscription.backlog
    stats.msg_backlog_no_delayed = subscription.backlog - subscription.places.delayed
    stats.backlog_size = subscription.backlog_size() if options.backlog_size else -1
    if options.earliest_time:
        first = max(subscription.cursor.mark_delete + 1, topic.log.first)
        stats.earliest_msg_publish_time_in_backlog = _published_ms(topic, first) if subscription.backlog else -1
    stats.msg_delayed = subscription.places.delayed
    stats.msg_in_replay = len(subscription.places.pending)
    stats.blocked_subscription_on_unacked_msgs = subscription.deliveries.is_blocked
    stats.msg_out_counter = subscription.deliveries.messages
    stats.bytes_out_counter = subscription.deliveries.bytes
    stats.total_msg_expired = subscription.expired_messages
    stats.replicated = stats.is_replicated = subscription.record.replicated
    stats.non_contiguous_deleted_messages_ranges = subscription.cursor.acked_range_count
    if isinstance(subscription.dispatcher, SingleActive) and subscription.dispatcher.active is not None:
        stats.active_consumer_name = subscription.dispatcher.active.name
    throttle = subscription.deliveries.throttle
    if throttle is not None:
        for level in LimitLevel:
            setattr(stats, f"dispatch_throttled_msg_events_by_{level}_limit", throttle.message_events[level])
            setattr(stats, f"dispatch_throttled_bytes_events_by_{level}_limit", throttle.byte_events[level])
    _add_failures(stats, topic, subscription)


def _add_failures(stats: SubscriptionStats, topic: PersistentTopic, subscription: Subscription) -> None:
    dead_letters = subscription.dead_letters
    stats.msg_redeliver_counter = subscription.redelivered_messages
    stats.dead_letter_policy = policy_in_force(topic, subscription) or UNSET
    stats.dead_letter_problem = dead_letters.problem or UNSET
    stats.dead_lettered = {reason.value: count for reason, count in dead_letters.moved.items()}
    stats.suspects = len(subscription.cursor.suspects)
    stats.nacked_batches = subscription.nacked_batches
    stats.split_batches = subscription.deliveries.split_batches
    stats.backing_off = subscription.redelivery.backing_off
    stats.paused_reason = subscription.record.paused or UNSET


def policy_in_force(topic: PersistentTopic, subscription: Subscription) -> PolicyInForce | None:
    policy, record = subscription.dead_letter_policy, subscription.record
    if policy is None:
        return None
    return PolicyInForce(
        max_redeliver_count=policy.max_redeliver_count,
        dead_letter_topic=policy.topic_for(topic.name, subscription.name).full,
        initial_subscription_name=policy.initial_subscription or None,
        source=f"subscription: {record.dead_letters_from}" if record.dead_letters is not None else "namespace",
    )


def _consumer_stats(consumer: Consumer) -> ConsumerStats:
    rate_out, throughput_out, rate_redeliver = consumer.rates
    return ConsumerStats(
        consumer_name=consumer.name,
        address=consumer.peer.address,
        connected_since=iso_time(consumer.connected_at_ms),
        client_version=consumer.peer.client_version,
        available_permits=consumer.permits,
        unacked_messages=consumer.unacked,
        blocked_consumer_on_unacked_msgs=consumer.is_blocked,
        msg_out_counter=consumer.delivered_messages,
        bytes_out_counter=consumer.delivered_bytes,
        msg_rate_out=rate_out,
        msg_throughput_out=throughput_out,
        msg_rate_redeliver=rate_redeliver,
        last_consumed_flow_timestamp=consumer.last_flow_ms,
        metadata=consumer.metadata,
    )


def _average(size: int, count: int) -> float:
    return size / count if count else 0.0


# -- partitioned


def partitioned_stats(count: int, partitions: Mapping[str, TopicStats], *, per_partition: bool) -> PartitionedStats:
    total = PartitionedStats(metadata=PartitionedMetadataStats(count))
    for full, stats in partitions.items():
        _add(total, stats)
        for name, subscription in stats.subscriptions.items():
            if name in total.subscriptions:
                _add(total.subscriptions[name], subscription)
            else:
                total.subscriptions[name] = msgspec.structs.replace(subscription)
        if per_partition:
            total.partitions[full] = stats
    total.average_msg_size = _average(total.bytes_in_counter, total.msg_in_counter)
    total.replication = summed(stats.replication for stats in partitions.values())
    return total


_NOT_ADDED = frozenset({"topic_epoch"})
_THE_FIRST = frozenset({"dead_letter_policy", "dead_letter_problem", "paused_reason", "damaged"})  # that is set
_LARGEST = frozenset({"last_publish_time_stamp", "last_consumed_flow_timestamp", "oldest_backlog_message_age_seconds"})
_SMALLEST = frozenset(
    {
        "earliest_msg_publish_time_in_backlog",
        "earliest_msg_publish_time_in_backlogs",
        "topic_creation_time_stamp",
        "backlog_quota_limit_size",
        "backlog_quota_limit_time",
    }
)


def _add(total: msgspec.Struct, part: msgspec.Struct) -> None:
    """Adds numbers and lists of `part`; a boolean is true if it is in one part."""
    for name in part.__struct_fields__:
        ours, theirs = getattr(total, name), getattr(part, name)
        if name in _LARGEST:
            setattr(total, name, max(ours, theirs))
        elif name in _SMALLEST:
            setattr(total, name, min((value for value in (ours, theirs) if value > 0), default=theirs))
        elif name == "backlog_size" and theirs < 0:
            setattr(total, name, theirs)  # not requested
        elif isinstance(theirs, bool):
            setattr(total, name, ours or theirs)
        elif name not in _NOT_ADDED and isinstance(theirs, int | float | list):
            setattr(total, name, ours + theirs)
        elif name in _THE_FIRST and ours is UNSET:
            setattr(total, name, theirs)
        elif name == "dead_lettered":
            setattr(total, name, {reason: ours.get(reason, 0) + theirs.get(reason, 0) for reason in ours | theirs})
        elif name in ("type", "deduplication_status") and theirs not in ("None", "Disabled"):
            setattr(total, name, theirs)

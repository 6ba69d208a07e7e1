"""Replication statistics of a topic: one row per remote cluster, for both directions.

Apache Pulsar's fields, and our own: state, reason, since when, last error. Owns the sum over partitions.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from magnetar.admin.iso_time import iso_time
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import Topic
from magnetar.replication.model import State, Status

# The state of several partitions is the last of these that one of them is in.
SEVERITY = (
    State.RUNNING,
    State.CATCHING_UP,
    State.STARTING,
    State.PAUSED,
    State.WAITING,
    State.MISMATCH,
    State.UNREACHABLE,
    State.REFUSED,
    State.STOPPED,
)


class ReplicatorStats(msgspec.Struct, rename="camel", kw_only=True):
    """`state` and the fields after it are unset for a cluster that only sends to this one."""

    msg_rate_in: float = 0.0
    msg_in_count: int = 0
    msg_throughput_in: float = 0.0
    bytes_in_count: int = 0
    msg_rate_out: float = 0.0
    msg_out_count: int = 0
    msg_throughput_out: float = 0.0
    bytes_out_count: int = 0
    msg_rate_expired: float = 0.0
    msg_expired_count: int = 0
    replication_backlog: int = 0
    connected: bool = False
    replication_delay_in_seconds: int = 0
    inbound_connection: str | UnsetType = UNSET
    inbound_connected_since: str | UnsetType = UNSET
    outbound_connection: str | UnsetType = UNSET
    outbound_connected_since: str | UnsetType = UNSET
    state: State | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    state_since: str | UnsetType = UNSET
    last_error: str | UnsetType = UNSET


def replication_of(topic: Topic) -> dict[str, ReplicatorStats]:
    """By remote cluster: the targets of the topic, and its sources."""
    broker = topic.broker
    found: dict[str, ReplicatorStats] = {}
    for status in broker.replication.statuses(broker.now_ms(), topic=topic.name):
        found[status.remote] = _outbound(topic, status)
    for cluster, inbound in topic.inbound.items():
        stats = found.setdefault(cluster, ReplicatorStats())
        stats.msg_rate_in, stats.msg_throughput_in = inbound.rates
        stats.msg_in_count, stats.bytes_in_count = inbound.messages_in, inbound.bytes_in
    for producer in topic.producers.by_name.values():
        if producer.source:
            stats = found.setdefault(producer.source, ReplicatorStats())
            stats.inbound_connection = producer.peer.address
            stats.inbound_connected_since = iso_time(producer.connected_at_ms)
    return found


def _outbound(topic: Topic, status: Status) -> ReplicatorStats:
    stats = ReplicatorStats(
        msg_rate_out=status.rate_out,
        msg_out_count=status.messages_out,
        msg_throughput_out=status.throughput_out,
        bytes_out_count=status.bytes_out,
        replication_backlog=status.backlog,
        connected=status.state.is_copying,
        replication_delay_in_seconds=int(status.delay_s),
        state=status.state,
        reason=status.reason,
        state_since=iso_time(status.since_ms) if status.since_ms else UNSET,
        last_error=status.last_error or UNSET,
    )
    replicator = topic.replicator(status.remote) if isinstance(topic, PersistentTopic) else None
    if replicator is not None:
        stats.msg_rate_expired = replicator.rates[2]
        stats.msg_expired_count = replicator.expired_messages
    if stats.connected:
        record = topic.broker.catalog.clusters[status.remote]
        stats.outbound_connection = record.broker_service_url_tls or record.broker_service_url or record.service_url
        stats.outbound_connected_since = stats.state_since
    return stats


def summed(partitions: Iterable[dict[str, ReplicatorStats]]) -> dict[str, ReplicatorStats]:
    """Sums, except the delay, which is the longest; connected if all partitions are."""
    total: dict[str, ReplicatorStats] = {}
    for partition in partitions:
        for cluster, part in partition.items():
            if cluster in total:
                _add(total[cluster], part)
            else:
                total[cluster] = msgspec.structs.replace(part)
    return total


_SUMMED = (
    "msg_rate_in",
    "msg_in_count",
    "msg_throughput_in",
    "bytes_in_count",
    "msg_rate_out",
    "msg_out_count",
    "msg_throughput_out",
    "bytes_out_count",
    "msg_rate_expired",
    "msg_expired_count",
    "replication_backlog",
)
_OF_THE_STATE = ("state", "reason", "state_since", "last_error")


def _add(total: ReplicatorStats, part: ReplicatorStats) -> None:
    for name in _SUMMED:
        setattr(total, name, getattr(total, name) + getattr(part, name))
    total.replication_delay_in_seconds = max(total.replication_delay_in_seconds, part.replication_delay_in_seconds)
    total.connected = total.connected and part.connected
    if _severity(part) > _severity(total):
        for name in _OF_THE_STATE:
            setattr(total, name, getattr(part, name))


def _severity(stats: ReplicatorStats) -> int:
    return -1 if stats.state is UNSET else SEVERITY.index(stats.state)

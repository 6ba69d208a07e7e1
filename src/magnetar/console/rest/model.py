"""Answers of the admin REST API, as far as the console shows them.

Every field has a default: Apache Pulsar sends fewer of them, and other versions of either send more.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Answer(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Unknown fields are ignored."""


# -- the cluster


class FrontPageAnswer(Answer, frozen=True, kw_only=True):
    product: str = ""
    version: str = ""
    cluster: str = ""
    service_url: str = ""


class ProbeAnswer(Answer, frozen=True, kw_only=True):
    status: str = ""
    reason: str = ""


class Totals(Answer, frozen=True, kw_only=True):
    topics: int = 0
    partitioned_topics: int = 0
    subscriptions: int = 0
    producers: int = 0
    consumers: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    throughput_in: float = 0.0
    throughput_out: float = 0.0
    backlog: int = 0
    unacked: int = 0
    delayed: int = 0
    stored_bytes: int = 0
    dead_letters_waiting: int = 0


class NamespaceRow(Answer, frozen=True, kw_only=True):
    name: str
    topics: int = 0
    rate_in: float = 0.0
    rate_out: float = 0.0
    backlog: int = 0
    stored_bytes: int = 0
    dead_letters_waiting: int = 0


class ReasonCount(Answer, frozen=True, kw_only=True):
    reason: str
    waiting: int = 0


class DeadLetterCounts(Answer, frozen=True, kw_only=True):
    by_reason: list[ReasonCount] = []


class Attention(Answer, frozen=True, kw_only=True):
    """Something that an operator has to look at."""

    severity: str = ""
    kind: str = ""
    subject: str = ""
    text: str = ""
    command: str | None = ""
    topic: str | None = None
    subscription: str | None = None


class Replication(Answer, frozen=True, kw_only=True):
    states: dict[str, int] = {}


class PipelineCounts(Answer, frozen=True, kw_only=True):
    states: dict[str, int] = {}


class Overview(Answer, frozen=True, kw_only=True):
    time: Any = None
    cluster: str
    version: str = ""
    uptime_s: float = msgspec.field(default=0.0, name="uptimeS")
    health: Any = None
    totals: Totals
    namespaces: list[NamespaceRow] = []
    dead_letters: DeadLetterCounts = DeadLetterCounts()
    replication: Replication = Replication()
    pipelines: PipelineCounts = PipelineCounts()
    attention: list[Attention] = []


# -- topics


class TopicRow(Answer, frozen=True, kw_only=True):
    """Numbers are None where only the name is known."""

    topic: str
    partitions: int | None = None
    rate_in: float | None = None
    rate_out: float | None = None
    throughput_in: float | None = None
    throughput_out: float | None = None
    backlog: int | None = None
    stored_bytes: int | None = None
    subscriptions: int | None = None
    producers: int | None = None
    consumers: int | None = None
    dead_letters: int | None = None
    state: str | None = None


class TopicPage(Answer, frozen=True, kw_only=True):
    total: int
    topics: list[TopicRow]


class ProducerAnswer(Answer, frozen=True, kw_only=True):
    producer_name: str = ""
    address: str = ""
    connected_since: str = ""
    client_version: str = ""
    access_mode: str = ""
    msg_rate_in: float = 0.0
    msg_throughput_in: float = 0.0


class ConsumerAnswer(Answer, frozen=True, kw_only=True):
    consumer_name: str = ""
    address: str = ""
    connected_since: str = ""
    client_version: str = ""
    available_permits: int = 0
    unacked_messages: int = 0
    blocked_consumer_on_unacked_msgs: bool = False
    msg_rate_out: float = 0.0
    msg_rate_redeliver: float = 0.0


class SubscriptionAnswer(Answer, frozen=True, kw_only=True):
    type: str = ""
    is_durable: bool = True
    msg_backlog: int = 0
    msg_delayed: int = 0
    unacked_messages: int = 0
    blocked_subscription_on_unacked_msgs: bool = False
    msg_rate_out: float = 0.0
    active_consumer_name: str = ""
    consumers: list[ConsumerAnswer] = []
    dead_letter_problem: str = ""
    dead_lettered: dict[str, int] = {}
    backing_off: int = 0
    suspects: int = 0
    paused_reason: str = ""
    damaged: str = ""


class PartitionedMetadataAnswer(Answer, frozen=True, kw_only=True):
    partitions: int = 0


class TopicStatsAnswer(Answer, frozen=True, kw_only=True):
    msg_in_counter: int = 0
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    storage_size: int = 0
    backlog_size: int = 0
    publishers: list[ProducerAnswer] = []
    subscriptions: dict[str, SubscriptionAnswer] = {}
    damaged: str = ""


class PartitionedStatsAnswer(TopicStatsAnswer, frozen=True, kw_only=True):
    metadata: PartitionedMetadataAnswer = PartitionedMetadataAnswer()
    partitions: dict[str, TopicStatsAnswer] = {}


class TopicSchema(Answer, frozen=True, kw_only=True):
    version: int = 0
    type: str = ""
    timestamp: int = 0
    data: str = ""
    properties: dict[str, str] = {}


# -- dead letters


class DeadLetterTopicAnswer(Answer, frozen=True, kw_only=True):
    topic: str
    origin_topic: str | None = None
    origin_subscription: str | None = None
    waiting: int = 0
    handled: int = 0
    last_hour: int = 0
    oldest: str | None = None
    oldest_age_seconds: int | None = None


class DeadLetterTopicsAnswer(Answer, frozen=True, kw_only=True):
    topics: list[DeadLetterTopicAnswer] = []
    next: str | None = None


class OriginAnswer(Answer, frozen=True, kw_only=True):
    topic: str | None = None
    subscription: str | None = None
    dead_letters: int = 0


class DeadLetterStatsAnswer(Answer, frozen=True, kw_only=True):
    waiting: int = 0
    handled: int = 0
    dead_letters: int = 0
    reasons: dict[str, int] = {}
    first: str | None = None
    last: str | None = None
    origins: list[OriginAnswer] = []
    aborted: bool = False


class FailureAnswer(Answer, frozen=True, kw_only=True):
    topic: str | None = None
    subscription: str | None = None
    reason: str | None = None
    count: int | None = None
    first: str | None = None
    last: str | None = None
    consumer: str | None = None
    error: str | None = None


class DeadLetterAnswer(Answer, frozen=True, kw_only=True):
    """The fields from `failures` on are those of one letter that was requested by itself."""

    id: str
    time: str | None = None
    reason: str = ""
    description: str | None = None
    origin_topic: str | None = None
    origin_subscription: str | None = None
    origin_message_id: str | None = None
    count: int | None = None
    consumer: str | None = None
    error: str | None = None
    key: str | None = None
    size: int = 0
    fault: str | None = None
    failures: list[FailureAnswer] = []
    properties: dict[str, str] = {}
    producer_name: str = ""
    event_time: str | None = None
    payload_encoding: str | None = None
    payload: Any = None


class DeadLetterPageAnswer(Answer, frozen=True, kw_only=True):
    dead_letters: list[DeadLetterAnswer] = []
    next: str | None = None


# -- pipelines


class ProgressAnswer(Answer, frozen=True, kw_only=True):
    done: int = 0
    total: int | None = None
    note: str = ""


class PipelineStatusAnswer(Answer, frozen=True, kw_only=True):
    namespace: str = ""
    name: str = ""
    verb: str = ""
    spec: dict[str, Any] = {}
    state: str = ""
    reason: str = ""
    process: str = ""
    progress: ProgressAnswer = ProgressAnswer()
    last_error: str = ""

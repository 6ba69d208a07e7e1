"""The objects of the overview: one answer about the whole broker, and one page of topics.

Owns their JSON. Rates are per second, sizes are bytes as published, backlogs count entries, times are in ms.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from magnetar.health import State as HealthState

Severity = Literal["error", "warning"]


class AttentionKind(StrEnum):
    """What needs attention; the first is the most urgent among those of a severity."""

    HEALTH = "health"
    DISK = "disk"
    DAMAGE = "damage"
    CERTIFICATE = "certificate"
    PAUSED = "paused-subscription"
    DEAD_LETTER_PROBLEM = "dead-letter-problem"
    REPLICATION = "replication"
    PIPELINE = "pipeline"
    DEAD_LETTERS = "dead-letters"
    BLOCKED = "blocked-subscription"
    KEY = "waiting-for-key"
    SLOW = "idle-consumers"
    NO_CONSUMER = "no-consumer"


class Attention(msgspec.Struct, rename="camel", kw_only=True):
    """One thing to act on; `command` investigates or repairs it."""

    severity: Severity
    kind: AttentionKind
    subject: str
    text: str
    command: str
    topic: str | UnsetType = UNSET
    subscription: str | UnsetType = UNSET


class CheckOutcome(msgspec.Struct):
    name: str
    state: HealthState
    reason: str


class HealthVerdict(msgspec.Struct):
    """`checks` has those that are not ok."""

    state: HealthState
    checks: list[CheckOutcome]


class Numbers(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """What topics, namespaces and the broker have in common. Thousands at a time must not wake the collector."""

    rate_in: float = 0.0
    rate_out: float = 0.0
    throughput_in: float = 0.0
    throughput_out: float = 0.0
    backlog: int = 0
    unacked: int = 0
    delayed: int = 0
    stored_bytes: int = 0
    subscriptions: int = 0
    producers: int = 0
    consumers: int = 0

    def add(self, other: Numbers) -> None:
        self.rate_in += other.rate_in
        self.rate_out += other.rate_out
        self.throughput_in += other.throughput_in
        self.throughput_out += other.throughput_out
        self.backlog += other.backlog
        self.unacked += other.unacked
        self.delayed += other.delayed
        self.stored_bytes += other.stored_bytes
        self.subscriptions += other.subscriptions
        self.producers += other.producers
        self.consumers += other.consumers


class TopicCondition(StrEnum):
    """The state of a topic; of several partitions, the last of these that one is in."""

    UNLOADED = "unloaded"  # not used since the start: its numbers are not known
    IDLE = "idle"
    ACTIVE = "active"  # it has a producer or a consumer
    TERMINATED = "terminated"
    STUCK = "stuck"  # a subscription of it does not move
    DAMAGED = "damaged"


class TopicRow(Numbers, rename="camel", kw_only=True, gc=False):
    """A topic; one with partitions is one row, and `partitions` is 0 for one without.

    `dead_letters` wait: in the topic, if it is a dead letter topic, or in those of its subscriptions.
    """

    topic: str
    partitions: int = 0
    dead_letters: int = 0
    state: TopicCondition = TopicCondition.UNLOADED


class TopicPage(msgspec.Struct):
    """`total` counts the topics that match, on all pages."""

    total: int
    topics: list[TopicRow]


class Totals(Numbers, rename="camel", kw_only=True, gc=False):
    """`topics` counts one with partitions once; `unloaded` are without numbers, as they were not used yet."""

    topics: int = 0
    partitioned_topics: int = 0
    unloaded: int = 0
    dead_letters_waiting: int = 0


class NamespaceRow(msgspec.Struct, rename="camel"):
    name: str
    topics: int
    rate_in: float
    rate_out: float
    backlog: int
    stored_bytes: int
    dead_letters_waiting: int


class ReasonWaiting(msgspec.Struct):
    reason: str
    waiting: int


class DeadLetterHour(msgspec.Struct):
    """Dead letters that arrived within an hour, which began at `hour`, by reason."""

    hour: int
    reasons: dict[str, int]


class DeadLetterCounts(msgspec.Struct, rename="camel"):
    """`uncounted` wait too: their reasons are not read yet, or are too many to be read."""

    by_reason: list[ReasonWaiting]
    hours: list[DeadLetterHour]
    uncounted: int


class RouteRow(msgspec.Struct, rename="camel"):
    topic: str
    remote: str
    state: str
    reason: str
    backlog: int


class Replication(msgspec.Struct):
    """`states` counts topics and partitions, `worst` has those that are not copied."""

    states: dict[str, int]
    worst: list[RouteRow]


class Pipelines(msgspec.Struct):
    states: dict[str, int]


class Overview(msgspec.Struct, rename="camel", kw_only=True):
    """`attention` begins with the worst; `attention_left_out` counts what it has no room for."""

    time: int
    cluster: str
    version: str
    uptime_s: float
    health: HealthVerdict
    totals: Totals
    namespaces: list[NamespaceRow]
    namespaces_left_out: int
    dead_letters: DeadLetterCounts
    replication: Replication
    pipelines: Pipelines
    attention: list[Attention]
    attention_left_out: int

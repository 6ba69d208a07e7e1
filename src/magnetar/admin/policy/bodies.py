"""The JSON bodies of policies: Pulsar's field names, the limits of numbers, and the conversion to the broker's types.

Checks a value by itself; `checks` compares it with other policies.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from magnetar.admin.http.errors import BadRequest
from magnetar.broker.catalog.failure_policy import (
    BACKOFF_MS_MAX,
    BACKOFF_STEPS_MAX,
    COUNT_MAX,
    BreakerPolicy,
    DeadLetterPolicy,
)
from magnetar.broker.catalog.policies import (
    AutoTopicCreation,
    BacklogQuota,
    DelayedDelivery,
    QuotaKind,
    QuotaPolicy,
    Retention,
)
from magnetar.errors import InvalidName, NotAllowed
from magnetar.names import SUBSCRIPTION_NAME_BYTES_MAX, TopicName
from magnetar.replication.model import is_replication_subscription
from magnetar.settings.settings import SchemaStrategy

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]  # Java's int
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

BREAKER_WINDOW_S_MAX = 24 * 3600
BREAKER_MINIMUM_MAX = 1_000_000

UNDEFINED = "UNDEFINED"
Strategy = SchemaStrategy | Literal["UNDEFINED"]

# Pulsar's older names for strategies.
AutoUpdateStrategy = Literal[
    "AutoUpdateDisabled",
    "AlwaysCompatible",
    "Backward",
    "Forward",
    "Full",
    "BackwardTransitive",
    "ForwardTransitive",
    "FullTransitive",
]
_AUTO_UPDATE = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}
_AUTO_UPDATE_NAMES = {strategy: name for name, strategy in _AUTO_UPDATE.items()}


SubscriptionAuthMode = Literal["None", "Prefix"]
ANY_NAME = "None"


class RetentionPolicies(msgspec.Struct, forbid_unknown_fields=True):
    """-1 is no limit, 0 is no retention."""

    minutes: Int32 = msgspec.field(default=0, name="retentionTimeInMinutes")
    mb: Int64 = msgspec.field(default=0, name="retentionSizeInMB")

    def kept(self) -> Retention:
        if self.mb < -1:
            raise BadRequest("Invalid retention policy: size limit must be >= -1")
        if self.minutes < -1:
            raise BadRequest("Invalid retention policy: time limit must be >= -1")
        if (self.minutes == 0) != (self.mb == 0):
            raise BadRequest(
                "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the limits"
                " has a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. To disable"
                " retention both limits must be set to 0."
            )
        return Retention(self.minutes, self.mb)

    @classmethod
    def of(cls, retention: Retention) -> RetentionPolicies:
        return cls(retention.minutes, retention.mb)


class Quota(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """`limit` is the older name of `limitSize`. Only the limit of the quota's kind, size or time, may be set."""

    limit: Int64 | None = None
    limit_size: Int64 | None = None
    limit_time: Int32 | None = None
    policy: QuotaPolicy | None = None

    def kept(self, kind: QuotaKind) -> BacklogQuota:
        if self.policy is None:
            raise BadRequest("backlog quota has no policy")
        size = self.limit if self.limit_size is None else self.limit_size
        if kind is QuotaKind.message_age:
            limit, other, other_name, other_kind = self.limit_time, size, "limitSize", QuotaKind.destination_storage
        else:
            limit, other, other_name, other_kind = size, self.limit_time, "limitTime", QuotaKind.message_age
            if not limit:
                raise NotAllowed(
                    f"limitSize {limit or 0} of a backlog quota would block every producer: it must be above 0,"
                    " or -1 for no limit"
                )
        if other is not None and other > 0:
            raise NotAllowed(f"{other_name} {other} has no effect on {kind}: set it with backlogQuotaType={other_kind}")
        return BacklogQuota(limit if limit and limit > 0 else -1, self.policy)

    @classmethod
    def of(cls, kind: QuotaKind, quota: BacklogQuota) -> Quota:
        if kind is QuotaKind.message_age:
            return cls(-1, -1, quota.limit, quota.policy)
        return cls(quota.limit, quota.limit, -1, quota.policy)


Quotas = dict[QuotaKind, Quota]


def kept_quotas(quotas: Quotas) -> dict[QuotaKind, BacklogQuota] | None:
    return {kind: quota.kept(kind) for kind, quota in quotas.items()} or None


def shown_quotas(quotas: dict[QuotaKind, BacklogQuota]) -> Quotas:
    return {kind: Quota.of(kind, quota) for kind, quota in quotas.items()}


class AutoTopicCreationOverride(msgspec.Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    allow_auto_topic_creation: bool
    topic_type: str | None = None
    default_num_partitions: Int32 | None = None

    def kept(self) -> AutoTopicCreation:
        return AutoTopicCreation(self.allow_auto_topic_creation, self.default_num_partitions or 0)

    @classmethod
    def of(cls, creation: AutoTopicCreation) -> AutoTopicCreationOverride:
        if creation.partitions:
            return cls(creation.allowed, "partitioned", creation.partitions)
        return cls(creation.allowed, "non-partitioned")

    @property
    def fault(self) -> str | None:
        """The error, in Pulsar's words."""
        if not self.topic_type and not self.allow_auto_topic_creation:
            return None
        if self.topic_type not in ("partitioned", "non-partitioned"):
            return f"Unknown topic type [{(self.topic_type or 'null')[:100]}]"
        if self.topic_type == "non-partitioned":
            if self.default_num_partitions is None:
                return None
            return "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
        if self.default_num_partitions is None:
            return "[defaultNumPartitions] cannot be null when the type is partitioned."
        if self.default_num_partitions <= 0:
            return "[defaultNumPartitions] cannot be less than 1 for partition type."
        return None


class AutoSubscriptionCreationOverride(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    allow_auto_subscription_creation: bool

    def kept(self) -> bool:
        return self.allow_auto_subscription_creation


class DelayedDeliveryPolicies(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    tick_time: Int64 = 0
    active: bool = False
    max_delivery_delay_in_millis: Int64 = 0
    max_delay_in_millis: Int64 | UnsetType = UNSET  # the Go client's spelling

    def kept(self) -> DelayedDelivery:
        for name, value in (
            ("tickTime", self.tick_time),
            ("maxDeliveryDelayInMillis", self.max_delivery_delay_in_millis),
            ("maxDelayInMillis", self.max_delay_in_millis or 0),
        ):
            if value < 0:
                raise NotAllowed(f"{name} {value} must be 0 or more")
        longest_ms = self.max_delivery_delay_in_millis or self.max_delay_in_millis or 0
        return DelayedDelivery(self.active, longest_ms, self.tick_time)

    @classmethod
    def of(cls, delivery: DelayedDelivery) -> DelayedDeliveryPolicies:
        return cls(delivery.tick_ms, delivery.active, delivery.max_ms)


class DeadLetterPolicyBody(msgspec.Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """`dead_letter_topic` defaults to `{topic}-{subscription}-DLQ`."""

    max_redeliver_count: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]
    dead_letter_topic: str | None = None
    initial_subscription_name: str | None = None

    def kept(self) -> DeadLetterPolicy:
        topic, subscription = self.dead_letter_topic or "", self.initial_subscription_name or ""
        if topic:
            topic = _dead_letter_topic(topic).full
        size = len(subscription.encode())
        if size > SUBSCRIPTION_NAME_BYTES_MAX:
            raise InvalidName(
                f"initialSubscriptionName of {size} bytes exceeds the limit of {SUBSCRIPTION_NAME_BYTES_MAX}"
            )
        if is_replication_subscription(subscription):  # it cannot be created, and no dead letter would ever move
            raise NotAllowed(f"initialSubscriptionName {subscription[:100]!r} is reserved for replication")
        return DeadLetterPolicy(self.max_redeliver_count, topic, subscription)

    @classmethod
    def of(cls, policy: DeadLetterPolicy) -> DeadLetterPolicyBody:
        return cls(policy.max_redeliver_count, policy.topic or None, policy.initial_subscription or None)


def _dead_letter_topic(text: str) -> TopicName:
    try:
        name = TopicName.parse(text)
    except InvalidName as error:
        raise InvalidName(f"deadLetterTopic: {error}") from error
    if not name.is_persistent:
        raise NotAllowed(f"deadLetterTopic {name.full} is not persistent: dead letters would be lost there")
    return name


Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=BACKOFF_MS_MAX)]
RedeliveryBackoff = Annotated[list[Milliseconds], msgspec.Meta(min_length=1, max_length=BACKOFF_STEPS_MAX)]


class CircuitBreakerBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """`percent` ends at 99: more than 100 % of the messages cannot be dead letters."""

    percent: Annotated[int, msgspec.Meta(ge=0, le=99)]
    window_seconds: Annotated[int, msgspec.Meta(ge=1, le=BREAKER_WINDOW_S_MAX)] = 60
    minimum: Annotated[int, msgspec.Meta(ge=1, le=BREAKER_MINIMUM_MAX)] = 10

    def kept(self) -> BreakerPolicy:
        return BreakerPolicy(self.percent, self.window_seconds, self.minimum)

    @classmethod
    def of(cls, breaker: BreakerPolicy) -> CircuitBreakerBody:
        return cls(breaker.percent, breaker.window_s, breaker.minimum)


def kept_strategy(strategy: str) -> str | None:
    return None if strategy == UNDEFINED else strategy


def kept_auto_update(name: str) -> str:
    return _AUTO_UPDATE[name]


def shown_auto_update(strategy: str) -> str:
    return _AUTO_UPDATE_NAMES[strategy]

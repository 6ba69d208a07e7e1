"""Policies of a topic: the broker's settings, overridden by its namespace, overridden by the topic.

`Overrides` are the values set at one level; `Policies` are the effective ones. The core reads `Policies` only, whatever
the level of a value. Between namespace and topic, dead letter and retry topics drop what would lose failed messages.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.catalog.rate_policy import DispatchRate, PublishRate, SubscribeRate
from magnetar.settings.settings import Settings

_MINUTE_MS = 60_000
_MB = 1 << 20


class QuotaPolicy(enum.StrEnum):
    producer_request_hold = "producer_request_hold"
    producer_exception = "producer_exception"
    consumer_backlog_eviction = "consumer_backlog_eviction"


class QuotaKind(enum.StrEnum):
    destination_storage = "destination_storage"  # bytes
    message_age = "message_age"


class Retention(msgspec.Struct, frozen=True, omit_defaults=True):
    """Negative is unlimited, zero is none."""

    minutes: int
    mb: int


class BacklogQuota(msgspec.Struct, frozen=True, omit_defaults=True):
    """`limit` is in bytes or, for message_age, in seconds."""

    limit: int
    policy: QuotaPolicy


class AutoTopicCreation(msgspec.Struct, frozen=True, omit_defaults=True):
    """`partitions` 0 creates plain topics."""

    allowed: bool
    partitions: int = 0


class DelayedDelivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """`max_ms` 0 is no limit. `tick_ms`, the allowed inaccuracy, has no effect: delivery is always on time."""

    active: bool
    max_ms: int = 0
    tick_ms: int = 1000


class Overrides(msgspec.Struct, omit_defaults=True):
    """The values set at one level; None is not set. For a limit, 0 is no limit."""

    retention: Retention | None = None
    message_ttl_s: int | None = None
    backlog_quotas: dict[QuotaKind, BacklogQuota] | None = None
    deduplication: bool | None = None
    auto_subscription_creation: bool | None = None
    max_producers: int | None = None
    max_consumers: int | None = None
    max_consumers_per_subscription: int | None = None
    max_unacked_per_consumer: int | None = None
    max_unacked_per_subscription: int | None = None
    max_subscriptions: int | None = None
    delayed_delivery: DelayedDelivery | None = None
    subscription_types: list[str] | None = None
    schema_compatibility: str | None = None
    schema_validation_enforced: bool | None = None
    replication_clusters: list[str] | None = None
    publish_rate: PublishRate | None = None
    dispatch_rate: DispatchRate | None = None
    subscription_dispatch_rate: DispatchRate | None = None
    replicator_dispatch_rate: DispatchRate | None = None
    subscribe_rate: SubscribeRate | None = None
    dead_letters: DeadLetterPolicy | None = None
    dead_letter_expired: bool | None = msgspec.field(default=None, name="letters_for_expired")  # the stored names
    dead_letter_evicted: bool | None = msgspec.field(default=None, name="letters_for_evicted")
    # of a namespace only
    auto_topic_creation: AutoTopicCreation | None = None
    max_topics: int | None = None
    allow_auto_update_schema: bool | None = None
    allowed_clusters: list[str] | None = None  # targets of replication; any, if empty
    schema_auto_update: str | None = None  # the older schema_compatibility, used if that is not set
    subscription_auth_mode: str | None = None  # Prefix: the name of a subscription begins with the role
    # of a topic only
    max_message_size: int | None = None
    dispatch_rates: dict[str, DispatchRate] | None = None  # of single subscriptions, by name


NOTHING_SET = Overrides()


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """The effective values. A limit, a time to live or a quota of 0 is no limit."""

    retention_ms: int
    retention_bytes: int
    open_ms: int  # the newest data stays this long, and this many bytes, even if all is acknowledged
    open_bytes: int
    ttl_ms: int
    quota_bytes: int
    quota_bytes_policy: QuotaPolicy
    quota_ms: int
    quota_ms_policy: QuotaPolicy
    deduplication: bool
    auto_topic_creation: AutoTopicCreation
    auto_subscription_creation: bool
    max_topics: int
    max_producers: int
    max_consumers: int
    max_consumers_per_subscription: int
    max_unacked_per_consumer: int
    max_unacked_per_subscription: int
    max_subscriptions: int
    max_message_size: int
    delayed_delivery: DelayedDelivery
    subscription_types: frozenset[str]
    schema_compatibility: str
    schema_validation_enforced: bool
    allow_auto_update_schema: bool
    replication_clusters: tuple[str, ...]
    publish_rate: PublishRate
    dispatch_rate: DispatchRate  # of a topic
    subscription_dispatch_rate: DispatchRate
    replicator_dispatch_rate: DispatchRate
    subscribe_rate: SubscribeRate
    dispatch_rates: dict[str, DispatchRate] = {}  # of single subscriptions, by name
    dead_letters: DeadLetterPolicy | None = None
    dead_letter_expired: bool = False  # expired messages become dead letters; evicted ones
    dead_letter_evicted: bool = False
    keeps_unhandled: bool = False  # what no durable subscription has acknowledged stays, even if there is none

    @classmethod
    def of(cls, settings: Settings) -> Policies:
        types = settings.subscriptionTypesEnabled
        is_partitioned = settings.allowAutoTopicCreationType == "partitioned"
        quota_policy = QuotaPolicy(settings.backlogQuotaDefaultRetentionPolicy)
        return cls(
            retention_ms=settings.defaultRetentionTimeInMinutes * _MINUTE_MS,
            retention_bytes=settings.defaultRetentionSizeInMB * _MB,
            open_ms=settings.managedLedgerMinLedgerRolloverTimeMinutes * _MINUTE_MS,
            open_bytes=settings.managedLedgerMaxSizePerLedgerMbytes * _MB,
            ttl_ms=settings.ttlDurationDefaultInSeconds * 1000,
            quota_bytes=max(0, settings.backlog_quota_bytes),
            quota_bytes_policy=quota_policy,
            quota_ms=max(0, settings.backlogQuotaDefaultLimitSecond) * 1000,
            quota_ms_policy=quota_policy,
            deduplication=settings.brokerDeduplicationEnabled,
            auto_topic_creation=AutoTopicCreation(
                settings.allowAutoTopicCreation, settings.defaultNumPartitions if is_partitioned else 0
            ),
            auto_subscription_creation=settings.allowAutoSubscriptionCreation,
            max_topics=settings.maxTopicsPerNamespace,
            max_producers=settings.maxProducersPerTopic,
            max_consumers=settings.maxConsumersPerTopic,
            max_consumers_per_subscription=settings.maxConsumersPerSubscription,
            max_unacked_per_consumer=settings.maxUnackedMessagesPerConsumer,
            max_unacked_per_subscription=settings.maxUnackedMessagesPerSubscription,
            max_subscriptions=settings.maxSubscriptionsPerTopic,
            max_message_size=settings.maxMessageSize,
            delayed_delivery=DelayedDelivery(settings.delayedDeliveryEnabled, settings.delayedDeliveryMaxDelayInMillis),
            subscription_types=types if settings.subscriptionKeySharedEnable else types - {"Key_Shared"},
            schema_compatibility=settings.schemaCompatibilityStrategy,
            schema_validation_enforced=settings.isSchemaValidationEnforced,
            allow_auto_update_schema=settings.isAllowAutoUpdateSchemaEnabled,
            replication_clusters=(settings.clusterName,),
            **_rates_of(settings),
        )

    def with_overrides(self, overrides: Overrides) -> Policies:
        """These policies, replaced where `overrides` has a value."""
        if overrides == NOTHING_SET:
            return self
        changed: dict[str, Any] = {
            field: value for field in _TAKEN_AS_THEY_ARE if (value := getattr(overrides, field)) is not None
        }
        for field in _RATES:
            rate = getattr(overrides, field)
            if rate is not None and rate.is_limited:
                changed[field] = rate
        if overrides.dispatch_rates is not None:
            changed["dispatch_rates"] = overrides.dispatch_rates
        strategy = overrides.schema_compatibility or overrides.schema_auto_update
        if strategy is not None:
            changed["schema_compatibility"] = strategy
        if overrides.max_message_size:
            changed["max_message_size"] = overrides.max_message_size
        if overrides.retention is not None:
            changed["retention_ms"] = overrides.retention.minutes * _MINUTE_MS
            changed["retention_bytes"] = overrides.retention.mb * _MB
            changed["keeps_unhandled"] = False
        if overrides.message_ttl_s is not None:
            changed["ttl_ms"] = overrides.message_ttl_s * 1000
        for kind, quota in (overrides.backlog_quotas or {}).items():
            field, unit = ("quota_ms", 1000) if kind is QuotaKind.message_age else ("quota_bytes", 1)
            changed[field] = max(0, quota.limit) * unit
            changed[f"{field}_policy"] = quota.policy
        if overrides.subscription_types is not None:
            changed["subscription_types"] = frozenset(overrides.subscription_types)
        if overrides.replication_clusters is not None:
            changed["replication_clusters"] = tuple(overrides.replication_clusters)
        return msgspec.structs.replace(self, **changed)

    def for_failed_messages(self) -> Policies:
        """These policies for a dead letter or retry topic: none of them loses a failed message, or its delay (DL10).

        What is set on such a topic itself applies. Retention does: it deletes only what was acknowledged.
        """
        return msgspec.structs.replace(
            self,
            ttl_ms=0,
            quota_bytes=0,
            quota_ms=0,
            delayed_delivery=msgspec.structs.replace(self.delayed_delivery, active=True, max_ms=0),
            dead_letter_expired=False,  # dead letters have no dead letters
            dead_letter_evicted=False,
            keeps_unhandled=True,
        )

    def as_overrides(self) -> Overrides:
        """The same values in the form that an administrator sets."""
        return Overrides(
            retention=Retention(self.retention_ms // _MINUTE_MS, self.retention_bytes // _MB),
            message_ttl_s=self.ttl_ms // 1000,
            backlog_quotas={
                QuotaKind.destination_storage: BacklogQuota(self.quota_bytes or -1, self.quota_bytes_policy),
                QuotaKind.message_age: BacklogQuota(self.quota_ms // 1000 or -1, self.quota_ms_policy),
            },
            subscription_types=sorted(self.subscription_types),
            schema_compatibility=self.schema_compatibility,
            replication_clusters=list(self.replication_clusters),
            max_message_size=self.max_message_size,
            **{field: getattr(self, field) for field in (*_TAKEN_AS_THEY_ARE, *_RATES)},
        )

    @property
    def has_relative_rates(self) -> bool:
        """Whether a rate of dispatch depends on that of publishing."""
        rates = (self.dispatch_rate, self.subscription_dispatch_rate, self.replicator_dispatch_rate)
        return any(rate.relative and rate.is_limited for rate in (*rates, *self.dispatch_rates.values()))

    def dispatch_rate_of(self, subscription: str) -> DispatchRate:
        """The rate of a subscription: its own, or else that of every subscription."""
        own = self.dispatch_rates.get(subscription)
        return own if own is not None and own.is_limited else self.subscription_dispatch_rate


def _rates_of(settings: Settings) -> dict[str, Any]:
    """As many messages and bytes as the settings allow, per second."""
    is_relative = settings.dispatchThrottlingRateRelativeToPublishRate
    return {
        "publish_rate": PublishRate(settings.maxPublishRatePerTopicInMessages, settings.maxPublishRatePerTopicInBytes),
        "dispatch_rate": DispatchRate(
            settings.dispatchThrottlingRatePerTopicInMsg, settings.dispatchThrottlingRatePerTopicInByte, is_relative
        ),
        "subscription_dispatch_rate": DispatchRate(
            settings.dispatchThrottlingRatePerSubscriptionInMsg,
            settings.dispatchThrottlingRatePerSubscriptionInByte,
            is_relative,
        ),
        "replicator_dispatch_rate": DispatchRate(
            settings.dispatchThrottlingRatePerReplicatorInMsg,
            settings.dispatchThrottlingRatePerReplicatorInByte,
            is_relative,
        ),
        "subscribe_rate": SubscribeRate(
            settings.subscribeThrottlingRatePerConsumer, settings.subscribeRatePeriodPerConsumerInSecond
        ),
    }


_RATES = (
    "publish_rate",
    "dispatch_rate",
    "subscription_dispatch_rate",
    "replicator_dispatch_rate",
    "subscribe_rate",
)

_TAKEN_AS_THEY_ARE = (
    "deduplication",
    "auto_topic_creation",
    "auto_subscription_creation",
    "max_topics",
    "max_producers",
    "max_consumers",
    "max_consumers_per_subscription",
    "max_unacked_per_consumer",
    "max_unacked_per_subscription",
    "max_subscriptions",
    "delayed_delivery",
    "schema_validation_enforced",
    "allow_auto_update_schema",
    "dead_letters",
    "dead_letter_expired",
    "dead_letter_evicted",
)

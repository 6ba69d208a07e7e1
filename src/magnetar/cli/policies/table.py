"""The policy table: each row makes the commands `set-NAME`, `get-NAME` and `remove-NAME`.

Owns the names and the paths. The options are in `setting`; the broker gives a policy its meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from magnetar.cli.policies import rate_setting, setting
from magnetar.cli.policies.setting import Setting


@dataclass(frozen=True, slots=True)
class PolicyCommand:
    """`namespace`, `topic` and `subscription` are the last part of its path, None where there is no such policy.

    `name` is its name in commands, `topic_name` that of a topic where it differs. `topic_query` is the parameter that
    carries the value of a topic where Pulsar expects it there and not in the body.
    """

    name: str
    meaning: str
    setting: Callable[..., Setting]
    namespace: str | None = None
    topic: str | None = None
    subscription: str | None = None
    topic_name: str | None = None
    topic_query: str | None = None
    get_name: str | None = None
    get_path: str | None = None
    method: str = "POST"
    removable: bool = True  # from a namespace; from a topic every policy is
    is_below_topic: bool = False  # the path of a subscription, without the word "subscription" in it
    is_pulsar_only: bool = False  # this broker returns 501

    @property
    def panel(self) -> str:
        """The heading in the help of a group: policies of one kind together."""
        return next(panel for panel, words in _PANELS.items() if any(word in self.name for word in words))


_PANELS = {
    "Failed messages": ("dead-letter", "redelivery", "circuit-breaker"),
    "Limits": ("max-", "-rate", "quota"),
    "Schemas": ("schema",),
    "Replication": ("clusters",),
    "Creation": ("auto-",),
    "Storage and delivery": ("",),
}

POLICIES: tuple[PolicyCommand, ...] = (
    PolicyCommand(
        "retention",
        "time and size of acknowledged messages to keep",
        setting.retention,
        "retention",
        "retention",
    ),
    PolicyCommand(
        "message-ttl",
        "time after which unacknowledged messages expire",
        setting.message_ttl,
        "messageTTL",
        "messageTTL",
        topic_query="messageTTL",
    ),
    PolicyCommand(
        "backlog-quota",
        "maximum size or age of a backlog",
        setting.backlog_quota,
        "backlogQuota",
        "backlogQuota",
        get_name="backlog-quotas",
        get_path="backlogQuotaMap",
    ),
    PolicyCommand(
        "auto-topic-creation",
        "create a topic when a client uses it",
        setting.auto_topic_creation,
        "autoTopicCreation",
    ),
    PolicyCommand(
        "auto-subscription-creation",
        "create a subscription when a consumer subscribes",
        setting.auto_subscription_creation,
        "autoSubscriptionCreation",
        "autoSubscriptionCreation",
    ),
    PolicyCommand(
        "deduplication",
        "store a message once, even if it is sent twice",
        setting.flag,
        "deduplication",
        "deduplicationEnabled",
    ),
    PolicyCommand(
        "schema-compatibility-strategy",
        "compatibility required of a new schema",
        setting.schema_compatibility,
        "schemaCompatibilityStrategy",
        "schemaCompatibilityStrategy",
        method="PUT",
        removable=False,
    ),
    PolicyCommand(
        "schema-validation-enforce",
        "reject producers without a schema if the topic has one",
        setting.flag,
        "schemaValidationEnforced",
        "schemaValidationEnforced",
        removable=False,
    ),
    PolicyCommand(
        "is-allow-auto-update-schema",
        "let producers add schema versions",
        setting.flag,
        "isAllowAutoUpdateSchema",
        removable=False,
    ),
    PolicyCommand(
        "delayed-delivery",
        "allow delayed messages",
        setting.delayed_delivery,
        "delayedDelivery",
        "delayedDelivery",
    ),
    PolicyCommand(
        "inactive-topic-policies",
        "delete unused topics",
        setting.inactive_topics,
        "inactiveTopicPolicies",
        "inactiveTopicPolicies",
        is_pulsar_only=True,
    ),
    PolicyCommand(
        "subscription-expiration-time",
        "time after which an unused subscription is deleted",
        setting.minutes("--time", "The time: 90m, 3h, 2d; 0 for never."),
        "subscriptionExpirationTime",
        "subscriptionExpirationTime",
        topic_query="subscriptionExpirationTime",
        is_pulsar_only=True,
    ),
    PolicyCommand(
        "subscription-types-enabled",
        "allowed subscription types",
        setting.subscription_types,
        "subscriptionTypesEnabled",
        "subscriptionTypesEnabled",
    ),
    PolicyCommand(
        "subscription-auth-mode",
        "whether names of subscriptions begin with the role of their consumers",
        setting.subscription_auth_mode,
        "subscriptionAuthMode",
        removable=False,
    ),
    PolicyCommand("clusters", "clusters to replicate messages to", setting.clusters, "replication", removable=False),
    PolicyCommand(
        "allowed-clusters",
        "clusters that topics may be replicated to",
        setting.clusters,
        "allowedClusters",
        removable=False,
    ),
    PolicyCommand("replication-clusters", "clusters to replicate messages to", setting.clusters, topic="replication"),
    PolicyCommand(
        "max-producers-per-topic",
        "maximum number of producers per topic",
        setting.number("--max-producers-per-topic", "-p"),
        "maxProducersPerTopic",
    ),
    PolicyCommand(
        "max-producers",
        "maximum number of producers",
        setting.number("--max-producers", "-p"),
        topic="maxProducers",
    ),
    PolicyCommand(
        "max-consumers-per-topic",
        "maximum number of consumers per topic",
        setting.number("--max-consumers-per-topic", "-c"),
        "maxConsumersPerTopic",
    ),
    PolicyCommand(
        "max-consumers",
        "maximum number of consumers",
        setting.number("--max-consumers", "-c"),
        topic="maxConsumers",
    ),
    PolicyCommand(
        "max-consumers-per-subscription",
        "maximum number of consumers per subscription",
        setting.number("--max-consumers-per-subscription", "-c"),
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
    ),
    PolicyCommand(
        "max-subscriptions-per-topic",
        "maximum number of subscriptions per topic",
        setting.number("--max-subscriptions-per-topic", "-m"),
        "maxSubscriptionsPerTopic",
        "maxSubscriptionsPerTopic",
        topic_name="max-subscriptions",
    ),
    PolicyCommand(
        "max-unacked-messages-per-consumer",
        "maximum number of unacknowledged messages per consumer",
        setting.number("--max-unacked-messages-per-consumer", "-c"),
        "maxUnackedMessagesPerConsumer",
        "maxUnackedMessagesOnConsumer",
    ),
    PolicyCommand(
        "max-unacked-messages-per-subscription",
        "maximum number of unacknowledged messages per subscription",
        setting.number("--max-unacked-messages-per-subscription", "-c"),
        "maxUnackedMessagesPerSubscription",
        "maxUnackedMessagesOnSubscription",
    ),
    PolicyCommand(
        "max-topics-per-namespace",
        "maximum number of topics per namespace",
        setting.number("--max-topics-per-namespace", "-t"),
        "maxTopicsPerNamespace",
    ),
    PolicyCommand(
        "max-message-size",
        "maximum size of a message",
        setting.size("--max-message-size", "-m"),
        topic="maxMessageSize",
    ),
    PolicyCommand(
        "publish-rate",
        "maximum rate of publishing to a topic",
        rate_setting.publish_rate,
        "publishRate",
        "publishRate",
    ),
    PolicyCommand(
        "dispatch-rate",
        "maximum rate of delivery per topic",
        rate_setting.dispatch_rate,
        "dispatchRate",
        "dispatchRate",
    ),
    PolicyCommand(
        "subscription-dispatch-rate",
        "maximum rate of delivery per subscription",
        rate_setting.dispatch_rate,
        "subscriptionDispatchRate",
        "subscriptionDispatchRate",
    ),
    PolicyCommand(
        "replicator-dispatch-rate",
        "maximum rate of replication to each cluster",
        rate_setting.dispatch_rate,
        "replicatorDispatchRate",
        "replicatorDispatchRate",
    ),
    PolicyCommand(
        "dispatch-rate",
        "maximum rate of delivery of this subscription",
        rate_setting.dispatch_rate,
        subscription="dispatchRate",
        is_below_topic=True,
    ),
    PolicyCommand(
        "subscribe-rate",
        "maximum rate of subscribing per consumer",
        rate_setting.subscribe_rate,
        "subscribeRate",
        "subscribeRate",
    ),
    PolicyCommand(
        "dead-letter-policy",
        "default for subscriptions without their own dead letter policy",
        setting.dead_letter_policy,
        "deadLetterPolicy",
    ),
    PolicyCommand(
        "dead-letter-expired",
        "turn messages that expire into dead letters",
        setting.flag,
        "deadLetterExpired",
    ),
    PolicyCommand(
        "dead-letter-evicted",
        "turn messages evicted by a backlog quota into dead letters",
        setting.flag,
        "deadLetterEvicted",
    ),
    PolicyCommand(
        "dead-letter-policy",
        "number of redeliveries before a message becomes a dead letter, and its topic",
        setting.dead_letter_policy,
        subscription="deadLetterPolicy",
    ),
    PolicyCommand(
        "redelivery-backoff",
        "delay before a failed message is redelivered",
        setting.redelivery_backoff,
        subscription="redeliveryBackoff",
    ),
    PolicyCommand(
        "circuit-breaker",
        "pause delivery when too many messages become dead letters",
        setting.circuit_breaker,
        subscription="circuitBreaker",
    ),
)

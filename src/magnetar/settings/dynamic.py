"""Dynamic settings: those that may change while the broker runs, through the admin API."""

from __future__ import annotations

DYNAMIC = frozenset(
    {
        "allowAutoTopicCreation",
        "allowAutoTopicCreationType",
        "allowAutoSubscriptionCreation",
        "defaultNumPartitions",
        "maxNumPartitionsPerPartitionedTopic",
        "maxTopicsPerNamespace",
        "forceDeleteNamespaceAllowed",
        "forceDeleteTenantAllowed",
        "maxProducersPerTopic",
        "maxSameAddressProducersPerTopic",
        "maxConsumersPerTopic",
        "maxSameAddressConsumersPerTopic",
        "maxConsumersPerSubscription",
        "maxSubscriptionsPerTopic",
        "maxUnackedMessagesPerConsumer",
        "maxUnackedMessagesPerSubscription",
        "brokerDeduplicationEnabled",
        "defaultRetentionTimeInMinutes",
        "defaultRetentionSizeInMB",
        "ttlDurationDefaultInSeconds",
        "backlogQuotaDefaultLimitBytes",
        "backlogQuotaDefaultLimitGB",
        "backlogQuotaDefaultLimitSecond",
        "backlogQuotaDefaultRetentionPolicy",
        "subscriptionTypesEnabled",
        "subscriptionKeySharedEnable",
        "delayedDeliveryEnabled",
        "delayedDeliveryMaxDelayInMillis",
        "schemaCompatibilityStrategy",
        "isSchemaValidationEnforced",
        "isAllowAutoUpdateSchemaEnabled",
    }
)
"""Settings that may change while the broker runs: their value is read at each use."""

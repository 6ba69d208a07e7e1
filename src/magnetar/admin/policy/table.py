"""The policy table of namespaces and topics: routes, the object of a namespace and the docs are drawn from it.

The JSON of values is in `bodies`, the checks are in `checks`, the handlers in `routes`. It does not know what the
broker does about a policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from magnetar.access.needs import Right
from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest
from magnetar.admin.policy import bodies, checks, rate_bodies, targets
from magnetar.admin.policy.policy import EMPTY, IN_FORCE, Policy
from magnetar.admin.policy.scope import PolicyScope
from magnetar.broker.catalog.policies import Overrides
from magnetar.settings.settings import SubscriptionTypeName


def _limit(
    field: str,
    title: str,
    *,
    namespace: str,
    in_object: str,
    topic: str = "",
    refusal: str = "",
    unset: Any = EMPTY,
    unset_topic: Any = EMPTY,
) -> Policy:
    """A limit; 0 is no limit."""
    at_namespace = f"{namespace} must be 0 or more"
    return Policy(
        title=title,
        field=field,
        shape=bodies.Int32,
        namespace=namespace,
        topic=topic,
        in_object=in_object,
        check=checks.not_negative(at_namespace, refusal or at_namespace),
        unset=unset,
        unset_topic=unset_topic,
        hides_unset=True,
    )


def _dispatch_rate(field: str, title: str, part: str, *, in_object: str, older_in_object: str = "") -> Policy:
    return Policy(
        title=title,
        field=field,
        shape=rate_bodies.DispatchRateBody,
        namespace=part,
        topic=part,
        in_object=in_object,
        by_cluster=True,
        older_in_object=older_in_object,
        kept=rate_bodies.DispatchRateBody.kept,
        shown=rate_bodies.DispatchRateBody.of,
    )


RATES: tuple[Policy, ...] = (
    Policy(
        title="publish rate of a topic: messages and bytes per second",
        field="publish_rate",
        shape=rate_bodies.PublishRateBody,
        namespace="publishRate",
        topic="publishRate",
        in_object="publishMaxMessageRate",
        by_cluster=True,
        kept=rate_bodies.PublishRateBody.kept,
        shown=rate_bodies.PublishRateBody.of,
        unset_topic=None,
    ),
    _dispatch_rate(
        "dispatch_rate",
        "dispatch rate of a topic: messages and bytes per period",
        "dispatchRate",
        in_object="topicDispatchRate",
        older_in_object="clusterDispatchRate",
    ),
    _dispatch_rate(
        "subscription_dispatch_rate",
        "dispatch rate of every subscription",
        "subscriptionDispatchRate",
        in_object="subscriptionDispatchRate",
    ),
    _dispatch_rate(
        "replicator_dispatch_rate",
        "rate of replication to each cluster",
        "replicatorDispatchRate",
        in_object="replicatorDispatchRate",
    ),
    Policy(
        title="subscribe rate of a consumer, per period",
        field="subscribe_rate",
        shape=rate_bodies.SubscribeRateBody,
        namespace="subscribeRate",
        topic="subscribeRate",
        in_object="clusterSubscribeRate",
        by_cluster=True,
        kept=rate_bodies.SubscribeRateBody.kept,
        shown=rate_bodies.SubscribeRateBody.of,
    ),
    Policy(
        title="dispatch rates of single subscriptions",
        field="dispatch_rates",
        shape=dict[str, rate_bodies.DispatchRateBody],
        can_be_set=False,
        can_be_removed=False,
        shown=rate_bodies.shown_dispatch_rates,
    ),
)

BACKLOG_QUOTA = Policy(
    title="backlog quotas, by size and by age",
    field="backlog_quotas",
    shape=bodies.Quotas,
    namespace="backlogQuotaMap",
    topic="backlogQuotaMap",
    in_object="backlog_quota_map",
    can_be_set=False,
    can_be_removed=False,
    check=checks.quotas,
    kept=bodies.kept_quotas,
    shown=bodies.shown_quotas,
    unset={},
    unset_topic={},
)

POLICIES: tuple[Policy, ...] = (
    Policy(
        title="retention of acknowledged messages",
        field="retention",
        shape=bodies.RetentionPolicies,
        namespace="retention",
        topic="retention",
        in_object="retention_policies",
        check=checks.retention,
        kept=bodies.RetentionPolicies.kept,
        shown=bodies.RetentionPolicies.of,
    ),
    Policy(
        title="message time to live, in seconds",
        field="message_ttl_s",
        shape=bodies.Int32,
        namespace="messageTTL",
        topic="messageTTL",
        topic_parameter="messageTTL",
        in_object="message_ttl_in_seconds",
        check=checks.not_negative(
            "Invalid value for message TTL, message TTL must >= 0", at_topic="Invalid value for message TTL"
        ),
    ),
    BACKLOG_QUOTA,
    Policy(
        title="deduplication",
        field="deduplication",
        shape=bool,
        namespace="deduplication",
        topic="deduplicationEnabled",
        in_object="deduplicationEnabled",
    ),
    Policy(
        title="topic auto-creation",
        field="auto_topic_creation",
        shape=bodies.AutoTopicCreationOverride,
        namespace="autoTopicCreation",
        in_object="autoTopicCreationOverride",
        check=checks.auto_topic_creation,
        kept=bodies.AutoTopicCreationOverride.kept,
        shown=bodies.AutoTopicCreationOverride.of,
    ),
    Policy(
        title="subscription auto-creation",
        field="auto_subscription_creation",
        shape=bodies.AutoSubscriptionCreationOverride,
        namespace="autoSubscriptionCreation",
        topic="autoSubscriptionCreation",
        in_object="autoSubscriptionCreationOverride",
        kept=bodies.AutoSubscriptionCreationOverride.kept,
        shown=bodies.AutoSubscriptionCreationOverride,
    ),
    _limit(
        "max_producers",
        "maximum number of producers per topic",
        namespace="maxProducersPerTopic",
        topic="maxProducers",
        in_object="max_producers_per_topic",
        refusal="maxProducers must be 0 or more",
    ),
    _limit(
        "max_consumers",
        "maximum number of consumers per topic",
        namespace="maxConsumersPerTopic",
        topic="maxConsumers",
        in_object="max_consumers_per_topic",
        refusal="maxConsumers must be 0 or more",
    ),
    _limit(
        "max_consumers_per_subscription",
        "maximum number of consumers per subscription",
        namespace="maxConsumersPerSubscription",
        topic="maxConsumersPerSubscription",
        in_object="max_consumers_per_subscription",
        refusal="Invalid value for maxConsumersPerSubscription",
        unset_topic=None,
    ),
    _limit(
        "max_unacked_per_consumer",
        "maximum number of unacknowledged messages per consumer",
        namespace="maxUnackedMessagesPerConsumer",
        topic="maxUnackedMessagesOnConsumer",
        in_object="max_unacked_messages_per_consumer",
        refusal="maxUnackedNum must be 0 or more",
    ),
    _limit(
        "max_unacked_per_subscription",
        "maximum number of unacknowledged messages per subscription",
        namespace="maxUnackedMessagesPerSubscription",
        topic="maxUnackedMessagesOnSubscription",
        in_object="max_unacked_messages_per_subscription",
        refusal="maxUnackedNum must be 0 or more",
    ),
    _limit(
        "max_subscriptions",
        "maximum number of subscriptions per topic",
        namespace="maxSubscriptionsPerTopic",
        topic="maxSubscriptionsPerTopic",
        in_object="max_subscriptions_per_topic",
        unset_topic=None,
    ),
    _limit(
        "max_topics",
        "maximum number of topics per namespace",
        namespace="maxTopicsPerNamespace",
        in_object="max_topics_per_namespace",
        unset=0,
    ),
    Policy(
        title="maximum message size, in bytes",
        field="max_message_size",
        shape=bodies.Int32,
        topic="maxMessageSize",
        check=checks.message_size,
        unset_topic=None,
    ),
    Policy(
        title="delayed delivery",
        field="delayed_delivery",
        shape=bodies.DelayedDeliveryPolicies,
        namespace="delayedDelivery",
        topic="delayedDelivery",
        in_object="delayed_delivery_policies",
        kept=bodies.DelayedDeliveryPolicies.kept,
        shown=bodies.DelayedDeliveryPolicies.of,
    ),
    Policy(
        title="allowed subscription types",
        field="subscription_types",
        shape=list[SubscriptionTypeName],
        namespace="subscriptionTypesEnabled",
        topic="subscriptionTypesEnabled",
        in_object="subscription_types_enabled",
        kept=lambda types: sorted(set(types)) or None,
        unset=[],
        unset_topic=None,
    ),
    Policy(
        title="how subscriptions are named: None for any name, Prefix for names that begin with the consumer's role",
        field="subscription_auth_mode",
        shape=bodies.SubscriptionAuthMode,
        namespace="subscriptionAuthMode",
        in_object="subscription_auth_mode",
        can_be_removed=False,
        unset=bodies.ANY_NAME,
    ),
    Policy(
        title="schema compatibility strategy",
        field="schema_compatibility",
        shape=bodies.Strategy,
        namespace="schemaCompatibilityStrategy",
        topic="schemaCompatibilityStrategy",
        in_object="schema_compatibility_strategy",
        verb="PUT",
        can_be_removed=False,
        kept=bodies.kept_strategy,
        unset=bodies.UNDEFINED,
    ),
    Policy(
        title="schema compatibility strategy, by its older name",
        field="schema_auto_update",
        shape=bodies.AutoUpdateStrategy,
        namespace="schemaAutoUpdateCompatibilityStrategy",
        in_object="schema_auto_update_compatibility_strategy",
        verb="PUT",
        can_be_removed=False,
        kept=bodies.kept_auto_update,
        shown=bodies.shown_auto_update,
        unset=None,
    ),
    Policy(
        title="reject producers without a schema if the topic has one",
        field="schema_validation_enforced",
        shape=bool,
        namespace="schemaValidationEnforced",
        topic="schemaValidationEnforced",
        in_object="schema_validation_enforced",
        can_be_removed=False,
        kept_by_namespace=lambda enforced: (
            enforced or None
        ),  # as in Pulsar: a namespace cannot relax the broker's setting
        unset=False,
        unset_topic=False,
    ),
    Policy(
        title="let clients add schema versions",
        field="allow_auto_update_schema",
        shape=bool,
        namespace="isAllowAutoUpdateSchema",
        in_object="is_allow_auto_update_schema",
        can_be_removed=False,
        unset=IN_FORCE,
    ),
    Policy(
        title="clusters that topics may be replicated to; empty for all",
        field="allowed_clusters",
        shape=list[str],
        namespace="allowedClusters",
        in_object="allowed_clusters",
        can_be_removed=False,
        check=checks.allowed_clusters,
        kept=lambda clusters: list(dict.fromkeys(clusters)),
        unset=[],
    ),
    Policy(
        title="clusters to replicate topics to",
        field="replication_clusters",
        shape=list[str],
        namespace="replication",
        topic="replication",
        in_object="replication_clusters",
        can_be_removed=False,
        check=checks.replication_clusters,
        kept=lambda clusters: list(dict.fromkeys(clusters)),
        unset=IN_FORCE,
        set_response=EMPTY,
    ),
    *RATES,
    Policy(
        title="dead letter policy of subscriptions without their own",
        field="dead_letters",
        shape=bodies.DeadLetterPolicyBody,
        namespace="deadLetterPolicy",
        in_object="deadLetterPolicy",
        check=checks.dead_letter_policy,
        targets=targets.of_dead_letter_policy,
        kept=bodies.DeadLetterPolicyBody.kept,
        shown=bodies.DeadLetterPolicyBody.of,
    ),
    Policy(
        title="turn messages that expire into dead letters",
        field="dead_letter_expired",
        shape=bool,
        namespace="deadLetterExpired",
        in_object="deadLetterExpired",
    ),
    Policy(
        title="turn messages evicted by a backlog quota into dead letters",
        field="dead_letter_evicted",
        shape=bool,
        namespace="deadLetterEvicted",
        in_object="deadLetterEvicted",
    ),
)


def from_object(scope: PolicyScope, values: dict[str, Any]) -> Overrides:
    """The overrides of an object with all policies of a namespace; raises if a check fails. Ignores other fields."""
    for policy in POLICIES:
        typed = _in_object(policy, scope, values)
        if typed is not None:
            scope = replace(scope, overrides=policy.put(scope, typed))
    return scope.overrides


def targets_in_object(scope: PolicyScope, values: dict[str, Any]) -> Iterator[Right]:
    """The rights elsewhere that the policies of such an object need."""
    for policy in POLICIES:
        typed = None if policy.targets is None else _in_object(policy, scope, values)
        if policy.targets is not None and typed is not None:
            yield from policy.targets(typed)


def _in_object(policy: Policy, scope: PolicyScope, values: dict[str, Any]) -> Any:
    """The value of the right shape; None if it is not set."""
    value = policy.in_given_object(scope, values)
    if value in (None, []) or value == policy.unset:
        return None
    try:
        return BodyReader[Any](policy.shape).convert(value)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{policy.in_object}: {error}") from error

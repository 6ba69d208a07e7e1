"""The policies of namespaces and topics: one table, of which routes, the object of a namespace and the docs are made.

Owns what a policy is called where, and which values are refused because of something else that is set. The JSON of the
values is in `policy_json`, the handlers are in `policy_routes`; what the broker does about a policy is its business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from starlette.responses import Response

from magnetar.admin.http.errors import BadRequest, Forbidden
from magnetar.admin.http.request import Call
from magnetar.admin.policy import json as pj
from magnetar.broker.broker import Broker
from magnetar.broker.catalog.policies import NOTHING_SET, BacklogQuota, Overrides, Policies, QuotaKind, Retention
from magnetar.errors import (
    NamespaceNotFound,
    NotAllowed,
    NotSupported,
    PartitionCountInvalid,
    TenantNotFound,
    TopicNotFound,
)
from magnetar.names import TopicName
from magnetar.settings.settings import SubscriptionTypeName

PARTITIONS_MAX = 10_000
"""Where maxNumPartitionsPerPartitionedTopic sets no limit: partitions are made in one transaction, in memory."""

EMPTY: Final = Response(status_code=200)
"""What Pulsar answers for most of what is not set; None is 204, and Pulsar has that too."""

IN_FORCE: Final = object()
"""As an answer for what is not set: whatever is in force."""

_MB = 1 << 20


# -- where policies are set


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace or a topic, and what is set there. `above` is what is set for the namespace of a topic."""

    level: str
    broker: Broker
    namespace: str
    overrides: Overrides
    above: Overrides = NOTHING_SET

    @property
    def is_topic(self) -> bool:
        return self.level == "topic"

    @property
    def tenant(self) -> str:
        return self.namespace.partition("/")[0]


def namespace_place(call: Call) -> Place:
    namespace, catalog = call.namespace, call.broker.catalog
    if call.path["tenant"] not in catalog.tenants:
        raise TenantNotFound("Tenant does not exist")
    record = catalog.namespaces.get(namespace)
    if record is None:
        raise NamespaceNotFound("Namespace does not exist")
    return Place("namespace", call.broker, namespace, record.overrides)


def topic_place(call: Call) -> Place:
    """Of a persistent topic that exists; a partitioned one has its policies as a whole."""
    name, catalog = call.topic, call.broker.catalog
    if call.flag("isGlobal"):
        raise NotSupported("isGlobal=true is not supported: the policies of a topic are those of this cluster")
    if name.is_partition:
        raise NotAllowed("Not allowed to set/get topic policy for a partition")
    catalog.check_namespace(name)
    if name.full not in catalog.partitioned and not catalog.exists(name):
        raise TopicNotFound(f"Topic {name.full} not found")
    if not name.is_persistent:
        raise NotSupported(f"policies of {name.full} are not supported: of a non-persistent topic nothing is kept")
    above = catalog.namespaces[name.namespace_full].overrides
    return Place("topic", call.broker, name.namespace_full, catalog.overrides_of(name), above)


def _save_namespace(call: Call, overrides: Overrides) -> None:
    catalog = call.broker.catalog
    record = catalog.namespaces[call.namespace]
    catalog.save_namespace(call.namespace, msgspec.structs.replace(record, overrides=overrides))


@dataclass(frozen=True, slots=True)
class Level:
    """Namespaces or topics: how policies are found, kept and come into force there."""

    name: str
    path: str
    place_of: Callable[[Call], Place]
    save: Callable[[Call, Overrides], None]
    in_force: Callable[[Call], Policies]


NAMESPACE = Level(
    "namespace",
    "/admin/v2/namespaces/{tenant}/{namespace}",
    namespace_place,
    _save_namespace,
    lambda call: call.broker.catalog.policies_of(call.namespace),
)
TOPIC = Level(
    "topic",
    "/admin/v2/{domain}/{tenant}/{namespace}/{topic}",
    topic_place,
    lambda call, overrides: call.broker.catalog.set_overrides(call.topic, overrides),
    lambda call: call.broker.catalog.policies_of_topic(call.topic),
)


# -- what is refused because of something else


def _check_retention(place: Place, retention: pj.RetentionPolicies) -> None:
    quotas = {**(place.above.backlog_quotas or {}), **(place.overrides.backlog_quotas or {})}
    if any(_outlasts(place, kind, quota, retention.kept()) for kind, quota in quotas.items()):
        raise NotAllowed(
            "Retention Quota must exceed configured backlog quota for topic. Please increase retention quota and retry"
            if place.is_topic
            else "Retention Quota must exceed configured backlog quota for namespace."
        )


def check_quotas(place: Place, quotas: pj.Quotas) -> None:
    if any(quota.policy is None for quota in quotas.values()):
        raise BadRequest(
            f"Set namespace[{place.namespace}] backlog quota failed because the data validation failed."
            " the attribute policy cannot be null"
        )
    retention = place.overrides.retention or place.above.retention
    if retention is None:
        return
    if any(_outlasts(place, kind, quota.kept(kind), retention) for kind, quota in quotas.items()):
        raise NotAllowed(
            f"Backlog Quota exceeds configured retention quota for {place.level}."
            " Please increase retention quota and retry"
        )


def _outlasts(place: Place, kind: QuotaKind, quota: BacklogQuota, retention: Retention) -> bool:
    """Whether a backlog may grow beyond what retention keeps. Of a namespace Pulsar compares sizes only."""
    if kind is QuotaKind.destination_storage:
        return 0 < retention.mb * _MB <= quota.limit
    return place.is_topic and 0 < retention.minutes * 60 <= quota.limit


def _check_auto_topic_creation(place: Place, creation: pj.AutoTopicCreationOverride) -> None:
    if creation.fault is not None:
        raise NotAllowed(f"Invalid configuration for autoTopicCreationOverride. the detail is {creation.fault}")
    limit = place.broker.settings.maxNumPartitionsPerPartitionedTopic or PARTITIONS_MAX
    if (creation.default_num_partitions or 0) > limit:
        raise PartitionCountInvalid(f"Number of partitions should be less than or equal to {limit}")


def _check_message_size(place: Place, size: int) -> None:
    if not 0 <= size <= place.broker.settings.maxMessageSize:
        raise NotAllowed(
            "topic-level maxMessageSize must be greater than or equal to 0"
            " and must be smaller than that in the broker-level"
        )


def _check_clusters(place: Place, clusters: list[str]) -> None:
    own, catalog = place.broker.settings.clusterName, place.broker.catalog
    if not clusters:
        raise NotAllowed("ClusterIds should not be null or empty")
    if place.is_topic and own not in clusters:
        raise NotAllowed("Can not remove local cluster from the local topic-level replication clusters policy")
    for cluster in clusters:
        if cluster != own and cluster not in catalog.clusters:
            raise Forbidden(f"Invalid cluster id: {cluster[:100]}")
        if cluster not in (place.overrides.allowed_clusters or clusters):  # of a namespace, as in Apache Pulsar
            raise BadRequest(
                f"Cluster [{cluster}] is not in the list of allowed clusters list for namespace [{place.namespace}]"
            )
        _check_cluster_of_tenant(place, cluster)
    if own not in clusters:
        raise NotAllowed(f"replication clusters {', '.join(clusters)} leave out {own}, the cluster of this broker")


def _check_allowed_clusters(place: Place, clusters: list[str]) -> None:
    own, catalog = place.broker.settings.clusterName, place.broker.catalog
    for cluster in clusters:
        _check_cluster_of_tenant(place, cluster)
    used = place.overrides.replication_clusters or [own]
    if clusters and not {*used} <= {*clusters}:
        raise BadRequest(
            f"Allowed clusters do not contain the replication cluster {used}. Please remove the replication cluster"
            " if the cluster is not allowed for this namespace"
        )
    for cluster in clusters:
        if cluster != own and cluster not in catalog.clusters:
            raise Forbidden(f"Invalid cluster id: {cluster[:100]}")


def _check_cluster_of_tenant(place: Place, cluster: str) -> None:
    if cluster not in place.broker.catalog.tenants[place.tenant].allowed_clusters:
        raise Forbidden(
            f"Cluster [{cluster[:100]}] is not in the list of allowed clusters list for tenant [{place.tenant}]"
        )


def check_dead_letters(place: Place, dead_letters: pj.DeadLetters) -> None:
    """The topic may be made later, but not its namespace: whoever names a missing one has misspelt it."""
    topic = dead_letters.kept().topic
    if not topic:
        return
    try:
        place.broker.catalog.check_namespace(TopicName.parse(topic))
    except (TenantNotFound, NamespaceNotFound) as error:
        raise NotAllowed(f"deadLetterTopic {topic}: {error}") from error


def _not_negative(at_namespace: str, at_topic: str) -> Callable[[Place, int], None]:
    def check(place: Place, value: int) -> None:
        if value < 0:
            raise NotAllowed(at_topic if place.is_topic else at_namespace)

    return check


def _anything(place: Place, value: Any) -> None:
    """The value itself says enough."""


def _as_it_is(value: Any) -> Any:
    return value


# -- the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One row. `field` is its name in `Overrides`, `shape` the type of its JSON.

    `namespace` and `topic` are the last parts of its paths, empty where it does not exist; `in_object` is its name in
    the object that shows all policies of a namespace. `unset` and `unset_topic` are the answers as long as nobody has
    set it.
    """

    title: str
    field: str
    shape: Any
    namespace: str = ""
    topic: str = ""
    in_object: str = ""
    verb: str = "POST"
    can_be_set: bool = True  # by its own path; backlog quotas have one for each kind
    can_be_removed: bool = True  # from a namespace
    topic_parameter: str = ""  # where the value of a topic is a parameter, and not the body
    check: Callable[[Place, Any], None] = _anything
    kept: Callable[[Any], Any] = _as_it_is
    kept_by_namespace: Callable[[Any], Any] | None = None  # where it is not the same
    shown: Callable[[Any], Any] = _as_it_is
    unset: Any = EMPTY
    unset_topic: Any = EMPTY
    hides_unset: bool = False  # in that object
    answers_setting: Response | None = None  # for a namespace

    def part_at(self, level: Level) -> str:
        return self.topic if level is TOPIC else self.namespace

    def path_at(self, level: Level) -> str:
        return f"{level.path}/{self.part_at(level)}" if self.part_at(level) else ""

    def value_at(self, level: Level, place: Place, policies: Policies) -> object:
        """As JSON: what is set, or what is said of something that is not."""
        value = getattr(place.overrides, self.field)
        if value is not None:
            return self.shown(value)
        unset = self.unset_topic if level is TOPIC else self.unset
        return self.value_in_force(policies) if unset is IN_FORCE else unset

    def value_in_object(self, place: Place, policies: Policies) -> object:
        """None where the object does not show it."""
        is_unset = getattr(place.overrides, self.field) is None
        if not self.in_object or (is_unset and (self.hides_unset or self.unset is EMPTY)):
            return None
        return self.value_at(NAMESPACE, place, policies)

    def value_in_force(self, policies: Policies) -> object:
        value = getattr(policies.as_overrides(), self.field)
        return EMPTY if value is None else self.shown(value)

    def put(self, place: Place, value: Any) -> Overrides:
        """What is set after this value, which has the right shape, is set too; raises for what it may not be."""
        self.check(place, value)
        kept = self.kept if place.is_topic else self.kept_by_namespace or self.kept
        return msgspec.structs.replace(place.overrides, **{self.field: kept(value)})


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
    """0 is no limit."""
    at_namespace = f"{namespace} must be 0 or more"
    return Policy(
        title=title,
        field=field,
        shape=pj.Int32,
        namespace=namespace,
        topic=topic,
        in_object=in_object,
        check=_not_negative(at_namespace, refusal or at_namespace),
        unset=unset,
        unset_topic=unset_topic,
        hides_unset=True,
    )


BACKLOG_QUOTA = Policy(
    title="backlog quotas, of size and of age",
    field="backlog_quotas",
    shape=pj.Quotas,
    namespace="backlogQuotaMap",
    topic="backlogQuotaMap",
    in_object="backlog_quota_map",
    can_be_set=False,
    can_be_removed=False,
    check=check_quotas,
    kept=pj.kept_quotas,
    shown=pj.shown_quotas,
    unset={},
    unset_topic={},
)

POLICIES: tuple[Policy, ...] = (
    Policy(
        title="retention of acknowledged messages",
        field="retention",
        shape=pj.RetentionPolicies,
        namespace="retention",
        topic="retention",
        in_object="retention_policies",
        check=_check_retention,
        kept=pj.RetentionPolicies.kept,
        shown=pj.RetentionPolicies.of,
    ),
    Policy(
        title="time to live of messages, in seconds",
        field="message_ttl_s",
        shape=pj.Int32,
        namespace="messageTTL",
        topic="messageTTL",
        topic_parameter="messageTTL",
        in_object="message_ttl_in_seconds",
        check=_not_negative(
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
        title="auto-creation of topics",
        field="auto_topic_creation",
        shape=pj.AutoTopicCreationOverride,
        namespace="autoTopicCreation",
        in_object="autoTopicCreationOverride",
        check=_check_auto_topic_creation,
        kept=pj.AutoTopicCreationOverride.kept,
        shown=pj.AutoTopicCreationOverride.of,
    ),
    Policy(
        title="auto-creation of subscriptions",
        field="auto_subscription_creation",
        shape=pj.AutoSubscriptionCreationOverride,
        namespace="autoSubscriptionCreation",
        topic="autoSubscriptionCreation",
        in_object="autoSubscriptionCreationOverride",
        kept=pj.AutoSubscriptionCreationOverride.kept,
        shown=pj.AutoSubscriptionCreationOverride,
    ),
    _limit(
        "max_producers",
        "limit on the producers of a topic",
        namespace="maxProducersPerTopic",
        topic="maxProducers",
        in_object="max_producers_per_topic",
        refusal="maxProducers must be 0 or more",
    ),
    _limit(
        "max_consumers",
        "limit on the consumers of a topic",
        namespace="maxConsumersPerTopic",
        topic="maxConsumers",
        in_object="max_consumers_per_topic",
        refusal="maxConsumers must be 0 or more",
    ),
    _limit(
        "max_consumers_per_subscription",
        "limit on the consumers of a subscription",
        namespace="maxConsumersPerSubscription",
        topic="maxConsumersPerSubscription",
        in_object="max_consumers_per_subscription",
        refusal="Invalid value for maxConsumersPerSubscription",
        unset_topic=None,
    ),
    _limit(
        "max_unacked_per_consumer",
        "limit on the unacknowledged messages of a consumer",
        namespace="maxUnackedMessagesPerConsumer",
        topic="maxUnackedMessagesOnConsumer",
        in_object="max_unacked_messages_per_consumer",
        refusal="maxUnackedNum must be 0 or more",
    ),
    _limit(
        "max_unacked_per_subscription",
        "limit on the unacknowledged messages of a subscription",
        namespace="maxUnackedMessagesPerSubscription",
        topic="maxUnackedMessagesOnSubscription",
        in_object="max_unacked_messages_per_subscription",
        refusal="maxUnackedNum must be 0 or more",
    ),
    _limit(
        "max_subscriptions",
        "limit on the subscriptions of a topic",
        namespace="maxSubscriptionsPerTopic",
        topic="maxSubscriptionsPerTopic",
        in_object="max_subscriptions_per_topic",
        unset_topic=None,
    ),
    _limit(
        "max_topics",
        "limit on the topics of a namespace",
        namespace="maxTopicsPerNamespace",
        in_object="max_topics_per_namespace",
        unset=0,
    ),
    Policy(
        title="limit on the size of a message, in bytes",
        field="max_message_size",
        shape=pj.Int32,
        topic="maxMessageSize",
        check=_check_message_size,
        unset_topic=None,
    ),
    Policy(
        title="delayed delivery",
        field="delayed_delivery",
        shape=pj.DelayedDeliveryPolicies,
        namespace="delayedDelivery",
        topic="delayedDelivery",
        in_object="delayed_delivery_policies",
        kept=pj.DelayedDeliveryPolicies.kept,
        shown=pj.DelayedDeliveryPolicies.of,
    ),
    Policy(
        title="types of subscriptions that may be used",
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
        title="compatibility of schemas",
        field="schema_compatibility",
        shape=pj.Strategy,
        namespace="schemaCompatibilityStrategy",
        topic="schemaCompatibilityStrategy",
        in_object="schema_compatibility_strategy",
        verb="PUT",
        can_be_removed=False,
        kept=pj.kept_strategy,
        unset=pj.UNDEFINED,
    ),
    Policy(
        title="compatibility of schemas, by its older name",
        field="schema_auto_update",
        shape=pj.AutoUpdateStrategy,
        namespace="schemaAutoUpdateCompatibilityStrategy",
        in_object="schema_auto_update_compatibility_strategy",
        verb="PUT",
        can_be_removed=False,
        kept=pj.kept_auto_update,
        shown=pj.shown_auto_update,
        unset=None,
    ),
    Policy(
        title="whether producers need a schema where the topic has one",
        field="schema_validation_enforced",
        shape=bool,
        namespace="schemaValidationEnforced",
        topic="schemaValidationEnforced",
        in_object="schema_validation_enforced",
        can_be_removed=False,
        kept_by_namespace=lambda enforced: enforced or None,  # as in Pulsar: it cannot undo what the broker enforces
        unset=False,
        unset_topic=False,
    ),
    Policy(
        title="whether clients may bring new versions of schemas",
        field="allow_auto_update_schema",
        shape=bool,
        namespace="isAllowAutoUpdateSchema",
        in_object="is_allow_auto_update_schema",
        can_be_removed=False,
        unset=IN_FORCE,
    ),
    Policy(
        title="clusters that its topics may be replicated to; any, if there are none",
        field="allowed_clusters",
        shape=list[str],
        namespace="allowedClusters",
        in_object="allowed_clusters",
        can_be_removed=False,
        check=_check_allowed_clusters,
        kept=lambda clusters: list(dict.fromkeys(clusters)),
        unset=[],
    ),
    Policy(
        title="clusters that topics are replicated to",
        field="replication_clusters",
        shape=list[str],
        namespace="replication",
        topic="replication",
        in_object="replication_clusters",
        can_be_removed=False,
        check=_check_clusters,
        kept=lambda clusters: list(dict.fromkeys(clusters)),
        unset=IN_FORCE,
        answers_setting=EMPTY,
    ),
    Policy(
        title="dead letters of subscriptions that have no policy of their own",
        field="dead_letters",
        shape=pj.DeadLetters,
        namespace="deadLetterPolicy",
        in_object="deadLetterPolicy",
        check=check_dead_letters,
        kept=pj.DeadLetters.kept,
        shown=pj.DeadLetters.of,
    ),
    Policy(
        title="whether a message whose time to live is over becomes a dead letter",
        field="dead_letter_expired",
        shape=bool,
        namespace="deadLetterExpired",
        in_object="deadLetterExpired",
    ),
    Policy(
        title="whether a message that a backlog quota evicts becomes a dead letter",
        field="dead_letter_evicted",
        shape=bool,
        namespace="deadLetterEvicted",
        in_object="deadLetterEvicted",
    ),
)


def from_object(place: Place, values: dict[str, Any]) -> Overrides:
    """What an object with the policies of a namespace sets; raises for what it may not. Other fields are left alone."""
    for policy in POLICIES:
        value = values.get(policy.in_object)
        if value in (None, []) or value == policy.unset:
            continue
        try:
            typed = msgspec.convert(value, policy.shape)
        except msgspec.ValidationError as error:
            raise BadRequest(f"{policy.in_object}: {error}") from error
        place = replace(place, overrides=policy.put(place, typed))
    return place.overrides

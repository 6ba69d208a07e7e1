"""Policy checks: values rejected because of the broker's settings, other policies or missing names.

Errors that Pulsar has too are in Pulsar's words. The limits of a value alone are in `bodies`.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.admin.http.errors import BadRequest, Forbidden
from magnetar.admin.policy import bodies
from magnetar.admin.policy.scope import PolicyScope
from magnetar.bounds import PARTITIONS
from magnetar.broker.catalog.policies import BacklogQuota, QuotaKind, Retention
from magnetar.errors import NamespaceNotFound, NotAllowed, PartitionCountInvalid, TenantNotFound
from magnetar.names import TopicName

PARTITIONS_MAX = PARTITIONS.limit
"""The limit if maxNumPartitionsPerPartitionedTopic is 0: partitions are created in one transaction, in memory."""

_MB = 1 << 20


def retention(scope: PolicyScope, given: bodies.RetentionPolicies) -> None:
    limits = {**(scope.above.backlog_quotas or {}), **(scope.overrides.backlog_quotas or {})}
    if any(_outlasts(scope, kind, quota, given.kept()) for kind, quota in limits.items()):
        raise NotAllowed(
            "Retention Quota must exceed configured backlog quota for topic. Please increase retention quota and retry"
            if scope.is_topic
            else "Retention Quota must exceed configured backlog quota for namespace."
        )


def quotas(scope: PolicyScope, given: bodies.Quotas) -> None:
    if any(quota.policy is None for quota in given.values()):
        raise BadRequest(
            f"Set namespace[{scope.namespace}] backlog quota failed because the data validation failed."
            " the attribute policy cannot be null"
        )
    kept = scope.overrides.retention or scope.above.retention
    if kept is None:
        return
    if any(_outlasts(scope, kind, quota.kept(kind), kept) for kind, quota in given.items()):
        raise NotAllowed(
            f"Backlog Quota exceeds configured retention quota for {scope.level}."
            " Please increase retention quota and retry"
        )


def _outlasts(scope: PolicyScope, kind: QuotaKind, quota: BacklogQuota, retention: Retention) -> bool:
    """Whether a backlog may outgrow retention. For a namespace Pulsar compares sizes only."""
    if kind is QuotaKind.destination_storage:
        return 0 < retention.mb * _MB <= quota.limit
    return scope.is_topic and 0 < retention.minutes * 60 <= quota.limit


def auto_topic_creation(scope: PolicyScope, creation: bodies.AutoTopicCreationOverride) -> None:
    if creation.fault is not None:
        raise NotAllowed(f"Invalid configuration for autoTopicCreationOverride. the detail is {creation.fault}")
    limit = scope.broker.settings.maxNumPartitionsPerPartitionedTopic or PARTITIONS_MAX
    if (creation.default_num_partitions or 0) > limit:
        raise PartitionCountInvalid(f"Number of partitions should be less than or equal to {limit}")


def message_size(scope: PolicyScope, size: int) -> None:
    if not 0 <= size <= scope.broker.settings.maxMessageSize:
        raise NotAllowed(
            "topic-level maxMessageSize must be greater than or equal to 0"
            " and must be smaller than that in the broker-level"
        )


def replication_clusters(scope: PolicyScope, clusters: list[str]) -> None:
    own, catalog = scope.broker.settings.clusterName, scope.broker.catalog
    if not clusters:
        raise NotAllowed("ClusterIds should not be null or empty")
    if scope.is_topic and own not in clusters:
        raise NotAllowed("Can not remove local cluster from the local topic-level replication clusters policy")
    for cluster in clusters:
        # Only what is added is checked: removing a cluster, which stops its replication, always works. One of the
        # namespace counts as added to a topic, which would keep it when the namespace has it no more.
        if cluster in (scope.overrides.replication_clusters or ()):
            continue
        if cluster != own and cluster not in catalog.clusters:
            raise Forbidden(f"Invalid cluster id: {cluster[:100]}")
        if cluster not in (scope.overrides.allowed_clusters or clusters):  # of the namespace alone, as in Apache Pulsar
            raise BadRequest(
                f"Cluster [{cluster}] is not in the list of allowed clusters list for namespace [{scope.namespace}]"
            )
        _check_cluster_of_tenant(scope, cluster)
    if own not in clusters:
        raise NotAllowed(f"replication clusters {', '.join(clusters)} do not include {own}, the cluster of this broker")


def allowed_clusters(scope: PolicyScope, clusters: list[str]) -> None:
    own, catalog = scope.broker.settings.clusterName, scope.broker.catalog
    for cluster in clusters:
        _check_cluster_of_tenant(scope, cluster)
    used = scope.overrides.replication_clusters or [own]
    if clusters and not {*used} <= {*clusters}:
        raise BadRequest(
            f"Allowed clusters do not contain the replication cluster {used}. Please remove the replication cluster"
            " if the cluster is not allowed for this namespace"
        )
    for cluster in clusters:
        if cluster != own and cluster not in catalog.clusters:
            raise Forbidden(f"Invalid cluster id: {cluster[:100]}")


def _check_cluster_of_tenant(scope: PolicyScope, cluster: str) -> None:
    if cluster not in scope.broker.catalog.tenants[scope.tenant].allowed_clusters:
        raise Forbidden(
            f"Cluster [{cluster[:100]}] is not in the list of allowed clusters list for tenant [{scope.tenant}]"
        )


def dead_letter_policy(scope: PolicyScope, given: bodies.DeadLetterPolicyBody) -> None:
    """The topic may be created later, but its namespace must exist: a missing one is probably misspelt."""
    topic = given.kept().topic
    if not topic:
        return
    try:
        scope.broker.catalog.check_namespace(TopicName.parse(topic))
    except (TenantNotFound, NamespaceNotFound) as error:
        raise NotAllowed(f"deadLetterTopic {topic}: {error}") from error


def not_negative(at_namespace: str, at_topic: str) -> Callable[[PolicyScope, int], None]:
    def check(scope: PolicyScope, value: int) -> None:
        if value < 0:
            raise NotAllowed(at_topic if scope.is_topic else at_namespace)

    return check

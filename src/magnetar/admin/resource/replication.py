"""Geo-replication: the declaration, reports of pipelines, the status and route policies. These paths are our own.

A pipelines process long-polls the declaration and reports; operators query the status. The replication clusters are
set with Pulsar's own policies, see `policy.table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated

import msgspec

from magnetar.admin.http.errors import BadRequest, ClusterNotFound
from magnetar.admin.http.request import Call
from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.stats.internal import InternalStats, internal_stats
from magnetar.errors import InvalidName, InvalidSetting, NamespaceNotFound, NotAllowed, ServiceNotReady, TopicNotFound
from magnetar.names import TopicName, parse_namespace
from magnetar.replication.model import AS_IT_IS, Declaration, Reports, RoutePolicy, Status
from magnetar.replication.route import check_policy
from magnetar.replication.topic_template import check_distinct

WAIT_MS_MAX = 60_000
TOPICS_MAX = 1000
COALESCED_S = 0.02
"""Changes come in bursts: a waiting client receives those that follow within this time in one reply."""

_topics = msgspec.json.Decoder(Annotated[list[str], msgspec.Meta(max_length=TOPICS_MAX)])
_reports = msgspec.json.Decoder(Reports)
_policy = msgspec.json.Decoder(RoutePolicy)


class ScopedRoutePolicy(msgspec.Struct, rename="camel"):
    """A route policy with its scope: a topic, or a namespace if `topic` is None."""

    remote: str
    namespace: str
    topic: str | None
    policy: RoutePolicy


# -- pipelines


async def declaration(call: Call) -> Declaration:
    """Show all topics to replicate; with `after` waits up to `timeoutMs` for a version other than that one."""
    replication, after = call.broker.replication, call.query.get("after", "")
    timeout_ms = call.number("timeoutMs", 0, WAIT_MS_MAX, default=30_000)
    if after == replication.version and timeout_ms:
        alarm = call.alarm()
        replication.watch(alarm.ring)
        try:
            await alarm.wait(timeout_ms / 1000)
            if after != replication.version:
                await call.alarm().wait(COALESCED_S)
        finally:
            replication.unwatch(alarm.ring)
    return replication.declaration()


def report(call: Call) -> None:
    """Receive the report of a pipelines process, which it sends every few seconds, even if empty."""
    reports = call.body_as(_reports)
    if reports is None:
        raise BadRequest("the request body is empty: pipeline, isAll and rows are expected")
    replication = call.broker.replication
    for row in reports.rows:
        _check_topic("rows", row.topic)
    replication.reports.receive(reports, call.broker.now_ms(), replication.is_declared)


async def cursors(call: Call) -> dict[str, InternalStats]:
    """Show the positions of the topics in the body, and of their subscriptions; missing topics are left out."""
    names = call.body_as(_topics)
    if names is None:
        raise BadRequest("the request body is empty: a list of topics is expected")
    broker, time_slice = call.broker, TimeSlice()
    found: dict[str, InternalStats] = {}
    for name in [_check_topic("topics", text) for text in names]:
        with suppress(ServiceNotReady):  # it is being unloaded
            if broker.catalog.exists(name):
                found[name.full] = internal_stats(broker.topic(name))
        await time_slice.checkpoint()
    return found


# -- status and routes


async def status(call: Call) -> list[Status]:
    """Show the status of each topic or partition and remote; `topic`, `namespace` and `remote` filter it."""
    topic, namespace = call.query.get("topic"), call.query.get("namespace")
    name = None if topic is None else _check_topic("topic", topic)
    if namespace is not None:
        _check_namespace(namespace)
    broker, time_slice = call.broker, TimeSlice()
    found: list[Status] = []
    for one in broker.replication.statuses(
        broker.now_ms(), topic=name, namespace=namespace, remote=call.query.get("remote")
    ):
        found.append(one)
        await time_slice.checkpoint()
    return found


def list_routes(call: Call) -> list[ScopedRoutePolicy]:
    """List all route policies."""
    policies_set = call.broker.replication.policies.all()
    return [_shown(remote, scope, policies_set[remote, scope]) for remote, scope in sorted(policies_set)]


def get_route(call: Call) -> RoutePolicy | None:
    """Show the route policy of a namespace or topic to a remote cluster; with `applied` the one in force."""
    remote, scope = _scope(call)
    replication = call.broker.replication
    if not call.flag("applied"):
        return replication.policies.at(remote, scope)
    if "topic" in call.path:
        return replication.policies.of(_topic(call), remote)
    return replication.policies.at(remote, scope) or AS_IT_IS


def set_route(call: Call) -> None:
    """Set the route policy of a namespace or topic to a remote cluster; that of a topic overrides its namespace's."""
    remote, scope = _scope(call)
    policy = call.body_as(_policy)
    if policy is None:
        raise BadRequest('the request body is empty: a route policy is expected, such as {} or {"paused": true}')
    replication = call.broker.replication
    renamed = _renamed(replication.declaration(), remote, scope, policy, replication.policies.all())
    try:
        check_policy(policy, of_namespace="topic" not in call.path)
        check_distinct(renamed)
    except (InvalidSetting, InvalidName) as error:
        raise BadRequest(str(error)) from error
    replication.set_route(remote, scope, policy)


def remove_route(call: Call) -> None:
    """Remove a route policy; that of the namespace, if any, applies again."""
    call.broker.replication.remove_route(*_scope(call))


# -- names


def _scope(call: Call) -> tuple[str, str]:
    """The remote cluster and the namespace or topic of the path, which must exist."""
    remote, catalog, namespace = call.path["remote"], call.broker.catalog, call.namespace
    name = _topic(call) if "topic" in call.path else None
    if remote == call.broker.settings.clusterName:
        raise NotAllowed(f"cluster {remote} is the local cluster: a route needs a remote one")
    if remote not in catalog.clusters:
        raise ClusterNotFound(f"cluster {remote[:100]} does not exist")
    if namespace not in catalog.namespaces:
        raise NamespaceNotFound("Namespace does not exist")
    if name is None:
        return remote, namespace
    if name.full not in catalog.partitioned and name.full not in catalog.topics:
        raise TopicNotFound(f"Topic {name.full} not found")
    if name.is_partition and name.base.full in catalog.partitioned:
        raise BadRequest(f"{name.full} is a partition: a route policy applies to all partitions of {name.base.full}")
    return remote, f"{namespace}/{name.local}"


def _renamed(
    declared: Declaration,
    remote: str,
    scope: str,
    policy: RoutePolicy,
    policies_set: Mapping[tuple[str, str], RoutePolicy],
) -> Iterator[tuple[str, str]]:
    """The topics replicated to a cluster, each with its name template once the policy is set."""
    for one in declared.topics:
        if one.remote == remote:
            name = TopicName.parse(one.topic)
            own = f"{name.namespace_full}/{name.local}"
            is_set = scope == own or (scope == name.namespace_full and (remote, own) not in policies_set)
            yield one.topic, policy.rename if is_set else one.policy.rename


def _topic(call: Call) -> TopicName:
    return TopicName.parse(f"{call.namespace}/{call.path['topic']}")


def _check_topic(what: str, text: str) -> TopicName:
    try:
        return TopicName.parse(text)
    except InvalidName as error:
        raise BadRequest(f"{what} has {text[:100]!r}: {error}") from error


def _check_namespace(text: str) -> None:
    try:
        parse_namespace(text)
    except InvalidName as error:
        raise BadRequest(f"namespace: {error}") from error


def _shown(remote: str, scope: str, policy: RoutePolicy) -> ScopedRoutePolicy:
    tenant, namespace, *topic = scope.split("/", 2)
    return ScopedRoutePolicy(remote, f"{tenant}/{namespace}", topic[0] if topic else None, policy)

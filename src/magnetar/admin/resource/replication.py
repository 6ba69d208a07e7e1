"""Geo-replication: the declaration, reports of pipelines, the status and route policies. These paths are our own.

A pipelines process long-polls the declaration and reports; operators query the status. The replication clusters are
set with Pulsar's own policies, see `policy.table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import UNSET

from magnetar.access.needs import Need, Right, right_on_namespace, right_on_topic
from magnetar.admin.http.errors import BadRequest, ClusterNotFound
from magnetar.admin.http.long_poll import wait_for_change
from magnetar.admin.http.request import Call
from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.needs import TENANT_ADMIN, Needs
from magnetar.admin.stats.internal import InternalStats, internal_stats
from magnetar.bounds import CURSOR_TOPICS
from magnetar.broker.replication.route_policies import topic_scope
from magnetar.broker.schema.definition import field_names, value_definition
from magnetar.broker.schema.registry import schema_id
from magnetar.errors import InvalidName, InvalidSetting, NamespaceNotFound, NotAllowed, ServiceNotReady, TopicNotFound
from magnetar.names import TopicName, parse_namespace
from magnetar.replication.mask_fields import unknown_field
from magnetar.replication.model import Declaration, Mask, Reports, RoutePolicy, Status
from magnetar.replication.route import check_masks, check_rename
from magnetar.replication.route_parts import NOTHING, RouteChange, RouteParts, changed, in_force
from magnetar.replication.topic_template import clashes, remote_topic, tenant_in

TOPICS_MAX = CURSOR_TOPICS.limit

_topics = msgspec.json.Decoder(Annotated[list[str], msgspec.Meta(max_length=TOPICS_MAX)])
_reports = msgspec.json.Decoder(Reports)
_change = msgspec.json.Decoder(RouteChange)


class ScopedRouteParts(msgspec.Struct, rename="camel"):
    """The parts of a route policy with their scope: a topic, or a namespace if `topic` is None."""

    remote: str
    namespace: str
    topic: str | None
    policy: RouteParts


# -- pipelines


async def declaration(call: Call) -> Declaration:
    """Show all topics to replicate; with `after` waits up to `timeoutMs` for a version other than that one.

    A pipelines process names itself with `pipeline`: if its connection ends while it waits, it is gone.
    """
    await wait_for_change(call, call.broker.replication)
    return call.broker.replication.declaration()


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


def list_routes(call: Call) -> list[ScopedRouteParts]:
    """List all route policies, each with the parts that are set for its namespace or topic."""
    parts_set = call.broker.replication.policies.all()
    return [_shown(remote, scope, parts_set[remote, scope]) for remote, scope in sorted(parts_set)]


def get_route(call: Call) -> RouteParts | RoutePolicy | None:
    """Show the parts of the route policy set for a namespace or topic; with `applied` the policy in force."""
    remote, scope = _scope(call)
    policies = call.broker.replication.policies
    if not call.flag("applied"):
        parts = policies.at(remote, scope)
        return None if parts == NOTHING else parts
    return policies.of(_topic(call), remote) if "topic" in call.path else policies.of_namespace(scope, remote)


def set_route(call: Call) -> None:
    """Set the parts of a route policy that the body has, and keep the others; a topic inherits from its namespace."""
    remote, scope = _scope(call)
    change = call.body_as(_change)
    if change is None:
        raise BadRequest('the request body is empty: parts of a route policy are expected, such as {"paused": true}')
    replication, is_topic = call.broker.replication, "topic" in call.path
    policies = replication.policies
    try:
        if change.where is not UNSET:
            from magnetar.replication.where import check_where  # with its lists of functions: few brokers need it

            check_where(change.where, _fields(call) if is_topic else None)
        parts = changed(
            policies.at(remote, scope), change, policies.at(remote, call.namespace) if is_topic else NOTHING
        )
        check_masks(parts.masks)
        if is_topic and change.masks and not change.force:
            _check_mask_fields(call, change.masks)
        if change.rename:
            check_rename(change.rename, of_namespace=not is_topic)
        if change.rename is not UNSET:
            _check_clashes(call, remote, scope, parts)
    except (InvalidSetting, InvalidName) as error:
        raise BadRequest(str(error)) from error
    replication.set_route(remote, scope, parts, is_paused_again=change.paused is True and not is_topic)


def remove_route(call: Call) -> None:
    """Remove a route policy; with masks or a filter only if `force` is true."""
    remote, scope = _scope(call)
    replication = call.broker.replication
    if (hidden := replication.policies.at(remote, scope).hidden) and not call.flag("force"):
        raise NotAllowed(f"the route policy of {scope} to {remote} {hidden}: --force (force=true) removes it anyway")
    replication.set_route(remote, scope, NOTHING)


# -- what they need


def _rights_of_status(call: Call) -> Iterable[Right]:
    """That of one topic is a statistic of it."""
    topic, namespace = call.query.get("topic"), call.query.get("namespace")
    if topic is not None:
        return (right_on_topic(Need.LOOKUP, _check_topic("topic", topic)),)
    if namespace is None:
        return (Right(Need.SUPER_USER),)
    _check_namespace(namespace)
    return (right_on_namespace(Need.TENANT_ADMIN, namespace),)


def _targets_of_cursors(call: Call) -> Iterator[Right]:
    for text in call.body_as(_topics) or ():
        yield right_on_topic(Need.LOOKUP, _check_topic("topics", text))


def _targets_of_route(call: Call) -> Iterator[Right]:
    """A new name must not lead to another tenant of the remote cluster: the copies have the broker's rights there."""
    change = call.body_as(_change)
    if change is None or not change.rename:
        return
    tenant = tenant_in(change.rename)
    if tenant in ("", call.path["tenant"]):
        return
    if "{" in tenant:
        yield Right(Need.SUPER_USER)
    elif "topic" in call.path:
        with suppress(InvalidName):  # a template that gives no name is refused by the handler
            yield right_on_topic(Need.PRODUCE, TopicName.parse(remote_topic(_topic(call).full, change.rename)))
    else:
        yield Right(Need.TENANT_ADMIN, tenant)


READ_STATUS = Needs("of a topic produce or consume, of a namespace tenant admin, of all super user", _rights_of_status)
READ_CURSORS = Needs("produce or consume on each topic", lambda call: (), _targets_of_cursors)
SET_ROUTE = TENANT_ADMIN.with_targets("rights on the tenant that a new name leads to", _targets_of_route)


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
        text = f"Topic {name.full} not found: create it first, or set the route policy for namespace {namespace}"
        raise TopicNotFound(text)
    if name.is_partition and name.base.full in catalog.partitioned:
        raise BadRequest(f"{name.full} is a partition: a route policy applies to all partitions of {name.base.full}")
    return remote, f"{namespace}/{name.local}"


def _check_clashes(call: Call, remote: str, scope: str, parts: RouteParts) -> None:
    """Raises `InvalidName` for a clash of names that the parts would cause; others are none of their business."""
    replication = call.broker.replication
    routes = {one.topic: one for one in replication.declaration().topics if one.remote == remote}
    parts_set = {**replication.policies.all(), (remote, scope): parts}
    renamed = {}
    for full in routes:
        name = TopicName.parse(full)
        of_namespace = parts_set.get((remote, name.namespace_full), NOTHING)
        renamed[full] = in_force(of_namespace, parts_set.get((remote, topic_scope(name)), NOTHING)).rename
    caused = [
        full
        for full in clashes(renamed.items())
        if not routes[full].clash or routes[full].policy.rename != renamed[full]
    ]
    if caused:
        _refuse_clash(call, caused, renamed)


def _refuse_clash(call: Call, caused: list[str], renamed: dict[str, str]) -> None:
    """Topics of tenants that the caller does not administer are not named."""
    own = {full: name for full, name in renamed.items() if _administers(call, full)}
    topic = next(full for full in caused if full in own)
    among_own = clashes(own.items())
    if topic in among_own:
        raise InvalidName(among_own[topic])
    target = remote_topic(topic, renamed[topic])
    raise InvalidName(
        f"topic {topic} would be {target} in the remote cluster, as one of another tenant would: give it another name"
    )


def _administers(call: Call, topic: str) -> bool:
    right = right_on_topic(Need.TENANT_ADMIN, TopicName.parse(topic))
    return call.broker.authorization.allows(call.principal, (right,))


def _topic(call: Call) -> TopicName:
    return TopicName.parse(f"{call.namespace}/{call.path['topic']}")


def _fields(call: Call) -> list[str] | None:
    """The columns of the values of a topic; None while it has no schema, or one whose columns only Spark knows."""
    version = call.broker.schemas.latest(schema_id(_topic(call)))
    return None if version is None else field_names(version.schema)


def _check_mask_fields(call: Call, masks: tuple[Mask, ...]) -> None:
    """Raises `NotAllowed` for a field that the schema lacks: most are typing errors, which would hide nothing."""
    version = call.broker.schemas.latest(schema_id(_topic(call)))
    definition = None if version is None else value_definition(version.schema)
    if definition is not None and (wrong := unknown_field(definition, masks)):
        raise NotAllowed(f"{wrong}; --force (force=true) sets it anyway, for a field that is not there yet")


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


def _shown(remote: str, scope: str, parts: RouteParts) -> ScopedRouteParts:
    tenant, namespace, *topic = scope.split("/", 2)
    return ScopedRouteParts(remote, f"{tenant}/{namespace}", topic[0] if topic else None, parts)

"""Namespaces: create, list, delete, the object with all their policies, and operations on all their topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from starlette.responses import Response

from magnetar.access.needs import Right
from magnetar.access_bounds import TOPIC_PERMISSIONS
from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest, Conflict, OperationNotAllowed
from magnetar.admin.http.request import Call, check_map
from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.needs import TENANT_ADMIN, may_use
from magnetar.admin.policy import bodies
from magnetar.admin.policy.policy import EMPTY
from magnetar.admin.policy.scope import PolicyScope, namespace_scope
from magnetar.admin.policy.table import POLICIES, from_object, targets_in_object
from magnetar.admin.policy.targets import TO_DEAD_LETTERS
from magnetar.admin.resource.permissions import Action
from magnetar.broker.broker import Broker
from magnetar.broker.catalog.policies import NOTHING_SET
from magnetar.broker.catalog.record import NamespaceRecord
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import Topic
from magnetar.errors import (
    AlreadyExists,
    NamespaceNotFound,
    NotAllowed,
    NotSupported,
    SubscriptionNotFound,
    TenantNotFound,
)
from magnetar.names import NON_PERSISTENT, PERSISTENT, TopicName, check_entity

BUNDLE = "0x00000000_0xffffffff"
"""The only bundle: bundles distribute the topics of a namespace over brokers, and there is one broker."""

WITHOUT_EFFECT: dict[str, tuple[object, ...]] = {
    "allowed_topic_property_keys_for_metrics": (),
    "antiAffinityGroup": ("",),
    "compaction_threshold": (),
    "deduplicationSnapshotIntervalSeconds": (),
    "deleted": (False,),
    "dispatcherPauseOnAckStatePersistentEnabled": (),
    "encryption_required": (False,),
    "entryFilters": (),
    "inactive_topic_policies": (),
    "is_allow_auto_update_schema_with_replicator": (),
    "latency_stats_sample_rate": ({},),
    "migrated": (False,),
    "offload_deletion_lag_ms": (),
    "offload_policies": (),
    "offload_threshold": (-1,),
    "offload_threshold_in_seconds": (-1,),
    "persistence": (),
    "resource_group_name": (),
    "scalableTopicAutoScalePolicy": (),
    "subscription_expiration_time_minutes": (),
}
"""Fields of Pulsar's object without effect on this broker, with the values that clients send for unset fields.

The first value is the one shown; a field without a value is not shown.
"""
_NOT_SHOWN = frozenset({"antiAffinityGroup"})  # sent by older clients, and no longer in Pulsar


class Bundles(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    boundaries: list[str] | None = msgspec.field(default_factory=lambda: BUNDLE.split("_"))
    num_bundles: bodies.Int32 = 1


class AuthPolicies(msgspec.Struct, forbid_unknown_fields=True):
    namespace_auth: dict[str, list[Action]] = {}
    destination_auth: dict[str, dict[str, list[Action]]] = {}
    subscription_auth_roles: dict[str, list[str]] = {}


class OtherFields(msgspec.Struct):
    """The fields of the object that are not policies."""

    auth_policies: AuthPolicies | None = None
    bundles: Bundles | None = None
    properties: dict[str, str] | None = None


_object = msgspec.json.Decoder(dict[str, Any])
_properties: BodyReader[dict[str, str]] = BodyReader(dict[str, str])
_other_fields: BodyReader[OtherFields] = BodyReader(OtherFields)
_KNOWN = {
    *WITHOUT_EFFECT,
    *OtherFields.__struct_fields__,
    *(name for policy in POLICIES for name in (policy.in_object, policy.older_in_object) if name),
}


# -- list, get, create, delete


def list_namespaces(call: Call) -> list[str]:
    """List the namespaces of a tenant."""
    tenant, catalog = check_entity("tenant", call.path["tenant"]), call.broker.catalog
    if tenant not in catalog.tenants:
        raise TenantNotFound("Tenant not found")
    return sorted(namespace for namespace in catalog.namespaces if namespace.startswith(tenant + "/"))


def get(call: Call) -> dict[str, object]:
    """Show all policies of a namespace."""
    scope, record = namespace_scope(call), _record(call)
    in_force = call.broker.catalog.policies_of(call.namespace)
    shown: dict[str, object] = {
        "auth_policies": {
            "namespace_auth": record.permissions,
            "destination_auth": record.topic_permissions,
            "subscription_auth_roles": record.subscription_permissions,
        },
        "bundles": Bundles(),
        "properties": record.properties,
    }
    for field, unset in WITHOUT_EFFECT.items():
        if unset and field not in _NOT_SHOWN:
            shown[field] = unset[0]
    for policy in POLICIES:
        value = policy.value_in_object(scope, in_force)
        if value is not None:
            shown[policy.in_object] = value
            if policy.older_in_object:
                shown[policy.older_in_object] = value
    return shown


def create(call: Call) -> None:
    """Create a namespace, with the policies in the body."""
    namespace, catalog = call.namespace, call.broker.catalog
    fields = call.body_as(_object) or {}
    if call.path["tenant"] not in catalog.tenants:
        raise TenantNotFound("Tenant does not exist")
    if namespace in catalog.namespaces:
        raise AlreadyExists("Namespace already exists")
    catalog.create_namespace(namespace, _record_of(call, fields))


def _targets_of_object(call: Call) -> Iterable[Right]:
    scope = PolicyScope("namespace", call.broker, call.namespace, NOTHING_SET, author=call.author)
    return targets_in_object(scope, call.body_as(_object) or {})


CREATE = TENANT_ADMIN.with_targets(TO_DEAD_LETTERS, _targets_of_object)


def _record_of(call: Call, fields: dict[str, Any]) -> NamespaceRecord:
    """The record of a namespace with these policies; raises if one would have no effect."""
    for field, value in fields.items():
        if field not in _KNOWN:
            raise BadRequest(f"{field[:100]} is not a namespace policy")
        if field in WITHOUT_EFFECT and not _is_unset(call, field, value):
            raise NotSupported(f"namespace policy {field} is not supported: leave it unset")
    try:
        other = _other_fields.convert(fields)
    except msgspec.ValidationError as error:
        raise BadRequest(f"invalid request body: {error}") from error
    auth = other.auth_policies or AuthPolicies()
    scope = PolicyScope("namespace", call.broker, call.namespace, NOTHING_SET, author=call.author)
    return NamespaceRecord(
        properties=_checked(other.properties or {}),
        overrides=from_object(scope, fields),
        permissions={role: list(actions) for role, actions in auth.namespace_auth.items()},
        subscription_permissions={name: roles for name, roles in auth.subscription_auth_roles.items() if roles},
        topic_permissions=_topic_permissions(call.namespace, auth),
    )


def _topic_permissions(namespace: str, auth: AuthPolicies) -> dict[str, dict[str, list[str]]]:
    kept: dict[str, dict[str, list[str]]] = {}
    for text, roles in auth.destination_auth.items():
        name = TopicName.parse(text)
        if name.namespace_full != namespace:
            raise NotAllowed(f"auth_policies.destination_auth has {name.full}, which is not a topic of {namespace}")
        kept[name.full] = {role: list(actions) for role, actions in roles.items()}
    if len(kept) > TOPIC_PERMISSIONS.limit:
        raise NotAllowed(
            f"auth_policies.destination_auth has {len(kept)} topics, the limit is {TOPIC_PERMISSIONS.limit}"
        )
    return kept


def _is_unset(call: Call, field: str, value: object) -> bool:
    if field == "is_allow_auto_update_schema_with_replicator":
        return value in (None, True)
    if field in ("compaction_threshold", "offload_deletion_lag_ms") and value == 0:
        return True
    # The Go client sends empty values for unset fields.
    return value in (None, "", {}, []) or value in WITHOUT_EFFECT[field]


async def delete(call: Call) -> None:
    """Delete an empty namespace; with `force`, if forceDeleteNamespaceAllowed is set, with its topics."""
    namespace, catalog, force = call.namespace, call.broker.catalog, call.flag("force")
    if force and not call.broker.settings.forceDeleteNamespaceAllowed:
        raise OperationNotAllowed(
            "Broker doesn't allow forced deletion of namespaces: forceDeleteNamespaceAllowed is false"
        )
    if namespace not in catalog.namespaces:
        raise NamespaceNotFound(f"Namespace {namespace} does not exist.")
    if len(catalog.policies_of(namespace).replication_clusters) > 1:
        raise NotAllowed(
            f"Cannot delete the global namespace {namespace}. There are still more than one replication clusters"
            " configured or replication clusters is empty."
        )
    if not force and _topics_to_delete(call.broker, namespace):
        raise Conflict("Cannot delete non empty namespace")
    if not force and (lasting := call.broker.pipelines.lasting_in(namespace)):
        raise Conflict(f"namespace {namespace} has pipeline {lasting.name}, which is not over: cancel it first")
    await delete_with_topics(call.broker, namespace)


async def delete_with_topics(broker: Broker, namespace: str) -> None:
    """Disconnects all clients and deletes a namespace with its topics."""
    catalog, time_slice = broker.catalog, TimeSlice()
    # Repeated until none is left: a disconnected client may create a topic again meanwhile.
    while namespace in catalog.namespaces and (names := _topics_to_delete(broker, namespace)):
        for name in names:
            if name.full in catalog.partitioned:
                broker.delete_partitioned(name, force=True)
            elif catalog.exists(name):
                broker.delete_topic(name, force=True)
            await time_slice.checkpoint()
    if namespace in catalog.namespaces:
        catalog.delete_namespace(namespace)


def _topics_to_delete(broker: Broker, namespace: str) -> list[TopicName]:
    """Partitioned topics first, with their partitions; the topics left then are not partitioned."""
    catalog, within = broker.catalog, f"://{namespace}/"
    partitioned = [full for full in catalog.partitioned if within in full]
    return [TopicName.parse(full) for full in (*partitioned, *catalog.topics_of[namespace])]


def _record(call: Call) -> NamespaceRecord:
    namespace_scope(call)
    return call.broker.catalog.namespaces[call.namespace]


def _save(call: Call, **changes: Any) -> None:
    record = msgspec.structs.replace(_record(call), **changes)
    call.broker.catalog.save_namespace(call.namespace, record)


# -- properties


def get_properties(call: Call) -> dict[str, str]:
    """Show the properties of a namespace."""
    return _record(call).properties


def _checked(properties: dict[str, str]) -> dict[str, str]:
    check_map("properties of the namespace", properties)
    return properties


def set_properties(call: Call) -> None:
    """Set properties of a namespace; others are kept."""
    record, properties = _record(call), call.body_as(_properties)
    if properties is None:
        raise BadRequest("the request body is empty: properties of the namespace are expected")
    _save(call, properties=_checked({**record.properties, **properties}))


def clear_properties(call: Call) -> None:
    """Remove all properties of a namespace."""
    _save(call, properties={})


def get_property(call: Call) -> Response:
    """Show one property of a namespace, as plain text."""
    return _plain(_record(call).properties.get(call.path["key"]))


def set_property(call: Call) -> None:
    """Set one property of a namespace."""
    _save(call, properties=_checked({**_record(call).properties, call.path["key"]: call.path["value"]}))


def remove_property(call: Call) -> Response:
    """Remove one property of a namespace, and return its value."""
    properties = dict(_record(call).properties)
    value = properties.pop(call.path["key"], None)
    _save(call, properties=properties)
    return _plain(value)


def _plain(value: str | None) -> Response:
    """Plain text with the media type of JSON, as in Pulsar."""
    return EMPTY if value is None else Response(value, media_type="application/json")


# -- topics


def list_topics(call: Call) -> list[str]:
    """List the topics of a namespace."""
    mode = call.choice("mode", ("PERSISTENT", "NON_PERSISTENT", "ALL"))
    domains = {"PERSISTENT": (PERSISTENT,), "NON_PERSISTENT": (NON_PERSISTENT,)}.get(mode, (PERSISTENT, NON_PERSISTENT))
    return topics_of(call, domains)


def topics_of(call: Call, domains: tuple[str, ...]) -> list[str]:
    """The full names of all topics of the namespace, each partition by itself."""
    topics = call.broker.catalog.topics_of.get(call.namespace)
    if topics is None:
        raise NamespaceNotFound("Namespace does not exist")
    return sorted(full for full in topics if full.partition("://")[0] in domains)


def get_bundles(call: Call) -> Bundles:
    """Show the bundles of a namespace: always one."""
    namespace_scope(call)
    return Bundles()


async def unload(call: Call) -> None:
    """Close all topics of a namespace; their clients reconnect."""
    _check_bundle(call)
    time_slice = TimeSlice()
    for full in list(call.broker.catalog.topics_of[call.namespace]):
        call.broker.unload(TopicName.parse(full))
        await time_slice.checkpoint()


async def clear_backlog(call: Call) -> None:
    """Acknowledge the backlog on all topics of a namespace, for one subscription or all that the caller may use.

    Failed messages stay: the backlog of a dead letter or retry topic is cleared by naming that topic (DL10).
    """
    _check_bundle(call)
    wanted = call.subscription if "subscription" in call.path else None
    time_slice, is_there = TimeSlice(), wanted is None or not call.broker.catalog.topics_of[call.namespace]
    for topic in _opened(call):
        if isinstance(topic, PersistentTopic):
            is_cleared = not call.broker.catalog.holds_failed_messages(topic.name)
            for subscription in topic.cursors:
                if wanted in (None, subscription.name):
                    is_there = True
                    if is_cleared and may_use(call, topic.name, subscription.name):
                        subscription.advance(topic.log.confirmed)
        await time_slice.checkpoint()
    if not is_there:
        raise SubscriptionNotFound(f"Subscription {wanted} not found in namespace {call.namespace}")
    call.broker.commits.batch()  # an acknowledgement alone does not wait for the disk


async def unsubscribe(call: Call) -> None:
    """Delete a subscription from all topics of a namespace; it must have no consumers."""
    _check_bundle(call)
    wanted, time_slice = call.subscription, TimeSlice()
    # All or none: check every topic for consumers before deleting anything.
    for topic in _opened(call):
        subscription = topic.subscriptions.get(wanted)
        if subscription is not None and subscription.consumers:
            raise NotAllowed("Subscription has active connected consumers")
        await time_slice.checkpoint()
    for topic in _opened(call):
        if wanted in topic.subscriptions:
            topic.delete_subscription(wanted)
        await time_slice.checkpoint()


def _opened(call: Call) -> Iterator[Topic]:
    """All topics of a namespace, opened one by one; topics deleted meanwhile are left out."""
    catalog = call.broker.catalog
    for full in list(catalog.topics_of[call.namespace]):
        if catalog.exists_full(call.namespace, full):
            yield call.broker.topic(TopicName.parse(full))


def _check_bundle(call: Call) -> None:
    namespace_scope(call)
    bundle = call.path.get("bundle", BUNDLE)
    if bundle != BUNDLE:
        raise NotAllowed(f"Invalid bundle range {bundle[:100]!r}: the only bundle of a namespace is {BUNDLE}")

"""Namespaces: create, list, delete, and the policies they are under."""

from __future__ import annotations

from typing import Any

import msgspec

from magnetar.admin.call import Call
from magnetar.admin.refusal import Conflict, OperationNotAllowed
from magnetar.errors import NamespaceNotFound, NotSupported, TenantNotFound
from magnetar.names import NON_PERSISTENT, PERSISTENT, check_entity

_policies = msgspec.json.Decoder(dict[str, Any])

# What Pulsar's own clients send for a policy that nobody set.
_UNSET: dict[str, object] = {
    "deleted": False,
    "encryption_required": False,
    "migrated": False,
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_auto_update_compatibility_strategy": "Full",
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "subscription_auth_mode": "None",
}
# Obeyed as they are: bundles spread a namespace over brokers and there is one; without authorization everybody has
# every permission that could be granted.
_OBEYED = frozenset({"bundles", "auth_policies"})


class Bundles(msgspec.Struct):
    boundaries: list[str] = msgspec.field(default_factory=lambda: ["0x00000000", "0xffffffff"])
    numBundles: int = 1


class AuthPolicies(msgspec.Struct):
    namespace_auth: dict[str, list[str]] = {}
    destination_auth: dict[str, dict[str, list[str]]] = {}
    subscription_auth_roles: dict[str, list[str]] = {}


class NamespacePolicies(msgspec.Struct, kw_only=True):
    """Pulsar's object, with what this broker knows of it."""

    replication_clusters: list[str]
    auth_policies: AuthPolicies = msgspec.field(default_factory=AuthPolicies)
    bundles: Bundles = msgspec.field(default_factory=Bundles)
    properties: dict[str, str] = {}
    deleted: bool = False


def list_namespaces(call: Call) -> list[str]:
    tenant, catalog = check_entity("tenant", call.path["tenant"]), call.broker.catalog
    if tenant not in catalog.tenants:
        raise TenantNotFound("Tenant not found")
    return sorted(namespace for namespace in catalog.namespaces if namespace.startswith(tenant + "/"))


def get(call: Call) -> NamespacePolicies:
    record = call.broker.catalog.namespaces.get(call.namespace)
    if record is None:
        raise NamespaceNotFound("Namespace does not exist")
    return NamespacePolicies(replication_clusters=[call.broker.settings.clusterName], properties=record.properties)


def create(call: Call) -> None:
    namespace = call.namespace
    for field, value in (call.body_as(_policies) or {}).items():
        if not _is_obeyed(field, value, call.broker.settings.clusterName):
            raise NotSupported(f"namespace policy {field[:100]} is not supported yet")
    call.broker.catalog.create_namespace(namespace)


def _is_obeyed(field: str, value: object, cluster: str) -> bool:
    """Whether a namespace without any policy does what this one says."""
    if field in _OBEYED or value in (None, {}, []) or (field in _UNSET and value == _UNSET[field]):
        return True
    return field in ("replication_clusters", "allowed_clusters") and value == [cluster]


def delete(call: Call) -> None:
    if call.flag("force"):
        raise OperationNotAllowed("Broker doesn't allow forced deletion of namespaces")
    namespace, catalog = call.namespace, call.broker.catalog
    if namespace not in catalog.namespaces:
        raise NamespaceNotFound(f"Namespace {namespace} does not exist.")
    partitioned = any(f"://{namespace}/" in full for full in catalog.partitioned)
    if catalog.topics_of[namespace] or partitioned:
        raise Conflict("Cannot delete non empty namespace")
    catalog.delete_namespace(namespace)


def list_topics(call: Call) -> list[str]:
    mode = call.choice("mode", ("PERSISTENT", "NON_PERSISTENT", "ALL"))
    domains = {"PERSISTENT": (PERSISTENT,), "NON_PERSISTENT": (NON_PERSISTENT,)}.get(mode, (PERSISTENT, NON_PERSISTENT))
    return topics_of(call, domains)


def topics_of(call: Call, domains: tuple[str, ...]) -> list[str]:
    """Full names of all topics of the called namespace, each partition by itself."""
    topics = call.broker.catalog.topics_of.get(call.namespace)
    if topics is None:
        raise NamespaceNotFound("Namespace does not exist")
    return sorted(full for full in topics if full.partition("://")[0] in domains)

"""Tenants: their administrators and the clusters they may use."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from magnetar.access_bounds import ROLE_SIZE
from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import Conflict, OperationNotAllowed
from magnetar.admin.http.request import Call
from magnetar.admin.resource.clusters import known_clusters
from magnetar.admin.resource.namespaces import delete_with_topics
from magnetar.broker.catalog.record import TenantRecord
from magnetar.errors import NotAllowed, TenantNotFound
from magnetar.names import TopicName, check_entity

ROLE_SIZE_MAX = ROLE_SIZE.limit


class TenantInfo(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    admin_roles: list[str] | None = None
    allowed_clusters: list[str] | None = None


_tenant_info: BodyReader[TenantInfo] = BodyReader(TenantInfo)


def list_tenants(call: Call) -> list[str]:
    """List all tenants."""
    return sorted(call.broker.catalog.tenants)


def get(call: Call) -> TenantInfo:
    """Show the administrators of a tenant and the clusters it may use."""
    tenant = call.broker.catalog.tenants.get(check_entity("tenant", call.path["tenant"]))
    if tenant is None:
        raise TenantNotFound("Tenant does not exist")
    return TenantInfo(tenant.admin_roles, tenant.allowed_clusters)


def create(call: Call) -> None:
    """Create a tenant."""
    call.broker.catalog.create_tenant(call.path["tenant"], _record_of(call))


def update(call: Call) -> None:
    """Set the administrators of a tenant and the clusters it may use."""
    tenant, record, catalog = check_entity("tenant", call.path["tenant"]), _record_of(call), call.broker.catalog
    if tenant not in catalog.tenants:
        raise TenantNotFound(f"Tenant {tenant} not found")
    for user, clusters in _replicated(call, tenant):
        for cluster in clusters:
            if cluster not in record.allowed_clusters:
                raise NotAllowed(
                    f"Cannot remove cluster {cluster} from tenant {tenant}: {user} still has it as a replication"
                    " cluster"
                )
    catalog.save_tenant(tenant, record)


def _replicated(call: Call, tenant: str) -> Iterator[tuple[str, list[str]]]:
    """Namespaces and topics of a tenant, with the replication clusters that are set for them."""
    catalog, own = call.broker.catalog, [call.broker.settings.clusterName]
    for namespace in _namespaces_of(call, tenant):
        yield f"namespace {namespace}", catalog.namespaces[namespace].overrides.replication_clusters or own
    for records in (catalog.partitioned, catalog.topics):
        for full, record in records.items():
            if record.overrides.replication_clusters and TopicName.parse(full).tenant == tenant:
                yield f"topic {full}", record.overrides.replication_clusters


async def delete(call: Call) -> None:
    """Delete a tenant without namespaces; with `force`, if forceDeleteTenantAllowed is set, with its namespaces."""
    tenant, force, catalog = check_entity("tenant", call.path["tenant"]), call.flag("force"), call.broker.catalog
    if force and not call.broker.settings.forceDeleteTenantAllowed:
        raise OperationNotAllowed("Broker doesn't allow forced deletion of tenants: forceDeleteTenantAllowed is false")
    if tenant not in catalog.tenants:
        raise TenantNotFound("Tenant doesn't exist")
    if not force and _namespaces_of(call, tenant):
        raise Conflict("The tenant still has active namespaces")
    while namespaces := _namespaces_of(call, tenant):
        await delete_with_topics(call.broker, namespaces[0])
    if tenant in catalog.tenants:
        catalog.delete_tenant(tenant)


def _namespaces_of(call: Call, tenant: str) -> list[str]:
    return [namespace for namespace in call.broker.catalog.namespaces if namespace.startswith(f"{tenant}/")]


def _record_of(call: Call) -> TenantRecord:
    """The body, checked."""
    info = call.body_as(_tenant_info)
    if info is None:
        raise NotAllowed("TenantInfo is null: adminRoles and allowedClusters are expected in the request body")
    clusters = info.allowed_clusters
    if clusters is None:
        raise NotAllowed("Clusters cannot be null: allowedClusters needs the name of this cluster")
    if not clusters or any(not cluster.strip() for cluster in clusters):
        raise NotAllowed("Clusters cannot be empty or blank: allowedClusters needs the name of this cluster")
    unknown = sorted({*clusters} - {*known_clusters(call)})
    if unknown:
        raise NotAllowed(f"Clusters do not exist: allowedClusters has {', '.join(unknown)[:200]}")
    for role in info.admin_roles or []:
        _check_role(role)
    return TenantRecord(list(dict.fromkeys(info.admin_roles or [])), list(dict.fromkeys(clusters)))


def _check_role(role: str) -> None:
    if role != role.strip():  # pulsarctl sends an empty role for no roles
        raise NotAllowed(f"adminRoles has {role[:100]!r}, which has surrounding white space")
    if len(role) > ROLE_SIZE_MAX:
        raise NotAllowed(f"adminRoles has a name of {len(role)} characters, the limit is {ROLE_SIZE_MAX}")

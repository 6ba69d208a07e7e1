"""Tenants: who may have namespaces."""

from __future__ import annotations

import msgspec

from magnetar.admin.call import Call
from magnetar.admin.refusal import Conflict, OperationNotAllowed
from magnetar.broker.record import TenantRecord
from magnetar.errors import NotAllowed, TenantNotFound


class TenantInfo(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    admin_roles: list[str] | None = None
    allowed_clusters: list[str] | None = None


_tenant_info = msgspec.json.Decoder(TenantInfo)


def list_tenants(call: Call) -> list[str]:
    return sorted(call.broker.catalog.tenants)


def get(call: Call) -> TenantInfo:
    tenant = call.broker.catalog.tenants.get(call.path["tenant"])
    if tenant is None:
        raise TenantNotFound("Tenant does not exist")
    return TenantInfo(tenant.admin_roles, tenant.allowed_clusters)


def create(call: Call) -> None:
    info = call.body_as(_tenant_info)
    if info is None:
        raise NotAllowed("the request body is empty: adminRoles and allowedClusters are expected")
    clusters = info.allowed_clusters or []
    if not clusters:
        raise NotAllowed("Clusters cannot be empty: allowedClusters needs the name of this cluster")
    unknown = [cluster for cluster in clusters if cluster != call.broker.settings.clusterName]
    if unknown:
        raise NotAllowed(f"Clusters do not exist: {', '.join(unknown)[:200]}")
    for role in info.admin_roles or []:
        if not role or role != role.strip():
            raise NotAllowed(f"admin role {role[:100]!r} is empty or has white space around it")
    call.broker.catalog.create_tenant(call.path["tenant"], TenantRecord(info.admin_roles or [], clusters))


def delete(call: Call) -> None:
    if call.flag("force"):
        raise OperationNotAllowed("Broker doesn't allow forced deletion of tenants")
    tenant, catalog = call.path["tenant"], call.broker.catalog
    if tenant not in catalog.tenants:
        raise TenantNotFound("Tenant doesn't exist")
    if any(namespace.startswith(tenant + "/") for namespace in catalog.namespaces):
        raise Conflict("The tenant still has active namespaces")
    catalog.delete_tenant(tenant)

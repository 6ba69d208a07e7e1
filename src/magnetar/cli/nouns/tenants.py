"""`magnetar tenants …`: list, show, create, update and delete tenants."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from magnetar.cli.argument import Force, Tenant, names_in
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Names, Record
from magnetar.cli.rest import Refused, Rest

group = CommandGroup("tenants", "Manage tenants.")

Admins = Annotated[
    str | None, typer.Option("--admin-roles", "-r", metavar="ROLE,…", help="Roles that may administer the tenant.")
]
Clusters = Annotated[
    str | None,
    typer.Option(
        "--allowed-clusters",
        "-c",
        metavar="CLUSTER,…",
        help="Clusters that the tenant may use.",
        show_default="all clusters",
    ),
]


@group.command("list")
def list_tenants(rest: Rest) -> Names:
    """List all tenants."""
    return Names(rest.get("tenants"))


@group.command("get")
def get(rest: Rest, tenant: Tenant) -> Record:
    """Show a tenant."""
    return Record(rest.get("tenants", tenant))


@group.command("create")
def create(rest: Rest, tenant: Tenant, admin_roles: Admins = None, allowed_clusters: Clusters = None) -> Done:
    """Create a tenant."""
    clusters = names_in(allowed_clusters) if allowed_clusters is not None else rest.get("clusters")
    rest.put(
        "tenants",
        tenant,
        # A replicated Apache Pulsar lists "global", which is not a cluster.
        body={"adminRoles": names_in(admin_roles or ""), "allowedClusters": [c for c in clusters if c != "global"]},
    )
    return Done(f"created tenant {tenant}")


@group.command("update")
def update(rest: Rest, tenant: Tenant, admin_roles: Admins = None, allowed_clusters: Clusters = None) -> Done:
    """Update a tenant; options that are not given keep their value."""
    if admin_roles is None and allowed_clusters is None:
        raise typer.BadParameter("give --admin-roles or --allowed-clusters, or both")
    body: dict[str, Any] = rest.get("tenants", tenant)
    if admin_roles is not None:
        body["adminRoles"] = names_in(admin_roles)
    if allowed_clusters is not None:
        body["allowedClusters"] = names_in(allowed_clusters)
    rest.post("tenants", tenant, body=body)
    return Done(f"updated tenant {tenant}")


@group.command("delete")
def delete(rest: Rest, tenant: Tenant, force: Force = False) -> Done:
    """Delete a tenant without namespaces, or with --force if the broker allows it."""
    try:
        rest.delete("tenants", tenant, query={"force": force})
    except Refused as error:
        if error.status != 409 or force:
            raise
        hint = f"`magnetar namespaces list {tenant}` lists its namespaces"
        raise Refused(error.status, error.reason, hint) from error
    return Done(f"deleted tenant {tenant}")

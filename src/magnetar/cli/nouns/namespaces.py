"""`magnetar namespaces …`: namespaces, their policies, permissions and properties."""

from __future__ import annotations

from typing import Annotated

import typer

from magnetar.cli.argument import (
    PUBLIC_DEFAULT,
    Actions,
    Force,
    Namespace,
    Properties,
    ReadNamespace,
    Role,
    Tenant,
    TopicMode,
    names_in,
    properties_of,
    whole,
)
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Names, Record, print_note
from magnetar.cli.path import namespace_path
from magnetar.cli.policies.commands import add_namespace_policies
from magnetar.cli.rest import Refused, Rest
from magnetar.names import DEFAULT_TENANT

group = CommandGroup("namespaces", "Manage namespaces and their policies.")


Subscription = Annotated[str, typer.Option("--sub", "--subscription", "-s", help="The subscription.")]
Roles = Annotated[str, typer.Option("--roles", metavar="ROLE,…", help="The roles.")]
Key = Annotated[str, typer.Option("--key", "-k", help="The key of the property.")]

group.panel = "Namespaces"


@group.command("list")
def list_namespaces(rest: Rest, tenant: Tenant = DEFAULT_TENANT) -> Names:
    """List the namespaces of a tenant."""
    return Names(rest.get("namespaces", tenant), none=f"tenant {tenant} has no namespaces")


@group.command("get")
def get(rest: Rest, namespace: ReadNamespace = PUBLIC_DEFAULT) -> Record:
    """Show all policies of a namespace."""
    value = rest.get(*namespace_path(namespace))
    return Record(value, fields={name: item for name, item in value.items() if item not in (None, {}, [])})


@group.command("policies")
def policies(rest: Rest, namespace: ReadNamespace = PUBLIC_DEFAULT) -> Record:
    """Show all policies of a namespace; the same as `get`."""
    return get(rest, namespace)


@group.command("create")
def create(
    rest: Rest,
    namespace: Namespace,
    clusters: Annotated[
        str | None, typer.Option("--clusters", "-c", metavar="CLUSTER,…", help="Clusters to replicate to.")
    ] = None,
    bundles: Annotated[
        int | None, typer.Option("--bundles", "-b", metavar="N", parser=whole(1), help="The number of bundles.")
    ] = None,
) -> Done:
    """Create a namespace."""
    body: dict[str, object] = {}
    if clusters is not None:
        body["replication_clusters"] = names_in(clusters)
    if bundles is not None:
        body["bundles"] = {"numBundles": bundles}
    rest.put(*namespace_path(namespace), body=body or None)
    return Done(f"created namespace {namespace}")


@group.command("delete")
def delete(rest: Rest, namespace: Namespace, force: Force = False) -> Done:
    """Delete a namespace without topics, or with --force if the broker allows it."""
    try:
        rest.delete(*namespace_path(namespace), query={"force": force})
    except Refused as error:
        if error.status != 409 or force:
            raise
        hint = f"`magnetar topics list {namespace}` lists its topics"
        raise Refused(error.status, error.reason, hint) from error
    return Done(f"deleted namespace {namespace}")


@group.command("topics")
def topics(
    rest: Rest,
    namespace: ReadNamespace = PUBLIC_DEFAULT,
    mode: Annotated[
        TopicMode, typer.Option("--mode", "-m", case_sensitive=False, help="The topics to list.")
    ] = TopicMode.PERSISTENT,
) -> Names:
    """List the topics of a namespace, each partition by itself."""
    return Names(
        rest.get(*namespace_path(namespace, "topics"), query={"mode": mode.value}), none=f"{namespace} has no topics"
    )


@group.command("bundles")
def bundles(rest: Rest, namespace: ReadNamespace = PUBLIC_DEFAULT) -> Record:
    """Show the bundles of a namespace."""
    return Record(rest.get(*namespace_path(namespace, "bundles")))


@group.command("unload")
def unload(
    rest: Rest,
    namespace: Namespace,
    bundle: Annotated[str | None, typer.Option("--bundle", "-b", help="Only this bundle, 0x…_0x….")] = None,
) -> Done:
    """Close all topics of a namespace; clients reconnect."""
    rest.put(*namespace_path(namespace, *([bundle] if bundle else []), "unload"))
    return Done(f"unloaded {namespace}")


@group.command("clear-backlog")
def clear_backlog(
    rest: Rest,
    namespace: Namespace,
    subscription: Annotated[str | None, typer.Option("--sub", "-s", help="Only this subscription.")] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Do not ask for confirmation.")] = False,
) -> Done:
    """Skip all messages of all subscriptions of a namespace that the caller may use."""
    if not force and not _is_confirmed(f"skip all messages in {namespace}?"):
        raise typer.BadParameter("not confirmed: answer y, or give --force")
    rest.post(*namespace_path(namespace, "clearBacklog", *([subscription] if subscription else [])))
    return Done(f"cleared the backlog of {namespace}")


def _is_confirmed(question: str) -> bool:
    try:
        # On stderr: stdout is for results.
        print_note(f"{question} [y/N]")
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        return False


@group.command("unsubscribe")
def unsubscribe(
    rest: Rest,
    namespace: Namespace,
    subscription: Subscription,
) -> Done:
    """Delete a subscription from all topics of a namespace."""
    rest.post(*namespace_path(namespace, "unsubscribe", subscription))
    return Done(f"deleted subscription {subscription} from {namespace}")


# -- permissions

group.panel = "Permissions"


@group.command("permissions")
def permissions(rest: Rest, namespace: ReadNamespace = PUBLIC_DEFAULT) -> Record:
    """Show the permissions of roles in a namespace."""
    return Record(rest.get(*namespace_path(namespace, "permissions")), none=f"{namespace} has no permissions")


@group.command("grant-permission")
def grant_permission(
    rest: Rest,
    namespace: Namespace,
    role: Role,
    actions: Actions,
) -> Done:
    """Grant permissions in a namespace to a role."""
    rest.post(*namespace_path(namespace, "permissions", role), body=actions)
    return Done(f"granted {', '.join(actions)} in {namespace} to {role}")


@group.command("revoke-permission")
def revoke_permission(rest: Rest, namespace: Namespace, role: Role) -> Done:
    """Revoke all permissions of a role in a namespace."""
    rest.delete(*namespace_path(namespace, "permissions", role))
    return Done(f"revoked all permissions in {namespace} of {role}")


@group.command("subscription-permission")
def subscription_permissions(rest: Rest, namespace: ReadNamespace = PUBLIC_DEFAULT) -> Record:
    """Show the roles that may use subscriptions of a namespace, where not all may."""
    value = rest.get(*namespace_path(namespace, "permissions", "subscription"))
    return Record(value, none=f"{namespace} has no subscription with roles of its own")


@group.command("grant-subscription-permission")
def grant_subscription_permission(rest: Rest, namespace: Namespace, subscription: Subscription, roles: Roles) -> Done:
    """Set the roles that may use a subscription; all others may not from then on."""
    given = names_in(roles)
    rest.post(*namespace_path(namespace, "permissions", "subscription", subscription), body=given)
    return Done(f"granted subscription {subscription} in {namespace} to {', '.join(given)}")


@group.command("revoke-subscription-permission")
def revoke_subscription_permission(rest: Rest, namespace: Namespace, subscription: Subscription, role: Role) -> Done:
    """Revoke the permission of a role to use a subscription; without any roles it is open again."""
    rest.delete(*namespace_path(namespace, "permissions", subscription, role))
    return Done(f"revoked subscription {subscription} in {namespace} of {role}")


# -- properties

group.panel = "Properties"


@group.command("get-properties")
def get_properties(rest: Rest, namespace: ReadNamespace = PUBLIC_DEFAULT) -> Record:
    """Show the properties of a namespace."""
    return Record(rest.get(*namespace_path(namespace, "properties")), none=f"{namespace} has no properties")


@group.command("set-properties")
def set_properties(rest: Rest, namespace: Namespace, properties: Properties = None) -> Done:
    """Set properties of a namespace; others are kept."""
    given = properties_of(properties)
    if not given:
        raise typer.BadParameter("give at least one --property key=value")
    rest.put(*namespace_path(namespace, "properties"), body=given)
    return Done(f"set {', '.join(given)} of {namespace}")


@group.command("remove-property")
def remove_property(rest: Rest, namespace: Namespace, key: Key) -> Done:
    """Remove one property of a namespace."""
    rest.delete(*namespace_path(namespace, "property", key))
    return Done(f"removed property {key} of {namespace}")


@group.command("clear-properties")
def clear_properties(rest: Rest, namespace: Namespace) -> Done:
    """Remove all properties of a namespace."""
    rest.delete(*namespace_path(namespace, "properties"))
    return Done(f"removed all properties of {namespace}")


add_namespace_policies(group)

"""`magnetar replication …`: status, enable and disable; route policies are in `route`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from magnetar.cli.argument import parse_cluster
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Page, Table, counted, shown_bytes, shown_time
from magnetar.cli.path import namespace_path, topic_path
from magnetar.cli.replication import diff, verify
from magnetar.cli.replication.route import OptionalScope, Remote, RouteScope, TopicOrNamespace, add_route_commands
from magnetar.cli.rest import Refused, Rest
from magnetar.names import TopicName
from magnetar.replication.model import State

group = CommandGroup("replication", "Geo-replication: status, routes, verify and diff.")

_NO_SUCH_PATH = (404, 405, 501)


@group.command("status")
def status(
    rest: Rest,
    scope: OptionalScope = None,
    remote: Annotated[
        str | None,
        typer.Option("--remote", metavar="CLUSTER", parser=parse_cluster, help="Only this remote cluster."),
    ] = None,
) -> Page:
    """Show replication status of each topic and remote cluster."""
    kind = "topic" if isinstance(scope, TopicName) else "namespace"
    query = {kind: None if scope is None else str(scope), "remote": remote}
    try:
        value: list[dict[str, Any]] = rest.get("replication", "status", query=query)
    except Refused as error:
        if error.status not in _NO_SUCH_PATH or scope is not None:
            raise
        hint = "this broker has no replication status: use `magnetar topics stats TOPIC` with Apache Pulsar"
        raise Refused(error.status, error.reason, hint) from error
    columns = ("TOPIC", "REMOTE", "STATE", "SINCE", "BACKLOG", "BYTES", "DELAY S", "MSG/S", "REASON")
    table = Table(value, columns, [_row(one) for one in value], none=_none(scope, remote))
    copying = sum(State(one["state"]).is_copying for one in value)
    summary = f"{copying} of {counted(len(value), 'row')} copying, a backlog of {sum(one['backlog'] for one in value)}"
    return Page(value, [table, Done(summary)] if value else [table])


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    since = shown_time(one["sinceMs"]) if one["sinceMs"] else "-"
    bytes_behind = shown_bytes(one["backlogBytes"])
    rate, delay = float(one["rateOut"]), float(one["delayS"])
    return (one["topic"], one["remote"], one["state"], since, one["backlog"], bytes_behind, delay, rate, _why(one))


def _why(one: dict[str, Any]) -> str:
    """The reason, with the last error while the topic is not copied."""
    reason, error = one["reason"], one["lastError"]
    is_relevant = error and error not in reason and not State(one["state"]).is_copying
    if not is_relevant:
        return reason or "-"
    return f"{reason}; last error, at {shown_time(one['lastErrorMs'])}: {error}"


def _none(scope: RouteScope | None, remote: str | None) -> str:
    what = "nothing" if scope is None else f"nothing of {scope}"
    return f"{what} is replicated{f' to {remote}' if remote else ''}"


# -- enable and disable


@group.command("enable")
def enable(rest: Rest, scope: TopicOrNamespace, to: Remote) -> Done:
    """Start replicating a topic or a namespace to a remote cluster."""
    clusters = _clusters(rest, scope)
    if to in clusters:
        return Done(f"{scope} is already replicated to {to}")
    try:
        _set_clusters(rest, scope, [*clusters, to])
    except Refused as error:
        raise Refused(error.status, error.reason, _repair(error.reason, scope.tenant, to)) from error
    return Done(f"{scope} is replicated to {to}")


@group.command("disable")
def disable(rest: Rest, scope: TopicOrNamespace, to: Remote) -> Done:
    """Stop replicating to a remote cluster, and delete the position."""
    clusters = _clusters(rest, scope)
    if to not in clusters:
        return Done(f"{scope} is not replicated to {to}")
    _set_clusters(rest, scope, [cluster for cluster in clusters if cluster != to])
    return Done(f"{scope} is no longer replicated to {to}")


def _repair(reason: str, tenant: str, to: str) -> str:
    if "Invalid cluster id" in reason:
        return f"`magnetar clusters create {to} --service-url URL --broker-url URL` registers it"
    if "for tenant" in reason:
        return f"`magnetar tenants update {tenant} --allowed-clusters …,{to}` allows it"
    return ""


def _clusters(rest: Rest, scope: RouteScope) -> list[str]:
    """The replication clusters in force, including this cluster."""
    if isinstance(scope, TopicName):
        found = rest.get(*topic_path(scope, "replication"), query={"applied": True})
    else:
        found = rest.get(*namespace_path(scope, "replication"))
    return list(found or ())


def _set_clusters(rest: Rest, scope: RouteScope, clusters: list[str]) -> None:
    if isinstance(scope, TopicName):
        rest.post(*topic_path(scope, "replication"), body=clusters)
    else:
        rest.post(*namespace_path(scope, "replication"), body=clusters)


add_route_commands(group)
diff.add_to(group)
verify.add_to(group)

"""`magnetar replication pause, resume, routes, get-route, set-route, remove-route`: route policies.

The route policy of a topic replaces that of its namespace as a whole. So `pause` on a topic without its own copies the
namespace's and pauses it; `resume` removes the copy if nothing else differs.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from magnetar.cli.argument import NamespaceName, parse_cluster, parse_namespace_name, parse_topic
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Record, Table
from magnetar.cli.rest import Rest
from magnetar.names import TopicName
from magnetar.replication.model import AS_IT_IS, Mask, MaskKind, Refusal, RoutePolicy

RouteScope = TopicName | NamespaceName

_FIXED = f"{MaskKind.FIXED}:"


def parse_scope(text: str) -> RouteScope:
    """`a/b` is a namespace, anything else a topic."""
    is_namespace = "://" not in text and text.count("/") == 1
    return parse_namespace_name(text) if is_namespace else parse_topic(text)


def parse_mask(text: str) -> Mask:
    """`field`, `field=hash`, `field=null` or `field=fixed:TEXT`."""
    field, separator, kind = text.partition("=")
    if not field:
        raise typer.BadParameter(f"{text!r} has no field name")
    if not separator:
        return Mask(field)
    if kind.startswith(_FIXED):
        return Mask(field, MaskKind.FIXED, kind.removeprefix(_FIXED))
    if kind not in (MaskKind.HASH, MaskKind.NULL):
        raise typer.BadParameter(f"{text!r} is not of the form field, field=hash, field=null or field=fixed:TEXT")
    return Mask(field, MaskKind(kind))


# Typer does not support unions; the parser returns the value.
_SCOPE = "A topic, such as orders or acme/shop/orders, or a namespace, such as acme/shop."
TopicOrNamespace = Annotated[
    Any, typer.Argument(metavar="TOPIC|TENANT/NAMESPACE", parser=parse_scope, help=_SCOPE, show_default=False)
]
OptionalScope = Annotated[
    Any,
    typer.Argument(metavar="TOPIC|TENANT/NAMESPACE", parser=parse_scope, help=_SCOPE, show_default="everything"),
]
Remote = Annotated[str, typer.Option("--to", metavar="CLUSTER", parser=parse_cluster, help="The remote cluster.")]


def add_route_commands(group: CommandGroup) -> None:
    group.command("pause")(pause)
    group.command("resume")(resume)
    group.command("routes")(list_routes)
    group.command("get-route")(get_route)
    group.command("set-route")(set_route)
    group.command("remove-route")(remove_route)


# -- the commands


def pause(rest: Rest, scope: TopicOrNamespace, to: Remote) -> Done:
    """Pause copying to a remote cluster; the position and the backlog are kept."""
    _save(rest, scope, to, _changed(_in_force(rest, scope, to), paused=True))
    return Done(f"paused {scope} to {to}")


def resume(rest: Rest, scope: TopicOrNamespace, to: Remote) -> Done:
    """Resume copying to a remote cluster."""
    _save(rest, scope, to, _changed(_in_force(rest, scope, to), paused=False))
    return Done(f"resumed {scope} to {to}")


def list_routes(rest: Rest) -> Table:
    """List all route policies."""
    value = rest.get("replication", "routes")
    rows = [(one["remote"], _name(one), msgspec.convert(one["policy"], RoutePolicy)) for one in value]
    shown = [(remote, name, _described(policy)) for remote, name, policy in rows]
    return Table(value, ("REMOTE", "SCOPE", "POLICY"), shown, none="no route policies: messages are copied unchanged")


def _name(one: dict[str, Any]) -> str:
    return "/".join(part for part in (one["namespace"], one["topic"]) if part)


def _described(policy: RoutePolicy) -> str:
    """The options that would set it."""
    masks = [f"--mask {mask.field}={mask.kind.value}{f':{mask.text}' if mask.text else ''}" for mask in policy.masks]
    parts = (
        "paused" if policy.paused else "",
        f"--where {policy.where!r}" if policy.where else "",
        *masks,
        f"--rename {policy.rename}" if policy.rename else "",
        f"--refused {policy.refused.value}" if policy.refused is not Refusal.STOP else "",
        "--dead-letters" if policy.dead_letters else "",
    )
    return " ".join(part for part in parts if part) or "unchanged"


def get_route(rest: Rest, scope: TopicOrNamespace, to: Remote) -> Record:
    """Show the route policy to a remote cluster, inherited or not."""
    policy = _in_force(rest, scope, to)
    value = msgspec.to_builtins(policy) if policy != AS_IT_IS else {}
    return Record(value, none=f"no route policy: messages of {scope} are copied to {to} unchanged")


def set_route(
    rest: Rest,
    scope: TopicOrNamespace,
    to: Remote,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            metavar="SQL",
            help="A condition for messages to copy, on the columns that Spark reads from the topic.",
            show_default="all",
        ),
    ] = "",
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask",
            metavar="FIELD[=hash|null|fixed:TEXT]",
            help="A field of JSON or Avro values to mask, such as a.b; may be repeated.",
        ),
    ] = None,
    rename: Annotated[
        str,
        typer.Option(
            "--rename",
            metavar="TOPIC",
            help="The remote topic, with the placeholders {tenant}, {namespace} and {topic}.",
            show_default="the same",
        ),
    ] = "",
    refused: Annotated[
        Refusal,
        typer.Option("--refused", help="The action for messages that the remote cluster rejects."),
    ] = Refusal.STOP,
    dead_letters: Annotated[bool, typer.Option("--dead-letters", help="Copy -DLQ and -RETRY topics too.")] = False,
) -> Done:
    """Set the route policy to a remote cluster; options that are not given are reset."""
    masks = tuple(parse_mask(text) for text in mask or ())
    is_paused = _in_force(rest, scope, to).paused
    policy = RoutePolicy(
        where=where, masks=masks, rename=rename, refused=refused, dead_letters=dead_letters, paused=is_paused
    )
    rest.put(*_path(to, scope), body=msgspec.to_builtins(policy))
    return Done(f"set the route of {scope} to {to}" + ("; it is paused" if is_paused else ""))


def remove_route(rest: Rest, scope: TopicOrNamespace, to: Remote) -> Done:
    """Remove the route policy to a remote cluster, and any pause."""
    rest.delete(*_path(to, scope))
    return Done(f"removed the route of {scope} to {to}")


# -- requests


def _path(remote: str, scope: RouteScope) -> tuple[str, ...]:
    ends = (scope.tenant, scope.namespace, *((scope.base.local,) if isinstance(scope, TopicName) else ()))
    return ("replication", "routes", remote, *ends)


def _own(rest: Rest, remote: str, scope: RouteScope) -> RoutePolicy | None:
    value = rest.get(*_path(remote, scope))
    return None if value is None else msgspec.convert(value, RoutePolicy)


def _inherited(rest: Rest, scope: RouteScope, remote: str) -> RoutePolicy:
    """The policy in force without its own."""
    if not isinstance(scope, TopicName):
        return AS_IT_IS
    return _own(rest, remote, NamespaceName(scope.tenant, scope.namespace)) or AS_IT_IS


def _in_force(rest: Rest, scope: RouteScope, remote: str) -> RoutePolicy:
    return msgspec.convert(rest.get(*_path(remote, scope), query={"applied": True}), RoutePolicy)


def _save(rest: Rest, scope: RouteScope, remote: str, policy: RoutePolicy) -> None:
    """Stores the policy, unless it equals the inherited one."""
    if policy != _inherited(rest, scope, remote):
        rest.put(*_path(remote, scope), body=msgspec.to_builtins(policy))
    elif _own(rest, remote, scope) is not None:
        rest.delete(*_path(remote, scope))


def _changed(policy: RoutePolicy, *, paused: bool) -> RoutePolicy:
    return msgspec.structs.replace(policy, paused=paused)

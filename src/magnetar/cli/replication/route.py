"""`magnetar replication pause, resume, routes, get-route, set-route, remove-route`: route policies.

Each command changes the parts that it names and keeps the others; the broker merges them. A mask or a filter goes away
only by a word for it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from msgspec import UNSET

from magnetar.cli.argument import NamespaceName, parse_cluster, parse_namespace_name, parse_topic
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Record, Table
from magnetar.cli.rest import Rest
from magnetar.names import TopicName
from magnetar.replication.model import AS_IT_IS, Mask, MaskKind, Refusal, RoutePolicy
from magnetar.replication.route_parts import RouteChange, RouteParts

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
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="A condition for messages to copy, on the columns that Spark reads.",
    ),
]
RemoveWhere = Annotated[
    bool,
    typer.Option("--remove-where", help="Copy messages whatever the condition, for a topic also its namespace's."),
]
Masks = Annotated[
    list[str] | None,
    typer.Option(
        "--mask",
        metavar="FIELD[=hash|null|fixed:TEXT]",
        help="A field of JSON or Avro values to mask, such as a.b; may be repeated.",
    ),
]
RemoveMasks = Annotated[
    list[str] | None,
    typer.Option(
        "--remove-mask",
        metavar="FIELD",
        help="A field to copy in clear, for a topic also if its namespace masks it; may be repeated.",
    ),
]
Rename = Annotated[
    str | None,
    typer.Option(
        "--rename", metavar="TOPIC", help="The remote topic, with the placeholders {tenant}, {namespace} and {topic}."
    ),
]
RemoveRename = Annotated[bool, typer.Option("--remove-rename", help="Unset --rename.")]
RefusedMessages = Annotated[
    Refusal | None, typer.Option("--refused", help="The action for messages that the remote cluster rejects.")
]
DeadLetters = Annotated[
    bool | None, typer.Option("--dead-letters/--no-dead-letters", help="Whether to copy -DLQ and -RETRY topics too.")
]


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
    _change(rest, scope, to, RouteChange(paused=True))
    return Done(f"paused {scope} to {to}")


def resume(rest: Rest, scope: TopicOrNamespace, to: Remote) -> Done:
    """Resume copying to a remote cluster."""
    _change(rest, scope, to, RouteChange(paused=False))
    return Done(f"resumed {scope} to {to}")


def list_routes(rest: Rest) -> Table:
    """List all route policies."""
    value = rest.get("replication", "routes")
    rows = [(one["remote"], _name(one), msgspec.convert(one["policy"], RouteParts)) for one in value]
    shown = [(remote, name, _described(parts)) for remote, name, parts in rows]
    return Table(value, ("REMOTE", "SCOPE", "POLICY"), shown, none="no route policies: messages are copied unchanged")


def _name(one: dict[str, Any]) -> str:
    return "/".join(part for part in (one["namespace"], one["topic"]) if part)


def _described(parts: RouteParts) -> str:
    """The options that would set them."""
    words = (
        {None: "", True: "paused", False: "resumed"}[parts.paused],
        "--remove-where" if parts.unfiltered else "",
        f"--where {parts.where!r}" if parts.where else "",
        *(f"--remove-mask {field}" for field in parts.unmasked),
        *(f"--mask {_shown_mask(mask)}" for mask in parts.masks),
        f"--rename {parts.rename}" if parts.rename else "",
        f"--refused {parts.refused.value}" if parts.refused is not None else "",
        {None: "", True: "--dead-letters", False: "--no-dead-letters"}[parts.dead_letters],
    )
    return " ".join(word for word in words if word)


def _shown_mask(mask: Mask) -> str:
    return f"{mask.field}={mask.kind.value}{f':{mask.text}' if mask.text else ''}"


def get_route(rest: Rest, scope: TopicOrNamespace, to: Remote) -> Record:
    """Show the route policy to a remote cluster, inherited or not."""
    policy = _in_force(rest, scope, to)
    value = msgspec.to_builtins(policy) if policy != AS_IT_IS else {}
    fields = value | ({"masks": ", ".join(map(_shown_mask, policy.masks))} if policy.masks else {})
    return Record(value, fields=fields, none=f"no route policy: messages of {scope} are copied to {to} unchanged")


def set_route(
    rest: Rest,
    scope: TopicOrNamespace,
    to: Remote,
    where: Where = None,
    mask: Masks = None,
    rename: Rename = None,
    refused: RefusedMessages = None,
    dead_letters: DeadLetters = None,
    remove_where: RemoveWhere = False,
    remove_mask: RemoveMasks = None,
    remove_rename: RemoveRename = False,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Also mask fields that the topic's schema does not have.")
    ] = False,
) -> Done:
    """Set parts of the route policy to a remote cluster; the others are kept."""
    if remove_rename and rename is not None:
        raise typer.BadParameter("--rename and --remove-rename cannot be combined")
    change = RouteChange(
        where=UNSET if where is None else where,
        masks=tuple(parse_mask(text) for text in mask or ()),
        rename=None if remove_rename else UNSET if rename is None else rename,
        refused=UNSET if refused is None else refused,
        dead_letters=UNSET if dead_letters is None else dead_letters,
        remove_masks=tuple(remove_mask or ()),
        remove_where=remove_where,
    )
    if change == RouteChange():
        raise typer.BadParameter("nothing to set: give at least one option, such as --mask or --rename")
    _change(rest, scope, to, msgspec.structs.replace(change, force=force))
    is_paused = _in_force(rest, scope, to).paused
    return Done(f"set the route of {scope} to {to}" + ("; it is paused" if is_paused else ""))


def remove_route(
    rest: Rest,
    scope: TopicOrNamespace,
    to: Remote,
    force: Annotated[bool, typer.Option("--force", "-f", help="Also with masks or a filter.")] = False,
) -> Done:
    """Remove the route policy to a remote cluster, and any pause."""
    rest.delete(*_path(to, scope), query={"force": force})
    return Done(f"removed the route of {scope} to {to}")


# -- requests


def _path(remote: str, scope: RouteScope) -> tuple[str, ...]:
    ends = (scope.tenant, scope.namespace, *((scope.base.local,) if isinstance(scope, TopicName) else ()))
    return ("replication", "routes", remote, *ends)


def _change(rest: Rest, scope: RouteScope, remote: str, change: RouteChange) -> None:
    rest.post(*_path(remote, scope), body=msgspec.to_builtins(change))


def _in_force(rest: Rest, scope: RouteScope, remote: str) -> RoutePolicy:
    return msgspec.convert(rest.get(*_path(remote, scope), query={"applied": True}), RoutePolicy)

"""`magnetar redrive …`: sends dead letters back; lists, shows and cancels redrives.

On a Magnetar broker a redrive is declared, and its pipelines process runs it; on Apache Pulsar, and with --local, this
command does. Owns the choice between the two.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.cli.argument import PUBLIC_DEFAULT, NamespaceName, ServiceUrl, parse_namespace_name, whole
from magnetar.cli.command import CommandGroup
from magnetar.cli.foreground import Master, foreground
from magnetar.cli.output import Done, Output, Page, Record, Table
from magnetar.cli.redrive.following import follow
from magnetar.cli.redrive.samples import sample_table
from magnetar.cli.rest import Refused, Rest
from magnetar.cli.views.pipelines import pipeline_page, pipelines_table
from magnetar.errors import InvalidSetting

if TYPE_CHECKING:
    from magnetar.declared.redrive import RedriveSpec
    from magnetar.pipelines.redrive.rounds import RedriveOutcome

group = CommandGroup("redrive", "Send dead letters back to where they failed, filtered and edited on the way.")

VERB = "redrive"
SAMPLES = 3
GENERATIONS_MAX = 3
_NO_SUCH_PATH = (404, 405, 501)

Namespace = Annotated[
    NamespaceName,
    typer.Option(
        "--namespace",
        metavar="NAMESPACE",
        parser=parse_namespace_name,
        help="The namespace of the record, and of names of topics without one.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the redrive.")]
From = Annotated[
    list[str],
    typer.Option(
        "--from",
        metavar="TOPIC|PATTERN|NAMESPACE",
        help="A dead letter topic, a pattern such as public/default/orders-*-DLQ, or a namespace; may be repeated.",
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TOPIC", help="The target topic.", show_default="the origin of each letter"),
]
Where = Annotated[
    str, typer.Option("--where", metavar="SQL", help="A condition for letters, such as reason = 'Client'.")
]
Assigned = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="COLUMN=SQL",
        help="A value for key, ordering_key, event_time, value, payload, payload.FIELD or properties.NAME;"
        " may be repeated.",
    ),
]
Function = Annotated[
    str,
    typer.Option(
        "--function", metavar="MODULE:NAME", help="A Python function from a letter to a letter, or None to leave it."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show counts and samples, before and after; send nothing.")]
Samples = Annotated[
    int, typer.Option("--samples", metavar="N", parser=whole(0, 100), help="With --dry-run: the number of samples.")
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate", metavar="N", min=0.001, help="The most messages a second.", show_default="as fast as it goes"
    ),
]
Generations = Annotated[
    int,
    typer.Option(
        "--max-generations",
        metavar="N",
        parser=whole(1, 1000),
        help="Letters that were redriven so often go to quarantine.",
    ),
]
AllSubscriptions = Annotated[
    bool, typer.Option("--all-subscriptions", help="Send to all subscriptions of the origin, not only the failed one.")
]
Local = Annotated[bool, typer.Option("--local", help="Run in this process, not in the broker's pipelines process.")]
Detach = Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")]
AtLeastOnce = Annotated[
    bool,
    typer.Option("--at-least-once", help="On Apache Pulsar: accept targets that do not deduplicate."),
]
RedriveName = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="The name of the redrive; on Apache Pulsar the same name, with the same options, continues one.",
        show_default="a new one",
    ),
]


@group.command("start")
def start(
    rest: Rest,
    from_: From,
    to: To = None,
    where: Where = "",
    set_: Assigned = None,
    function: Function = "",
    dry_run: DryRun = False,
    samples: Samples = SAMPLES,
    rate: Rate = None,
    max_generations: Generations = GENERATIONS_MAX,
    all_subscriptions: AllSubscriptions = False,
    at_least_once: AtLeastOnce = False,
    namespace: Namespace = PUBLIC_DEFAULT,
    name: RedriveName = None,
    local: Local = False,
    detach: Detach = False,
    master: Master = None,
    service_url: ServiceUrl = None,
) -> Output:
    """Send dead letters back, each to its own origin and only to the subscription that failed.

    A Magnetar broker runs it in its pipelines process, and this command follows it; --local runs it here.
    """
    from magnetar.declared.redrive import RedriveSpec

    spec = RedriveSpec(
        sources=from_,
        to=to,
        where=where,
        set=_assignments(set_ or []),
        function=function,
        rate=rate,
        generations_max=max_generations,
        only_origin_subscription=not all_subscriptions,
    )
    name = name or f"redrive-{secrets.token_hex(3)}"
    if dry_run:
        return _preview(rest, spec, namespace, samples, master, service_url)
    if local or not _declares(rest):
        if detach:
            raise InvalidSetting("--detach needs a Magnetar broker that runs the redrive")
        return _run(rest, spec, namespace, name, master, service_url, at_least_once=at_least_once)
    for option, given in (("--master", master), ("--at-least-once", at_least_once)):
        if given:
            raise InvalidSetting(f"{option} needs --local: the broker runs this redrive")
    return _declare(rest, spec, namespace, name, detach=detach)


def _assignments(texts: list[str]) -> dict[str, str]:
    from magnetar.pipelines.redrive.assignments import parse_assignments

    parse_assignments(texts)  # raises for what cannot be assigned
    pairs = [text.partition("=") for text in texts]
    return {column.strip(): expression.strip() for column, _, expression in pairs}


def _declares(rest: Rest) -> bool:
    """Whether the broker runs pipelines itself."""
    try:
        rest.get("pipelines", *PUBLIC_DEFAULT)
    except Refused as error:
        return error.status not in _NO_SUCH_PATH
    return True


# -- in the broker


def _declare(rest: Rest, spec: RedriveSpec, namespace: NamespaceName, name: str, *, detach: bool) -> Output:
    import msgspec

    fields = json.loads(msgspec.json.encode(spec))
    path = ("pipelines", namespace.tenant, namespace.namespace, name)
    status = rest.put(*path, body={"verb": VERB, "spec": fields})
    if detach:
        return Done(f"started {namespace}/{name}: `magnetar redrive show {name}` shows its progress")
    return pipeline_page(follow(rest, path, status))


@group.command("list")
def list_redrives(rest: Rest, namespace: Namespace = PUBLIC_DEFAULT) -> Table:
    """List the redrives of a namespace, with their progress."""
    found = rest.get("pipelines", *namespace)
    return pipelines_table([one for one in found if one["verb"] == VERB], f"no redrives in {namespace}")


@group.command("show")
def show(rest: Rest, name: Name, namespace: Namespace = PUBLIC_DEFAULT) -> Page:
    """Show a redrive: its progress, what stays and why, its spec."""
    return pipeline_page(rest.get("pipelines", namespace.tenant, namespace.namespace, name))


@group.command("cancel")
def cancel(rest: Rest, name: Name, namespace: Namespace = PUBLIC_DEFAULT) -> Done:
    """Cancel a redrive: what it sent stays sent, the other letters stay where they are."""
    rest.post("pipelines", namespace.tenant, namespace.namespace, name, "cancel")
    return Done(f"cancelling {namespace}/{name}")


@group.command("pause")
def pause(rest: Rest, name: Name, namespace: Namespace = PUBLIC_DEFAULT) -> Done:
    """Pause a redrive."""
    rest.post("pipelines", namespace.tenant, namespace.namespace, name, "pause")
    return Done(f"pausing {namespace}/{name}")


@group.command("resume")
def resume(rest: Rest, name: Name, namespace: Namespace = PUBLIC_DEFAULT) -> Done:
    """Resume a paused redrive, or repeat one that is over."""
    rest.post("pipelines", namespace.tenant, namespace.namespace, name, "resume")
    return Done(f"resumed {namespace}/{name}")


# -- here


def _run(
    rest: Rest,
    spec: RedriveSpec,
    namespace: NamespaceName,
    name: str,
    master: str | None,
    service_url: str | None,
    *,
    at_least_once: bool,
) -> Output:
    with foreground(rest, service_url, master, "redrive") as context:
        from magnetar.pipelines.redrive.redrive import Redrive, RedriveOptions

        options = RedriveOptions(name=name, namespace=str(namespace), at_least_once=at_least_once)
        with Redrive(context, spec, options) as redrive:
            outcome = redrive.run()
        is_stopped = context.is_stopping
    return _page(outcome, "stopped" if is_stopped else "done", name)


def _preview(
    rest: Rest, spec: RedriveSpec, namespace: NamespaceName, samples: int, master: str | None, service_url: str | None
) -> Output:
    with foreground(rest, service_url, master, "redrive") as context:
        from magnetar.pipelines.redrive.redrive import Redrive, RedriveOptions

        with Redrive(context, spec, RedriveOptions(namespace=str(namespace))) as redrive:
            outcome, found = redrive.preview(samples)
    page = _page(outcome, "dry run, nothing was sent", "")
    value, table = sample_table(found)
    return Page({**page.value, "samples": value}, [*page.parts, table])


def _page(outcome: RedriveOutcome, state: str, name: str) -> Page:
    value: dict[str, Any] = {
        "state": state,
        "total": outcome.total,
        "sent": outcome.sent,
        "quarantined": outcome.quarantined,
        "targets": dict(outcome.targets.most_common()),
        "kept": dict(outcome.kept.most_common()),
    }
    shown = {"state": state, "letters": outcome.total, "sent": outcome.sent, "quarantined": outcome.quarantined}
    parts: list[Output] = [Record(value, fields={"redrive": name, **shown} if name else shown)]
    targets = _by_topic(value["targets"])
    if targets:
        parts.append(Table(value, ("TARGET", "MESSAGES"), list(targets.items())))
    if outcome.kept:
        parts.append(Table(value, ("STAYS WHERE IT IS, BECAUSE", "LETTERS"), outcome.kept.most_common()))
    return Page(value, parts)  # type: ignore[arg-type]


def _by_topic(targets: dict[str, int]) -> dict[str, int]:
    """Of partitions together."""
    found: dict[str, int] = {}
    for topic, count in targets.items():
        base = re.sub(r"-partition-\d+$", "", topic)
        found[base] = found.get(base, 0) + count
    return found

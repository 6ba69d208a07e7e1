"""`magnetar doctor …`: finds damage, and repairs on request what can be repaired without data loss."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from magnetar.cli.argument import NamespaceName, parse_namespace_name
from magnetar.cli.command import CommandGroup
from magnetar.cli.doctor.data import data
from magnetar.cli.doctor.replication import replication
from magnetar.cli.doctor.topic_damage import Damage, examine, repair, unreadable
from magnetar.cli.output import Done, Page, Record, counted
from magnetar.cli.rest import Rest

group = CommandGroup("doctor", "Diagnose problems and repair them.")

DAMAGE_LEFT = 1


@group.app.callback()
def doctor() -> None:
    """Diagnose problems and repair them."""


@group.command("topics")
def topics(
    rest: Rest,
    namespaces: Annotated[
        list[str] | None,
        typer.Argument(metavar="TENANT/NAMESPACE", help="The namespaces to check.", show_default="all"),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Repair all damage that can be repaired without data loss.")
    ] = False,
) -> Page:
    """Find damage left by broken auto-creation, and what the broker cannot read (exit code 1 if any is left)."""
    checked = [parse_namespace_name(text) for text in namespaces or ()] or _all_namespaces(rest)
    found = [damage for namespace in checked for damage in examine(rest, namespace)]
    found += unreadable(rest)
    if fix:
        for damage in found:
            if damage.fixable:
                repair(rest, damage)
    return _report(checked, found, fix)


group.command("replication")(replication)
group.offline("data", data)


def _all_namespaces(rest: Rest) -> list[NamespaceName]:
    names = [name for tenant in rest.get("tenants") for name in rest.get("namespaces", tenant)]
    return [parse_namespace_name(name) for name in sorted(names)]


def _report(checked: list[NamespaceName], found: list[Damage], fix: bool) -> Page:
    remarks = [damage for damage in found if damage.is_remark]
    damages = [damage for damage in found if not damage.is_remark]
    left = [damage for damage in damages if not damage.fixed]
    value: dict[str, Any] = {
        "namespaces": [str(namespace) for namespace in checked],
        "damage": [damage.described() for damage in damages],
        "remarks": [remark.described() for remark in remarks],
        "left": len(left),
    }
    summary = _summary(len(checked), damages, left, fix) + (f"; {counted(len(remarks), 'remark')}" if remarks else "")
    parts: list[Record | Done] = [*map(_entry, damages), *map(_entry, remarks), Done(summary)]
    return Page(value, parts, code=DAMAGE_LEFT if left else 0)


def _entry(damage: Damage) -> Record:
    fields = {"  kind": damage.kind, "  what": damage.what, "  why": damage.why}
    if not damage.fixed:
        fields["  repair"] = damage.repair
    if damage.outcome:
        fields["  done" if damage.fixed else "  not done"] = damage.outcome
    return Record(damage.described(), title=damage.topic, fields=fields)


def _summary(namespaces: int, found: list[Damage], left: list[Damage], fix: bool) -> str:
    searched = counted(namespaces, "namespace")
    if not found:
        return f"no damage in {searched}"
    fixed, fixable = len(found) - len(left), sum(damage.fixable for damage in left)
    text = f"{len(found)} damaged in {searched}, {fixed} repaired, {len(left)} left"
    return f"{text}; --fix repairs {fixable} of them" if fixable and not fix else text

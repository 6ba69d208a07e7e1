"""`magnetar replication diff A B`: differences in topics, partitions, policies, schemas and subscriptions.

Uses REST alone, so it works with every cluster that has Pulsar's interface. `differences` compares.
"""

from __future__ import annotations

from typing import Annotated

import typer

from magnetar.cli.argument import NamespaceName, parse_namespace_name
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Names, Page, Table, counted
from magnetar.cli.replication.differences import (
    ClusterState,
    Difference,
    Findings,
    compare_clusters,
    compare_topics,
    shared_topics,
)
from magnetar.cli.replication.inventory import ClusterInventory, gather
from magnetar.cli.replication.two_clusters import FOUND, ComparedCluster, add_command
from magnetar.errors import InvalidSetting


def diff(
    a: ComparedCluster,
    b: ComparedCluster,
    namespaces: Annotated[
        list[str] | None,
        typer.Option(
            "--namespaces",
            "-n",
            metavar="TENANT/NAMESPACE",
            help="A namespace to compare; may be repeated.",
            show_default="all",
        ),
    ] = None,
) -> Page:
    """Show differences between two clusters (exit code 0: none, 1: some, 2: error)."""
    chosen = [parse_namespace_name(text) for text in namespaces or ()]
    inventories = ClusterInventory(a), ClusterInventory(b)
    here, there = gather(inventories, lambda one: one.state(chosen))
    _check_known(chosen, here, there)
    found = compare_clusters(here, there)
    topics = shared_topics(here, there)
    for topic, state_a, state_b in zip(
        topics, gather(topics, inventories[0].topic), gather(topics, inventories[1].topic), strict=True
    ):
        found.differences.extend(compare_topics(topic, state_a, state_b, here.name, there.name))
    for inventory in inventories:
        found.remarks.extend(inventory.remarks)
    return _report(found, here, there, len(topics))


def add_to(group: CommandGroup) -> None:
    add_command(group, "diff", diff)


def _check_known(chosen: list[NamespaceName], a: ClusterState, b: ClusterState) -> None:
    """A namespace that neither cluster has is probably misspelt."""
    for namespace in map(str, chosen):
        if namespace not in a.namespaces and namespace not in b.namespaces:
            raise InvalidSetting(f"--namespaces {namespace}: neither A nor B has this namespace")


def _report(found: Findings, a: ClusterState, b: ClusterState, topics: int) -> Page:
    namespaces = len(a.namespaces.keys() & b.namespaces.keys())
    compared = f"{counted(namespaces, 'namespace')} and {counted(topics, 'topic')} that both have"
    count = len(found.differences)
    summary = f"{counted(count, 'difference') if count else 'no difference'} in {compared}"
    value = {
        "a": a.name,
        "b": b.name,
        "namespaces": namespaces,
        "topics": topics,
        "differences": [difference.described() for difference in found.differences],
        "remarks": found.remarks,
    }
    parts: list[Table | Names | Done] = []
    if found.differences:
        rows = [_row(difference) for difference in found.differences]
        parts.append(Table(value, ("KIND", "NAME", "DIFFERENCE"), rows))
    if found.remarks:
        parts.append(Names([f"remark: {remark}" for remark in found.remarks]))
    return Page(value, [*parts, Done(summary)], code=FOUND if count else 0)


def _row(difference: Difference) -> tuple[str, str, str]:
    return difference.kind, difference.name, difference.what

"""`magnetar replication verify A B`: checks that B has every message of A exactly once, and unchanged.

Reads from both clusters which topics are replicated, and how far; the comparison is a Spark job, see
`magnetar.pipelines.verify.verify`. Owns the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Names, Page, Table
from magnetar.cli.path import topic_path
from magnetar.cli.replication.cluster_names import misnamed_namespaces
from magnetar.cli.replication.inventory import gather
from magnetar.cli.replication.two_clusters import FOUND, ComparedCluster, add_command, own_name
from magnetar.cli.replication.verified_topics import ComparedTopic, routes_between
from magnetar.cli.rest import Refused, Rest
from magnetar.errors import InvalidSetting
from magnetar.names import TopicName
from magnetar.replication.model import FOREIGN_SUBSCRIPTION_PREFIX, SUBSCRIPTION_PREFIX

if TYPE_CHECKING:
    from magnetar.client.message import Position
    from magnetar.pipelines.verify.comparison import Compared, Found
    from magnetar.pipelines.verify.verify import Pair
    from magnetar.replication.cluster import ClusterEndpoint

_NOT_FOUND = 404
RANGES_SHOWN_MAX = 20
"""For each kind and topic, in tables; JSON has all ranges."""

_KINDS = {
    "missing": "not in B",
    "extra": "in B, but not in A",
    "duplicated": "in B more than once",
    "different": "in B with another payload",
    "late": "in B after messages published later",
}
_COUNTS = {
    "not_yet": "not copied yet",
    "trimmed": "older than the first message stored in B, not compared",
    "older": "in B and older than the first message stored in A",
    "earlier": "older than the first copy, not compared",
    "filtered": "not in B, filtered or missing: only positions are compared",
    "repaired": "in B out of order, from an earlier repair",
    "unplaced": "in B without their position in A, not compared",
    "unchecked": "out of order and too many to compare payloads",
}


def verify(
    a: ComparedCluster,
    b: ComparedCluster,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics",
            "-t",
            metavar="TOPIC|TENANT/NAMESPACE",
            help="A topic or namespace to compare; may be repeated.",
            show_default="all topics that A replicates to B",
        ),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Publish missing messages into B; extra and duplicated messages are kept."),
    ] = False,
    restore_trimmed: Annotated[
        bool,
        typer.Option("--restore-trimmed", help="With --repair: publish messages again that B has deleted."),
    ] = False,
    from_first_copy: Annotated[
        bool,
        typer.Option("--from-first-copy", help="Ignore messages older than the first copy."),
    ] = False,
    from_cluster: Annotated[
        str | None,
        typer.Option("--from-cluster", metavar="NAME", help="The name of A.", show_default="as in its settings"),
    ] = None,
    to_cluster: Annotated[
        str | None,
        typer.Option("--to-cluster", metavar="NAME", help="The name of B.", show_default="as in its settings"),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="The Spark master.", show_default="all cores of this machine"),
    ] = None,
) -> Page:
    """Compare topics of A with their copies in B (exit code 1 if they differ)."""
    from magnetar.pipelines.verify.verify import verify as run

    if restore_trimmed and not repair:
        raise InvalidSetting("--restore-trimmed publishes messages: give --repair with it")
    source, remote = _endpoint(a, from_cluster, "--from-cluster"), _endpoint(b, to_cluster, "--to-cluster")
    if source.name == remote.name:
        raise InvalidSetting(f"A and B have the same name, {source.name}")
    routes = routes_between(a.rest, source.name, remote.name, topics or [])
    _check_name(a, source.name, (route.topic for route in routes), "" if from_cluster else "--from-cluster")
    _check_name(b, remote.name, (route.target for route in routes), "" if to_cluster else "--to-cluster")
    pairs, remarks = _pairs(routes, a.rest, b.rest, source, remote)
    chosen = {"repairs": repair, "from_first_copy": from_first_copy, "restores_trimmed": restore_trimmed}
    pairs = [msgspec.structs.replace(pair, **chosen) for pair in pairs]
    return _report(run(pairs, master), remarks, repaired=repair)


def add_to(group: CommandGroup) -> None:
    add_command(group, "verify", verify)


# -- topics to compare


def _endpoint(cluster: ComparedCluster, given: str | None, option: str) -> ClusterEndpoint:
    from magnetar.replication.cluster import ClusterEndpoint

    name = given or own_name(cluster.rest)
    if name is None:
        raise InvalidSetting(f"{cluster.label} ({cluster.url}) does not report its name: give {option}")
    service_url = cluster.service_url or _service_url(cluster.rest, name)
    if service_url is None and given:  # perhaps not the name that the cluster uses
        service_url = _service_url(cluster.rest, own_name(cluster.rest) or name)
    if service_url is None:
        scheme = "pulsar+ssl" if cluster.url.startswith("https:") else "pulsar"
        raise InvalidSetting(
            f"{cluster.label} ({cluster.url}) does not report its binary address: write {scheme}://host:port,{cluster.url}"
        )
    return ClusterEndpoint(name, service_url, cluster.url, cluster.rest.security)


def _check_name(cluster: ComparedCluster, name: str, topics: Iterable[str], option: str) -> None:
    """Under another name every copy would be counted as missing, and a repair would publish all of them again."""
    namespaces = (TopicName.parse(topic).namespace_full for topic in topics)
    found = misnamed_namespaces(cluster.rest, name, namespaces) if option else []
    if found:
        raise InvalidSetting(
            f"{cluster.label} ({cluster.url}): {found[0]}: start it under its own name, or give {option} NAME"
        )


def _service_url(rest: Rest, name: str) -> str | None:
    """The address in the cluster's own list of clusters."""
    try:
        addresses: dict[str, Any] = rest.get("clusters", name) or {}
    except Refused:
        return None
    fields = ("brokerServiceUrl", "brokerServiceUrlTls")
    if rest.url.startswith("https:"):
        fields = ("brokerServiceUrlTls", "brokerServiceUrl")
    return next((str(addresses[one]) for one in fields if addresses.get(one)), None)


def _pairs(
    routes: list[ComparedTopic],
    a: Rest,
    b: Rest,
    source: ClusterEndpoint,
    remote: ClusterEndpoint,
) -> tuple[list[Pair], list[str]]:
    from magnetar.pipelines.copy.assignment import Assignment
    from magnetar.pipelines.verify.verify import Pair

    stats = gather([route.topic for route in routes], lambda topic: _internal_stats(a, topic))
    remote_stats = gather([route.target for route in routes], lambda topic: _internal_stats(b, topic))
    shared = Counter(route.target for route in routes)
    pairs, remarks = [], []
    for route, of_source, of_target in zip(routes, stats, remote_stats, strict=True):
        subscription, mark = position_of(of_source, remote.name)
        if subscription is None:
            remarks.append(
                f"{route.topic} has no subscription for {remote.name}: messages not copied yet count as missing"
            )
        if route.policy.changes_messages:
            remarks.append(f"{route.topic} has a route policy that changes messages: only positions are compared")
        if shared[route.target] > 1:
            remarks.append(f"{route.target} has copies of several topics: extra entries cannot be detected")
        pairs.append(
            Pair(
                Assignment(source, remote, route.topic, route.target, subscription or "", route.policy),
                mark,
                _is_trimmed(of_target),
                shared[route.target] > 1,
            )
        )
    return pairs, list(dict.fromkeys(remarks))


def _internal_stats(rest: Rest, topic: str) -> dict[str, Any]:
    try:
        return dict(rest.get(*topic_path(TopicName.parse(topic), "internalStats")) or {})
    except Refused as error:
        if error.status != _NOT_FOUND:
            raise
        return {}


def position_of(stats: dict[str, Any], remote: str) -> tuple[str | None, Position | None]:
    """The subscription that holds the position of replication, and the position."""
    from magnetar.client.message import Position

    cursors = stats.get("cursors") or {}
    for prefix in (FOREIGN_SUBSCRIPTION_PREFIX, SUBSCRIPTION_PREFIX):
        cursor = cursors.get(prefix + remote)
        if cursor is not None:
            ledger_id, _, entry_id = str(cursor.get("markDeletePosition") or "").partition(":")
            is_known = ledger_id.lstrip("-").isdecimal() and entry_id.lstrip("-").isdecimal()
            return prefix + remote, Position(int(ledger_id), int(entry_id)) if is_known else Position(-1, -1)
    return None, None


def _is_trimmed(stats: dict[str, Any]) -> bool:
    """Whether the topic has lost its first entries to retention."""
    return int(stats.get("entriesAddedCounter") or 0) > int(stats.get("numberOfEntries") or 0)


# -- report


def _report(results: list[Compared], remarks: list[str], *, repaired: bool) -> Page:
    differing = [result for result in results if result.found]
    failed = [result for result in results if result.error]
    value = {
        "topics": [_described(result) for result in results],
        "differing": len(differing),
        "failed": len(failed),
        "remarks": remarks,
    }
    rows = [row for result in differing for row in _rows(result)]
    parts: list[Table | Names | Done] = []
    if rows:
        parts.append(Table(value, ("KIND", "TOPIC", "ENTRIES", "POSITIONS IN A", "WHAT"), rows))
    notes = [f"{result.topic}: {text}" for result in results for text in _notes(result)]
    if notes or remarks:
        parts.append(Names([*notes, *(f"remark: {remark}" for remark in remarks)]))
    parts.append(Done(_summary(results, differing, failed, repaired=repaired)))
    is_same = not failed and all(_is_repaired(result) for result in differing)
    return Page(value, parts, code=0 if is_same else FOUND)


def _is_repaired(result: Compared) -> bool:
    """Whether entries were only missing, and all have been published."""
    return set(result.found) == {"missing"} and result.published == result.missing.entries


def _rows(result: Compared) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for kind, found in result.found.items():
        shown = found.ranges[:RANGES_SHOWN_MAX]
        rows += [(kind, result.topic, one.entries, str(one), _KINDS[kind]) for one in shown]
        rest = found.entries - sum(one.entries for one in shown)
        if rest:
            rows.append((kind, result.topic, rest, "and more", _KINDS[kind]))
    return rows


def _notes(result: Compared) -> list[str]:
    notes = [f"{counted_entries(count)} {text}" for name, text in _COUNTS.items() if (count := getattr(result, name))]
    if result.published:
        notes.append(f"{counted_entries(result.published)} published into B")
    if result.error:
        notes.append(result.error)
    return notes


def _summary(results: list[Compared], differing: list[Compared], failed: list[Compared], *, repaired: bool) -> str:
    originals, copies = sum(result.originals for result in results), sum(result.copies for result in results)
    compared = "1 topic or partition" if len(results) == 1 else f"{len(results)} topics and partitions"
    text = f"{compared}: {counted_entries(originals)} of A compared with {copies} of B"
    if not differing and not failed:
        return f"{text}, no difference"
    kinds = Counter[str]()
    for result in differing:
        kinds.update({kind: found.entries for kind, found in result.found.items()})
    parts = [f"{count} {kind}" for kind, count in kinds.items()]
    if repaired:
        parts.append(f"{sum(result.published for result in results)} repaired")
    if failed:
        parts.append(f"{len(failed)} could not be compared or repaired")
    return f"{text}: {', '.join(parts)}"


def _described(result: Compared) -> dict[str, object]:
    described: dict[str, object] = {
        name: value for name, value in msgspec.structs.asdict(result).items() if name not in _KINDS
    }
    described |= {kind: _found(getattr(result, kind)) for kind in _KINDS}
    return described


def _found(found: Found) -> dict[str, object]:
    return {
        "entries": found.entries,
        "ranges": [
            {"first": _shown(one.first), "last": _shown(one.last), "entries": one.entries} for one in found.ranges
        ],
    }


def _shown(position: Position) -> str:
    return f"{position[0]}:{position[1]}"


def counted_entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"

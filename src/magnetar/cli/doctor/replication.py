"""`magnetar doctor replication [TOPIC]`: why topics are not replicated, with the command that repairs each cause.

Examines the given topic whatever its state, or those that are not copied, up to a limit. Owns the choice of topics and
the report.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.cli.argument import parse_topic
from magnetar.cli.doctor.case import Case, Cause
from magnetar.cli.doctor.causes import causes_of, misnamed, not_declared
from magnetar.cli.doctor.facts import SourceFacts
from magnetar.cli.output import Done, Names, Page, Record, counted
from magnetar.cli.path import topic_path
from magnetar.cli.replication.cluster_names import misnamed_namespaces
from magnetar.cli.replication.two_clusters import FOUND
from magnetar.cli.replication.verified_topics import declaration_of
from magnetar.cli.rest import Refused, Rest, RestError
from magnetar.names import TopicName
from magnetar.replication.model import COPY_OF, Declaration, DeclaredRoute, Status

if TYPE_CHECKING:
    from magnetar.cli.doctor.questions import Remote
    from magnetar.cli.doctor.source import SourceCluster

EXAMINED_MAX = 100
"""The maximum number of topics examined: usually one cause has stopped all of them."""

OptionalTopic = Annotated[
    str | None,
    typer.Argument(metavar="TOPIC", help="The topic to examine.", show_default="all topics that are not copied"),
]

Row = tuple[DeclaredRoute, list[Status]]


def replication(rest: Rest, topic: OptionalTopic = None) -> Page:
    """Find why topics are not replicated (exit code 1 if there is a cause)."""
    from magnetar.cli.doctor.source import SourceCluster

    name = None if topic is None else parse_topic(topic).base
    declaration = declaration_of(rest)
    if declaration is None:
        raise RestError(f"{rest.url} is not a Magnetar broker: only those can be examined")
    with contextlib.closing(SourceCluster(rest, declaration)) as source:
        facts = SourceFacts(rest.url, declaration.cluster, _settings(rest))
        if name is not None and not any(one.topic == name.full for one in declaration.topics):
            return _undeclared(rest, facts, name, declaration)
        rows = _rows(declaration, source.statuses(None if name is None else name.full), name)
        chosen = rows if name is not None else [row for row in rows if _is_stuck(row)]
        examined = chosen[:EXAMINED_MAX]
        remarks = []
        if len(chosen) > len(examined):
            remarks.append(f"{len(chosen) - len(examined)} more topics are not copied and were not examined")
        with _remotes(source, declaration, examined, is_thorough=name is None) as remotes:
            cases = [Case(facts, remotes[row[0].remote].facts, remotes[row[0].remote].topic(*row)) for row in examined]
            found = [(case.topic, case.remote.name, causes_of(case)) for case in cases]
            if name is None:
                found += _of_clusters(facts, remotes, {one.remote for one, _ in examined})
            remarks += [
                f"only the broker has the credentials for {one.name}: the pipeline reports what happens with them"
                for one in remotes.values()
                if one.facts.is_blind
            ]
        found = [*_misnamed(rest, facts, rows), *found]
    return _report([one for one in found if one[2]], len(rows), remarks)


def _rows(declaration: Declaration, statuses: list[Status], name: TopicName | None) -> list[Row]:
    by_topic: dict[tuple[str, str], list[Status]] = {}
    for status in statuses:
        parts = TopicName.parse(status.topic)
        for key in {(parts.full, status.remote), (parts.base.full, status.remote)}:
            by_topic.setdefault(key, []).append(status)
    return [
        (one, by_topic.get((one.topic, one.remote), []))
        for one in declaration.topics
        if name is None or one.topic == name.full
    ]


def _is_stuck(row: Row) -> bool:
    return any(not status.state.is_copying for status in row[1])


def _settings(rest: Rest) -> dict[str, str]:
    try:
        return dict(rest.get("brokers", "configuration", "runtime"))
    except Refused:
        return {}


def _undeclared(rest: Rest, facts: SourceFacts, name: TopicName, declaration: Declaration) -> Page:
    """Raises `Refused` if the topic does not exist."""
    clusters = rest.get(*topic_path(name, "replication"), query={"applied": True}) or []
    cluster, _, origin = str((rest.get(*topic_path(name, "properties")) or {}).get(COPY_OF, "")).partition("/")
    if origin:
        remark = f"{name.full} holds copies of {origin} of cluster {cluster}: it is not sent back, no repair is needed"
        return _report([], 0, [remark])
    cause = not_declared(facts, name, clusters, sorted(declaration.clusters))
    return _report([(name.full, "-", [cause])], 0, [])


@contextlib.contextmanager
def _remotes(
    source: SourceCluster, declaration: Declaration, rows: list[Row], *, is_thorough: bool
) -> Iterator[dict[str, Remote]]:
    """The remote clusters of these rows, or all remote clusters with topics."""
    from magnetar.cli.doctor.questions import Remote

    wanted = {row[0].remote for row in rows} | ({one.remote for one in declaration.topics} if is_thorough else set())
    with contextlib.ExitStack() as stack:
        # The others are queried too: one may be the same cluster under another name.
        names = sorted(wanted | {name for name in declaration.clusters if wanted and name != declaration.cluster})
        remotes: dict[str, Remote] = {}
        for name in names:
            remotes[name] = Remote(name, declaration.clusters.get(name), source)
            stack.callback(remotes[name].close)
        for remote in remotes.values():
            twins = tuple(one.name for one in remotes.values() if one is not remote and _is_same(one, remote))
            remote.facts = dataclasses.replace(remote.facts, twins=twins)
        yield {name: remotes[name] for name in sorted(wanted)}


def _is_same(one: Remote, other: Remote) -> bool:
    if one.identity and other.identity:
        return one.identity == other.identity
    return one.facts.own_name is not None and one.facts.own_name == other.facts.own_name


def _of_clusters(
    facts: SourceFacts, remotes: dict[str, Remote], examined: set[str]
) -> Iterator[tuple[str, str, list[Cause]]]:
    """Causes in a cluster whose topics all seem to be copied, such as a loop."""
    for name, remote in remotes.items():
        if name not in examined:
            nothing = remote.nothing()
            yield "-", name, causes_of(Case(facts, remote.facts, nothing))


def _misnamed(rest: Rest, facts: SourceFacts, rows: list[Row]) -> Iterator[tuple[str, str, list[Cause]]]:
    namespaces = sorted({TopicName.parse(declared.topic).namespace_full for declared, _ in rows})
    for found in misnamed_namespaces(rest, facts.cluster, namespaces[:EXAMINED_MAX]):
        yield found.namespace, "-", [misnamed(found)]


def _report(found: list[tuple[str, str, list[Cause]]], topics: int, remarks: list[str]) -> Page:
    value: dict[str, Any] = {
        "declared": topics,
        "topics": [
            {"topic": topic, "remote": remote, "causes": [cause.described() for cause in causes]}
            for topic, remote, causes in found
        ],
        "remarks": remarks,
    }
    parts: list[Record | Names | Done] = [
        Record(cause.described(), title=_title(topic, remote, number, causes), fields=_fields(cause))
        for topic, remote, causes in found
        for number, cause in enumerate(causes, 1)
    ]
    if remarks:
        parts.append(Names(remarks))
    return Page(value, [*parts, Done(_summary(found, topics))], code=FOUND if found else 0)


def _title(topic: str, remote: str, number: int, causes: list[Cause]) -> str:
    where = f"cluster {remote}" if topic == "-" else topic if remote == "-" else f"{topic} to {remote}"
    return f"{where}, cause {number} of {len(causes)}" if len(causes) > 1 else where


def _fields(cause: Cause) -> dict[str, object]:
    evidence = {
        f"  evidence {number}" if number > 1 else "  evidence": text for number, text in enumerate(cause.evidence, 1)
    }
    return {"  cause": f"{cause.kind}: {cause.what}", **evidence, "  repair": cause.repair}


def _summary(found: list[tuple[str, str, list[Cause]]], topics: int) -> str:
    if not found:
        return f"no problems in {counted(topics, 'replicated topic')}"
    firsts = sorted({causes[0].kind.value for _, _, causes in found})
    return (
        f"{counted(len(found), 'problem')} in {counted(topics, 'replicated topic')}, first causes: {', '.join(firsts)}"
    )

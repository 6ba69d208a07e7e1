"""`magnetar archive …`: topics to files and back, and the comparison of both, by Spark.

Owns the commands and what they print; see `magnetar.pipelines.archive`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.cli.argument import PUBLIC_DEFAULT, ServiceUrl, parse_size, parse_time, whole
from magnetar.cli.command import CommandGroup
from magnetar.cli.foreground import Master, foreground
from magnetar.cli.output import Done, Names, Output, Page, Record, Table, counted, shown_bytes
from magnetar.cli.rest import Rest
from magnetar.declared.archive import FORMATS, ROUND_BYTES_DEFAULT, SUBSCRIPTION_DEFAULT
from magnetar.declared.topic_set import TopicSet, parse_topic_set
from magnetar.errors import InvalidName

if TYPE_CHECKING:
    from magnetar.pipelines.archive.archive import ArchiveResult
    from magnetar.pipelines.archive.check import TopicCheck
    from magnetar.pipelines.archive.replay import Preview, ReplayResult
    from magnetar.pipelines.archive.store import Archive

DIFFERENT = 1
_ROUND_DEFAULT = f"{ROUND_BYTES_DEFAULT >> 20}M"

group = CommandGroup("archive", "Archive topics to files with Spark, replay and check them.")


def parse_topics(text: str | TopicSet) -> TopicSet:
    """Typer passes defaults through the parser too."""
    if isinstance(text, TopicSet):
        return text
    try:
        return parse_topic_set(text, str(PUBLIC_DEFAULT))
    except InvalidName as error:
        raise typer.BadParameter(str(error)) from error


def _rate(text: str | float) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e9:
        raise typer.BadParameter(f"{str(text)[:100]!r} is not a number of messages per second above 0")
    return rate


class Format(StrEnum):
    parquet = "parquet"
    orc = "orc"
    delta = "delta"


assert tuple(Format) == FORMATS


class ExactlyOnce(StrEnum):
    auto = "auto"
    required = "required"
    off = "off"


Path = Annotated[
    str,
    typer.Argument(metavar="PATH", help="The folder of the archive, on any file system that Spark reaches."),
]
_TOPICS_HELP = "Topics, patterns such as 'orders-*', or namespaces such as acme/shop."
Topics = Annotated[list[Any], typer.Argument(metavar="TOPIC…", parser=parse_topics, help=_TOPICS_HELP)]
ArchivedTopics = Annotated[
    list[Any] | None,
    typer.Argument(metavar="TOPIC…", parser=parse_topics, help=_TOPICS_HELP, show_default="all archived topics"),
]


@group.command("run")
def run(
    rest: Rest,
    path: Path,
    topics: Topics,
    format: Annotated[Format, typer.Option("--format", help="The format of a new archive; delta needs Delta Lake.")] = (
        Format.parquet
    ),
    subscription: Annotated[
        str,
        typer.Option("--subscription", "-s", metavar="NAME", help="The subscription; created at the first message."),
    ] = SUBSCRIPTION_DEFAULT,
    round_size: Annotated[
        int,
        typer.Option("--round-size", metavar="SIZE", parser=parse_size, help="About how much is committed at a time."),
    ] = _ROUND_DEFAULT,  # type: ignore[assignment]
    service_url: ServiceUrl = None,
    master: Master = None,
) -> Page:
    """Archive what topics have received since the last run, by topic and date, exactly once."""
    from magnetar.pipelines.archive.archive import archive

    if not 1 << 10 <= round_size <= 1 << 40:
        raise typer.BadParameter(f"--round-size {round_size} is not from 1K to 1T")
    with foreground(rest, service_url, master, "archive run") as context:
        return _archived(
            archive(context, topics, path, format=format.value, subscription=subscription, round_bytes=round_size)
        )


def _archived(result: ArchiveResult) -> Page:
    value = {
        "messages": result.rows,
        "bytes": result.bytes,
        "files": result.files,
        "rounds": result.rounds,
        "unreadable": result.unreadable,
        "topics": result.topics,
        "notes": result.notes,
        "complete": result.is_complete,
    }
    parts: list[Done | Names | Record | Table] = []
    if result.topics:
        parts.append(Table(value, ("TOPIC", "MESSAGES"), list(result.topics.items())))
    if result.unreadable:
        parts.append(Done(f"{counted(result.unreadable, 'message')} cannot be read, and archived as stored"))
    if result.notes:
        parts.append(Names(result.notes))
    end = "" if result.is_complete else "; stopped before the end, the next run continues"
    where = f" in {counted(result.files, 'file')}" if result.files or not result.rows else ""
    parts.append(Done(f"{counted(result.rows, 'message')} archived{where}, {shown_bytes(result.bytes)}{end}"))
    return Page(value, parts)


@group.command("replay")
def replay(
    rest: Rest,
    path: Path,
    topics: ArchivedTopics = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TOPIC", help="The target topic.", show_default="each message's own topic"),
    ] = None,
    since: Annotated[
        int | None,
        typer.Option("--since", metavar="TIME", parser=parse_time, help="Published then or later."),
    ] = None,
    until: Annotated[
        int | None,
        typer.Option("--until", metavar="TIME", parser=parse_time, help="Published before."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="A condition over the columns of the archive."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", parser=_rate, help="Messages per second.", show_default="no limit"),
    ] = None,
    name: Annotated[
        str,
        typer.Option("--name", metavar="NAME", help="Another name is another replay, which sends all messages again."),
    ] = "",
    exactly_once: Annotated[
        ExactlyOnce,
        typer.Option(
            "--exactly-once",
            help="auto: where the targets deduplicate; required: an error where one does not; off: never.",
        ),
    ] = ExactlyOnce.auto,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count and show messages, and send none.")] = False,
    samples: Annotated[
        int, typer.Option("--samples", metavar="N", parser=whole(0, 1000), help="Messages that --dry-run shows.")
    ] = 5,
    service_url: ServiceUrl = None,
    master: Master = None,
) -> Output:
    """Send archived messages to topics again, in order: a time range, those that match a condition, or all."""
    from magnetar.pipelines.archive.replay import ReplaySpec, preview
    from magnetar.pipelines.archive.replay import replay as send
    from magnetar.pipelines.archive.selection import TimeRange

    spec = ReplaySpec(
        path=path,
        to=to,
        topics=tuple(topics or ()),
        times=TimeRange(since, until),
        where=where,
        rate=rate,
        name=name,
        exactly_once=exactly_once.value,
    )
    with foreground(rest, service_url, master, "archive replay") as context:
        return _previewed(preview(context, spec, samples)) if dry_run else _replayed(send(context, spec))


def _previewed(found: Preview) -> Page:
    value = {"selected": found.selected, "topics": found.topics, "targets": found.targets, "samples": found.samples}
    rows = [(topic, count, found.targets[topic]) for topic, count in found.topics.items()]
    samples = [(one["publishTime"], one["id"], one["topic"], one["key"], one["value"]) for one in found.samples]
    return Page(
        value,
        [
            Table(value, ("TOPIC", "MESSAGES", "TARGET"), rows, none="no message is selected"),
            Table(value, ("PUBLISHED", "ID", "TOPIC", "KEY", "VALUE"), samples),
            Done(f"{counted(found.selected, 'message')} would be sent"),
        ],
    )


def _replayed(result: ReplayResult) -> Page:
    value = {
        "sent": result.sent,
        "known": result.known,
        "exactlyOnce": result.is_exactly_once,
        "notes": result.notes,
        "complete": result.is_complete,
    }
    known = f", {result.known} were sent by an earlier run" if result.known else ""
    end = "" if result.is_complete else "; stopped before the end"
    parts: list[Done | Names | Record | Table] = [Names(result.notes)] if result.notes else []
    return Page(value, [*parts, Done(f"{counted(result.sent, 'message')} sent{known}{end}")])


@group.command("check")
def check(
    rest: Rest,
    path: Path,
    topics: ArchivedTopics = None,
    service_url: ServiceUrl = None,
    master: Master = None,
) -> Page:
    """Compare an archive with its topics (exit code 1 if they differ)."""
    from magnetar.pipelines.archive.check import check as compare

    with foreground(rest, service_url, master, "archive check") as context:
        return _checked(compare(context, path, topics or ()))


def _checked(checks: list[TopicCheck]) -> Page:
    value = [
        {
            "topic": one.topic,
            "agrees": one.agrees,
            "files": one.files,
            "messages": one.rows,
            "compared": one.compared,
            "archivedOnly": one.archived_only,
            "differences": {kind: {"count": each.count, "places": each.places} for kind, each in one.found.items()},
            "notes": one.notes,
        }
        for one in checks
    ]
    rows = [(one.topic, one.files, one.rows, one.compared, one.archived_only, one.agrees) for one in checks]
    columns = ("TOPIC", "FILES", "MESSAGES", "COMPARED", "ARCHIVED ONLY", "AGREES")
    parts: list[Done | Names | Record | Table] = [Table(value, columns, rows, none="the archive is empty")]
    found = [
        (kind, one.topic, each.count, place)
        for one in checks
        for kind, each in one.found.items()
        for place in each.places
    ]
    if found:
        parts.append(Table(value, ("KIND", "TOPIC", "OF", "PLACE"), found))
    if notes := [note for one in checks for note in one.notes]:
        parts.append(Names(notes))
    differing = sum(not one.agrees for one in checks)
    agreed = f"{counted(len(checks), 'topic')} compared, "
    parts.append(Done(agreed + (f"{differing} with differences" if differing else "no difference")))
    return Page(value, parts, code=DIFFERENT if differing else 0)


@group.command("list")
def list_(rest: Rest, path: Path, master: Master = None) -> Table:
    """List the topics of an archive, with messages, dates and the last committed positions."""
    from magnetar.pipelines.archive.folder import Folder
    from magnetar.pipelines.archive.store import Archive

    with foreground(rest, None, master, "archive list") as context:
        archive = Archive.open(Folder(context.spark, path))
        found = [_listed(archive, topic) for topic in archive.topics()]
    columns = ("TOPIC", "MESSAGES", "SIZE", "FILES", "ROUNDS", "FROM", "TO", "ARCHIVED UP TO")
    rows = [
        (
            *(one[name] for name in ("topic", "messages")),
            shown_bytes(one["bytes"]),
            *(one[name] for name in ("files", "rounds", "from", "to")),
            ", ".join(one["ends"].values()),
        )
        for one in found
    ]
    return Table(found, columns, rows, none="the archive is empty")


def _listed(archive: Archive, topic: str) -> dict[str, Any]:
    rounds = archive.rounds(topic)
    dates = sorted(file.date for made in rounds for file in made.files)
    return {
        "topic": topic,
        "subscription": rounds[-1].subscription,
        "messages": sum(made.rows for made in rounds),
        "bytes": sum(made.bytes for made in rounds),
        "files": sum(file.is_file for made in rounds for file in made.files),
        "rounds": len(rounds),
        "from": dates[0] if dates else None,
        "to": dates[-1] if dates else None,
        "ends": {str(partition): end for partition, end in rounds[-1].ends.items()},
    }

"""Plan of a read of dead letters: topics, ranges and what waits in them, as they are at one moment.

Runs in the driver. Owns the discovery of dead letter topics and the parsing of options; reads no letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise

from magnetar.client.errors import NamespaceNotFound, NotFound
from magnetar.client.message import MessageId
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX
from magnetar.errors import InvalidName
from magnetar.names import TopicName, parse_namespace
from magnetar.replication.model import PARKED_SUFFIX
from magnetar.security.credentials import Security
from magnetar.spark.client_options import CLIENT_OPTIONS, SparkClientOptions
from magnetar.spark.clients import blocking_client
from magnetar.spark.dead_letters.cursor_admin import CursorAdmin
from magnetar.spark.dead_letters.unacknowledged import Unacknowledged
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import Use
from magnetar.spark.source.entry_range import EntryRange, split_ranges
from magnetar.spark.source.options import SourceOptions
from magnetar.spark.source.planner import Planner
from magnetar.spark.source.topics import ClientTopics

QUARANTINE_SUFFIX = f"-QUARANTINE{DEAD_LETTER_SUFFIX}"

TASKS_MAX = 64
"""A namespace with thousands of dead letter topics is read by so many tasks."""

Source = str | re.Pattern[str] | Sequence[str]

_PATTERN = re.compile(r"[*+?\[\](){}|^$\\]")
_ALIASES = {"service_url": "service.url", "admin_url": "admin.url"}
_PERMITTED = (
    *(option.name for option in CLIENT_OPTIONS),
    "startingOffsets",
    "startingTime",
    "endingOffsets",
    "endingTime",
    "minPartitions",
)


@dataclass(frozen=True)
class LetterRange:
    """A part of a dead letter topic or partition. `unacknowledged` is None if unknown."""

    span: EntryRange
    unacknowledged: Unacknowledged | None

    @property
    def kind(self) -> str:
        return kind_of(TopicName.parse(self.span.topic))


@dataclass(frozen=True)
class LetterPlan:
    """`ranges` are in the order of each topic; with `handled` they include acknowledged letters."""

    options: SourceOptions
    topics: tuple[str, ...]
    ranges: tuple[LetterRange, ...]
    handled: bool

    @property
    def tasks(self) -> list[tuple[LetterRange, ...]]:
        """A range each, or several in a row."""
        count = min(len(self.ranges), TASKS_MAX)
        bounds = [len(self.ranges) * number // count for number in range(count + 1)] if count else []
        return [self.ranges[first:end] for first, end in pairwise(bounds)]


def kind_of(topic: TopicName) -> str:
    local = topic.base.local
    suffixes = {PARKED_SUFFIX: "REPL", QUARANTINE_SUFFIX: "QUARANTINE", DEAD_LETTER_SUFFIX: "DLQ"}
    return next((kind for suffix, kind in suffixes.items() if local.endswith(suffix)), "CUSTOM")


def plan_letters(source: Source, options: Mapping[str, str], *, handled: bool = False) -> LetterPlan:
    """Raises `InvalidOption`, and `NotFound` for a topic or namespace that does not exist.

    What is acknowledged is known by REST only; with `handled` it is requested where there is REST.
    """
    client = _client_options(options)
    admin_url = admin_url_of(client)
    if admin_url is None and not handled:
        raise InvalidOption(
            "which dead letters wait is known by REST only: set option admin.url, or handled=True for all of them"
        )
    topics = _topics(source, client)
    if not topics:
        read = _source_options(options, ["nothing"])
        return LetterPlan(read, (), (), handled)
    read = _source_options(options, topics)
    with closing(_client_topics(read)) as lookups:
        spans = Planner(lookups, read).batch_ranges()
    ranges = _with_state(spans, read.client) if admin_url else [LetterRange(span, None) for span in spans]
    if not handled:
        ranges = [short for whole in ranges if (short := _waiting_part(whole)) is not None]
    if read.tasks_min is not None:
        ranges = _split(ranges, read.tasks_min)
    return LetterPlan(read, tuple(topics), tuple(ranges), handled)


def admin_url_of(client: SparkClientOptions) -> str | None:
    return client.admin_url or (client.service_url if client.has_admin else None)


def cursor_admin(client: SparkClientOptions) -> CursorAdmin:
    """By REST, with the login of the client."""
    url = admin_url_of(client)
    if url is None:
        raise InvalidOption("acknowledgements are known by REST only: set option admin.url")
    security = Security.from_pulsar(dict(client.security)) if client.security else None
    return CursorAdmin(url, security, client.operation_timeout_s)


# -- options


def _given(options: Mapping[str, str]) -> dict[str, str]:
    given = {_ALIASES.get(name, name): str(value) for name, value in options.items() if value is not None}
    permitted = {name.lower() for name in _PERMITTED}
    for name in given:
        if name.lower() not in permitted:
            raise InvalidOption(f"option {name} does not apply to dead letters: known are {', '.join(_PERMITTED)}")
    return given


def _source_options(options: Mapping[str, str], topics: Sequence[str]) -> SourceOptions:
    fixed = {"topics": ",".join(topics), "failOnDataLoss": "false", "onUnreadable": "row", "decode": "raw"}
    return SourceOptions.of({**_given(options), **fixed}, Use.BATCH)


def _client_options(options: Mapping[str, str]) -> SparkClientOptions:
    return _source_options(options, ["nothing"]).client


# -- topics


def _topics(source: Source, client: SparkClientOptions) -> list[str]:
    """Full names, without partitions."""
    if isinstance(source, re.Pattern):
        return _matching(source.pattern, client)
    if not isinstance(source, str):
        return sorted({_named(topic) for topic in source})
    if _PATTERN.search(source):
        return _matching(source, client)
    if "://" not in source and source.count("/") == 1:
        return dead_letter_topics(source, client)
    return [_named(source)]


def _named(topic: str) -> str:
    try:
        name = TopicName.parse(topic)
    except InvalidName as error:
        raise InvalidOption(str(error)) from None
    if not name.is_persistent:
        raise InvalidOption(f"{name.full} is not persistent: it has no dead letters")
    return name.full


def _matching(expression: str, client: SparkClientOptions) -> list[str]:
    """Topics of a namespace whose local name matches, whatever they contain."""
    selection = SourceOptions.of({"topicsPattern": expression, "service.url": client.url}, Use.BATCH).topics
    with closing(blocking_client(client)) as connected:
        names = {TopicName.parse(topic) for topic in connected.topics(selection.namespace)}
    return sorted({name.base.full for name in names if selection.matches(name)})


def dead_letter_topics(namespace: str, client: SparkClientOptions) -> list[str]:
    """All of a namespace: with the suffix, and those of other names that a Magnetar broker knows by its policies."""
    try:
        parse_namespace(namespace)
    except InvalidName as error:
        raise InvalidOption(str(error)) from None
    if admin_url_of(client) is not None:
        with cursor_admin(client) as admin:
            return admin.dead_letter_topics(namespace)
    with closing(blocking_client(client)) as connected:
        names = {TopicName.parse(topic).base for topic in connected.topics(namespace)}
    if not names:
        raise NamespaceNotFound(f"namespace {namespace} does not exist or has no topics")
    return sorted(name.full for name in names if name.is_persistent and name.local.endswith(DEAD_LETTER_SUFFIX))


# -- ranges


def _client_topics(options: SourceOptions) -> ClientTopics:
    client = options.client
    return ClientTopics(
        blocking_client(client), first_give_up_s=client.connect_timeout_s, give_up_s=client.operation_timeout_s
    )


def _with_state(spans: Sequence[EntryRange], client: SparkClientOptions) -> list[LetterRange]:
    found: list[LetterRange] = []
    with cursor_admin(client) as admin:
        for span in spans:
            try:
                found.append(LetterRange(span, admin.unacknowledged(span.topic)))
            except NotFound:  # deleted meanwhile
                continue
    return found


def _waiting_part(whole: LetterRange) -> LetterRange | None:
    """The range from the first letter that waits; None if none does."""
    unacknowledged, span = whole.unacknowledged, whole.span
    if unacknowledged is None:
        return whole
    if unacknowledged.is_empty:
        return None
    first = unacknowledged.first
    if first is None or (first[0], first[1] - 1) <= span.start.position:
        return whole
    if first > span.end.position:
        return None
    return replace(whole, span=replace(span, start=MessageId(first[0], first[1] - 1, span.start.partition)))


def _split(ranges: Sequence[LetterRange], tasks: int) -> list[LetterRange]:
    known = {whole.span.topic: whole.unacknowledged for whole in ranges}
    spans = split_ranges([whole.span for whole in ranges], tasks)
    return [LetterRange(span, known[span.topic]) for span in spans]

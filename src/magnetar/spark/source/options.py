"""The options of reading topics, and of the client that reading and writing have in common.

`OPTIONS` is the one table: reading, refusing and the reference page come from it. Knows nothing of Spark or of topics
that exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from magnetar import errors as server_errors
from magnetar.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, PERSISTENT, TopicName, parse_namespace
from magnetar.settings.kinds import Choice, Flag, Text, Whole
from magnetar.spark.client_options import CLIENT_OPTIONS, SparkClientOptions
from magnetar.spark.codec.record_batches import OnUnreadable
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import GivenOptions, Option, Use, any_text, shortened
from magnetar.spark.source.offsets import STARTING, OffsetSpec, parse_offset_spec

Decoding = Literal["auto", "raw"]


_NUMBER_MAX = 2**62
_MS_MAX = 24 * 3600 * 1000


_TIMES = r"(?s)\s*([0-9]+|\{.*\})\s*"
_TIMES_ALLOWED = "milliseconds since the epoch, or JSON with them by topic"
_OFFSETS = "`earliest`, `latest`, a time (ISO 8601, or milliseconds since the epoch), or JSON by topic"

SOURCE_OPTIONS: tuple[Option, ...] = (
    Option("topic", Use.READ, any_text("The topic to read.", "the name of a topic")),
    Option("topics", Use.READ, any_text("The topics to read.", "names of topics, separated by commas")),
    Option(
        "topicsPattern",
        Use.READ,
        any_text(
            "The topics to read: those of a namespace whose own name matches the expression as a whole. New ones are "
            "found while a stream runs.",
            "tenant/namespace/expression, or an expression for public/default",
        ),
    ),
    Option(
        STARTING,
        Use.READ,
        any_text(
            "Where a first run begins; an id means after that message. Partitions and topics that come to be later "
            "begin at the earliest message. Default: `latest` for streams, `earliest` for batch reads.",
            _OFFSETS,
        ),
    ),
    Option(
        "endingOffsets",
        Use.BATCH,
        any_text("Where a batch read ends; an id means with that message. Default: `latest`.", _OFFSETS),
    ),
    Option("startingTime", Use.READ, Text(_TIMES, _TIMES_ALLOWED, "The same as a time in `startingOffsets`.")),
    Option("endingTime", Use.BATCH, Text(_TIMES, _TIMES_ALLOWED, "The same as a time in `endingOffsets`.")),
    Option(
        "predefinedSubscription",
        Use.STREAM,
        any_text(
            "A durable subscription that follows the stream: what a finished micro-batch has read is acknowledged, so "
            "that the broker's backlog is true. It is created if it is missing; without `startingOffsets` a first run "
            "begins where it is.",
            "the name of a subscription",
        ),
    ),
    Option(
        "maxEntriesPerTrigger",
        Use.STREAM,
        Whole(
            1, _NUMBER_MAX, "How many entries (single messages or batches) a micro-batch has at most, in all topics."
        ),
    ),
    Option(
        "maxBytesPerTrigger",
        Use.STREAM,
        Whole(
            1,
            _NUMBER_MAX,
            "About how many bytes a micro-batch has at most; sizes are estimated from entries at its start. At least "
            "one entry of a partition is read.",
        ),
    ),
    Option(
        "failOnDataLoss",
        Use.READ,
        Flag("Whether messages that are gone before they were read, or a topic that is, end the query with an error."),
        True,
    ),
    Option(
        "includeEntries",
        Use.READ,
        Flag("Whether rows are whole stored entries as raw bytes, for copying, instead of messages."),
        False,
    ),
    Option(
        "columns", Use.READ, any_text("The columns to fill, instead of the default ones.", "names, separated by commas")
    ),
    Option(
        "onUnreadable",
        Use.READ,
        Choice(
            OnUnreadable,
            "What becomes of a message that is corrupt, encrypted or does not fit its schema: an error, or a row with "
            "`__error`.",
        ),
        "fail",
    ),
    Option(
        "decode",
        Use.READ,
        Choice(Decoding, "Whether values become typed columns by the schema of the topic, or stay bytes."),
        "auto",
    ),
    Option(
        "pollTimeoutMs",
        Use.STREAM,
        Whole(
            100,
            _MS_MAX,
            "How long a stream without news waits before it says so to Spark. News end the wait at once; in a query of "
            "several sources the others wait with it.",
        ),
        2000,
    ),
)


@dataclass(frozen=True)
class TopicSelection:
    """The topics to read: a list of names, or those of a namespace that match an expression."""

    names: tuple[str, ...] = ()
    namespace: str = ""
    expression: str = ""

    @staticmethod
    def of(given: GivenOptions) -> TopicSelection:
        option = given.one_of("topic", "topics", "topicsPattern")
        text = given.get(option)
        if option == "topicsPattern":
            return _pattern(text)
        names = [text] if option == "topic" else text.split(",")
        return TopicSelection(names=tuple(dict.fromkeys(_topic(option, name.strip()) for name in names)))

    def matches(self, topic: TopicName) -> bool:
        """Whether a topic, or the topic that it is a partition of, is one of the expression."""
        return topic.is_persistent and re.fullmatch(self.expression, topic.base.local) is not None

    def __str__(self) -> str:
        return ", ".join(self.names) or f"{self.namespace}/{self.expression}"


def _topic(option: str, name: str) -> str:
    try:
        topic = TopicName.parse(name)
    except server_errors.InvalidName as error:
        raise InvalidOption(f"option {option}: {error}") from None
    if not topic.is_persistent:
        raise InvalidOption(f"option {option}: {topic.full} is not persistent, and keeps nothing that could be read")
    return topic.full


def _pattern(text: str) -> TopicSelection:
    domain, separator, rest = text.partition("://")
    if separator and domain != PERSISTENT:
        raise InvalidOption(f"option topicsPattern: {shortened(text)} is of domain {domain}, not {PERSISTENT}")
    rest = rest if separator else text
    parts = rest.split("/", 2)
    if len(parts) == 1 and not separator:
        parts = [DEFAULT_TENANT, DEFAULT_NAMESPACE, *parts]
    if len(parts) != 3 or not parts[2]:
        raise InvalidOption(f"option topicsPattern: {shortened(text)} is not of the form tenant/namespace/expression")
    namespace = "/".join(parts[:2])
    try:
        parse_namespace(namespace)
        re.compile(parts[2])
    except server_errors.InvalidName as error:
        raise InvalidOption(f"option topicsPattern: {error}") from None
    except re.error as error:
        raise InvalidOption(f"option topicsPattern: {shortened(parts[2])} is no regular expression: {error}") from None
    return TopicSelection(namespace=namespace, expression=parts[2])


@dataclass(frozen=True)
class SourceOptions:
    client: SparkClientOptions
    topics: TopicSelection
    starting: OffsetSpec | None
    """None: what is usual for the kind of read."""
    ending: OffsetSpec | None
    subscription: str | None
    entries_max: int | None
    bytes_max: int | None
    fail_on_data_loss: bool
    include_entries: bool
    columns: tuple[str, ...] | None
    on_unreadable: OnUnreadable
    decode: Decoding
    poll_timeout_s: float

    @staticmethod
    def of(options: Mapping[str, str], use: Use = Use.READ) -> SourceOptions:
        """Raises `InvalidOption`, which names the option."""
        given = GivenOptions(options, use, (*CLIENT_OPTIONS, *SOURCE_OPTIONS))
        columns = given.get("columns")
        if columns is not None and given.get("includeEntries"):
            raise InvalidOption("option columns contradicts includeEntries, which has columns of its own")
        if "decode" in given and given.get("decode") != "raw" and given.get("includeEntries"):
            raise InvalidOption("option decode=auto contradicts includeEntries, whose rows are raw entries")
        return SourceOptions(
            client=SparkClientOptions.of(given),
            topics=TopicSelection.of(given),
            starting=_bound(given, STARTING, "startingTime"),
            ending=_bound(given, "endingOffsets", "endingTime"),
            subscription=given.get("predefinedSubscription"),
            entries_max=given.get("maxEntriesPerTrigger"),
            bytes_max=given.get("maxBytesPerTrigger"),
            fail_on_data_loss=given.get("failOnDataLoss"),
            include_entries=given.get("includeEntries"),
            columns=None if columns is None else _names("columns", columns),
            on_unreadable=given.get("onUnreadable"),
            decode=given.get("decode"),
            poll_timeout_s=given.get("pollTimeoutMs") / 1000,
        )


def _bound(given: GivenOptions, offsets: str, time: str) -> OffsetSpec | None:
    if offsets in given and time in given:
        raise InvalidOption(f"option {offsets} contradicts {time}: one of the two is enough")
    option = time if time in given else offsets
    text = given.get(option)
    return None if text is None else parse_offset_spec(option, text)


def _names(option: str, text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InvalidOption(f"option {option} is {shortened(text)}: a name between commas is empty")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidOption(f"option {option} names {twice} twice")
    return tuple(names)

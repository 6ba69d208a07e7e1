"""Options of the source: the table, and the parsed options.

The reference page is generated from `SOURCE_OPTIONS`. Knows nothing of Spark or of existing topics.
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
_TASKS_MAX = 100_000


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
            "The topics to read: those in a namespace whose local name matches the whole regular expression. A "
            "running stream picks up new topics.",
            "tenant/namespace/expression, or an expression for public/default",
        ),
    ),
    Option(
        STARTING,
        Use.READ,
        any_text(
            "Where the first run starts; a message id means after that message. Partitions and topics created later "
            "are read from their earliest message. Default: `latest` for streams, `earliest` for batch reads.",
            _OFFSETS,
        ),
    ),
    Option(
        "endingOffsets",
        Use.BATCH,
        any_text("Where a batch read ends; the message of a message id is included. Default: `latest`.", _OFFSETS),
    ),
    Option("startingTime", Use.READ, Text(_TIMES, _TIMES_ALLOWED, "Same as a time in `startingOffsets`.")),
    Option("endingTime", Use.BATCH, Text(_TIMES, _TIMES_ALLOWED, "Same as a time in `endingOffsets`.")),
    Option(
        "predefinedSubscription",
        Use.STREAM,
        any_text(
            "Durable subscription that follows the stream: messages of finished micro-batches are acknowledged, which "
            "keeps the broker's backlog accurate. Created if missing. Without `startingOffsets`, the first run starts "
            "at its position.",
            "the name of a subscription",
        ),
    ),
    Option(
        "maxEntriesPerTrigger",
        Use.STREAM,
        Whole(
            1, _NUMBER_MAX, "Maximum number of entries (single messages or batches) in a micro-batch, over all topics."
        ),
    ),
    Option(
        "maxMessagesPerTrigger",
        Use.STREAM,
        Whole(
            1,
            _NUMBER_MAX,
            "Approximate maximum number of messages in a micro-batch, over all topics, estimated from its first "
            "entries. Whole entries are read, and at least one.",
        ),
    ),
    Option(
        "maxBytesPerTrigger",
        Use.STREAM,
        Whole(
            1,
            _NUMBER_MAX,
            "Approximate maximum size of a micro-batch in bytes, estimated from its first entries. At least one entry "
            "is read.",
        ),
    ),
    Option(
        "minPartitions",
        Use.READ,
        Whole(
            1,
            _TASKS_MAX,
            "Minimum number of tasks, if there are as many entries: long partitions are split. Order is kept within a "
            "task only. Default: one task per partition for streams, about two per core for batch reads.",
        ),
    ),
    Option(
        "failOnDataLoss",
        Use.READ,
        Flag("Fail the query when messages, or the whole topic, were deleted before they were read."),
        True,
    ),
    Option(
        "includeEntries",
        Use.READ,
        Flag("Return whole stored entries as raw bytes, for copying, instead of messages."),
        False,
    ),
    Option(
        "columns",
        Use.READ,
        any_text(
            "The columns to read, instead of the default ones, which are `*`: `*,__payload` adds one.",
            "names, separated by commas",
        ),
    ),
    Option(
        "onUnreadable",
        Use.READ,
        Choice(
            OnUnreadable,
            "Handling of messages that are corrupt, encrypted or do not match their schema: `fail` the query, or "
            "return a `row` with the reason in `__error`, the fields that can be read and, on request, `__payload`.",
        ),
        "fail",
    ),
    Option(
        "decode",
        Use.READ,
        Choice(Decoding, "`auto` decodes values to typed columns by the schema of the topic, `raw` returns bytes."),
        "auto",
    ),
    Option(
        "pollTimeoutMs",
        Use.STREAM,
        Whole(
            100,
            _MS_MAX,
            "How long an idle stream waits for new messages before it returns to Spark. A new message ends the wait at "
            "once; in a query with several sources, the others wait too.",
        ),
        2000,
    ),
)


@dataclass(frozen=True)
class TopicSelection:
    """The topics to read: a list of names, or a namespace and a regular expression."""

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
        """Whether the topic, or the topic that it is a partition of, matches the expression."""
        return topic.is_persistent and re.fullmatch(self.expression, topic.base.local) is not None

    def __str__(self) -> str:
        return ", ".join(self.names) or f"{self.namespace}/{self.expression}"


def _topic(option: str, name: str) -> str:
    try:
        topic = TopicName.parse(name)
    except server_errors.InvalidName as error:
        raise InvalidOption(f"option {option}: {error}") from None
    if not topic.is_persistent:
        raise InvalidOption(f"option {option}: {topic.full} is not persistent: there are no stored messages to read")
    return topic.full


def _pattern(text: str) -> TopicSelection:
    domain, separator, rest = text.partition("://")
    if separator and domain != PERSISTENT:
        raise InvalidOption(
            f"option topicsPattern: {shortened(text)} has domain {domain}, only {PERSISTENT} topics can be read"
        )
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
        raise InvalidOption(
            f"option topicsPattern: {shortened(parts[2])} is not a regular expression: {error}"
        ) from None
    return TopicSelection(namespace=namespace, expression=parts[2])


@dataclass(frozen=True)
class SourceOptions:
    client: SparkClientOptions
    topics: TopicSelection
    starting: OffsetSpec | None
    """None: the default of the kind of read."""
    ending: OffsetSpec | None
    subscription: str | None
    entries_max: int | None
    messages_max: int | None
    bytes_max: int | None
    tasks_min: int | None
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
            raise InvalidOption("option columns cannot be combined with includeEntries, which has its own columns")
        if "decode" in given and given.get("decode") != "raw" and given.get("includeEntries"):
            raise InvalidOption("option decode=auto cannot be combined with includeEntries, whose rows are raw entries")
        return SourceOptions(
            client=SparkClientOptions.of(given),
            topics=TopicSelection.of(given),
            starting=_bound(given, STARTING, "startingTime"),
            ending=_bound(given, "endingOffsets", "endingTime"),
            subscription=given.get("predefinedSubscription"),
            entries_max=given.get("maxEntriesPerTrigger"),
            messages_max=given.get("maxMessagesPerTrigger"),
            bytes_max=given.get("maxBytesPerTrigger"),
            tasks_min=given.get("minPartitions"),
            fail_on_data_loss=given.get("failOnDataLoss"),
            include_entries=given.get("includeEntries"),
            columns=None if columns is None else _names("columns", columns),
            on_unreadable=given.get("onUnreadable"),
            decode=given.get("decode"),
            poll_timeout_s=given.get("pollTimeoutMs") / 1000,
        )


def _bound(given: GivenOptions, offsets: str, time: str) -> OffsetSpec | None:
    if offsets in given and time in given:
        raise InvalidOption(f"option {offsets} cannot be combined with {time}")
    option = time if time in given else offsets
    text = given.get(option)
    return None if text is None else parse_offset_spec(option, text)


def _names(option: str, text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InvalidOption(f"option {option} is {shortened(text)}: it contains an empty name")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidOption(f"option {option} names {twice} twice")
    return tuple(names)

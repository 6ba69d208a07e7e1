"""The options of reading topics, and of the client that reading and writing have in common.

`OPTIONS` is the one table: reading, refusing and the reference page come from it. Knows nothing of Spark or of topics
that exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from magnetar import errors as server_errors
from magnetar.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, PERSISTENT, TopicName, parse_namespace
from magnetar.settings.kinds import Choice, Flag, Text, Whole
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import Given, Option, Use, shown
from magnetar.spark.source.offsets import STARTING, Bound, parse_bound

CLIENT_PREFIX = "pulsar.client."

Unreadable = Literal["fail", "row"]
Decoding = Literal["auto", "raw"]


_TEXT = r"(?s).*\S.*"
_NUMBER_MAX = 2**62
_MS_MAX = 24 * 3600 * 1000


def _text(meaning: str, allowed: str = "a text") -> Text:
    return Text(_TEXT, allowed, meaning)


_SERVICE = r"(pulsar|pulsar\+ssl|http|https)://\S+"
_TIMES = r"(?s)\s*([0-9]+|\{.*\})\s*"
_TIMES_ALLOWED = "milliseconds since the epoch, or JSON with them by topic"
_OFFSETS = "`earliest`, `latest`, a time (ISO 8601, or milliseconds since the epoch), or JSON by topic"

OPTIONS: tuple[Option, ...] = (
    Option(
        "service.url",
        Use.ALL,
        Text(_SERVICE, "pulsar://, pulsar+ssl://, http:// or https:// with host and port", "The brokers' address."),
    ),
    Option(
        "admin.url",
        Use.ALL,
        Text(
            r"https?://\S+",
            "http:// or https:// with host and port",
            "The address of the admin API; topics, partitions and schemas are then asked there. It is enough alone.",
        ),
    ),
    Option("topic", Use.READ, _text("The topic to read.", "the name of a topic")),
    Option("topics", Use.READ, _text("The topics to read.", "names of topics, separated by commas")),
    Option(
        "topicsPattern",
        Use.READ,
        _text(
            "The topics to read: those of a namespace whose own name matches the expression as a whole. New ones are "
            "found while a stream runs.",
            "tenant/namespace/expression, or an expression for public/default",
        ),
    ),
    Option(
        STARTING,
        Use.READ,
        _text(
            "Where a first run begins; an id means after that message. Partitions and topics that come to be later "
            "begin at the earliest message. Default: `latest` for streams, `earliest` for batch reads.",
            _OFFSETS,
        ),
    ),
    Option(
        "endingOffsets",
        Use.BATCH,
        _text("Where a batch read ends; an id means with that message. Default: `latest`.", _OFFSETS),
    ),
    Option("startingTime", Use.READ, Text(_TIMES, _TIMES_ALLOWED, "The same as a time in `startingOffsets`.")),
    Option("endingTime", Use.BATCH, Text(_TIMES, _TIMES_ALLOWED, "The same as a time in `endingOffsets`.")),
    Option(
        "predefinedSubscription",
        Use.STREAM,
        _text(
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
        "columns", Use.READ, _text("The columns to fill, instead of the default ones.", "names, separated by commas")
    ),
    Option(
        "onUnreadable",
        Use.READ,
        Choice(
            Unreadable,
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
    Option(
        CLIENT_PREFIX + "authPluginClassName",
        Use.ALL,
        _text("How to authenticate, in the words of Pulsar's clients.", "the name of an authentication plugin"),
    ),
    Option(CLIENT_PREFIX + "authParams", Use.ALL, _text("What the plugin needs, for example `token:...`.")),
    Option(CLIENT_PREFIX + "tlsTrustCertsFilePath", Use.ALL, _text("Certificates to trust.", "the path of a PEM file")),
    Option(
        CLIENT_PREFIX + "tlsAllowInsecureConnection",
        Use.ALL,
        Flag("Whether a broker whose certificate cannot be verified is accepted."),
    ),
    Option(
        CLIENT_PREFIX + "tlsHostnameVerificationEnable",
        Use.ALL,
        Flag("Whether the certificate has to name the host of the address."),
    ),
    Option(
        CLIENT_PREFIX + "tlsCertificateFilePath",
        Use.ALL,
        _text("The client's own certificate.", "the path of a PEM file"),
    ),
    Option(CLIENT_PREFIX + "tlsKeyFilePath", Use.ALL, _text("The key of that certificate.", "the path of a PEM file")),
    Option(
        CLIENT_PREFIX + "operationTimeoutMs",
        Use.ALL,
        Whole(1, _MS_MAX, "How long a request to a broker may take."),
        30_000,
    ),
    Option(
        CLIENT_PREFIX + "connectionTimeoutMs",
        Use.ALL,
        Whole(1, _MS_MAX, "How long connecting to a broker may take."),
        10_000,
    ),
)

SECURITY_OPTIONS = (
    "authPluginClassName",
    "authParams",
    "tlsTrustCertsFilePath",
    "tlsAllowInsecureConnection",
    "tlsHostnameVerificationEnable",
    "tlsCertificateFilePath",
    "tlsKeyFilePath",
)


@dataclass(frozen=True)
class ClientOptions:
    """How brokers are reached. Hashable: processes keep one client per value."""

    service_url: str | None
    admin_url: str | None
    operation_timeout_s: float
    connect_timeout_s: float
    security: tuple[tuple[str, str], ...] = field(repr=False)
    """What was given of `SECURITY_OPTIONS`, without the prefix."""

    @staticmethod
    def of(given: Given) -> ClientOptions:
        service_url, admin_url = given.get("service.url"), given.get("admin.url")
        if service_url is None and admin_url is None:
            raise InvalidOption("one of the options service.url and admin.url is needed; none was given")
        security = {name: given.get(CLIENT_PREFIX + name) for name in SECURITY_OPTIONS}
        return ClientOptions(
            service_url=service_url,
            admin_url=admin_url,
            operation_timeout_s=given.get(CLIENT_PREFIX + "operationTimeoutMs") / 1000,
            connect_timeout_s=given.get(CLIENT_PREFIX + "connectionTimeoutMs") / 1000,
            security=tuple((name, _spelled(value)) for name, value in security.items() if value is not None),
        )

    @property
    def url(self) -> str:
        """Where a client begins: topics can be found over HTTP alone."""
        url = self.service_url or self.admin_url
        assert url is not None
        return url


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class TopicSelection:
    """The topics to read: a list of names, or those of a namespace that match an expression."""

    names: tuple[str, ...] = ()
    namespace: str = ""
    expression: str = ""

    @staticmethod
    def of(given: Given) -> TopicSelection:
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
        raise InvalidOption(f"option topicsPattern: {shown(text)} is of domain {domain}, not {PERSISTENT}")
    rest = rest if separator else text
    parts = rest.split("/", 2)
    if len(parts) == 1 and not separator:
        parts = [DEFAULT_TENANT, DEFAULT_NAMESPACE, *parts]
    if len(parts) != 3 or not parts[2]:
        raise InvalidOption(f"option topicsPattern: {shown(text)} is not of the form tenant/namespace/expression")
    namespace = "/".join(parts[:2])
    try:
        parse_namespace(namespace)
        re.compile(parts[2])
    except server_errors.InvalidName as error:
        raise InvalidOption(f"option topicsPattern: {error}") from None
    except re.error as error:
        raise InvalidOption(f"option topicsPattern: {shown(parts[2])} is no regular expression: {error}") from None
    return TopicSelection(namespace=namespace, expression=parts[2])


@dataclass(frozen=True)
class SourceOptions:
    client: ClientOptions
    topics: TopicSelection
    starting: Bound | None
    """None: what is usual for the kind of read."""
    ending: Bound | None
    subscription: str | None
    entries_max: int | None
    bytes_max: int | None
    fail_on_data_loss: bool
    include_entries: bool
    columns: tuple[str, ...] | None
    on_unreadable: Unreadable
    decode: Decoding
    poll_timeout_s: float

    @staticmethod
    def of(options: Mapping[str, str], use: Use = Use.READ) -> SourceOptions:
        """Raises `InvalidOption`, which names the option."""
        given = Given(options, use, OPTIONS)
        columns = given.get("columns")
        if columns is not None and given.get("includeEntries"):
            raise InvalidOption("option columns contradicts includeEntries, which has columns of its own")
        if "decode" in given and given.get("decode") != "raw" and given.get("includeEntries"):
            raise InvalidOption("option decode=auto contradicts includeEntries, whose rows are raw entries")
        return SourceOptions(
            client=ClientOptions.of(given),
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


def _bound(given: Given, offsets: str, time: str) -> Bound | None:
    if offsets in given and time in given:
        raise InvalidOption(f"option {offsets} contradicts {time}: one of the two is enough")
    option = time if time in given else offsets
    text = given.get(option)
    return None if text is None else parse_bound(option, text)


def _names(option: str, text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InvalidOption(f"option {option} is {shown(text)}: a name between commas is empty")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidOption(f"option {option} names {twice} twice")
    return tuple(names)

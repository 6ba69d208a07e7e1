"""Arguments: parsers of names, durations, sizes, times and positions.

Owns the spellings, which are pulsar-admin's, and the errors for invalid ones. It knows no command and no broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import typer

from magnetar.errors import InvalidName
from magnetar.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, TopicName, check_entity, parse_namespace

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION = re.compile(r"(\d{1,18})([smhdwy]?)", re.IGNORECASE | re.ASCII)
_SIZE = re.compile(r"(\d{1,18})([kmgt]?)b?", re.IGNORECASE | re.ASCII)
_POSITION = re.compile(r"(\d{1,19}):(\d{1,19})(?::(-1|\d{1,10}))?(?::(-1|\d{1,10}))?", re.ASCII)


class NamespaceName(NamedTuple):
    tenant: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}"


class MessagePosition(NamedTuple):
    """A message id in the form of the REST API."""

    ledger: int
    entry: int
    partition: int = -1
    batch: int = -1

    def body(self) -> dict[str, int]:
        return {
            "ledgerId": self.ledger,
            "entryId": self.entry,
            "partitionIndex": self.partition,
            "batchIndex": self.batch,
        }


EARLIEST = MessagePosition(-1, -1)
LATEST = MessagePosition(LONG_MAX, LONG_MAX)


def parse_topic(text: str) -> TopicName:
    try:
        return TopicName.parse(text)
    except InvalidName as error:
        parts = text.split("/")
        hint = f"; did you mean {DEFAULT_TENANT}/{text}?" if len(parts) == 2 and all(parts) else ""
        raise typer.BadParameter(f"{error}{hint}") from error


def parse_namespace_name(text: str | NamespaceName) -> NamespaceName:
    """Typer passes defaults through the parser too."""
    if isinstance(text, NamespaceName):
        return text
    if "://" in text:
        raise typer.BadParameter(f"{text!r} is a topic name; expected tenant/namespace")
    try:
        return NamespaceName(*parse_namespace(text))
    except InvalidName as error:
        parts = text.split("/")
        hint = ""
        if len(parts) == 1 and text:
            hint = f"; did you mean {PUBLIC_DEFAULT if text == DEFAULT_TENANT else f'{DEFAULT_TENANT}/{text}'}?"
        elif len(parts) == 3 and all(parts):
            hint = f"; did you mean {parts[0]}/{parts[1]}?"
        raise typer.BadParameter(f"{error}{hint}") from error


def parse_tenant(text: str) -> str:
    return _entity("tenant", text)


def parse_cluster(text: str) -> str:
    return _entity("cluster", text)


def _entity(kind: str, text: str) -> str:
    try:
        return check_entity(kind, text)
    except InvalidName as error:
        hint = f"; did you mean {text.split('/')[0]}?" if "/" in text.strip("/") else ""
        raise typer.BadParameter(f"{error}{hint}") from error


def parse_subscription(text: str) -> str:
    if not text:
        raise typer.BadParameter("the subscription name is empty")
    return text


def parse_duration(text: str) -> int:
    """Seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration such as 90, 90s, 5m, 3h, 2d, 1w or 1y")
    return int(match[1]) * _SECONDS[match[2].lower() or "s"]


def parse_duration_or_infinite(text: str) -> int:
    """Seconds, or -1 for no limit."""
    return -1 if text.strip() == "-1" else parse_duration(text)


def parse_duration_with_unit(text: str) -> int:
    """Seconds. Requires a unit, as pulsar-admin takes a bare number in another unit."""
    seconds = parse_duration(text)
    if seconds and text.strip().isdecimal():
        raise typer.BadParameter(f"{text!r} needs a unit, such as {text.strip()}m for minutes or {text.strip()}h")
    return seconds


def parse_delays(text: str) -> list[int]:
    """A comma-separated list in milliseconds: 500ms, 1s, 10s, 1m."""
    delays = []
    for word in names_in(text):
        number = word.lower().removesuffix("ms")
        if number != word.lower() and number.isascii() and number.isdecimal() and len(number) <= 18:
            delays.append(int(number))
        elif _DURATION.fullmatch(word):
            delays.append(parse_duration(word) * 1000)
        else:
            raise typer.BadParameter(f"{word!r} is not a delay such as 500ms, 90s, 5m, 3h or 2d")
    if not delays:
        raise typer.BadParameter("give at least one delay, such as 1s,10s,1m")
    return delays


def parse_size(text: str) -> int:
    """Bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a size such as 4096, 100K, 10M, 16G or 2T")
    return int(match[1]) * _BYTES[match[2].lower()]


def parse_size_or_infinite(text: str) -> int:
    """Bytes, or -1 for no limit."""
    return -1 if text.strip() == "-1" else parse_size(text)


def parse_time(text: str) -> int:
    """An ISO date and time as milliseconds since the epoch; UTC if it has no zone."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time such as 2026-01-31T18:00:00Z") from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_position(text: str) -> MessagePosition:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    match = _POSITION.fullmatch(word)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not earliest, latest or ledger:entry[:partition[:batch index]]")
    ledger, entry, partition, batch = (-1 if part is None else int(part) for part in match.groups())
    if max(ledger, entry) > LONG_MAX or max(partition, batch) > INT_MAX:
        raise typer.BadParameter(f"{text!r} has a number beyond the range of message ids")
    return MessagePosition(ledger, entry, partition, batch)


def whole(low: int, high: int = INT_MAX) -> Callable[[str | int], int]:
    """A parser of integers from `low` to `high`. Typer passes defaults through it too."""

    def parse(text: str | int) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise typer.BadParameter(f"{str(text)[:100]!r} is not an integer from {low} to {high}")
        return number

    return parse


def parse_property(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise typer.BadParameter(f"{text!r} is not of the form key=value")
    return key, value


def words_of(choices: type[StrEnum]) -> Callable[[str], list[str]]:
    """A parser of a comma-separated list of choices."""

    def parse(text: str) -> list[str]:
        known = {choice.value.lower(): choice.value for choice in choices}
        words = names_in(text)
        for word in words:
            if word.lower() not in known:
                raise typer.BadParameter(f"{word!r} is not one of {', '.join(known.values())}")
        if not words:
            raise typer.BadParameter(f"give at least one of {', '.join(known.values())}")
        return [known[word.lower()] for word in words]

    return parse


def names_in(text: str) -> list[str]:
    """The items of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


class TopicMode(StrEnum):
    PERSISTENT = "PERSISTENT"
    NON_PERSISTENT = "NON_PERSISTENT"
    ALL = "ALL"


class Domain(StrEnum):
    PERSISTENT = "persistent"
    NON_PERSISTENT = "non-persistent"


Topic = Annotated[
    TopicName,
    typer.Argument(
        metavar="TOPIC", parser=parse_topic, help="A topic: orders, acme/shop/orders or persistent://acme/shop/orders."
    ),
]
Namespace = Annotated[
    NamespaceName,
    typer.Argument(
        metavar="TENANT/NAMESPACE", parser=parse_namespace_name, help="A namespace, such as public/default."
    ),
]
PUBLIC_DEFAULT = NamespaceName(DEFAULT_TENANT, DEFAULT_NAMESPACE)
ReadNamespace = Annotated[  # with PUBLIC_DEFAULT for commands that only read; a change needs its namespace
    NamespaceName,
    typer.Argument(
        metavar="TENANT/NAMESPACE",
        parser=parse_namespace_name,
        help="A namespace.",
        show_default=str(PUBLIC_DEFAULT),
    ),
]
Tenant = Annotated[str, typer.Argument(metavar="TENANT", parser=parse_tenant, help="A tenant, such as public.")]
Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", parser=parse_cluster, help="The name of a cluster.")]
Subscription = Annotated[
    str, typer.Argument(metavar="SUBSCRIPTION", parser=parse_subscription, help="A subscription of the topic.")
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", "-p", metavar="KEY=VALUE", help="A property; may be repeated."),
]
Force = Annotated[bool, typer.Option("--force", "-f", help="Delete it even if it is in use.")]


def properties_of(words: list[str] | None) -> dict[str, str]:
    return dict(parse_property(word) for word in words or ())


class Action(StrEnum):
    produce = "produce"
    consume = "consume"
    functions = "functions"
    sources = "sources"
    sinks = "sinks"
    packages = "packages"


Role = Annotated[str, typer.Option("--role", help="The role.")]
Actions = Annotated[
    Any,  # a list: Typer would otherwise take its items one by one
    typer.Option("--actions", metavar="ACTION,…", parser=words_of(Action), help=f"Some of {', '.join(Action)}."),
]

ServiceUrl = Annotated[
    str | None,
    typer.Option(
        "--service-url",
        metavar="URL",
        help="The binary address, pulsar://host:6650; MAGNETAR_SERVICE_URL.",
        show_default="found by a lookup at --url",
    ),
]

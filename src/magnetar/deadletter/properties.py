"""Dead letter properties: origin, reason, delivery count, history.

Owns the property names, the reason codes and the spellings of message ids, and reads dead letters of the broker and of
every client. Knows neither topics nor how a dead letter is written (see `stamp`).

    REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID   as Pulsar's clients write and read them
    DEATH_REASON, DEATH_DESCRIPTION                    a code and a sentence; absent from dead letters of clients
    DEATH_CONSUMER, DEATH_CONSUMER_ADDRESS,            the consumer that failed last, if one did
    DEATH_CLIENT_VERSION
    DEATH_ERROR                                        the application's error text, if it reported one
    DEATH_EXCEPTION, DEATH_STACK_TRACE,                of the exception that a pipeline met: its class and its stack
    DEATH_FINGERPRINT                                  trace, and what they have in common with those of the same cause
    DEATH_BATCH_SIZE                                   of the batch, if the message failed only together with it
    DEATH_HISTORY                                      JSON: every failure of the message so far, the latest last
    REDRIVE_GENERATION, REDRIVE_SUBSCRIPTION           how often it was redriven, and for which subscription
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec

from magnetar.bounds import ERROR_TEXT_SIZE
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX
from magnetar.errors import InvalidName
from magnetar.names import TopicName

REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID = "REAL_TOPIC", "REAL_SUBSCRIPTION", "ORIGIN_MESSAGE_ID"
ORIGIN_MESSAGE_ID_MISSPELT = "ORIGIN_MESSAGE_IDY_TIME"  # by Java and Go clients, for years
DEATH_REASON, DEATH_DESCRIPTION, DEATH_HISTORY = "DEATH_REASON", "DEATH_DESCRIPTION", "DEATH_HISTORY"
DEATH_CONSUMER, DEATH_CONSUMER_ADDRESS = "DEATH_CONSUMER", "DEATH_CONSUMER_ADDRESS"
DEATH_CLIENT_VERSION, DEATH_ERROR = "DEATH_CLIENT_VERSION", "DEATH_ERROR"
DEATH_BATCH_SIZE = "DEATH_BATCH_SIZE"
DEATH_EXCEPTION, DEATH_STACK_TRACE = "DEATH_EXCEPTION", "DEATH_STACK_TRACE"
DEATH_FINGERPRINT = "DEATH_FINGERPRINT"
RECONSUMETIMES = "RECONSUMETIMES"  # how often a client sent the message to its retry topic
DELAY_TIME = "DELAY_TIME"  # of a message in a retry topic, in ms
REDRIVE_GENERATION = "REDRIVE_GENERATION"  # how often a dead letter was redriven: it may fail again each time
REDRIVE_SUBSCRIPTION = "REDRIVE_SUBSCRIPTION"  # the only subscription that a redriven message is for

BY_CLIENT = "Client"
"""The reason of a dead letter that a client published by its own policy, without a reason."""

UNKNOWN = "Unknown"
"""The reason of a message in a dead letter topic that has no dead letter properties."""

ERROR_MAX = ERROR_TEXT_SIZE.limit
"""Characters of an application's error text that are kept."""

_SHOWN_MAX = 1024  # untrusted text is cut

_ID = re.compile(r"(\d{1,19}):(\d{1,19}):(-?\d{1,10})(?::(-?\d{1,10}))?", re.ASCII)
_ID_OF_CPP = re.compile(r"\((\d{1,19}),(\d{1,19}),(-?\d{1,10}),(-?\d{1,10})\)", re.ASCII)
_COUNT = re.compile(r"\d{1,10}", re.ASCII)


Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # untrusted


class Reason(enum.StrEnum):
    """The codes of DEATH_REASON."""

    MaxRedeliveries = "MaxRedeliveries"  # nacked more often than the policy allows
    ConsumerCrash = "ConsumerCrash"  # its consumers vanished while holding nothing else, more often than allowed
    Expired = "Expired"  # its time to live is over
    BacklogEvicted = "BacklogEvicted"  # the backlog exceeded its quota
    ProcessingFailed = "ProcessingFailed"  # the function of a pipeline raised an exception, after all its retries
    TimedOut = "TimedOut"  # the function took longer than its limit, after all its retries
    Unreadable = "Unreadable"  # a pipeline could not decode it


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One element of DEATH_HISTORY. `first` and `last` are the times, in ms, of the first and last delivery failure.

    The consumer failed last; all about it, and the application's error text, may be unknown. `batch` is the size of the
    batch if the message was never delivered without it.
    """

    topic: str
    subscription: str
    reason: str
    count: Int64
    first: Int64
    last: Int64
    consumer: str = ""
    address: str = ""
    client_version: str = msgspec.field(default="", name="clientVersion")
    error: str = ""
    batch: Int64 = 0


class DeadLetterInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The properties of a dead letter; None where it has none."""

    reason: str
    description: str | None = None
    origin_topic: str | None = None
    origin_subscription: str | None = None
    origin_message_id: str | None = None
    count: int | None = None
    consumer: str | None = None
    consumer_address: str | None = None
    client_version: str | None = None
    error: str | None = None


class Origin(msgspec.Struct, frozen=True):
    """The message a dead letter is for. `topic` is as the client spells it, `batch_index` -1 outside of a batch."""

    topic: str
    ledger_id: int
    entry_id: int
    batch_index: int
    generation: str
    retries: str = ""


_history = msgspec.json.Decoder(list[FailureRecord])


def read_history(properties: Mapping[str, str]) -> list[FailureRecord]:
    """Empty if the property is absent or malformed."""
    try:
        return _history.decode(properties.get(DEATH_HISTORY, "[]"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []


def read_origin(properties: Mapping[str, str]) -> Origin | None:
    """None for a message that is no dead letter or retry of a client."""
    topic, match = properties.get(REAL_TOPIC), _match_id(properties)
    if not topic or match is None:
        return None
    batch_index = int(match[4]) if match[4] is not None else -1
    generation, retries = properties.get(REDRIVE_GENERATION, ""), properties.get(RECONSUMETIMES, "")
    return Origin(topic, int(match[1]), int(match[2]), batch_index, generation, retries)


class LetterOrigin(NamedTuple):
    topic: str | None
    partition: int | None


@lru_cache(maxsize=1024)
def origin_of(topic: str | None) -> LetterOrigin:
    """The full name without a partition, and the partition; a name that is none stays as it is."""
    if not topic:
        return LetterOrigin(None, None)
    try:
        name = TopicName.parse(topic)
    except InvalidName:
        return LetterOrigin(topic[:_SHOWN_MAX], None)
    return LetterOrigin(name.base.full, name.partition if name.is_partition else None)


def read_info(properties: Mapping[str, str], dead_letter_topic: TopicName) -> DeadLetterInfo:
    """The subscription is taken from the name of the topic if the properties lack it."""
    topic, message_id = properties.get(REAL_TOPIC), _message_id(properties)
    return DeadLetterInfo(
        reason=read_reason(properties),
        description=_cut(properties.get(DEATH_DESCRIPTION)),
        origin_topic=_cut(topic),
        origin_subscription=read_subscription(properties, dead_letter_topic),
        origin_message_id=message_id,
        count=read_count(properties),
        consumer=_cut(properties.get(DEATH_CONSUMER)),
        consumer_address=_cut(properties.get(DEATH_CONSUMER_ADDRESS)),
        client_version=_cut(properties.get(DEATH_CLIENT_VERSION)),
        error=(properties.get(DEATH_ERROR) or "")[:ERROR_MAX] or None,
    )


def read_reason(properties: Mapping[str, str]) -> str:
    """The reason alone, which is quicker than `read_info`."""
    reason = _cut(properties.get(DEATH_REASON))
    return reason or (BY_CLIENT if properties.get(REAL_TOPIC) or _id_text(properties) else UNKNOWN)


def read_subscription(properties: Mapping[str, str], dead_letter_topic: TopicName) -> str | None:
    """The origin subscription alone."""
    return _cut(properties.get(REAL_SUBSCRIPTION)) or _subscription_in(
        dead_letter_topic, _cut(properties.get(REAL_TOPIC))
    )


def read_count(properties: Mapping[str, str]) -> int | None:
    """The number of failed deliveries alone."""
    history = read_history(properties) if DEATH_HISTORY in properties else []
    if history:
        return history[-1].count
    text = properties.get(RECONSUMETIMES, "")
    return int(text) if _COUNT.fullmatch(text) else None


def parse_message_id(text: str) -> tuple[int, int, int] | None:
    """Ledger, entry and batch index (-1 for none) of `ledger:entry[:partition[:index]]`, or of C++'s form."""
    match = _ID.fullmatch(text) or _ID_OF_CPP.fullmatch(text) or _ID.fullmatch(f"{text}:-1")
    return None if match is None else (int(match[1]), int(match[2]), max(-1, int(match[4] or -1)))


def _id_text(properties: Mapping[str, str]) -> str:
    return properties.get(ORIGIN_MESSAGE_ID) or properties.get(ORIGIN_MESSAGE_ID_MISSPELT) or ""


def _match_id(properties: Mapping[str, str]) -> re.Match[str] | None:
    text = _id_text(properties)
    return _ID.fullmatch(text) or _ID_OF_CPP.fullmatch(text)


def _message_id(properties: Mapping[str, str]) -> str | None:
    """`ledger:entry:partition`, with `:batch index` for a message of a batch; other texts unchanged."""
    match = _match_id(properties)
    if match is None:
        return _cut(_id_text(properties))
    batch = f":{match[4]}" if match[4] is not None and int(match[4]) >= 0 else ""
    return f"{match[1]}:{match[2]}:{match[3]}{batch}"


@lru_cache(maxsize=256)
def _subscription_in(dead_letter_topic: TopicName, topic: str | None) -> str | None:
    """The middle of `{topic}-{subscription}-DLQ`."""
    if not topic:
        return None
    try:
        start = f"{TopicName.parse(topic).base.full}-"
    except InvalidName:
        return None
    full = dead_letter_topic.base.full
    if not full.startswith(start) or not full.endswith(DEAD_LETTER_SUFFIX):
        return None
    return full[len(start) : -len(DEAD_LETTER_SUFFIX)] or None


def _cut(text: str | None) -> str | None:
    return text[:_SHOWN_MAX] if text else None

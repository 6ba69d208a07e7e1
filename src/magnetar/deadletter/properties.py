"""What a dead letter says of itself: where it comes from, why it died, and how often, read from its properties.

Owns the names of these properties, the spellings of message ids in them, and the counts over many letters. Letters of
the broker and of all clients read alike. Knows neither topics nor how a letter is written.

    REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID   as Pulsar's clients write and read them
    DEATH_REASON, DEATH_DESCRIPTION                    a code, and a sentence for people; letters of clients have none
    DEATH_HISTORY                                      JSON: every death of the message so far, the latest last
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec

from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX
from magnetar.errors import InvalidName
from magnetar.names import TopicName

REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID = "REAL_TOPIC", "REAL_SUBSCRIPTION", "ORIGIN_MESSAGE_ID"
ORIGIN_MESSAGE_ID_MISSPELT = "ORIGIN_MESSAGE_IDY_TIME"  # by Java and Go clients, for years
DEATH_REASON, DEATH_DESCRIPTION, DEATH_HISTORY = "DEATH_REASON", "DEATH_DESCRIPTION", "DEATH_HISTORY"
RECONSUMETIMES = "RECONSUMETIMES"  # how often a client sent it to its retry topic

BY_CLIENT = "Client"
"""The reason of a letter that a client published by its own policy: it does not say why."""

UNKNOWN = "Unknown"
"""The reason of a message in a dead letter topic that says nothing of itself."""

ORIGINS_MAX = 1000
"""How many origins are told apart: who publishes letters may call them anything."""

_REASONS_MAX = 50
_SHOWN_MAX = 1024  # of a text that anybody may have written

_ID = re.compile(r"(\d{1,19}):(\d{1,19}):(-?\d{1,10})(?::(-?\d{1,10}))?", re.ASCII)
_ID_OF_CPP = re.compile(r"\((\d{1,19}),(\d{1,19}),(-?\d{1,10}),(-?\d{1,10})\)", re.ASCII)
_COUNT = re.compile(r"\d{1,10}", re.ASCII)


Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # anybody may have written it


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """One death. `first` and `last` are the times, in ms, of its first and its last failure."""

    topic: str
    subscription: str
    reason: str
    count: Int64
    first: Int64
    last: Int64


class Epitaph(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All of it. What a letter does not say is None."""

    reason: str
    description: str | None = None
    origin_topic: str | None = None
    origin_subscription: str | None = None
    origin_message_id: str | None = None
    count: int | None = None


_history = msgspec.json.Decoder(list[Death])


def history_of(properties: Mapping[str, str]) -> list[Death]:
    """The deaths that a message tells of; none if what it tells cannot be read."""
    try:
        return _history.decode(properties.get(DEATH_HISTORY, "[]"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []


def _id_text(properties: Mapping[str, str]) -> str:
    return properties.get(ORIGIN_MESSAGE_ID) or properties.get(ORIGIN_MESSAGE_ID_MISSPELT) or ""


def _id_in(properties: Mapping[str, str]) -> re.Match[str] | None:
    text = _id_text(properties)
    return _ID.fullmatch(text) or _ID_OF_CPP.fullmatch(text)


def id_in(properties: Mapping[str, str]) -> tuple[int, int, int] | None:
    """Ledger, entry and batch index (-1 outside of a batch) of the message a letter is for."""
    match = _id_in(properties)
    if match is None:
        return None
    return int(match[1]), int(match[2]), int(match[4]) if match[4] is not None else -1


def read_epitaph(properties: Mapping[str, str], letter_topic: TopicName) -> Epitaph:
    """What the letter says; its subscription may also be told by the name of the topic that it is in."""
    topic, message_id = properties.get(REAL_TOPIC), _message_id(properties)
    is_of_client = bool(topic or message_id)
    return Epitaph(
        reason=_cut(properties.get(DEATH_REASON)) or (BY_CLIENT if is_of_client else UNKNOWN),
        description=_cut(properties.get(DEATH_DESCRIPTION)),
        origin_topic=_cut(topic),
        origin_subscription=_cut(properties.get(REAL_SUBSCRIPTION)) or _subscription_in(letter_topic, topic),
        origin_message_id=message_id,
        count=_count(properties),
    )


def _message_id(properties: Mapping[str, str]) -> str | None:
    """`ledger:entry:partition`, and `:batch index` of a message of a batch; what is no id, as it is."""
    match = _id_in(properties)
    if match is None:
        return _cut(_id_text(properties))
    batch = f":{match[4]}" if match[4] is not None and int(match[4]) >= 0 else ""
    return f"{match[1]}:{match[2]}:{match[3]}{batch}"


def _subscription_in(letter_topic: TopicName, topic: str | None) -> str | None:
    """Of `{topic}-{subscription}-DLQ`."""
    if not topic:
        return None
    try:
        start = f"{TopicName.parse(topic).base.full}-"
    except InvalidName:
        return None
    full = letter_topic.base.full
    if not full.startswith(start) or not full.endswith(DEAD_LETTER_SUFFIX):
        return None
    return full[len(start) : -len(DEAD_LETTER_SUFFIX)] or None


def _count(properties: Mapping[str, str]) -> int | None:
    history = history_of(properties)
    if history:
        return history[-1].count
    text = properties.get(RECONSUMETIMES, "")
    return int(text) if _COUNT.fullmatch(text) else None


def _cut(text: str | None) -> str | None:
    return text[:_SHOWN_MAX] if text else None


# -- many of them


class Tallied(msgspec.Struct, rename="camel"):
    """How many letters, by reason, and the times in ms between which they were published."""

    letters: int = 0
    reasons: dict[str, int] = {}
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, reason: str, time_ms: int) -> None:
        self.letters += 1
        known = reason if reason in self.reasons or len(self.reasons) < _REASONS_MAX else UNKNOWN
        self.reasons[known] = self.reasons.get(known, 0) + 1
        self.first_ms = time_ms if self.first_ms is None else min(self.first_ms, time_ms)
        self.last_ms = time_ms if self.last_ms is None else max(self.last_ms, time_ms)


class Tally:
    """Counts letters: all of them, and by where they come from."""

    def __init__(self) -> None:
        self.all = Tallied()
        self.by_origin: dict[tuple[str | None, str | None], Tallied] = {}
        self.elsewhere = 0  # letters of origins that are too many

    def add(self, epitaph: Epitaph, time_ms: int) -> None:
        self.all.add(epitaph.reason, time_ms)
        origin = (epitaph.origin_topic, epitaph.origin_subscription)
        tallied = self.by_origin.get(origin)
        if tallied is None:
            if len(self.by_origin) >= ORIGINS_MAX:
                self.elsewhere += 1
                return
            tallied = self.by_origin[origin] = Tallied()
        tallied.add(epitaph.reason, time_ms)

"""Offsets: how far each partition was read, their order, and every spelling of them.

An offset is the last message that is included: `ledger:entry:partition`, with `:batch index` where it is inside of an
entry. Without a batch index it is the whole entry. Knows nothing of brokers or options.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from magnetar import errors as server_errors
from magnetar.client.errors import InvalidArgument
from magnetar.client.message import EARLIEST, LATEST, MessageId
from magnetar.names import TopicName
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import shortened

STARTING: Final = "startingOffsets"
"""The option whose offsets are the messages before the first one to read."""

_WHOLE: Final = 1 << 31

SortKey = tuple[int, int, int]


def sort_key(offset: MessageId) -> SortKey:
    """Offsets of one partition compare by this: a whole entry is after every message in it."""
    return offset.ledger_id, offset.entry_id, offset.batch_index if offset.batch_index >= 0 else _WHOLE


def whole_entry(offset: MessageId) -> MessageId:
    """The offset after the whole entry that the message is in."""
    return MessageId(offset.ledger_id, offset.entry_id, offset.partition)


class Offsets(Mapping[str, MessageId]):
    """Offsets by the full name of the partition; never changed."""

    __slots__ = ("_by_topic",)

    def __init__(self, by_topic: Mapping[str, MessageId] | None = None) -> None:
        self._by_topic = dict(sorted((by_topic or {}).items()))

    def __getitem__(self, topic: str) -> MessageId:
        return self._by_topic[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_topic)

    def __len__(self) -> int:
        return len(self._by_topic)

    def __repr__(self) -> str:
        return f"Offsets({self.to_json()})"

    def with_offsets(self, by_topic: Mapping[str, MessageId]) -> Offsets:
        return Offsets(self._by_topic | dict(by_topic))

    def to_json(self) -> dict[str, str]:
        """What Spark keeps in a checkpoint."""
        return {topic: str(offset) for topic, offset in self._by_topic.items()}

    @staticmethod
    def of_json(what: str, value: object) -> Offsets:
        """Reads what `to_json` made; `what` is where it is from."""
        if not isinstance(value, Mapping):
            raise InvalidOption(f"{what} is {shortened(value)}: it has to be a map from topics to offsets")
        return Offsets({_topic(what, name): _offset(what, name, offset) for name, offset in value.items()})


def _topic(what: str, name: object) -> str:
    try:
        return TopicName.parse(str(name)).full
    except server_errors.InvalidName as error:
        raise InvalidOption(f"{what}: {error}") from None


def _offset(what: str, topic: str, value: object) -> MessageId:
    if not isinstance(value, str):
        raise InvalidOption(f"{what}: the offset of {topic} is {shortened(value)}, not a text ledger:entry:partition")
    try:
        return MessageId.parse(value)
    except InvalidArgument as error:
        raise InvalidOption(f"{what}: the offset of {topic}: {error}") from None


@dataclass(frozen=True)
class Instant:
    """The place before the first message that was published at this time or later."""

    time_ms: int


Point = MessageId | Instant
"""EARLIEST, LATEST, an offset or a time."""


@dataclass(frozen=True)
class OffsetSpec:
    """Where a read begins or ends, as a user says it: for every topic the same, or by topic."""

    option: str
    everywhere: Point | None = None
    by_topic: Mapping[str, Point] = field(default_factory=dict)

    def of(self, partition: str) -> Point:
        """The point for a partition: its own, or that of the topic it belongs to."""
        if self.everywhere is not None:
            return self.everywhere
        base = TopicName.parse(partition).base.full
        point = self.by_topic.get(partition, self.by_topic.get(base))
        if point is None:
            raise InvalidOption(f"option {self.option} names no offset for {partition}")
        return point

    def check_topics(self, partitions: Mapping[str, object]) -> None:
        """Refuses names that are not read."""
        known = set(partitions) | {TopicName.parse(partition).base.full for partition in partitions}
        for topic in self.by_topic:
            if topic not in known:
                raise InvalidOption(f"option {self.option} names {topic}, which is not among the topics to read")


_WORDS: dict[str, Point] = {"earliest": EARLIEST, "latest": LATEST}
_ALLOWED = "earliest, latest, a time (ISO 8601, or milliseconds since the epoch), or JSON from topics to offsets"
_MS_MAX = 253402300799999  # the last millisecond of the year 9999


def parse_offset_spec(option: str, text: str) -> OffsetSpec:
    """Reads `startingOffsets` or `endingOffsets`; raises `InvalidOption`, which names the option and the topic."""
    text = text.strip()
    if text.startswith("{"):
        return OffsetSpec(option, by_topic=_points(option, text))
    point = _word_or_time(text)
    if point is None:
        raise InvalidOption(f"option {option} is {shortened(text)}: it has to be {_ALLOWED}")
    return OffsetSpec(option, everywhere=point)


def _points(option: str, text: str) -> dict[str, Point]:
    try:
        pairs = json.loads(text, object_pairs_hook=lambda pairs: pairs)
    except (ValueError, RecursionError) as error:
        raise InvalidOption(f"option {option} is not JSON: {error}") from None
    if not pairs:
        raise InvalidOption(f"option {option} names no topic: it has to be {_ALLOWED}")
    points: dict[str, Point] = {}
    for name, value in pairs:
        topic = _topic(f"option {option}", name)
        if topic in points:
            raise InvalidOption(f"option {option} names {topic} twice")
        points[topic] = _point(option, topic, value)
    return points


def _point(option: str, topic: str, value: object) -> Point:
    """An offset in JSON: a word, a time, an id as text, or its serialized bytes as numbers."""
    what = f"option {option}"
    if isinstance(value, list):
        return _as_scala_reads(option, _serialized(what, topic, value))
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise InvalidOption(
            f"{what}: the offset of {topic} is {shortened(value)}: it has to be earliest, latest, a time, an id "
            "ledger:entry:partition, or the bytes of a serialized id"
        )
    text = value.strip()
    if text.startswith("["):
        try:
            numbers = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidOption(f"{what}: the offset of {topic} is not a list of bytes: {error}") from None
        return _as_scala_reads(option, _serialized(what, topic, numbers))
    point = _word_or_time(text)
    if point is not None:
        return point
    return _offset(what, topic, text)


def _serialized(what: str, topic: str, numbers: object) -> MessageId:
    """The bytes of an id, which may be signed, as Java writes them."""
    try:
        data = bytes(number & 0xFF if -128 <= number < 256 else -1 for number in numbers)  # type: ignore[attr-defined]
        offset = MessageId.from_bytes(data)
    except (TypeError, ValueError, InvalidArgument):
        raise InvalidOption(
            f"{what}: the offset of {topic} is {shortened(numbers)}, which are not the bytes of a serialized message id"
        ) from None
    return LATEST if offset.position == LATEST.position else offset


def _as_scala_reads(option: str, message: MessageId) -> MessageId:
    """Its spelling is of the Scala connector, for which a read begins with that message, not after it."""
    if option != STARTING or message.entry_id < 0 or message == LATEST:
        return message
    if message.batch_index > 0:
        return MessageId(message.ledger_id, message.entry_id, message.partition, message.batch_index - 1)
    return MessageId(message.ledger_id, message.entry_id - 1, message.partition)


def _word_or_time(text: str) -> Point | None:
    if (word := _WORDS.get(text.lower())) is not None:
        return word
    if re.fullmatch(r"[0-9]{1,15}", text):
        return Instant(int(text)) if int(text) <= _MS_MAX else None
    if not re.match(r"[0-9]{4}-", text):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    # Whole milliseconds, as brokers count; a fraction of one is never lost at the beginning.
    return Instant(max(0, int(time.timestamp() * 1000)))

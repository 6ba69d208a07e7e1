"""Offsets: how far each partition was read, their order, and their notations.

An offset is the last message included: `ledger:entry:partition`, with `:batch index` inside an entry and without it
for the whole entry. Knows nothing of brokers.
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
"""Its offsets are exclusive: reading starts after them."""

_WHOLE: Final = 1 << 31

_TASKS: Final = "//minPartitions"
"""Beside the offsets in a checkpoint, under a name that no topic can have."""

SortKey = tuple[int, int, int]


def sort_key(offset: MessageId) -> SortKey:
    """Sort key for offsets of one partition: a whole entry is after every message in it."""
    return offset.ledger_id, offset.entry_id, offset.batch_index if offset.batch_index >= 0 else _WHOLE


def whole_entry(offset: MessageId) -> MessageId:
    """The offset of the whole entry that contains the message."""
    return MessageId(offset.ledger_id, offset.entry_id, offset.partition)


class Offsets(Mapping[str, MessageId]):
    """Offsets by full partition name; immutable."""

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
        """The form in Spark's checkpoint."""
        return {topic: str(offset) for topic, offset in self._by_topic.items()}

    @staticmethod
    def of_json(what: str, value: object) -> Offsets:
        """Parses the form of `to_json` and of `with_tasks`; `what` names it in errors."""
        if not isinstance(value, Mapping):
            raise InvalidOption(f"{what} is {shortened(value)}: it must be a map from topics to offsets")
        topics = [(name, offset) for name, offset in value.items() if name != _TASKS]
        return Offsets({_topic(what, name): _offset(what, name, offset) for name, offset in topics})


def with_tasks(end: dict[str, str], tasks: int | None) -> dict[str, str]:
    """The end of a micro-batch, with the number of tasks that share its ranges.

    A repeated micro-batch must be split as it was: the sink takes the rows that a task has written for duplicates.
    """
    return end if tasks is None else end | {_TASKS: str(tasks)}


def tasks_of(what: str, end: Mapping[str, object]) -> int | None:
    """The number that `with_tasks` added."""
    value = end.get(_TASKS)
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch("[1-9][0-9]{0,5}", value):
        raise InvalidOption(f"{what}: {_TASKS} is {shortened(value)}: it must be a number of tasks")
    return int(value)


def _topic(what: str, name: object) -> str:
    try:
        return TopicName.parse(str(name)).full
    except server_errors.InvalidName as error:
        raise InvalidOption(f"{what}: {error}") from None


def _offset(what: str, topic: str, value: object) -> MessageId:
    if not isinstance(value, str):
        raise InvalidOption(
            f"{what}: the offset of {topic} is {shortened(value)}: it must be a string ledger:entry:partition"
        )
    try:
        return MessageId.parse(value)
    except InvalidArgument as error:
        raise InvalidOption(f"{what}: the offset of {topic}: {error}") from None


@dataclass(frozen=True)
class Instant:
    """The position before the first message published at or after this time."""

    time_ms: int


Point = MessageId | Instant
"""EARLIEST, LATEST, an offset or a time."""


@dataclass(frozen=True)
class OffsetSpec:
    """Where a read starts or ends, as an option specifies it: the same for every topic, or by topic."""

    option: str
    everywhere: Point | None = None
    by_topic: Mapping[str, Point] = field(default_factory=dict)

    def of(self, partition: str) -> Point:
        """The point for a partition: its own, or that of its topic."""
        if self.everywhere is not None:
            return self.everywhere
        base = TopicName.parse(partition).base.full
        point = self.by_topic.get(partition, self.by_topic.get(base))
        if point is None:
            raise InvalidOption(f"option {self.option} has no offset for {partition}")
        return point

    def check_topics(self, partitions: Mapping[str, object]) -> None:
        """Rejects topics that are not read."""
        known = set(partitions) | {TopicName.parse(partition).base.full for partition in partitions}
        for topic in self.by_topic:
            if topic not in known:
                raise InvalidOption(f"option {self.option} names {topic}, which is not among the topics to read")


_WORDS: dict[str, Point] = {"earliest": EARLIEST, "latest": LATEST}
_ALLOWED = "earliest, latest, a time (ISO 8601, or milliseconds since the epoch), or JSON from topics to offsets"
_MS_MAX = 253402300799999  # the last millisecond of the year 9999


def parse_offset_spec(option: str, text: str) -> OffsetSpec:
    """Parses `startingOffsets` or `endingOffsets`; raises `InvalidOption`, which names the option and the topic."""
    text = text.strip()
    if text.startswith("{"):
        return OffsetSpec(option, by_topic=_points(option, text))
    point = _word_or_time(text)
    if point is None:
        raise InvalidOption(f"option {option} is {shortened(text)}: it must be {_ALLOWED}")
    return OffsetSpec(option, everywhere=point)


def _points(option: str, text: str) -> dict[str, Point]:
    try:
        pairs = json.loads(text, object_pairs_hook=lambda pairs: pairs)
    except (ValueError, RecursionError) as error:
        raise InvalidOption(f"option {option} is not JSON: {error}") from None
    if not pairs:
        raise InvalidOption(f"option {option} names no topic: it must be {_ALLOWED}")
    points: dict[str, Point] = {}
    for name, value in pairs:
        topic = _topic(f"option {option}", name)
        if topic in points:
            raise InvalidOption(f"option {option} names {topic} twice")
        points[topic] = _point(option, topic, value)
    return points


def _point(option: str, topic: str, value: object) -> Point:
    """An offset in JSON: earliest, latest, a time, an id as a string, or its serialized bytes as numbers."""
    what = f"option {option}"
    if isinstance(value, list):
        return _scala_offset(option, _serialized(what, topic, value))
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise InvalidOption(
            f"{what}: the offset of {topic} is {shortened(value)}: it must be earliest, latest, a time, an id "
            "ledger:entry:partition, or the bytes of a serialized id"
        )
    text = value.strip()
    if text.startswith("["):
        try:
            numbers = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidOption(f"{what}: the offset of {topic} is not a list of bytes: {error}") from None
        return _scala_offset(option, _serialized(what, topic, numbers))
    point = _word_or_time(text)
    if point is not None:
        return point
    return _offset(what, topic, text)


def _serialized(what: str, topic: str, numbers: object) -> MessageId:
    """An id from its bytes, signed or unsigned: Java writes signed ones."""
    try:
        data = bytes(number & 0xFF if -128 <= number < 256 else -1 for number in numbers)  # type: ignore[attr-defined]
        offset = MessageId.from_bytes(data)
    except (TypeError, ValueError, InvalidArgument):
        raise InvalidOption(
            f"{what}: the offset of {topic} is {shortened(numbers)}, which are not the bytes of a serialized message id"
        ) from None
    return LATEST if offset.position == LATEST.position else offset


def _scala_offset(option: str, message: MessageId) -> MessageId:
    """The Scala connector writes ids as bytes, and starts a read at that message, not after it."""
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
    # Rounded down to milliseconds, as brokers count, so that no message is missed at the start.
    return Instant(max(0, int(time.timestamp() * 1000)))

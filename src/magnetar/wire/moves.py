"""Moves: entries that replace messages of another topic, which their metadata names.

A broker stores such an entry and acknowledges those messages in one commit, so the entry exists exactly once, however
often it is sent. Owns the names on the wire and the form of positions; a broker that does not know them ignores them.

    PRODUCER metadata   magnetar.move.topic          the topic that messages are moved from, without a partition
                        magnetar.move.subscription   the subscription that they are acknowledged for, or `*` for all
                        magnetar.move.only           optional: the only subscription of the target topic that the
                                                     entries are for
    entry property      magnetar.moved               their positions, all in one ledger: `12:5,7-9,11.0-3,14.2` is
                                                     entries 5, 7, 8 and 9, and messages 0 to 3 of the batch in entry
                                                     11 and message 2 of that in entry 14
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

MOVE_TOPIC = "magnetar.move.topic"
MOVE_SUBSCRIPTION = "magnetar.move.subscription"
MOVE_ONLY = "magnetar.move.only"
MOVED = "magnetar.moved"
ALL_SUBSCRIPTIONS = "*"

NO_INDEX = -1
"""The batch index of a whole entry."""

_PART = re.compile(r"(\d{1,15})(?:-(\d{1,15})|\.(\d{1,6})(?:-(\d{1,6}))?)?", re.ASCII)
_LEDGER = re.compile(r"\d{1,18}", re.ASCII)


class PositionRange(NamedTuple):
    """Whole entries from `first` to `last`, or messages of one entry from `first_index` to `last_index`."""

    first: int
    last: int
    first_index: int = NO_INDEX
    last_index: int = NO_INDEX

    @property
    def is_whole(self) -> bool:
        return self.first_index == NO_INDEX

    @property
    def text(self) -> str:
        if self.is_whole:
            return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        indexes = (
            f"{self.first_index}" if self.first_index == self.last_index else f"{self.first_index}-{self.last_index}"
        )
        return f"{self.first}.{indexes}"


class Positions(NamedTuple):
    """Positions in one ledger, in ascending order without overlaps."""

    ledger_id: int
    ranges: tuple[PositionRange, ...]

    @property
    def text(self) -> str:
        return f"{self.ledger_id}:{','.join(part.text for part in self.ranges)}"


def parse_positions(text: str) -> Positions:
    """Raises `ValueError`, whose text names the wrong part."""
    ledger, colon, parts = text.partition(":")
    if not colon or not _LEDGER.fullmatch(ledger):
        raise ValueError(f"positions {text[:100]!r} do not begin with a ledger and a colon")
    ranges = tuple(_parsed(part) for part in parts.split(","))
    for before, after in pairwise(ranges):
        is_later = after.first > before.last or (
            after.first == before.last and not before.is_whole and after.first_index > before.last_index
        )
        if not is_later:
            raise ValueError(f"position {after.text} does not come after {before.text}")
    return Positions(int(ledger), ranges)


def _parsed(part: str) -> PositionRange:
    match = _PART.fullmatch(part)
    if match is None:
        raise ValueError(
            f"position {part[:100]!r} is not of the form entry, first-last, entry.index or entry.first-last"
        )
    first = int(match[1])
    if match[3] is not None:
        found = PositionRange(first, first, int(match[3]), int(match[4] or match[3]))
        is_ordered = found.first_index <= found.last_index
    else:
        found = PositionRange(first, int(match[2] or first))
        is_ordered = found.first <= found.last
    if not is_ordered:
        raise ValueError(f"position {part!r} ends before it begins")
    return found


def positions_of(ledger_id: int, messages: Iterable[tuple[int, int]]) -> Positions:
    """Of messages as entry and batch index (`NO_INDEX` for one without a batch), in any order, each once or more."""
    return Positions(ledger_id, tuple(_joined(sorted(set(messages)))))


def _joined(messages: list[tuple[int, int]]) -> Iterator[PositionRange]:
    start = 0
    for _, group in groupby(enumerate(messages), key=_run):
        count = sum(1 for _ in group)
        (first, first_index), (last, last_index) = messages[start], messages[start + count - 1]
        start += count
        yield PositionRange(first, last, first_index, last_index)


def _run(numbered: tuple[int, tuple[int, int]]) -> tuple[int, int]:
    """The same for neighbours: whole entries in a row, or messages of a batch in a row."""
    number, (entry, index) = numbered
    return (NO_INDEX, entry - number) if index == NO_INDEX else (entry, index - number)

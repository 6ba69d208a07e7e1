"""Unacknowledged positions of one topic or partition, for masks over many messages at once.

Owns the forms in which brokers report them: waiting positions (Magnetar), or the cursors of subscriptions (Apache
Pulsar). Knows neither HTTP nor Spark: see `cursor_admin`.

A position becomes one number, in the order of the topic, so that every question is a binary search. Ledgers that a
report does not name lie between those that it names:

    ┌───────────────────────────────────────────────┬──────────────────────┐
    │ 2 * place among the named ledgers, 1 if named │ entry id + 1, 44 bits│
    └───────────────────────────────────────────────┴──────────────────────┘
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from magnetar.client.errors import ServerFailure
from magnetar.wire.moves import PositionRange, parse_positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

RANGES_MAX = 4_000_000
"""Ranges of one partition: every second message of eight million."""

_ENTRY_BITS = 44
_ENTRY_MAX = (1 << _ENTRY_BITS) - 2
_INDEX_BITS = 21
_END = np.iinfo(np.int64).max

_POSITION = r"(-?\d{1,19}):(-?\d{1,19})"
_RANGE = re.compile(rf"\({_POSITION}(?:\.\.|‥){_POSITION}\]", re.ASCII)
_MARK = re.compile(_POSITION, re.ASCII)
_TRUNCATED = "..."

Position = tuple[int, int]
"""Ledger and entry."""


class CursorState(NamedTuple):
    """What one subscription has acknowledged: all up to `mark`, and after it ranges without their first position."""

    mark: Position
    ranges: tuple[tuple[Position, Position], ...]


@dataclass(frozen=True, eq=False)
class Unacknowledged:
    """Ascending ranges of unacknowledged entries, and messages of batches that are acknowledged in part.

    Can be pickled. `ledgers` are those that the report names; `starts` and `ends` are inclusive numbers of entries;
    `batches` are numbers of partly acknowledged entries, and `batch_starts` and `batch_ends` ranges in them, with the
    place in `batches` in front of the batch index.
    """

    ledgers: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    batches: NDArray[np.int64]
    batch_starts: NDArray[np.int64]
    batch_ends: NDArray[np.int64]

    def mask(
        self,
        entries: NDArray[np.int64],
        batch_indexes: NDArray[np.int64],
        ledgers: NDArray[np.int64] | int | None = None,
    ) -> NDArray[np.bool_]:
        """Whether each message is unacknowledged; a batch index of -1 stands for all of an entry.

        Without `ledgers` all messages are of the only one, as in a topic of a Magnetar broker.
        """
        numbers = self._numbers(entries, self._only_ledger() if ledgers is None else ledgers)
        is_open = _contains(self.starts, self.ends, numbers)
        if len(self.batches):
            places = np.searchsorted(self.batches, numbers)
            is_partly = self.batches[np.minimum(places, len(self.batches) - 1)] == numbers
            inside = places << _INDEX_BITS | np.maximum(batch_indexes, 0)
            is_open |= is_partly & ((batch_indexes < 0) | _contains(self.batch_starts, self.batch_ends, inside))
        return is_open

    @property
    def is_empty(self) -> bool:
        return not len(self.starts) and not len(self.batches)

    @property
    def first(self) -> Position | None:
        """The first unacknowledged position; None if there is none, or if it is before every known one."""
        firsts = [int(numbers[0]) for numbers in (self.starts, self.batches) if len(numbers)]
        place = min(firsts, default=0) >> _ENTRY_BITS
        if not firsts or not place & 1:
            return None
        return int(self.ledgers[place >> 1]), (min(firsts) & (1 << _ENTRY_BITS) - 1) - 1

    def _only_ledger(self) -> int:
        if len(self.ledgers) > 1:
            raise ValueError(f"the positions are of {len(self.ledgers)} ledgers: mask needs the one of each message")
        return int(self.ledgers[0]) if len(self.ledgers) else 0

    def _numbers(self, entries: NDArray[np.int64], ledgers: NDArray[np.int64] | int) -> NDArray[np.int64]:
        return _numbers(self.ledgers, np.asarray(ledgers, np.int64), entries)


def everything() -> Unacknowledged:
    """Of a topic that has no durable subscription: everything waits."""
    return _of_ranges(_array([]), _array([0]), _array([_END]))


def of_positions(ledger_id: int, texts: Iterable[str]) -> Unacknowledged:
    """Of a Magnetar broker's report, a text per page: `5,7-9,11.0-3`. Raises `ServerFailure`."""
    whole: list[PositionRange] = []
    parts: list[PositionRange] = []
    for text in texts:
        if not text:
            continue
        try:
            ranges = parse_positions(f"{ledger_id}:{text}").ranges
        except ValueError as error:
            raise ServerFailure(f"unacknowledged positions: {error}") from None
        for one in ranges:
            (whole if one.is_whole else parts).append(one)
        if len(whole) + len(parts) > RANGES_MAX:
            raise ServerFailure(f"ledger {ledger_id} has more than {RANGES_MAX} ranges of unacknowledged messages")
    ledgers = _array([ledger_id])
    batches = np.unique(_array([one.first for one in parts]))
    places = np.searchsorted(batches, _array([one.first for one in parts])) << _INDEX_BITS
    return Unacknowledged(
        ledgers,
        _numbers(ledgers, ledgers, _array([one.first for one in whole])),
        _numbers(ledgers, ledgers, _array([one.last for one in whole])),
        _numbers(ledgers, ledgers, batches),
        places | _array([one.first_index for one in parts]),
        places | _array([one.last_index for one in parts]),
    )


def of_cursors(cursors: Sequence[CursorState]) -> Unacknowledged:
    """All but what every one of these subscriptions has acknowledged. Partly acknowledged batches count whole."""
    if not cursors:
        return everything()
    named = {ledger for cursor in cursors for ledger, _ in _bounds(cursor)}
    ledgers = _array(sorted(named))
    starts, ends = zip(*(_acknowledged(ledgers, cursor) for cursor in cursors), strict=True)
    return _of_ranges(ledgers, *_without(*_in_all(np.concatenate(starts), np.concatenate(ends), len(cursors))))


def cursor_state(mark: str, ranges: str) -> CursorState:
    """Of `internalStats`: `12:5` and `[(12:7..12:9],(13:1..13:4]]`, which may be cut."""
    match = _MARK.fullmatch(mark)
    if match is None:
        raise ServerFailure(f"mark-delete position {mark[:100]!r} is not of the form ledger:entry")
    found = _RANGE.findall(ranges)
    if len(found) > RANGES_MAX:
        raise ServerFailure(f"a subscription has {len(found)} ranges of acknowledged messages, more than {RANGES_MAX}")
    if len(found) != ranges.count("("):
        raise ServerFailure(f"acknowledged ranges {ranges[:100]!r} are not of the form [(ledger:entry..ledger:entry]]")
    return CursorState(
        (int(match[1]), int(match[2])), tuple(((int(a), int(b)), (int(c), int(d))) for a, b, c, d in found)
    )


# -- numbers


def _array(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def _numbers(named: NDArray[np.int64], ledgers: NDArray[np.int64], entries: NDArray[np.int64]) -> NDArray[np.int64]:
    places = np.searchsorted(named, ledgers)
    is_named = np.zeros(np.shape(ledgers), np.int64)
    if len(named):
        is_named = (named[np.minimum(places, len(named) - 1)] == ledgers).astype(np.int64)
    return (2 * places.astype(np.int64) + is_named) << _ENTRY_BITS | np.clip(entries, -1, _ENTRY_MAX) + 1


def _contains(starts: NDArray[np.int64], ends: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not len(starts):
        return np.zeros(len(numbers), np.bool_)
    places = np.searchsorted(starts, numbers, side="right") - 1
    return (places >= 0) & (numbers <= ends[np.maximum(places, 0)])


def _of_ranges(ledgers: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Unacknowledged:
    none = _array([])
    return Unacknowledged(ledgers, starts, ends, none, none, none)


def _bounds(cursor: CursorState) -> Iterable[Position]:
    yield cursor.mark
    for before, last in cursor.ranges:
        yield before
        yield last


def _acknowledged(ledgers: NDArray[np.int64], cursor: CursorState) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Inclusive ranges of numbers that one subscription has acknowledged, without overlaps."""
    bounds = np.array([cursor.mark, cursor.mark, *(one for both in cursor.ranges for one in both)], np.int64)
    numbers = _numbers(ledgers, bounds[:, 0], bounds[:, 1])
    starts, ends = np.append(0, numbers[2::2] + 1), numbers[1::2]
    is_later = np.append(True, (ends > ends[0])[1:])  # a range below the mark says nothing new
    starts[1:] = np.maximum(starts[1:], ends[0] + 1)
    return starts[is_later], ends[is_later]


def _in_all(
    starts: NDArray[np.int64], ends: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers that lie in `count` of the ranges."""
    at = np.concatenate((starts, ends + 1))
    change = np.repeat(np.array([1, -1], np.int64), (len(starts), len(ends)))
    order = np.argsort(at, kind="stable")
    at, last = at[order], np.append(np.diff(at[order]) > 0, True)
    depth = np.cumsum(change[order])[last]
    at = at[last]
    inside = np.flatnonzero(depth == count)
    return at[inside], at[inside + 1] - 1


def _without(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ranges between these, from 0 to the end."""
    firsts, lasts = np.append(0, ends + 1), np.append(starts - 1, _END)
    is_range = firsts <= lasts
    return firsts[is_range], lasts[is_range]

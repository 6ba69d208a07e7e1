"""Comparison of a source with its copies: two streams in the order of the source, merged entry by entry.

Owns which entries are missing, extra, duplicated, different or late, and which are not, because they are not copied yet
or no longer stored. Keeps bits, not entries: memory does not grow with the topic. Reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from pyroaring import BitMap64

from magnetar.client.message import Position

RANGES_MAX = 1000
"""Ranges reported of each kind; the rest is only counted."""

DIGESTS_MAX = 200_000
"""Digests kept of entries that were not found in order, in case they come later."""


class SourceEntry(NamedTuple):
    """An entry of the source to copy."""

    position: Position
    digest: bytes


class Copy(NamedTuple):
    """An entry of the target, with its position in the source."""

    position: Position
    digest: bytes
    is_repair: bool = False


class Range(msgspec.Struct, frozen=True):
    """Consecutive entries of the source, without those that are not copied."""

    first: Position
    last: Position
    entries: int

    def __str__(self) -> str:
        first, last = (f"{ledger}:{entry}" for ledger, entry in (self.first, self.last))
        return first if first == last else f"{first} to {last}"


class Found(msgspec.Struct, frozen=True):
    """The entries of one kind, with their first RANGES_MAX ranges."""

    entries: int = 0
    ranges: tuple[Range, ...] = ()


NOTHING = Found()


class Compared(msgspec.Struct, kw_only=True):
    """The result for one topic or partition, counted in entries."""

    topic: str = ""
    target: str = ""
    originals: int = 0
    copies: int = 0
    missing: Found = NOTHING
    extra: Found = NOTHING  # without an original in the source
    duplicated: Found = NOTHING
    different: Found = NOTHING
    late: Found = NOTHING  # after entries that were published later
    older: int = 0  # copies of entries that the source no longer stores
    not_yet: int = 0  # after the copied position of the pipeline
    trimmed: int = 0  # before the first copy that the target still stores
    earlier: int = 0  # before the first copy, and left out on request
    filtered: int = 0  # missing, perhaps because of the filter
    repaired: int = 0  # late, from an earlier repair
    unplaced: int = 0  # copies without a source position
    unchecked: int = 0  # late, and too many to compare their payloads
    published: int = 0  # missing ones that this run published
    error: str = ""

    @property
    def found(self) -> dict[str, Found]:
        kinds = {
            "missing": self.missing,
            "extra": self.extra,
            "duplicated": self.duplicated,
            "different": self.different,
            "late": self.late,
        }
        return {kind: found for kind, found in kinds.items() if found.entries}


class PositionSet:
    """A set of positions, small while they are dense."""

    def __init__(self) -> None:
        self._ledgers: dict[int, BitMap64] = {}

    def add(self, position: Position) -> None:
        ledger = self._ledgers.get(position[0])
        if ledger is None:
            ledger = self._ledgers[position[0]] = BitMap64()
        ledger.add(position[1])

    def discard(self, position: Position) -> None:
        ledger = self._ledgers[position[0]]
        ledger.discard(position[1])
        if not ledger:
            del self._ledgers[position[0]]

    def __contains__(self, position: Position) -> bool:
        ledger = self._ledgers.get(position[0])
        return ledger is not None and position[1] in ledger

    def __len__(self) -> int:
        return sum(map(len, self._ledgers.values()))

    def __iter__(self) -> Iterator[Position]:
        """In their order."""
        for ledger_id in sorted(self._ledgers):
            for entry_id in self._ledgers[ledger_id]:
                yield Position(ledger_id, entry_id)

    def is_any_between(self, first: Position, last: Position) -> bool:
        """Exclusive on both ends."""
        if first[0] == last[0]:
            ledger = self._ledgers.get(first[0])
            return ledger is not None and ledger.range_cardinality(first[1] + 1, last[1]) > 0
        after = self._ledgers.get(first[0])
        before = self._ledgers.get(last[0])
        return (
            (after is not None and after.max() > first[1])
            or (before is not None and before.min() < last[1])
            or any(first[0] < ledger_id < last[0] for ledger_id in self._ledgers)
        )


class Comparison:
    """`add` takes the copies in the order of the target; `originals` are read in the order of the source, as needed."""

    def __init__(self, originals: Iterable[SourceEntry], *, compares_payloads: bool = True) -> None:
        self._originals = iter(originals)
        self._head = next(self._originals, None)
        self._compares_payloads = compares_payloads
        self._highest: Position | None = None
        self._first_copied: Position | None = None
        self._count = 0
        self._seen = PositionSet()
        self._missing = PositionSet()
        self._extra = PositionSet()
        self._duplicated = PositionSet()
        self._different = PositionSet()
        self._late = PositionSet()
        self._digests: dict[Position, bytes] = {}
        self._result = Compared()

    def add(self, copy: Copy) -> None:
        self._result.copies += 1
        if self._first_copied is None and not copy.is_repair:
            self._first_copied = copy.position
        if self._highest is None or copy.position > self._highest:
            self._add_next(copy)
        else:
            self._add_behind(copy)

    def _add_next(self, copy: Copy) -> None:
        self._highest = copy.position
        while self._head is not None and self._head.position < copy.position:
            self._miss(self._head)
        if self._head is not None and self._head.position == copy.position:
            self._match(copy, self._head.digest)
            self._advance()
        else:
            self._extra.add(copy.position)

    def _add_behind(self, copy: Copy) -> None:
        position = copy.position
        if position in self._seen or position in self._extra:
            self._duplicated.add(position)
        elif position in self._missing:
            self._missing.discard(position)
            self._match(copy, self._digests.pop(position, None))
            if copy.is_repair:
                self._result.repaired += 1
            else:
                self._late.add(position)
        else:
            self._extra.add(position)

    def _match(self, copy: Copy, digest: bytes | None) -> None:
        self._seen.add(copy.position)
        if not self._compares_payloads:
            return
        if digest is None:
            self._result.unchecked += 1
        elif digest != copy.digest:
            self._different.add(copy.position)

    def _miss(self, original: SourceEntry) -> None:
        self._missing.add(original.position)
        if len(self._digests) < DIGESTS_MAX:
            self._digests[original.position] = original.digest
        self._advance()

    def _advance(self) -> None:
        self._result.originals += 1
        self._head = next(self._originals, None)

    def finish(
        self,
        *,
        mark: Position | None,
        before_first: Position,
        is_trimmed: bool,
        is_filtered: bool,
        from_first_copy: bool = False,
    ) -> tuple[Compared, PositionSet]:
        """The result, and the positions that are missing.

        `mark` is the copied position before the first read, None if unknown; `before_first` is the position before the
        first entry that the source still stores; `is_trimmed`: the target has deleted entries; `from_first_copy`:
        replication began with the first copy.
        """
        while self._head is not None:
            self._miss(self._head)
        result = self._result
        missing = PositionSet()
        for position in self._missing:
            if mark is not None and position > mark:
                result.not_yet += 1
            elif is_trimmed and self._is_before_copies(position):
                result.trimmed += 1
            elif from_first_copy and self._is_before_copies(position):
                result.earlier += 1
            elif is_filtered:
                result.filtered += 1
            else:
                missing.add(position)
        extra = PositionSet()
        for position in self._extra:
            if position <= before_first:
                result.older += 1
            else:
                extra.add(position)
        result.missing = _found(missing, self._seen)
        result.extra = _found(extra, self._seen)
        result.duplicated = _found(self._duplicated, None)
        result.different = _found(self._different, None)
        result.late = _found(self._late, None)
        return result, missing

    def _is_before_copies(self, position: Position) -> bool:
        return self._first_copied is None or position < self._first_copied


def _found(positions: PositionSet, apart: PositionSet | None) -> Found:
    """In ranges of neighbours: positions with none of `apart` in between."""
    ranges: list[Range] = []
    entries = 0
    first: Position | None = None
    last = Position(-1, -1)
    count = 0
    for position in positions:
        entries += 1
        if first is not None and _are_neighbours(last, position, apart):
            last, count = position, count + 1
            continue
        if first is not None and len(ranges) < RANGES_MAX:
            ranges.append(Range(first, last, count))
        first, last, count = position, position, 1
    if first is not None and len(ranges) < RANGES_MAX:
        ranges.append(Range(first, last, count))
    return Found(entries, tuple(ranges))


def _are_neighbours(first: Position, second: Position, apart: PositionSet | None) -> bool:
    if apart is None:
        return first[0] == second[0] and first[1] + 1 == second[1]
    return not apart.is_any_between(first, second)

"""Key owners of a Key_Shared subscription: three ways to divide the 65,536 hashes of keys among its consumers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import pairwise
from typing import Protocol

import mmh3

from magnetar.broker.subscription.consumer import Consumer
from magnetar.errors import ConsumerAssignFailed
from magnetar.settings.settings import Settings

HASH_SPACE = 1 << 16


class KeyOwners(Protocol):
    def add(self, consumer: Consumer) -> None: ...

    def remove(self, consumer: Consumer) -> None: ...

    def owner(self, key_hash: int) -> Consumer | None: ...


class ConsistentHashing:
    """A ring with several points per consumer: when one comes or goes, only its neighbours' keys move."""

    def __init__(self, points: int) -> None:
        self._points_per_consumer = points
        self._points: list[int] = []
        self._owners: dict[int, list[Consumer]] = {}

    def add(self, consumer: Consumer) -> None:
        for point in self._points_of(consumer):
            if point not in self._owners:
                self._owners[point] = []
                insort(self._points, point)
            self._owners[point].append(consumer)

    def remove(self, consumer: Consumer) -> None:
        for point in self._points_of(consumer):
            self._owners[point].remove(consumer)
            if not self._owners[point]:
                del self._owners[point]
                del self._points[bisect_left(self._points, point)]

    def owner(self, key_hash: int) -> Consumer | None:
        if not self._points:
            return None
        index = bisect_left(self._points, key_hash)
        return self._owners[self._points[index % len(self._points)]][0]

    def _points_of(self, consumer: Consumer) -> list[int]:
        return [
            mmh3.hash(f"{consumer.name}\x00{index}".encode(), signed=False) % HASH_SPACE
            for index in range(self._points_per_consumer)
        ]


class AutoSplit:
    """Contiguous ranges: a new consumer takes half of the largest one, that of a leaving one goes to its neighbour."""

    def __init__(self) -> None:
        self._ends: list[int] = []  # sorted; range i is (end of i - 1, end of i]
        self._consumers: list[Consumer] = []

    def add(self, consumer: Consumer) -> None:
        if not self._consumers:
            self._ends.append(HASH_SPACE - 1)
            self._consumers.append(consumer)
            return
        starts = [-1, *self._ends[:-1]]
        index = max(range(len(self._ends)), key=lambda i: self._ends[i] - starts[i])
        if self._ends[index] - starts[index] < 2:
            raise ConsumerAssignFailed(f"no hash range is left to split between {len(self._ends) + 1} consumers")
        self._ends.insert(index, (starts[index] + self._ends[index]) // 2)
        self._consumers.insert(index, consumer)

    def remove(self, consumer: Consumer) -> None:
        index = self._consumers.index(consumer)
        del self._consumers[index]
        # The last range has to end at the end of the space: the one before takes over that end.
        del self._ends[index if index < len(self._consumers) else max(index - 1, 0)]

    def owner(self, key_hash: int) -> Consumer | None:
        return self._consumers[bisect_left(self._ends, key_hash)] if self._consumers else None


class StickyRanges:
    """Ranges that the consumers chose themselves; messages of a hash outside all ranges wait."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, Consumer]] = []  # sorted

    def add(self, consumer: Consumer) -> None:
        if not consumer.hash_ranges:
            raise ConsumerAssignFailed(f"consumer {consumer.name!r} in sticky mode has no hash range")
        for start, end in consumer.hash_ranges:
            if not 0 <= start <= end < HASH_SPACE:
                raise ConsumerAssignFailed(f"hash range [{start}, {end}] is not within [0, {HASH_SPACE - 1}]")
        ranges = [*self._ranges, *((start, end, consumer) for start, end in consumer.hash_ranges)]
        ranges.sort(key=_start_of)
        for taken, new in pairwise(ranges):
            if new[0] <= taken[1]:
                if new[2] is not consumer:
                    taken, new = new, taken
                raise ConsumerAssignFailed(
                    f"hash range [{new[0]}, {new[1]}] overlaps [{taken[0]}, {taken[1]}] of consumer {taken[2].name!r}"
                )
        self._ranges = ranges

    def remove(self, consumer: Consumer) -> None:
        self._ranges = [row for row in self._ranges if row[2] is not consumer]

    def owner(self, key_hash: int) -> Consumer | None:
        index = bisect_right(self._ranges, key_hash, key=_start_of) - 1
        if index < 0 or self._ranges[index][1] < key_hash:
            return None
        return self._ranges[index][2]


def _start_of(row: tuple[int, int, Consumer]) -> int:
    return row[0]


def key_owners(settings: Settings, *, sticky: bool) -> KeyOwners:
    """The division that the consumers or else the settings request."""
    if sticky:
        return StickyRanges()
    if settings.subscriptionKeySharedUseConsistentHashing:
        return ConsistentHashing(settings.subscriptionKeySharedConsistentHashingReplicaPoints)
    return AutoSplit()

"""Space of deleted entries: the bytes of each ledger that the disk still holds, until a compaction frees them.

Knows when a compaction is worth its cost, not how it is done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from magnetar.broker import keys

AT_ONCE_BYTES = 32 << 20
"""Deleted bytes that are freed without delay. A compaction may rewrite neighbours, so small ones wait for others."""


class DeletedSpace:
    def __init__(self, patience_ms: int) -> None:
        """`patience_ms` is the longest time that few bytes wait."""
        self._patience_ms = patience_ms
        self._by_ledger: dict[int, int] = {}
        self._since_ms = 0
        self.size = 0

    def add(self, ledger_id: int, size: int, now_ms: int) -> None:
        if not self._by_ledger:
            self._since_ms = now_ms
        self._by_ledger[ledger_id] = self._by_ledger.get(ledger_id, 0) + size
        self.size += size

    def is_due(self, now_ms: int) -> bool:
        if self.size >= AT_ONCE_BYTES:
            return True
        return bool(self._by_ledger) and now_ms - self._since_ms >= self._patience_ms

    def take(self, living: Iterable[int]) -> list[tuple[bytes, bytes]]:
        """Key ranges to compact, once. Neighbours without another `living` ledger between them are one range."""
        ledgers, kept = sorted(self._by_ledger), sorted(living)
        self._by_ledger.clear()
        self.size = 0
        ranges: list[tuple[int, int]] = []
        for ledger in ledgers:
            if ranges and not _has_between(kept, ranges[-1][1], ledger):
                ranges[-1] = ranges[-1][0], ledger
            else:
                ranges.append((ledger, ledger))
        return [(keys.ID.pack(first), keys.ID.pack(last + 1)) for first, last in ranges]


def _has_between(ordered: list[int], before: int, after: int) -> bool:
    index = bisect_left(ordered, before + 1)
    return index < len(ordered) and ordered[index] < after

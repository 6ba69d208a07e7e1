"""Delayed messages of a topic: an index on disk, ordered by delivery time.

A message is delayed if and only if it is in the index. Memory only holds how far the index was processed: everything
before that is due, whether its key is still on disk or not.
"""

from __future__ import annotations

from magnetar.broker import keys
from magnetar.broker.commit import Commits
from magnetar.storage.api import Batch, Space, Storage

_WINDOW = 1000  # messages woken per turn


class DelayedIndex:
    __slots__ = ("_commits", "_next_key", "_prefix", "_storage", "_woken", "next_ms")

    def __init__(self, storage: Storage, commits: Commits, topic_id: int) -> None:
        self._storage = storage
        self._commits = commits
        self._prefix = keys.under(keys.DELAYED, topic_id)
        self._next_key = self._prefix
        self._woken: set[bytes] = set()  # removed, but perhaps still visible in storage
        self.next_ms: int | None = None

    def load(self) -> None:
        rows = self._storage.scan(Space.STATE, self._next_key, keys.after(self._prefix), limit=1)
        self.next_ms = self._time_of(rows[0][0]) if rows else None

    def add(self, batch: Batch, deliver_at_ms: int, entry_id: int) -> None:
        batch.put(self._key(deliver_at_ms, entry_id), b"")

    def holds(self, deliver_at_ms: int, entry_id: int) -> bool:
        """Whether a confirmed message is still delayed."""
        key = self._key(deliver_at_ms, entry_id)
        # The time alone is not enough: it may have passed before a restart, on a clock that was set back since.
        if key < self._next_key or key in self._woken:
            return False
        return self._storage.get(Space.STATE, key) is not None

    def confirmed(self, deliver_at_ms: int, entry_id: int, now_ms: int) -> None:
        """An added message is durable, and visible to readers from now on."""
        key = self._key(deliver_at_ms, entry_id)
        if deliver_at_ms > now_ms and key < self._next_key:
            self._next_key = key  # the clock was set back since the index was last processed
        if key < self._next_key:
            # It became due while it was being written: it is delivered without the index.
            self._commits.open().batch.delete(key)
        elif self.next_ms is None or deliver_at_ms < self.next_ms:
            self.next_ms = deliver_at_ms

    def take_due(self, now_ms: int) -> list[int]:
        """Removes and returns due entries, earliest first. A long list takes several calls."""
        if self.next_ms is None or self.next_ms > now_ms:
            return []
        end = self._key(now_ms + 1, 0)
        rows = self._storage.scan(Space.STATE, self._next_key, end, limit=_WINDOW)
        group = self._commits.open()
        woken = {key for key, _ in rows}
        for key in woken:
            group.batch.delete(key)
        self._woken |= woken
        group.completions.append(lambda: self._woken.difference_update(woken))
        self._next_key = max(self._next_key, end) if len(rows) < _WINDOW else rows[-1][0] + b"\x00"
        self.load()
        return [keys.ID.unpack_from(key, 17)[0] for key, _ in rows]

    def delete(self, batch: Batch) -> None:
        batch.delete_range(Space.STATE, self._prefix, keys.after(self._prefix))

    def _key(self, deliver_at_ms: int, entry_id: int) -> bytes:
        return self._prefix + keys.PAIR.pack(deliver_at_ms, entry_id)

    @staticmethod
    def _time_of(key: bytes) -> int:
        time_ms: int = keys.ID.unpack_from(key, 9)[0]
        return time_ms

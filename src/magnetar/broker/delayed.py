"""The messages of one topic whose time has not come: an index on disk, ordered by time.

A message is in the index from its publish to its hour. Memory holds only where the index starts; `until_ms` is how
far it has been worked off, and a message is delayed if and only if its time is later than that.
"""

from __future__ import annotations

from magnetar.broker import keys
from magnetar.broker.commit import Commits
from magnetar.storage.api import Batch, Space, Storage

_WINDOW = 1000  # messages woken per turn


class DelayedIndex:
    __slots__ = ("_commits", "_next_key", "_prefix", "_storage", "next_ms", "until_ms")

    def __init__(self, storage: Storage, commits: Commits, topic_id: int) -> None:
        self._storage = storage
        self._commits = commits
        self._prefix = keys.under(keys.DELAYED, topic_id)
        self._next_key = self._prefix
        self.until_ms = 0
        self.next_ms: int | None = None

    def load(self) -> None:
        rows = self._storage.scan(Space.STATE, self._next_key, keys.after(self._prefix), limit=1)
        self.next_ms = self._time_of(rows[0][0]) if rows else None

    def add(self, batch: Batch, deliver_at_ms: int, entry_id: int) -> None:
        batch.put(self._prefix + keys.PAIR.pack(deliver_at_ms, entry_id), b"")

    def confirmed(self, deliver_at_ms: int, entry_id: int) -> None:
        """An added message is durable now, and visible to readers from here on."""
        if deliver_at_ms <= self.until_ms:
            # Its time came while it was being written: whoever reads it takes it at once.
            self._commits.open().batch.delete(self._prefix + keys.PAIR.pack(deliver_at_ms, entry_id))
        elif self.next_ms is None or deliver_at_ms < self.next_ms:
            self.next_ms = deliver_at_ms

    def take_due(self, now_ms: int) -> list[int]:
        """Entries whose time has come, oldest time first, and forgets them. A long list comes in several calls."""
        if self.next_ms is None or self.next_ms > now_ms:
            return []
        end = self._prefix + keys.PAIR.pack(now_ms + 1, 0)
        rows = self._storage.scan(Space.STATE, self._next_key, end, limit=_WINDOW)
        batch = self._commits.open().batch
        for key, _ in rows:
            batch.delete(key)
        if len(rows) < _WINDOW:
            self.until_ms = max(self.until_ms, now_ms)
            self._next_key = max(self._next_key, end)
        else:
            self.until_ms = max(self.until_ms, self._time_of(rows[-1][0]))
            self._next_key = rows[-1][0] + b"\x00"
        self.load()
        return [keys.ID.unpack_from(key, 17)[0] for key, _ in rows]

    def delete(self, batch: Batch) -> None:
        batch.delete_range(Space.STATE, self._prefix, keys.after(self._prefix))

    @staticmethod
    def _time_of(key: bytes) -> int:
        time_ms: int = keys.ID.unpack_from(key, 9)[0]
        return time_ms

"""The messages of one topic whose time has not come: an index on disk, ordered by time.

A message is in the index from its publish to its hour, and delayed if and only if it is there. Memory holds only how
far the index has been worked off: what is before that is due, whether its key is gone from the disk yet or not.
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
        self._woken: set[bytes] = set()  # taken out, and perhaps still to be seen in storage
        self.next_ms: int | None = None

    def load(self) -> None:
        rows = self._storage.scan(Space.STATE, self._next_key, keys.after(self._prefix), limit=1)
        self.next_ms = self._time_of(rows[0][0]) if rows else None

    def add(self, batch: Batch, deliver_at_ms: int, entry_id: int) -> None:
        batch.put(self._key(deliver_at_ms, entry_id), b"")

    def holds(self, deliver_at_ms: int, entry_id: int) -> bool:
        """Whether the time of a confirmed message has not come."""
        key = self._key(deliver_at_ms, entry_id)
        # Its time alone does not tell: it may have come before a restart, on a clock that was set back since.
        if key < self._next_key or key in self._woken:
            return False
        return self._storage.get(Space.STATE, key) is not None

    def confirmed(self, deliver_at_ms: int, entry_id: int, now_ms: int) -> None:
        """An added message is durable now, and visible to readers from here on."""
        key = self._key(deliver_at_ms, entry_id)
        if deliver_at_ms > now_ms and key < self._next_key:
            self._next_key = key  # the clock was set back since the index was last worked off
        if key < self._next_key:
            # Its time came while it was being written: whoever reads it takes it at once.
            self._commits.open().batch.delete(key)
        elif self.next_ms is None or deliver_at_ms < self.next_ms:
            self.next_ms = deliver_at_ms

    def take_due(self, now_ms: int) -> list[int]:
        """Entries whose time has come, oldest time first, and forgets them. A long list comes in several calls."""
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

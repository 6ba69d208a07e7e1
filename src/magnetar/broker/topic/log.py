"""The log of a persistent topic: append, read, find by time, trim. Knows no subscriptions.

Entry ids are 0, 1, 2 … from `first` to `last`; some may be void, where entries were lost and a repair kept their ids.
`confirmed` is the last durable one: nothing above it is ever read. Entries are stored in runs, which record the bytes
published before them, so the size of any backlog is one look-up. The run of `first` may contain entries before it: they
cannot be read, and are deleted with their run.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence

from magnetar.broker import keys
from magnetar.broker.topic import run
from magnetar.broker.topic.run import Entry, NewEntry, RunDamaged
from magnetar.errors import EntriesDamaged
from magnetar.storage.api import Batch, Space, Storage, StorageError
from magnetar.wire.metadata import MetadataError, metadata_of

_NEVER_OLD_MS = 1 << 62
_PROBES_FOR_TIME = 1000


class TailCache:
    """Newest entries of all topics with consumers, with one size limit for the whole broker."""

    __slots__ = ("_order", "size", "size_max")

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self.size = 0
        self._order: deque[tuple[dict[int, Entry], int, int]] = deque()

    def add(self, tail: dict[int, Entry], entry: Entry) -> None:
        size = len(entry[3]) + 200  # Python's overhead
        tail[entry[0]] = entry
        self._order.append((tail, entry[0], size))
        self.size += size
        while self.size > self.size_max:
            old_tail, entry_id, old_size = self._order.popleft()
            old_tail.pop(entry_id, None)
            self.size -= old_size


class Log:
    """`topic_id` is the ledger id that clients see."""

    __slots__ = (
        "_cache",
        "_on_damage",
        "_prefix",
        "_storage",
        "_tail",
        "confirmed",
        "first",
        "last",
        "size",
        "topic_id",
    )

    def __init__(
        self,
        storage: Storage,
        cache: TailCache,
        topic_id: int,
        on_damage: Callable[[EntriesDamaged], None] = lambda error: None,
    ) -> None:
        """`on_damage` is called whenever entries cannot be read, before the error is raised."""
        self._storage = storage
        self._on_damage = on_damage
        self._cache = cache
        self._tail: dict[int, Entry] = {}
        self._prefix = keys.ID.pack(topic_id)
        self.topic_id = topic_id
        self.first = 0
        self.last = -1
        self.confirmed = -1
        self.size = 0  # bytes ever published; never falls

    def load(self) -> None:
        """Reads the bounds from disk."""
        kept = self._storage.get(Space.STATE, keys.under(keys.FIRST, self.topic_id))
        if kept is not None:
            self.first, self.size = keys.PAIR.unpack(kept)
        # Not `_scan`: without the last run, no id may be given.
        rows = self._storage.scan(Space.ENTRIES, self._key(self.first), keys.after(self._prefix), limit=1, reverse=True)
        if rows:
            key, value = rows[0]
            self.last = _last_of(key)
            self.size = run.bytes_after(value)
        else:
            self.last = self.first - 1
        self.confirmed = self.last

    def append(self, batch: Batch, now_ms: int, new: Sequence[NewEntry], *, keep: bool) -> None:
        """Adds entries to `batch` with the next ids; with `keep` they also stay in memory for consumers at the tail."""
        for entries in run.cut(new):
            value = run.encode(entries, now_ms, self.size)
            first, last = self.last + 1, self.last + len(entries)
            batch.put_entry(self._key(last), value)
            self.last, self.size = last, run.bytes_after(value)
            if keep:
                for entry_id, entry in enumerate(entries, first):
                    self._cache.add(self._tail, (entry_id, *entry))

    def read(self, start: int, limit: int, size_max: int) -> list[Entry]:
        """Up to `limit` confirmed entries from `start` on, about `size_max` bytes, at least one if there is one."""
        end = min(start + limit, self.confirmed + 1)
        start = max(start, self.first)
        if start >= end:
            return []
        tail = self._tail
        if start not in tail:
            return self._read_stored(start, end, size_max)
        entries: list[Entry] = []
        size = 0
        for entry_id in range(start, end):
            entry = tail.get(entry_id)
            if entry is None or size >= size_max:
                break
            entries.append(entry)
            size += len(entry[3])
        return entries

    def _read_stored(self, start: int, end: int, size_max: int) -> list[Entry]:
        entries: list[Entry] = []
        try:
            # The run of the last wanted entry may end after it, by less than a run is long.
            rows = self._storage.scan(
                Space.ENTRIES, self._key(start), self._key(end + run.COUNT_MAX), limit=end - start, size_max=size_max
            )
            for key, value in rows:
                entries += run.decode(_last_of(key), value)
        except (StorageError, struct.error, RunDamaged):
            entries = self._read_before_damage(start, end)
        if entries and (entries[0][0] < start or entries[-1][0] >= end):
            return [entry for entry in entries if start <= entry[0] < end]
        return entries

    def _read_before_damage(self, start: int, end: int) -> list[Entry]:
        """The entries up to the first that cannot be read, run by run; raises if that is `start` itself."""
        entries: list[Entry] = []
        while start < end:
            try:
                found = self._run_at(start)
            except EntriesDamaged:
                if entries:
                    break
                raise
            if found is None:
                break
            try:
                entries += run.decode(*found)
            except (struct.error, RunDamaged) as error:
                if entries:
                    break
                raise self._damaged(start, error) from error
            start = found[0] + 1
        return entries

    def _run_at(self, entry_id: int) -> tuple[int, bytes] | None:
        """The run with this entry or, if it is missing, the next one: its last entry, and its bytes."""
        try:
            return self._first_run(entry_id)
        except StorageError as error:
            found = self._run_behind_damage(entry_id)
            if found is None:
                raise self._damaged(entry_id, error) from error
            return found

    def _first_run(self, entry_id: int) -> tuple[int, bytes] | None:
        rows = self._storage.scan(Space.ENTRIES, self._key(entry_id), keys.after(self._prefix), limit=1)
        return (_last_of(rows[0][0]), rows[0][1]) if rows else None

    def _run_behind_damage(self, entry_id: int) -> tuple[int, bytes] | None:
        """The run with this entry, if it is the first one behind a damaged block: only its later entries lead to it,
        because the key of a run is its last entry, and an index knows only where a block may begin."""
        for later in range(entry_id + 1, entry_id + run.COUNT_MAX):
            try:
                found = self._first_run(later)
                return found if found is not None and found[0] - run.head(found[1])[0] < entry_id else None
            except (StorageError, struct.error):
                continue
        return None

    def _damaged(self, first: int, error: Exception) -> EntriesDamaged:
        damaged = EntriesDamaged(first, f"entries from {self.topic_id}:{first} on cannot be read: {error}", error)
        self._on_damage(damaged)
        return damaged

    def unreadable_from(self, first: int, probes: int) -> int:
        """How many entries from `first` on cannot be read, one by one; at most about `probes`."""
        entry_id = first
        while entry_id <= min(self.confirmed, first + probes - 1):
            try:
                found = self._first_run(entry_id)
                entries = [] if found is None else run.decode(*found)
            except (StorageError, struct.error, RunDamaged):
                entry_id += 1
                continue
            # Entries of a readable run are all readable: see `_run_behind_damage`.
            return max(first, entries[0][0] if entries else entry_id) - first
        return entry_id - first

    def read_one(self, entry_id: int) -> Entry | None:
        entries = self.read(entry_id, 1, 1) if entry_id >= self.first else []
        return entries[0] if entries else None

    def stored_from(self, entry_id: int) -> int:
        """The first entry from `entry_id` on that is not void; one past the last if there is none."""
        while entry_id <= self.confirmed:
            rows = self._storage.scan(
                Space.ENTRIES, self._key(entry_id), keys.after(self._prefix), limit=run.COUNT_MAX, size_max=run.SIZE_MAX
            )
            for key, value in rows:
                for entry in run.decode(_last_of(key), value):
                    if entry[0] >= entry_id:
                        return min(entry[0], self.confirmed + 1)
            if not rows:
                break
            entry_id = _last_of(rows[-1][0]) + 1
        return self.confirmed + 1

    def header(self, entry_id: int) -> tuple[int, int, int, int] | None:
        """messages, broker time ms, bytes before it, deliver at ms."""
        if not self.first <= entry_id <= self.confirmed:
            return None
        found = self._run_at(entry_id)
        try:
            return None if found is None else run.header(*found, entry_id)
        except struct.error as error:
            raise self._damaged(entry_id, error) from error

    def known_header(self, entry_id: int) -> tuple[int, int, int, int] | None:
        """The same for statistics: None also if it cannot be read."""
        try:
            return self.header(entry_id)
        except EntriesDamaged:
            return None

    def size_from(self, entry_id: int) -> int:
        """Bytes of all entries from `entry_id` on; 0 if it cannot be read, so that nothing is too large."""
        if entry_id > self.confirmed:
            return 0
        header = self.known_header(max(entry_id, self.first))
        return self.size - header[2] if header else 0

    def first_received_after(self, time_ms: int) -> int:
        """The first entry that reached the broker after `time_ms`; one past the last if none did."""
        return self._bisect(lambda entry_id: self._received_ms(entry_id) > time_ms)

    def first_published_from(self, time_ms: int) -> int:
        """The first entry whose publish time is `time_ms` or later, as a seek by time defines it."""
        return self._bisect(lambda entry_id: self.published_ms(entry_id) >= time_ms)

    def first_within(self, size: int) -> int:
        """The first of the newest entries that together have at most `size` bytes."""
        return self._bisect(lambda entry_id: self.size_from(entry_id) <= size)

    def trim(self, batch: Batch, first: int) -> None:
        """Deletes every entry before `first`; on disk, every run that ends before it."""
        bytes_before = self.size - self.size_from(first)
        batch.delete_range(Space.ENTRIES, self._key(self.first), self._key(first))
        batch.put(keys.under(keys.FIRST, self.topic_id), keys.PAIR.pack(first, bytes_before))
        for entry_id in [entry_id for entry_id in self._tail if entry_id < first]:
            del self._tail[entry_id]
        self.first = first

    def delete(self, batch: Batch) -> None:
        self._tail.clear()
        batch.delete(keys.under(keys.FIRST, self.topic_id))
        batch.delete_range(Space.ENTRIES, self._prefix, keys.after(self._prefix))

    def _bisect(self, holds: Callable[[int], bool]) -> int:
        """The first entry for which `holds`; it holds for none before and for all after."""
        low, high = self.first, self.confirmed + 1
        while low < high:
            middle = (low + high) // 2
            if holds(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _received_ms(self, entry_id: int) -> int:
        """One that cannot be read is as old as the next that can, or new if there is none near: it is never too old
        by mistake."""
        try:
            header = self.header(entry_id)
        except EntriesDamaged:
            header = self.known_header(entry_id + self.unreadable_from(entry_id, _PROBES_FOR_TIME))
            return header[1] if header else _NEVER_OLD_MS
        return header[1] if header else 0

    def published_ms(self, entry_id: int) -> int:
        """The publish time of an entry, as its producer stamped it; 0 if there is no such entry."""
        entry = self.read_one(entry_id)
        try:
            return metadata_of(entry[3]).publish_time if entry else self._received_ms(entry_id)
        except MetadataError:
            return self._received_ms(entry_id)  # the producer's stamp cannot be read

    def _key(self, entry_id: int) -> bytes:
        return self._prefix + keys.ID.pack(entry_id)


def _last_of(key: bytes) -> int:
    """The id of the last entry of the run under `key`."""
    entry_id: int = keys.ID.unpack_from(key, 8)[0]
    return entry_id

"""The in-memory twin of the RocksDB storage, for tests, simulations and brokers that last as long as a test.

Owns ordered tables in memory and a simulated disk: `crash` loses what was not synced, and writes or syncs can be made
to fail. Knows neither files nor the meaning of keys.
"""

from __future__ import annotations

import threading
from typing import Literal

from sortedcontainers import SortedDict

from magnetar.storage.api import Batch, Space, StorageError

_PUT, _DELETE, _DELETE_RANGE = range(3)

Operation = tuple[int, Space, bytes, bytes]
"""(kind, space, key or start, value or end)"""

Undo = tuple[Space, bytes, bytes | None]
"""(space, key, the value before or None for absent)"""


class MemoryBatch:
    """A list of operations that becomes one atomic write."""

    __slots__ = ("_size_bytes", "operations", "spent")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.spent = False
        self._size_bytes = 0

    def _add(self, operation: Operation) -> None:
        if self.spent:
            raise StorageError("this batch is already written, start a new one")
        if type(operation[2]) is not bytes or type(operation[3]) is not bytes:
            raise TypeError("keys and values of the storage are bytes and nothing else")
        self.operations.append(operation)
        self._size_bytes += len(operation[2]) + len(operation[3])

    def put_entry(self, key: bytes, value: bytes, /) -> None:
        self._add((_PUT, Space.ENTRIES, key, value))

    def put(self, key: bytes, value: bytes, /) -> None:
        self._add((_PUT, Space.STATE, key, value))

    def delete(self, key: bytes, /) -> None:
        self._add((_DELETE, Space.STATE, key, b""))

    def delete_range(self, space: Space, start: bytes, end: bytes, /) -> None:
        if start < end:
            self._add((_DELETE_RANGE, space, start, end))

    def size_bytes(self) -> int:
        return self._size_bytes

    def __len__(self) -> int:
        return len(self.operations)


class MemoryStorage:
    """`Storage` in memory. `crash` and `fail_next` are its only additions to the interface."""

    __slots__ = (
        "_closed",
        "_fail_next",
        "_failed",
        "_lock",
        "_synced",
        "_tables",
        "_unsynced",
        "damage",
        "folder",
        "has_gaps",
        "lost_writes",
        "marked",
        "read_failures",
        "sequence",
    )

    def __init__(self) -> None:
        self._tables = (SortedDict(), SortedDict())
        self._unsynced: list[tuple[int, list[Undo]]] = []  # sequence before each write since the last sync, undo steps
        self._lock = threading.Lock()  # a committer thread writes while others scan
        self.folder = None
        self.damage = ""
        self.read_failures = 0
        self.sequence = 0
        self._synced = 0
        self.marked = 0
        """The operations up to which `mark_synced` has recorded that they are synced."""
        self.has_gaps = False
        self.lost_writes = 0
        """For tests to set: a start that goes on without synced writes."""
        self._fail_next: dict[str, Exception] = {}
        self._failed: Exception | None = None
        self._closed = False

    def batch(self) -> MemoryBatch:
        return MemoryBatch()

    def write(self, batch: Batch, /) -> None:
        if not isinstance(batch, MemoryBatch):
            raise TypeError(f"a batch of this storage is needed, not {type(batch).__name__}")
        with self._lock:
            self._check_usable()
            if batch.spent:
                raise StorageError("this batch is already written, start a new one")
            batch.spent = True
            self._check_healthy("write")
            undo: list[Undo] = []
            for operation in batch.operations:
                self._apply(operation, undo)
            self._unsynced.append((self.sequence, undo))
            self.sequence += len(batch.operations)

    def _apply(self, operation: Operation, undo: list[Undo]) -> None:
        kind, space, key, value = operation
        table = self._tables[space]
        if kind == _PUT:
            undo.append((space, key, table.get(key)))
            table[key] = value
        elif kind == _DELETE:
            undo.append((space, key, table.pop(key, None)))
        else:
            for each in list(table.irange(key, value, (True, False))):
                undo.append((space, each, table.pop(each)))

    def sync(self) -> None:
        with self._lock:
            self._check_usable()
            self._check_healthy("sync")
            self._unsynced.clear()
            self._synced = self.sequence

    def mark_synced(self) -> None:
        with self._lock:
            self.marked = self._synced

    def get(self, space: Space, key: bytes, /) -> bytes | None:
        with self._lock:
            self._check_usable()
            value: bytes | None = self._tables[space].get(key)
            return value

    def scan(
        self,
        space: Space,
        start: bytes,
        end: bytes,
        *,
        limit: int | None = None,
        size_max: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        rows: list[tuple[bytes, bytes]] = []
        rows_left = -1 if limit is None else limit
        size = 0
        with self._lock:
            self._check_usable()
            if start >= end or rows_left == 0:
                return rows
            table = self._tables[space]
            for key in table.irange(start, end, (True, False), reverse):
                value = table[key]
                rows.append((key, value))
                rows_left -= 1
                size += len(value)
                if rows_left == 0 or (size_max is not None and size >= size_max):
                    break
        return rows

    def compact(self, space: Space, start: bytes, end: bytes, /) -> None:
        with self._lock:
            self._check_usable()

    def release_log(self) -> None:
        with self._lock:
            self._check_usable()

    def disk_use(self) -> None:
        return None

    def pressure(self) -> None:
        return None

    def close(self) -> None:
        with self._lock:
            if not self._closed and self._failed is None:
                self._unsynced.clear()
                self._synced = self.marked = self.sequence
            self._closed = True

    def crash(self, keep_unsynced_writes: int = 0) -> MemoryStorage:
        """The storage that a new process would find: everything synced, and the first n unsynced writes.

        This storage is not changed, so that several outcomes of one crash can be checked. After `close` nothing is
        unsynced: a clean restart.
        """
        survivor = MemoryStorage()
        with self._lock:
            survivor._tables = (self._tables[0].copy(), self._tables[1].copy())
            lost = self._unsynced[keep_unsynced_writes:]
            survivor.sequence = survivor._synced = lost[0][0] if lost else self.sequence
            survivor.marked = self.marked
        for _, undo in reversed(lost):
            for space, key, before in reversed(undo):
                if before is None:
                    survivor._tables[space].pop(key, None)
                else:
                    survivor._tables[space][key] = before
        return survivor

    @property
    def unsynced_writes(self) -> int:
        """The number of writes that a crash now could lose."""
        return len(self._unsynced)

    def fail_next(self, error: Exception, *, on: Literal["write", "sync"] = "sync") -> None:
        """Makes the next write or sync raise this error, without effect; the storage stays failed."""
        self._fail_next[on] = error

    def _check_usable(self) -> None:
        if self._closed:
            raise StorageError("the storage is closed")

    def _check_healthy(self, operation: str) -> None:
        if self._failed is None:
            self._failed = self._fail_next.pop(operation, None)
        if self._failed is not None:
            raise self._failed

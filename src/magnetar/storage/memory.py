"""The in-memory twin of the RocksDB storage, for tests, simulations and brokers that live as long as a test.

Owns ordered tables in memory and the pretence of a disk: what was not synced can be lost by `crash`, and writes or
syncs can be made to fail. Knows nothing of files, nor of the meaning of keys.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Literal

from magnetar.storage.api import Batch, Space, StorageError

CHUNK_KEYS_MAX = 1024
"""A chunk of sorted keys is split in two above this: bounds the cost of one insertion, whatever the table's size."""

_PUT, _DELETE, _DELETE_RANGE = range(3)

Operation = tuple[int, Space, bytes, bytes]
"""(kind, space, key or start, value or end)"""

Undo = tuple[Space, bytes, bytes | None]
"""(space, key, the value before or None for absent)"""


class SortedKeys:
    """Distinct keys in order, in chunks. Invariants: no chunk is empty, chunks ascend, `_lasts[i]` ends chunk i."""

    __slots__ = ("_chunks", "_lasts")

    def __init__(self) -> None:
        self._chunks: list[list[bytes]] = []
        self._lasts: list[bytes] = []

    def add(self, key: bytes) -> None:
        """Insert a key that is not there yet."""
        if not self._chunks:
            self._chunks.append([key])
            self._lasts.append(key)
            return
        if key > self._lasts[-1]:
            at = len(self._chunks) - 1
            self._chunks[at].append(key)
            self._lasts[at] = key
        else:
            at = bisect_left(self._lasts, key)
            insort(self._chunks[at], key)
        if len(self._chunks[at]) > CHUNK_KEYS_MAX:
            self._split(at)

    def _split(self, at: int) -> None:
        chunk = self._chunks[at]
        middle = len(chunk) // 2
        self._chunks[at : at + 1] = [chunk[:middle], chunk[middle:]]
        self._lasts.insert(at, chunk[middle - 1])

    def remove(self, key: bytes) -> None:
        """Take out a key that is there."""
        at = bisect_left(self._lasts, key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if not chunk:
            del self._chunks[at], self._lasts[at]
        else:
            self._lasts[at] = chunk[-1]

    def ascending(self, start: bytes, end: bytes) -> Iterator[bytes]:
        for at in range(bisect_left(self._lasts, start), len(self._chunks)):
            chunk = self._chunks[at]
            low = bisect_left(chunk, start) if chunk[0] < start else 0
            if chunk[-1] < end:
                yield from chunk[low:] if low else chunk
            else:
                yield from chunk[low : bisect_left(chunk, end)]
                return

    def descending(self, start: bytes, end: bytes) -> Iterator[bytes]:
        for at in range(min(bisect_left(self._lasts, end), len(self._chunks) - 1), -1, -1):
            chunk = self._chunks[at]
            if chunk[-1] < start:
                return
            high = bisect_left(chunk, end)
            yield from reversed(chunk[bisect_left(chunk, start) : high])

    def copy(self) -> SortedKeys:
        twin = SortedKeys()
        twin._chunks = [chunk.copy() for chunk in self._chunks]
        twin._lasts = self._lasts.copy()
        return twin


class Table:
    """One space: values by key, and the keys in order. Invariant: both hold the same keys."""

    __slots__ = ("keys", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.keys = SortedKeys()

    def put(self, key: bytes, value: bytes) -> bytes | None:
        before = self.values.get(key)
        if before is None:
            self.keys.add(key)
        self.values[key] = value
        return before

    def delete(self, key: bytes) -> bytes | None:
        before = self.values.pop(key, None)
        if before is not None:
            self.keys.remove(key)
        return before

    def set(self, key: bytes, value: bytes | None) -> None:
        """Put, or delete when the value is None."""
        if value is None:
            self.delete(key)
        else:
            self.put(key, value)

    def copy(self) -> Table:
        twin = Table()
        twin.values = self.values.copy()
        twin.keys = self.keys.copy()
        return twin


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

    __slots__ = ("_closed", "_fail_next", "_failed", "_lock", "_tables", "_unsynced")

    def __init__(self) -> None:
        self._tables = (Table(), Table())
        self._unsynced: list[list[Undo]] = []  # one list of undo steps per write since the last sync
        self._lock = threading.Lock()  # a committer thread writes while others scan
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
            self._unsynced.append(undo)

    def _apply(self, operation: Operation, undo: list[Undo]) -> None:
        kind, space, key, value = operation
        table = self._tables[space]
        if kind == _PUT:
            undo.append((space, key, table.put(key, value)))
        elif kind == _DELETE:
            undo.append((space, key, table.delete(key)))
        else:
            for doomed in list(table.keys.ascending(key, value)):
                undo.append((space, doomed, table.delete(doomed)))

    def sync(self) -> None:
        with self._lock:
            self._check_usable()
            self._check_healthy("sync")
            self._unsynced.clear()

    def get(self, space: Space, key: bytes, /) -> bytes | None:
        with self._lock:
            self._check_usable()
            return self._tables[space].values.get(key)

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
            values = table.values
            for key in table.keys.descending(start, end) if reverse else table.keys.ascending(start, end):
                value = values[key]
                rows.append((key, value))
                rows_left -= 1
                size += len(value)
                if rows_left == 0 or (size_max is not None and size >= size_max):
                    break
        return rows

    def compact(self, space: Space, start: bytes, end: bytes, /) -> None:
        with self._lock:
            self._check_usable()

    def close(self) -> None:
        with self._lock:
            if not self._closed and self._failed is None:
                self._unsynced.clear()
            self._closed = True

    def crash(self, keep_unsynced_writes: int = 0) -> MemoryStorage:
        """What a new process would find: all that was synced, and the first n writes that were not.

        This storage itself stays as it was, so that several outcomes of one crash can be looked at. After `close` there
        is nothing unsynced, and this is a clean restart.
        """
        survivor = MemoryStorage()
        with self._lock:
            survivor._tables = (self._tables[0].copy(), self._tables[1].copy())
            lost = self._unsynced[keep_unsynced_writes:]
        for undo in reversed(lost):
            for space, key, before in reversed(undo):
                survivor._tables[space].set(key, before)
        return survivor

    @property
    def unsynced_writes(self) -> int:
        """How many writes a crash now could lose."""
        return len(self._unsynced)

    def fail_next(self, error: Exception, *, on: Literal["write", "sync"] = "sync") -> None:
        """The next write or sync raises this error and has no effect; the storage stays failed, as a real one does."""
        self._fail_next[on] = error

    def _check_usable(self) -> None:
        if self._closed:
            raise StorageError("the storage is closed")

    def _check_healthy(self, operation: str) -> None:
        if self._failed is None:
            self._failed = self._fail_next.pop(operation, None)
        if self._failed is not None:
            raise self._failed

"""A storage whose disk goes wrong: keys that cannot be read, reads that fail for a while, a synced end that is lost.

As RocksDB: a damaged block is noticed by its checksum and every read that touches it raises, and a log that lost its
end refuses to open unless the loss is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magnetar.storage.api import Batch, Space, StorageError, StorageLoss
from magnetar.storage.memory import MemoryBatch, MemoryStorage, Undo

Key = tuple[Space, bytes]


class FaultyStorage(MemoryStorage):
    __slots__ = ("_failing_reads", "_history", "damaged", "failed_reads")

    def __init__(self) -> None:
        super().__init__()
        self.damaged: set[Key] = set()
        self.failed_reads = 0
        self._failing_reads = 0
        self._history: list[list[Undo]] = []  # of every write since the start

    @classmethod
    def of(cls, storage: MemoryStorage, damaged: set[Key]) -> FaultyStorage:
        """The same content on a faulty disk."""
        made = cls()
        made._tables = storage._tables
        made.sequence = made._synced = made.marked = storage.sequence
        made.lost_writes = storage.lost_writes
        made.damaged = set(damaged)
        return made

    # -- faults

    def corrupt(self, space: Space, key: bytes) -> None:
        """Reads that touch this key fail from now on, until it is written again."""
        self.damaged.add((space, key))

    def fail_reads(self, number: int) -> None:
        """The next reads fail, whatever they touch."""
        self._failing_reads = number

    @contextmanager
    def readable(self) -> Iterator[None]:
        """For checks, which read too."""
        damaged, self.damaged = self.damaged, set()
        failing, self._failing_reads = self._failing_reads, 0
        try:
            yield
        finally:
            self.damaged, self._failing_reads = damaged, failing

    def lose_tail(self, writes: int, *, accept_loss: bool) -> FaultyStorage:
        """A start after the last writes were lost although they were synced; StorageLoss unless that is accepted."""
        survivor = MemoryStorage()
        survivor._tables = (self._tables[0].copy(), self._tables[1].copy())
        lost = self._history[len(self._history) - writes :]
        for undo in reversed(lost):
            for space, key, before in reversed(undo):
                if before is None:
                    survivor._tables[space].pop(key, None)
                else:
                    survivor._tables[space][key] = before
        missing = sum(map(len, lost))
        if missing and not accept_loss:
            raise StorageLoss("in memory", missing)
        survivor.sequence = self.sequence
        survivor.lost_writes = missing
        return FaultyStorage.of(survivor, self.damaged)

    @property
    def writes(self) -> int:
        return len(self._history)

    # -- the disk

    def write(self, batch: Batch, /) -> None:
        super().write(batch)
        assert isinstance(batch, MemoryBatch)
        self._history.append(self._unsynced[-1][1])
        if self.damaged:
            self.damaged -= {(operation[1], operation[2]) for operation in batch.operations}
            self.damaged = {(space, key) for space, key in self.damaged if key in self._tables[space]}

    def get(self, space: Space, key: bytes, /) -> bytes | None:
        self._check_read(key in self._tables[space] and (space, key) in self.damaged)
        return super().get(space, key)

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
        rows = super().scan(space, start, end, limit=limit, size_max=size_max, reverse=reverse)
        self._check_read(bool(self.damaged) and any((space, key) in self.damaged for key, _ in rows))
        return rows

    def _check_read(self, is_damaged: bool) -> None:
        if self._failing_reads:
            self._failing_reads -= 1
            self.failed_reads += 1
            raise StorageError("the disk cannot be read")
        if is_damaged:
            self.failed_reads += 1
            raise StorageError("a block is damaged: its checksum does not match")

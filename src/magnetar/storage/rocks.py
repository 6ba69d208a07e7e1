"""RocksDB storage: one data folder, opened by one process.

Owns the options of RocksDB and the translation of its errors. Whose folder it is and which format it has is in
`folder`. Does not know the meaning of keys.

Two facts of rocksdict shape this module. `write` holds the GIL, so nothing in it may wait for the disk: batches are
written without sync, and `sync` flushes the log with the GIL released. An iterator that meets a corrupt block just
ends, so a scan that reaches its end checks the status.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rocksdict import (
    CompactOptions,
    DbClosedError,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
)

from magnetar.storage import checkpoint
from magnetar.storage.api import (
    Batch,
    CheckpointFolder,
    DiskUse,
    Pressure,
    Space,
    StorageDamaged,
    StorageError,
    StorageLoss,
)
from magnetar.storage.damage import note_damage, noted_damage
from magnetar.storage.database import STATE_FAMILY, open_database
from magnetar.storage.folder import claim_folder, raise_format
from magnetar.storage.problem import problem_of
from magnetar.storage.sequence_mark import SequenceMark, keep_logs

_LOG_BEHIND = -1

STOPPED_POLL_S = 0.001
"""Interval of the checks whether RocksDB accepts writes again, after the disk fell behind."""

RANGE_DELETES_MAX = 4096
"""Range deletions beyond which the memtable is flushed: 4,096 cost a read 0.6 ms, 70,000 cost it 19 ms."""

_BLOCK_SIZE = 512  # of st_blocks, whatever the file system's own


class RocksBatch:
    """A native write batch. `put_entry` is the native method itself, so the hot path has no frame of ours."""

    __slots__ = ("_owner", "native", "put_entry", "range_deletes")

    def __init__(self, owner: RocksStorage) -> None:
        self._owner = owner  # not the family's handle: an abandoned batch must not keep the folder open
        self.native = WriteBatch(raw_mode=True)
        self.put_entry = self.native.put
        self.range_deletes = [0, 0]  # by space

    def put(self, key: bytes, value: bytes, /) -> None:
        self.native.put(key, value, self._owner.state_family)

    def delete(self, key: bytes, /) -> None:
        self.native.delete(key, self._owner.state_family)

    def delete_range(self, space: Space, start: bytes, end: bytes, /) -> None:
        if start >= end:  # RocksDB fails the whole write for a reversed range
            return
        self.range_deletes[space] += 1
        self.native.delete_range(start, end, self._owner.state_family if space is Space.STATE else None)

    def size_bytes(self) -> int:
        return self.native.size_in_bytes()

    def __len__(self) -> int:
        return len(self.native)


class RocksStorage:
    """`Storage` on RocksDB."""

    __slots__ = (
        "_accepts_loss",
        "_closed",
        "_compacting",
        "_db",
        "_failed",
        "_range_deletes",
        "_spaces",
        "_synced",
        "_writing",
        "damage",
        "has_gaps",
        "kept_log",
        "lost_writes",
        "mark",
        "path",
        "read_failures",
        "state_family",
    )

    def __init__(self, path: Path, *, accept_loss: bool = False) -> None:
        """Raises StorageLoss if synced writes are missing; with `accept_loss` their log is kept in `kept_log`."""
        self.path = path
        self._failed: StorageError | None = None
        self._closed = False
        self._compacting = threading.Lock()  # a database cannot be closed meanwhile
        self._writing = threading.Lock()  # held for a write, and by a checkpoint, which no write may change
        self._range_deletes = [0, 0]  # by space, written since the last flush from here
        self._synced: int | None = None  # by this process
        self._accepts_loss = accept_loss
        self.mark: SequenceMark | None = None
        self.damage = ""
        self.read_failures = 0
        self.lost_writes = 0
        self.has_gaps = False
        self.kept_log: Path | None = None
        self._db = self._open()
        self.state_family = self._db.get_column_family_handle(STATE_FAMILY)
        self._spaces = (self._db, self._db.get_column_family(STATE_FAMILY))

    def _open(self) -> Rdict:
        claim_folder(self.path)
        self.mark = SequenceMark(self.path)
        try:
            self._check_mark(self.mark, _sequence_before_opening)  # before RocksDB drops what it cannot read
            self.damage = noted_damage(self.path)
            database = open_database(self.path, compacts=not self.damage, skips_damage=self.has_gaps)
        except BaseException:
            self.mark.close()
            raise
        try:
            self._check_mark(self.mark, lambda _: database.latest_sequence_number())
            raise_format(self.path)
        except StorageError:
            database.close()
            self.mark.close()
            raise
        return database

    def _check_mark(self, mark: SequenceMark, found: Callable[[Path], int | None]) -> None:
        if self.lost_writes or (mark.sequence is None and not self._accepts_loss):
            return
        sequence = found(self.path)
        if sequence is None or sequence >= (mark.sequence or 0):
            return
        missing = 1 if sequence == _LOG_BEHIND else (mark.sequence or 0) - sequence
        if not self._accepts_loss:
            raise StorageLoss(self.path, missing)
        self.lost_writes = missing
        self.has_gaps = sequence == _LOG_BEHIND
        self.kept_log = keep_logs(self.path)

    @property
    def folder(self) -> Path:
        return self.path

    @property
    def sequence(self) -> int:
        return self._db.latest_sequence_number()

    def batch(self) -> RocksBatch:
        if self._closed:
            raise StorageError(f"the storage in {self.path} is closed")
        return RocksBatch(self)

    def write(self, batch: Batch, /) -> None:
        if not isinstance(batch, RocksBatch):
            raise TypeError(f"a batch of this storage is needed, not {type(batch).__name__}")
        if self._failed is not None:
            raise self._failed
        self._wait_for_room(batch)
        try:
            with self._writing:
                self._db.write(batch.native)
                self._flush_range_deletes(batch)
        except Exception as error:
            if "already consumed" in str(error):
                raise StorageError("this batch is already written, start a new one") from error
            raise self._failure(error) from error

    def _flush_range_deletes(self, batch: RocksBatch) -> None:
        """The first read after a range deletion sorts all those in the memtable again: they must not pile up."""
        for space, count in enumerate(batch.range_deletes):
            self._range_deletes[space] += count
            if self._range_deletes[space] > RANGE_DELETES_MAX:
                self._range_deletes[space] = 0
                self._spaces[space].flush(False)

    def _wait_for_room(self, batch: RocksBatch) -> None:
        """Wait without the GIL where RocksDB would make the write wait with the GIL held."""
        number = self._db.property_int_value
        try:
            while number("rocksdb.is-write-stopped") and not number("rocksdb.background-errors"):
                time.sleep(STOPPED_POLL_S)
            if rate := number("rocksdb.actual-delayed-write-rate"):
                time.sleep(batch.size_bytes() / rate)
        except Exception as error:
            raise self._failure(error) from error

    def sync(self) -> None:
        if self._failed is not None:
            raise self._failed
        try:
            sequence = self._db.latest_sequence_number()
            self._db.flush_wal(True)
            self._synced = sequence
        except Exception as error:
            raise self._failure(error) from error

    def mark_synced(self) -> None:
        if self._synced is not None and self._failed is None:
            self._write_mark(self._synced)

    def _write_mark(self, sequence: int) -> None:
        if self.mark is not None:
            self.mark.write(sequence)

    def _failure(self, error: Exception) -> StorageError:
        """The error to raise, also by every later write: the content of the disk is unknown."""
        failure = problem_of(error, self.path)
        if not isinstance(error, DbClosedError):
            self._failed = failure
        if isinstance(failure, StorageDamaged):
            note_damage(self.path, str(failure))
        return failure

    def get(self, space: Space, key: bytes, /) -> bytes | None:
        try:
            value: bytes | None = self._spaces[space].get(key)
        except Exception as error:
            raise self._read_failure(error) from error
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
        if start >= end or limit == 0:
            return []
        options = ReadOptions()
        options.set_iterate_upper_bound(end)  # not copied: `end` has to outlive the iterator, as it does here
        family = self._spaces[space]
        rows: list[tuple[bytes, bytes]] = []
        try:
            # Backwards without a key starts below the upper bound.
            items = family.items(True, None, options) if reverse else family.items(False, start, options)
            if _take(items, rows, start, limit, size_max):
                _check_end(family.iter(options), start, rows, reverse)
        except Exception as error:
            raise self._read_failure(error) from error
        return rows

    def _read_failure(self, error: Exception) -> StorageError:
        """Not remembered, unlike a failed write: what can be read is as good as before."""
        self.read_failures += not isinstance(error, DbClosedError)
        return problem_of(error, self.path)

    def compact(self, space: Space, start: bytes, end: bytes, /) -> None:
        if self.damage:
            raise StorageDamaged(f"nothing is compacted: {self.damage}")
        options = CompactOptions()
        options.set_exclusive_manual_compaction(False)  # else level 0 grows meanwhile, until writes are stopped
        with self._compacting:
            try:
                self._spaces[space].compact_range(start, end, options)
            except Exception as error:
                raise problem_of(error, self.path) from error

    def release_log(self) -> None:
        with self._compacting:
            try:
                for family in self._spaces:  # a log is kept as long as any family has something only there
                    family.flush(True)
            except Exception as error:
                raise problem_of(error, self.path) from error

    def checkpoint(self) -> CheckpointFolder:
        """A copy of everything written so far, in a folder beside the data. Slow, releases the GIL: call in a thread.

        Writes wait meanwhile, so most of the data is flushed before.
        """
        try:
            for family in self._spaces:
                family.flush(True)
            with self._writing:
                for family in self._spaces:
                    family.flush(True)
                return checkpoint.collect(self.path)
        except OSError as error:
            raise StorageError(f"no checkpoint in data folder {self.path}: {error.strerror}") from error
        except StorageError:
            raise
        except Exception as error:
            raise problem_of(error, self.path) from error

    def discard_checkpoint(self) -> bool:
        """Whether there was one."""
        try:
            return checkpoint.discard(self.path)
        except OSError as error:
            raise StorageError(f"checkpoint in data folder {self.path} stays: {error.strerror}") from error

    def disk_use(self) -> DiskUse:
        used = 0
        try:
            with os.scandir(self.path) as files:
                for file in files:
                    with contextlib.suppress(FileNotFoundError):  # deleted by a compaction meanwhile
                        used += file.stat().st_blocks * _BLOCK_SIZE
            disk = os.statvfs(self.path)
        except OSError as error:
            raise StorageError(f"data folder {self.path} cannot be measured: {error.strerror}") from error
        return DiskUse(str(self.path.resolve()), used, disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)

    def pressure(self) -> Pressure:
        number = self._db.property_int_value
        names = ("rocksdb.is-write-stopped", "rocksdb.actual-delayed-write-rate", "rocksdb.background-errors")
        try:
            stopped, rate, errors = (number(name) or 0 for name in names)
        except Exception as error:
            raise problem_of(error, self.path) from error
        return Pressure(bool(stopped), rate, errors)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        last = self._last_sync()
        if self._compacting.locked():
            self._db.cancel_all_background(True)  # RocksDB flushes nothing after this
        with self._compacting, self._writing:
            del self.state_family  # a living handle would keep the database open, and its folder locked
            sequence = self.sequence
            found = [last, *map(_closing_problem, self._spaces)]
            problems = [problem for problem in found if problem is not None]
        try:
            if problems and self._failed is None:  # a failure was reported when it happened
                raise problem_of(problems[0], self.path) from problems[0]
            # A loss is known until what was decided about it is on disk.
            if self._failed is None and (self._synced is not None or not self.lost_writes):
                self._write_mark(sequence)
        finally:
            if self.mark is not None:
                self.mark.close()

    def _last_sync(self) -> Exception | None:
        """Everything has to be in the synced log before the end, since its mark says so."""
        if self.mark is None:
            return None
        try:
            self._db.flush_wal(True)
        except Exception as problem:  # reported if nothing failed before
            return problem
        return None


def _sequence_before_opening(path: Path) -> int | None:
    """The last write that RocksDB will find, without changing anything; None if it cannot be read, for any reason.

    `_LOG_BEHIND` if the damaged log ends before what one of the families has in its files: then RocksDB would not open
    at all. What can be read after the damage is needed too.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="magnetar-log-") as own_log:
            found = open_database(path, log_folder=own_log)
            sequence = found.latest_sequence_number()
            found.close()
    except (StorageError, OSError) as error:
        return _LOG_BEHIND if "ahead of WALs" in str(error) else None
    return sequence


def _closing_problem(family: Rdict) -> Exception | None:
    try:
        family.close()
    except Exception as problem:  # kept for later: the other family has to be closed too
        # It is closed, without a flush, because a compaction was cancelled: the log has everything.
        return None if str(problem).startswith("Shutdown in progress") else problem
    return None


def _take(
    items: Iterable[tuple[Any, Any]],
    rows: list[tuple[bytes, bytes]],
    start: bytes,
    limit: int | None,
    size_max: int | None,
) -> bool:
    """Move rows until a limit or a key below start is reached; True when the items ended first."""
    rows_left = -1 if limit is None else limit
    size_left = sys.maxsize if size_max is None else size_max
    for key, value in items:
        if key < start:  # only backwards: rocksdict's lower bound sets the upper bound, so it cannot be used
            return False
        rows.append((key, value))
        rows_left -= 1
        size_left -= len(value)
        if rows_left == 0 or size_left <= 0:
            return False
    return True


def _check_end(iterator: RdictIter, start: bytes, rows: list[tuple[bytes, bytes]], reverse: bool) -> None:
    """Raise if the rows ended early because of an error: `RdictItems` swallows it, `RdictIter` reports it."""
    if not reverse:
        iterator.seek(rows[-1][0] + b"\0" if rows else start)
    elif rows:
        iterator.seek_for_prev(rows[-1][0])
        iterator.prev()
    else:
        iterator.seek_to_last()
    iterator.status()

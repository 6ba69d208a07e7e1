"""The sequence mark: a small file with the number of the last write that is known to be synced.

RocksDB takes a damaged record for the end of its log, and starts without what follows. A start that finds less than the
mark says has lost something that was acknowledged. Owns the file, its lock, and copies of damaged logs; does not know
RocksDB.

The file has two slots, written in turn, so that a torn write leaves the one before it:

    ┌──────────────────────────────────────────────────────────┬──────────────────────────────┐
    │ at 0 and at 4096: magic 8 bytes, turn u64, sequence u64   │ CRC-32 of these 24 bytes u32 │
    └──────────────────────────────────────────────────────────┴──────────────────────────────┘

A slot is written after the sync that it tells of, never before: a crash at any moment leaves a mark that is true.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import threading
import zlib
from pathlib import Path
from struct import Struct

from magnetar.storage.api import StorageBusy, StorageError
from magnetar.storage.folder import sync_folder
from magnetar.storage.problem import problem_of

FILE_NAME = "SEQUENCE"
KEPT_PREFIX = "damaged-log-"

_MAGIC = b"MAGNSEQ1"
_BODY = Struct(">8sQQ")
_CHECKSUM = Struct(">I")
_SLOT_SIZE = 4096  # a block of the disk: writing one slot cannot tear the other
_BUSY = (errno.EAGAIN, errno.EACCES)


class SequenceMark:
    """Open from the start to the end of a storage, and locked: what another process writes says nothing about ours.

    `sequence` is what the file says: None for a new file, and for one without a slot that can be read, which
    `is_damaged`.
    """

    __slots__ = ("_file", "_lock", "_turn", "is_damaged", "path", "sequence")

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._lock = threading.Lock()  # between the writes of a running storage and the one at its end
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise problem_of(error, folder) from error
        try:
            self._claim(folder)
            content = os.pread(self._file, 2 * _SLOT_SIZE, 0)
            if not content:
                os.pwrite(self._file, bytes(2 * _SLOT_SIZE), 0)  # later writes need no new blocks
                os.fsync(self._file)
                sync_folder(folder)
        except OSError as error:
            os.close(self._file)
            raise problem_of(error, folder) from error
        except StorageBusy:
            os.close(self._file)
            raise
        slots = [slot for at in (0, _SLOT_SIZE) if (slot := _read(content[at : at + _SLOT_SIZE])) is not None]
        self._turn, found = max(slots, default=(0, -1))
        self.sequence = found if slots else None
        self.is_damaged = not slots and content.count(0) < len(content)

    def _claim(self, folder: Path) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                raise StorageBusy(f"data folder {folder} is in use by another process") from error
            # File systems without such locks: RocksDB has a lock of its own.

    def write(self, sequence: int) -> None:
        """Everything up to this number is synced. Returns when the mark is, too."""
        with self._lock:
            if self._file < 0 or sequence == self.sequence:
                return
            turn = self._turn + 1
            body = _BODY.pack(_MAGIC, turn, sequence)
            slot = body + _CHECKSUM.pack(zlib.crc32(body))
            try:
                os.pwrite(self._file, slot, (turn % 2) * _SLOT_SIZE)
                os.fdatasync(self._file)
            except OSError as error:
                raise problem_of(error, self.path.parent) from error
            self._turn, self.sequence = turn, sequence

    def close(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)  # and with it the lock
                self._file = -1


def marked_sequence(folder: Path) -> int | None:
    """What the file says, without opening it for writing; None if it does not exist or cannot be read."""
    try:
        content = (folder / FILE_NAME).read_bytes()
    except OSError:
        return None
    slots = [slot for at in (0, _SLOT_SIZE) if (slot := _read(content[at : at + _SLOT_SIZE])) is not None]
    return max(slots)[1] if slots else None


def _read(slot: bytes) -> tuple[int, int] | None:
    """Turn and sequence of a whole slot."""
    if len(slot) < _BODY.size + _CHECKSUM.size:
        return None
    body = slot[: _BODY.size]
    magic, turn, sequence = _BODY.unpack(body)
    if magic != _MAGIC or zlib.crc32(body) != _CHECKSUM.unpack_from(slot, _BODY.size)[0]:
        return None
    return turn, sequence


def keep_logs(folder: Path) -> Path:
    """Keep the logs as they are now, before RocksDB drops what it cannot read; returns where.

    Links suffice: RocksDB reuses only logs that it has written since it was opened, and deletes the others.
    """
    number = 1
    while (kept := folder / f"{KEPT_PREFIX}{number}").exists():
        number += 1
    try:
        kept.mkdir(0o700)
        for log in sorted(folder.glob("*.log")):
            try:
                os.link(log, kept / log.name)
            except OSError:  # a file system without links
                shutil.copy2(log, kept / log.name)
        sync_folder(kept)
        sync_folder(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(kept)
        raise StorageError(f"the damaged log cannot be kept in {kept}: {error.strerror}") from error
    return kept

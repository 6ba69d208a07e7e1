"""A data folder that is read and not changed, while no broker uses it.

Owns the lock that keeps a broker from starting meanwhile. Nothing is written, not even RocksDB's own log.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

from rocksdict import Rdict

from magnetar.storage.api import StorageBusy, StorageError
from magnetar.storage.database import open_database
from magnetar.storage.folder import check_format
from magnetar.storage.rocks import RocksStorage
from magnetar.storage.sequence_mark import marked_sequence


class ReadOnlyStorage(RocksStorage):
    """`get` and `scan` of a folder at rest. It has no batches."""

    __slots__ = ("_lock", "_log_folder", "format")

    def _open(self) -> Rdict:
        self.format = check_format(self.path)
        self._lock = lock_folder(self.path)
        self._log_folder = tempfile.TemporaryDirectory(prefix="magnetar-log-")
        try:
            return open_database(self.path, log_folder=self._log_folder.name)
        except StorageError:
            self._release()
            raise

    @property
    def missing_writes(self) -> int:
        """Synced writes that the folder does not have: its log is damaged, and a broker refuses to start."""
        marked = marked_sequence(self.path)
        return 0 if marked is None else max(0, marked - self.sequence)

    def close(self) -> None:
        super().close()
        self._release()

    def _release(self) -> None:
        unlock_folder(self._lock)
        self._lock = None
        self._log_folder.cleanup()


def lock_folder(path: Path) -> int | None:
    """Keeps brokers from opening the folder until it is unlocked; raises StorageBusy if one has it open.

    None for a folder that no broker has opened yet: a fresh copy.
    """
    try:
        lock = os.open(path / "LOCK", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"data folder {path} cannot be used: {error.strerror}") from error
    try:
        fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StorageBusy(f"data folder {path} is in use by another process") from error
    return lock


def unlock_folder(lock: int | None) -> None:
    if lock is not None:
        with contextlib.suppress(OSError):
            os.close(lock)

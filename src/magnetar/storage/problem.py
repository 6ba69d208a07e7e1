"""Problems of a disk in words: which folder, what kind of problem, and what the system calls it.

RocksDB's errors arrive as bare exceptions; their text is all there is. It contains the system's own words for an error
number, the same for every file system.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from rocksdict import DbClosedError

from magnetar.storage.api import StorageBusy, StorageDamaged, StorageError, StorageFull

_FULL = (errno.ENOSPC, errno.EDQUOT)
_MEANINGS = {
    errno.ENOSPC: "no space left on the disk of data folder {}",
    errno.EDQUOT: "the disk quota of data folder {} is used up",
    errno.EROFS: "the disk of data folder {} is read-only",
    errno.EACCES: "no permission to use data folder {}",
    errno.EPERM: "no permission to use data folder {}",
    errno.EIO: "the disk of data folder {} fails",
    errno.ESTALE: "the network disk of data folder {} is gone",
    errno.ENODEV: "the disk of data folder {} is gone",
    errno.ENXIO: "the disk of data folder {} is gone",
    errno.EMFILE: "too many open files to use data folder {}",
    errno.ENFILE: "too many open files on this machine to use data folder {}",
}
_WORDS = {os.strerror(number).lower(): number for number in _MEANINGS}


def problem_of(error: Exception, path: Path) -> StorageError:
    """The error of RocksDB, or of the system, as ours."""
    text = str(error)
    if isinstance(error, DbClosedError):
        return StorageError(f"the storage in {path} is closed")
    if "LOCK" in text and ("lock file" in text or "lock hold" in text) and "No locks available" not in text:
        return StorageBusy(f"data folder {path} is in use by another process")
    number = error.errno if isinstance(error, OSError) else _number_in(text)
    if number in _MEANINGS:
        kind = StorageFull if number in _FULL else StorageError
        return kind(f"{_MEANINGS[number].format(path)} ({errno.errorcode[number]}): {text}")
    if text.startswith("Corruption"):
        return StorageDamaged(f"data folder {path} is corrupted: {text}")
    return StorageError(f"storage in {path} failed: {text}")


def _number_in(text: str) -> int:
    lower = text.lower()
    return next((number for words, number in _WORDS.items() if words in lower), 0)

"""The ballast: a file that takes space for nothing, to be given up when the disk is full.

RocksDB has to write before it can be opened, so a broker whose disk is full could not even start to delete something.
Owns the file; the caller decides when it is made.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from magnetar.storage.api import StorageError, StorageFull

FILE_NAME = "ballast"

T = TypeVar("T")


class Ballast:
    def __init__(self, folder: Path, size: int) -> None:
        self.path = folder / FILE_NAME
        self.size = size

    @property
    def exists(self) -> bool:
        return self.path.exists()

    def make(self) -> bool:
        """Reserve the space; false if the disk does not give it. Nothing is written where it can be reserved."""
        fresh = self.path.with_name(FILE_NAME + ".new")
        try:
            with open(fresh, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, self.size)
            fresh.rename(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                fresh.unlink()
            return False
        return True

    def give_up(self) -> bool:
        """Free the space; false if there is none to free."""
        try:
            self.path.unlink()
        except OSError:
            return False
        return True


def open_with(ballast: Ballast, open: Callable[[], T]) -> tuple[T, bool]:
    """What `open` returns, and whether the ballast was given up for it."""
    try:
        return open(), False
    except StorageFull as error:
        if not ballast.give_up():
            raise
        try:
            return open(), True
        except StorageError as again:
            raise again from error

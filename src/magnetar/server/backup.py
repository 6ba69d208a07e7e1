"""Online backups: one checkpoint of the data at a time, for a client on this machine that copies it.

Owns the turn: everything decided before is written, the work is done in a thread, and one follows the other. The
broker writes to one fixed place inside its data folder, whatever a request says; where the copy goes is the client's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from magnetar.bounds import BACKUPS
from magnetar.errors import BackupFailed, BackupInTheWay
from magnetar.storage.api import Checkpointed, CheckpointFolder, Storage, StorageError

T = TypeVar("T")


class Backups:
    def __init__(self, storage: Storage, drained: Callable[[], Awaitable[None]]) -> None:
        """`drained()` waits until all changes are written."""
        self._storage = storage
        self._drained = drained
        self._is_busy = False  # a thread makes or removes a checkpoint
        self._kept = 0
        if isinstance(storage, Checkpointed):
            with contextlib.suppress(StorageError):  # reported by the next backup
                storage.discard_checkpoint()  # of a process before this one

    async def make(self) -> CheckpointFolder:
        storage = self._checkpointed()
        if self._kept >= BACKUPS.limit:
            raise BackupInTheWay(
                "another backup is under way, or was left unfinished: `magnetar backup --discard` ends it"
            )
        await self._drained()
        made = await self._in_thread(storage.checkpoint)
        self._kept += 1
        return made

    async def discard(self) -> bool:
        """Removes the checkpoint; whether there was one."""
        found = await self._in_thread(self._checkpointed().discard_checkpoint)
        self._kept = 0
        return found

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._is_busy:
            raise BackupInTheWay("a checkpoint is being made or removed")
        self._is_busy = True
        try:
            return await asyncio.to_thread(work)
        except StorageError as error:
            raise BackupFailed(str(error)) from error
        finally:
            self._is_busy = False

    def _checkpointed(self) -> Checkpointed:
        if not isinstance(self._storage, Checkpointed):
            raise BackupFailed("this broker keeps its messages in memory, there is nothing to copy")
        return self._storage

"""Disk space comes back: compacts the ranges of deleted entries in a thread, busy or idle, at a bounded pace.

Owns when and how fast. Which ranges, and when they are worth it, is the broker's `DeletedSpace`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from magnetar.broker.broker import Broker
from magnetar.storage.api import Space, Storage, StorageError

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
REST_FACTOR = 3
"""Rest after a compaction, in times of its duration: the disk belongs to commits for most of the time."""


class SpaceReclaimer:
    def __init__(self, broker: Broker, storage: Storage, drained: Callable[[], Awaitable[None]]) -> None:
        """`drained()` waits until all changes are written: what is not deleted yet cannot be freed."""
        self._broker = broker
        self._storage = storage
        self._drained = drained

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            # A compaction reads whole files: one that meets a damaged block makes RocksDB refuse every later write.
            is_due = self._broker.deleted_space.is_due(self._broker.clock.monotonic_ms())
            if is_due and not self._broker.damage.has_blocks:
                await self._reclaim()

    async def _reclaim(self) -> None:
        size = self._broker.deleted_space.size
        topics = self._broker.catalog.topics.values()
        ranges = self._broker.deleted_space.take(record.id for record in topics)
        try:
            await self._drained()
            for start, end in ranges:
                await self._paced(self._storage.compact, Space.ENTRIES, start, end)
            await self._paced(self._storage.release_log)
        except StorageError as error:  # one that cannot write any more is the committer's to report
            log.warning("compaction of %d deleted bytes failed: %s", size, error)

    async def _paced(self, work: Callable[..., None], *arguments: object) -> None:
        started_s = asyncio.get_running_loop().time()
        await asyncio.to_thread(work, *arguments)
        await asyncio.sleep(REST_FACTOR * (asyncio.get_running_loop().time() - started_s))

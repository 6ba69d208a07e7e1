"""The limit on entries in flight: sent, and without a receipt. Knows nothing of their contents."""

from __future__ import annotations

import asyncio
from collections import deque


class InFlightLimit:
    """Limits the number of entries and their bytes. Waiters are served in order."""

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._entries = 0
        self._bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def try_acquire(self, size: int) -> bool:
        """Whether the entry fits now; then it counts."""
        if self._waiting or not self._fits(size):
            return False
        self._entries += 1
        self._bytes += size
        return True

    async def acquire(self, size: int) -> None:
        if self.try_acquire(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release(size)  # the turn came at the moment of cancellation
            raise

    def release(self, size: int) -> None:
        self._entries -= 1
        self._bytes -= size
        while self._waiting and (self._waiting[0][0].done() or self._fits(self._waiting[0][1])):
            turn, wanted = self._waiting.popleft()
            if not turn.done():
                self._add(wanted)
                turn.set_result(None)

    def _fits(self, size: int) -> bool:
        """An entry above the limit may go alone."""
        return self._entries < self._entries_max and (not self._entries or self._bytes + size <= self._bytes_max)

    def _add(self, size: int) -> None:
        self._entries += 1
        self._bytes += size

"""How much may be on its way to a broker. Knows nothing of what it is."""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """A number of things and of their bytes. Whoever waits for room gets it in the order of asking."""

    def __init__(self, things_max: int, bytes_max: int) -> None:
        self._things_max = things_max
        self._bytes_max = bytes_max
        self._things = 0
        self._bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    def take_now(self, size: int) -> bool:
        """Takes it only if nobody has to wait for it."""
        if self._waiting or not self._has_room(size):
            return False
        self._things += 1
        self._bytes += size
        return True

    async def take(self, size: int) -> None:
        if self.take_now(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, size))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.give(size)  # the turn came at the moment of giving up
            raise

    def give(self, size: int) -> None:
        self._things -= 1
        self._bytes -= size
        while self._waiting and (self._waiting[0][0].done() or self._has_room(self._waiting[0][1])):
            turn, wanted = self._waiting.popleft()
            if not turn.done():
                self._add(wanted)
                turn.set_result(None)

    def _has_room(self, size: int) -> bool:
        """A thing larger than all the room may go alone."""
        return self._things < self._things_max and (not self._things or self._bytes + size <= self._bytes_max)

    def _add(self, size: int) -> None:
        self._things += 1
        self._bytes += size

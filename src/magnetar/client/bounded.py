"""Many coroutines in one loop, a bounded number at a time, each with a time limit.

For modules that must not import asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from magnetar.client.inline import InlineLoop

_T = TypeVar("_T")


class Expired(Exception):
    """The time limit of one coroutine is over."""


async def within_limit(seconds: float, awaited: Awaitable[_T]) -> _T:
    """Raises `Expired`, which is no `TimeoutError`: those of the coroutine itself pass unchanged."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await awaited
    except TimeoutError:
        if limit.expired():
            raise Expired from None
        raise


class BoundedLoop:
    """Runs `slots` coroutines at a time. The loop lives between calls, with what belongs to it."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._loop = InlineLoop()

    def run(self, one: Callable[[int, _T], Awaitable[None]], arguments: Iterable[_T]) -> None:
        """Calls `one` with a free slot and each argument."""
        self._loop.run(self._run(one, arguments))

    async def _run(self, one: Callable[[int, _T], Awaitable[None]], arguments: Iterable[_T]) -> None:
        left = iter(arguments)

        async def serve(slot: int) -> None:
            for argument in left:
                await one(slot, argument)

        await asyncio.gather(*(serve(slot) for slot in range(self._slots)))

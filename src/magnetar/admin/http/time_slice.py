"""Time slices: a handler with much to do lets other tasks run every 2 ms, whatever loop it runs in.

anyio's checkpoint would replace the smaller class only, at twice the cost and as one more direct dependency.
"""

from __future__ import annotations

from collections.abc import Generator
from time import perf_counter

SLICE_S = 0.002
"""The longest time that other tasks wait for such a handler."""


class Checkpoint:
    """Awaiting it lets all other tasks run once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class TimeSlice:
    """`await time_slice.checkpoint()` after each piece of work lets other tasks run if the slice is over."""

    __slots__ = ("_ends_at",)

    def __init__(self) -> None:
        self._ends_at = perf_counter() + SLICE_S

    @property
    def is_over(self) -> bool:
        return perf_counter() >= self._ends_at

    async def checkpoint(self) -> None:
        if self.is_over:
            await self.restart()

    async def restart(self) -> None:
        await Checkpoint()
        self._ends_at = perf_counter() + SLICE_S

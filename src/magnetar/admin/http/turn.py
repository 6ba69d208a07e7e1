"""How a handler that has much to do lets everybody else have a turn, without knowing whose loop it runs in."""

from __future__ import annotations

from collections.abc import Generator
from time import perf_counter

SLICE_S = 0.002
"""How long others wait at most for somebody who takes turns."""


class Turn:
    """Awaiting it gives everybody else a turn of the loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Turns:
    """`await turns.maybe()` after each piece of work: it lets others go first when they have waited long enough."""

    __slots__ = ("_ends_at",)

    def __init__(self) -> None:
        self._ends_at = perf_counter() + SLICE_S

    @property
    def is_over(self) -> bool:
        return perf_counter() >= self._ends_at

    async def maybe(self) -> None:
        if self.is_over:
            await self.next()

    async def next(self) -> None:
        await Turn()
        self._ends_at = perf_counter() + SLICE_S

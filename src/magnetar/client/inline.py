"""A client whose loop runs in the calling thread and only while it is called: no thread, no handing over.

For workers that do one thing after another, and for whom every switch between threads would cost more than the work.
Between calls nothing is read or answered: a connection may be given up by the broker meanwhile, and is made again.
Who needs several clients at once has them share an `InlineLoop`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Self, TypeVar, Unpack

from magnetar.client.async_client import AsyncClient
from magnetar.client.errors import Closed
from magnetar.client.options import ClientOptions

_T = TypeVar("_T")

# After such a pause a connection may have been closed by the other side; finding that out takes some turns of the loop.
_PAUSE_S = 1.0
_TURNS_AFTER_A_PAUSE = 4


class InlineLoop:
    """Runs coroutines of clients that belong together, one call after another. For one thread."""

    def __init__(self) -> None:
        self._loop = _new_event_loop()
        self._ran_at_s = time.monotonic()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """An interrupt cancels the coroutine, and waits until it has ended."""
        if self._loop.is_closed():
            coroutine.close()
            raise Closed("the client is closed")
        if time.monotonic() - self._ran_at_s > _PAUSE_S:
            self._loop.run_until_complete(_turns(_TURNS_AFTER_A_PAUSE))
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise
        finally:
            self._ran_at_s = time.monotonic()

    def close(self, *clients: AsyncClient) -> None:
        """Closes clients that were used here, and whatever is left of what they began."""
        if self._loop.is_closed():
            return
        try:
            for client in clients:
                self.run(client.close())
            self._loop.run_until_complete(_end_all_tasks())
        finally:
            self._loop.close()


class InlineClient:
    """Takes what `AsyncClient` takes. `run` runs a coroutine of `client` to its end. For one thread."""

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        self.client = AsyncClient(url, **options)
        self._loop = InlineLoop()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """An interrupt cancels the coroutine, and waits until it has ended."""
        return self._loop.run(coroutine)

    def close(self) -> None:
        self._loop.close(self.client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not for every platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _end_all_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

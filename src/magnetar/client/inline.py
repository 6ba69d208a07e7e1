"""A client whose event loop runs in the calling thread, and only during a call: no second thread, no handover.

For workers that do one thing after another, where every switch between threads would cost more than the work. Between
calls nothing is read or sent: the broker may close the connection meanwhile, and the next call opens it again. Several
clients of one thread share an `InlineLoop`.
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

# After such a pause the broker may have closed the connection; the loop needs some turns to notice.
_PAUSE_S = 1.0
_TURNS_AFTER_A_PAUSE = 4


class InlineLoop:
    """Runs the coroutines of one or more clients, one call after another. For one thread."""

    def __init__(self) -> None:
        self._loop = _new_event_loop()
        self._ran_at_s = time.monotonic()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """An interrupt cancels the coroutine and waits for its end."""
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
        """Closes the clients and ends the tasks that are left."""
        if self._loop.is_closed():
            return
        try:
            for client in clients:
                self.run(client.close())
            self._loop.run_until_complete(_end_all_tasks())
        finally:
            self._loop.close()


class InlineClient:
    """Takes the arguments of `AsyncClient`; `run` runs a coroutine of `client` to its end. For one thread."""

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        self.client = AsyncClient(url, **options)
        self._loop = InlineLoop()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """An interrupt cancels the coroutine and waits for its end."""
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
    except ImportError:  # not available on every platform
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

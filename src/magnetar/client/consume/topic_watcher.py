"""News of many topics: which of them store something after a position, told once and when it happens.

A watch for each topic; owns which of them are waited for, and that no more than some are begun at a time. While nothing
is published, thousands of them cost nothing but their memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from magnetar.client.blocking.loop_thread import LoopThread
from magnetar.client.consume.watch import AsyncTopicWatch
from magnetar.client.errors import ClientError, Closed
from magnetar.client.message import MessageId

_BEGUN_AT_ONCE_MAX = 32

MakeWatch = Callable[[str], AsyncTopicWatch]


class _Bell:
    """Rings for one topic."""

    __slots__ = ("_ring", "_topic")

    def __init__(self, ring: Callable[[str], None], topic: str) -> None:
        self._ring = ring
        self._topic = topic

    def set(self) -> None:
        self._ring(self._topic)


class AsyncNews:
    """Made by `AsyncClient.news`; an async context manager.

    A topic that is expected is told once, with None if there is something after the position, or with the error that
    ended the wait; then it may be expected again.
    """

    def __init__(self, make_watch: MakeWatch) -> None:
        self.is_closed = False
        self._make_watch = make_watch
        self._watches: dict[str, AsyncTopicWatch] = {}
        self._after: dict[str, MessageId] = {}  # of those that are expected
        self._aiming: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(_BEGUN_AT_ONCE_MAX)
        self._told: dict[str, ClientError | None] = {}
        self._changed = asyncio.Event()

    def expect(self, topic: str, after: MessageId) -> None:
        """`topic` is one without partitions, or one partition; `after` a position of it, or EARLIEST."""
        if self.is_closed:
            raise Closed("the news are closed")
        self._told.pop(topic, None)
        self._after[topic] = after
        self._look(topic)

    async def forget(self, topic: str) -> None:
        """Nothing more is told of it."""
        self._told.pop(topic, None)
        self._after.pop(topic, None)
        await self._drop(topic)

    async def take(self, timeout_s: float | None) -> dict[str, ClientError | None]:
        """All that is to be told, as soon as there is something; {} after `timeout_s`. `Closed` when it is closed."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._told and not self.is_closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return {}
        if self.is_closed:
            raise Closed("the news are closed")
        told, self._told = self._told, {}
        return told

    def _look(self, topic: str) -> None:
        """Whenever a topic is expected, and whenever its watch says that something changed."""
        after = self._after.get(topic)
        if after is None or topic in self._aiming:
            return
        watch = self._watches.get(topic)
        if watch is not None and watch.has_news(after):
            self._tell(topic, None)
        elif watch is None or not watch.is_waiting_for(after):
            self._aiming[topic] = asyncio.get_running_loop().create_task(self._aim(topic))

    async def _aim(self, topic: str) -> None:
        try:
            async with self._turns:
                watch = self._watch(topic)
                while (after := self._after.get(topic)) is not None:
                    await watch.aim(after)
                    if watch.has_news(after):
                        self._tell(topic, None)
                    elif watch.is_waiting_for(after):
                        break
        except ClientError as error:
            await self._drop(topic)
            if topic in self._after:
                self._tell(topic, error)
        finally:
            del self._aiming[topic]
        self._look(topic)  # what rang meanwhile

    def _watch(self, topic: str) -> AsyncTopicWatch:
        watch = self._watches.get(topic)
        if watch is None:
            watch = self._watches[topic] = self._make_watch(topic)
            watch.join(_Bell(self._look, topic))
        return watch

    def _tell(self, topic: str, error: ClientError | None) -> None:
        self._after.pop(topic, None)
        self._told[topic] = error
        self._changed.set()

    async def _drop(self, topic: str) -> None:
        watch = self._watches.pop(topic, None)
        if watch is not None:
            await watch.close()

    async def close(self) -> None:
        self.is_closed = True
        self._after.clear()
        self._changed.set()
        aiming = list(self._aiming.values())
        for task in aiming:
            task.cancel()
        await asyncio.gather(*aiming, return_exceptions=True)
        for watch in self._watches.values():
            await watch.close()
        self._watches.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


class News:
    """Made by `Client.news`; a context manager. As `AsyncNews`, with methods that wait; for several threads."""

    def __init__(self, thread: LoopThread, inner: AsyncNews) -> None:
        self._thread = thread
        self._inner = inner

    def expect(self, topic: str, after: MessageId) -> None:
        """Does not wait for the broker: what is wrong with the topic is told as its news."""
        self._thread.loop.call_soon_threadsafe(self._expect, topic, after)

    def _expect(self, topic: str, after: MessageId) -> None:
        if not self._inner.is_closed:
            self._inner.expect(topic, after)

    def forget(self, topic: str) -> None:
        self._thread.run(self._inner.forget(topic))

    def take(self, timeout_s: float | None) -> dict[str, ClientError | None]:
        return self._thread.run(self._inner.take(timeout_s))

    def close(self) -> None:
        if self._thread.is_running:
            self._thread.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

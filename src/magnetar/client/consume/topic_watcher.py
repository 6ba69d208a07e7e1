"""TopicWatcher of many topics: which of them store something after a position, told once and when it happens.

A watch for each topic; owns which of them are waited for, and that no more than some are begun at a time. While nothing
is published, thousands of them cost nothing but their memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from magnetar.client.blocking.loop_thread import LoopThread
from magnetar.client.consume.tail import AsyncTopicTail
from magnetar.client.errors import ClientError, Closed
from magnetar.client.message import MessageId

_BEGUN_AT_ONCE_MAX = 32

OpenTail = Callable[[str], AsyncTopicTail]


class _Notifier:
    """Rings for one topic."""

    __slots__ = ("_notify", "_topic")

    def __init__(self, notify: Callable[[str], None], topic: str) -> None:
        self._notify = notify
        self._topic = topic

    def set(self) -> None:
        self._notify(self._topic)


class AsyncTopicWatcher:
    """Made by `AsyncClient.topic_watcher`; an async context manager.

    A topic that is expected is told once, with None if there is something after the position, or with the error that
    ended the wait; then it may be expected again.
    """

    def __init__(self, open_tail: OpenTail) -> None:
        self.is_closed = False
        self._open_tail = open_tail
        self._tails: dict[str, AsyncTopicTail] = {}
        self._after: dict[str, MessageId] = {}  # of those that are expected
        self._arming: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(_BEGUN_AT_ONCE_MAX)
        self._reported: dict[str, ClientError | None] = {}
        self._changed = asyncio.Event()

    def watch(self, topic: str, after: MessageId) -> None:
        """`topic` is one without partitions, or one partition; `after` a position of it, or EARLIEST."""
        if self.is_closed:
            raise Closed("the topic watcher is closed")
        self._reported.pop(topic, None)
        self._after[topic] = after
        self._look(topic)

    async def forget(self, topic: str) -> None:
        """Nothing more is told of it."""
        self._reported.pop(topic, None)
        self._after.pop(topic, None)
        await self._drop(topic)

    async def next(self, timeout_s: float | None) -> dict[str, ClientError | None]:
        """All that is to be told, as soon as there is something; {} after `timeout_s`. `Closed` when it is closed."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._reported and not self.is_closed:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return {}
        if self.is_closed:
            raise Closed("the topic watcher is closed")
        reported, self._reported = self._reported, {}
        return reported

    def _look(self, topic: str) -> None:
        """Whenever a topic is expected, and whenever its watch says that something changed."""
        after = self._after.get(topic)
        if after is None or topic in self._arming:
            return
        tail = self._tails.get(topic)
        if tail is not None and tail.has_more(after):
            self._report(topic, None)
        elif tail is None or not tail.is_armed(after):
            self._arming[topic] = asyncio.get_running_loop().create_task(self._arm(topic))

    async def _arm(self, topic: str) -> None:
        try:
            async with self._turns:
                tail = self._tail(topic)
                while (after := self._after.get(topic)) is not None:
                    await tail.arm(after)
                    if tail.has_more(after):
                        self._report(topic, None)
                    elif tail.is_armed(after):
                        break
        except ClientError as error:
            await self._drop(topic)
            if topic in self._after:
                self._report(topic, error)
        finally:
            del self._arming[topic]
        self._look(topic)  # what rang meanwhile

    def _tail(self, topic: str) -> AsyncTopicTail:
        tail = self._tails.get(topic)
        if tail is None:
            tail = self._tails[topic] = self._open_tail(topic)
            tail.add_waiter(_Notifier(self._look, topic))
        return tail

    def _report(self, topic: str, error: ClientError | None) -> None:
        self._after.pop(topic, None)
        self._reported[topic] = error
        self._changed.set()

    async def _drop(self, topic: str) -> None:
        tail = self._tails.pop(topic, None)
        if tail is not None:
            await tail.close()

    async def close(self) -> None:
        self.is_closed = True
        self._after.clear()
        self._changed.set()
        arming = list(self._arming.values())
        for task in arming:
            task.cancel()
        await asyncio.gather(*arming, return_exceptions=True)
        for tail in self._tails.values():
            await tail.close()
        self._tails.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


class TopicWatcher:
    """Created by `Client.topic_watcher`; a context manager, and safe to use from several threads."""

    def __init__(self, thread: LoopThread, inner: AsyncTopicWatcher) -> None:
        self._thread = thread
        self._inner = inner

    def watch(self, topic: str, after: MessageId) -> None:
        """Does not wait for the broker: what is wrong with the topic is told as its news."""
        self._thread.loop.call_soon_threadsafe(self._watch, topic, after)

    def _watch(self, topic: str, after: MessageId) -> None:
        if not self._inner.is_closed:
            self._inner.watch(topic, after)

    def forget(self, topic: str) -> None:
        self._thread.run(self._inner.forget(topic))

    def next(self, timeout_s: float | None) -> dict[str, ClientError | None]:
        return self._thread.run(self._inner.next(timeout_s))

    def close(self) -> None:
        if self._thread.is_running:
            self._thread.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

"""A watcher of many topics: reports each once, as soon as it has a message after a position.

Has a tail for each topic; owns which topics are watched, and limits how many tails are armed at a time. While nothing
is published, thousands of topics cost nothing but memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from magnetar.client.consume.tail import AsyncTopicTail
from magnetar.client.errors import ClientError, Closed
from magnetar.client.message import MessageId

_ARMED_AT_ONCE_MAX = 32

OpenTail = Callable[[str], AsyncTopicTail]


class _Notifier:
    """The waiter of one topic."""

    __slots__ = ("_notify", "_topic")

    def __init__(self, notify: Callable[[str], None], topic: str) -> None:
        self._notify = notify
        self._topic = topic

    def set(self) -> None:
        self._notify(self._topic)


class AsyncTopicWatcher:
    """Created by `AsyncClient.topic_watcher`; an async context manager.

    A watched topic is reported once, with None when it has a message after the position, or with the error that ended
    the wait; then it may be watched again.
    """

    def __init__(self, open_tail: OpenTail) -> None:
        self.is_closed = False
        self._open_tail = open_tail
        self._tails: dict[str, AsyncTopicTail] = {}
        self._after: dict[str, MessageId] = {}  # of watched topics
        self._arming: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(_ARMED_AT_ONCE_MAX)
        self._reported: dict[str, ClientError | None] = {}
        self._changed = asyncio.Event()

    def watch(self, topic: str, after: MessageId) -> None:
        """`topic` is a topic without partitions or one partition; `after` is a position in it, or EARLIEST."""
        if self.is_closed:
            raise Closed("the topic watcher is closed")
        self._reported.pop(topic, None)
        self._after[topic] = after
        self._check(topic)

    async def forget(self, topic: str) -> None:
        """Ends watching the topic."""
        self._reported.pop(topic, None)
        self._after.pop(topic, None)
        await self._drop(topic)

    async def next(self, timeout_s: float | None) -> dict[str, ClientError | None]:
        """All reports, as soon as there is one; {} after `timeout_s`. Raises `Closed` when the watcher is closed."""
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

    def _check(self, topic: str) -> None:
        """Called when a topic is watched, and whenever its tail changed."""
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
        self._check(topic)  # it may have changed meanwhile

    def _tail(self, topic: str) -> AsyncTopicTail:
        tail = self._tails.get(topic)
        if tail is None:
            tail = self._tails[topic] = self._open_tail(topic)
            tail.add_waiter(_Notifier(self._check, topic))
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

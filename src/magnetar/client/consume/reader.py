"""Readers for asyncio: the messages of a topic, or of all its partitions, from a position on, unacknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Self

from magnetar.client.connection.retry import within
from magnetar.client.consume.stream import EntryQueue, SubscriptionStream
from magnetar.client.errors import ClientError, Closed, EndOfTopic, UnreadableMessage
from magnetar.client.message import Message


class MessageReceiver:
    """The messages of one or more subscription streams: the shared part of readers and consumers."""

    def __init__(self, topic: str, streams: Sequence[SubscriptionStream], queue: EntryQueue) -> None:
        self.topic = topic
        self.partitions = [stream.topic.full for stream in streams]
        self._streams = streams
        self._queue = queue
        self.is_closed = False

    async def _next(self, timeout_s: float | None) -> Message:
        if timeout_s is not None and timeout_s < 0:
            timeout_s = 0
        if not self._fill():
            async with within(timeout_s, f"waiting for a message of {self.topic}"):
                while not self._fill():
                    self._queue.changed.clear()
                    await self._queue.changed.wait()
        _, item = self._queue.ready.popleft()
        if isinstance(item, UnreadableMessage):
            raise item
        return item

    def _fill(self) -> bool:
        """Whether a message is ready, after opening entries as needed. Raises the error that ends the stream."""
        if self.is_closed:
            raise Closed(f"the reader of {self.topic} is closed")
        queue = self._queue
        while not queue.ready and queue.entries:
            stream, entry = queue.entries.popleft()
            queue.ready.extend((stream, item) for item in stream.open_entry(entry))
        if queue.ready:
            return True
        if queue.error is not None:
            raise queue.error
        if all(stream.end_is_reached for stream in self._streams):
            raise EndOfTopic(f"{self.topic} is terminated, and all its messages have been read")
        return False

    async def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._queue.changed.set()
        await asyncio.gather(*(stream.close() for stream in self._streams), return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


class AsyncReader(MessageReceiver):
    """Created by `AsyncClient.reader`. Messages of one partition arrive in order, partitions in any order."""

    async def read(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises `Timeout` after `timeout_s`; None is no limit.

        Raises `EndOfTopic` at the end of a terminated topic, and `UnreadableMessage` for a message that is corrupt or
        encrypted: the next call continues after it.
        """
        return await self._next(timeout_s)

    async def read_many(self, messages_max: int, timeout_s: float | None = None) -> list[Message]:
        """At least one message, for which it waits as `read` does, and those already received, up to `messages_max`."""
        messages = [await self._next(timeout_s)]
        while len(messages) < messages_max and self._has_message():
            item = self._queue.ready.popleft()[1]
            assert isinstance(item, Message)
            messages.append(item)
        return messages

    def _has_message(self) -> bool:
        """An error stays in its place: the next call raises it."""
        try:
            return self._fill() and isinstance(self._queue.ready[0][1], Message)
        except ClientError:
            return False

    async def has_next(self) -> bool:
        """Whether the topic has an unread message at this moment."""
        try:
            if self._fill():
                return True
            more = await asyncio.gather(*(stream.has_more() for stream in self._streams))
            return any(more) or self._fill()  # it may have arrived with the reply
        except EndOfTopic:
            return False

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Waits for new messages; ends with a terminated topic."""
        while True:
            try:
                message = await self.read()
            except EndOfTopic:
                return
            yield message

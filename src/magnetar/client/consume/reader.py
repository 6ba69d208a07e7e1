"""Readers for asyncio: the messages of a topic, or of all its partitions, from a place on. Nothing is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Self

from magnetar.client.connection.retry import within
from magnetar.client.consume.stream import EntryQueue, SubscriptionStream
from magnetar.client.errors import ClientError, Closed, EndOfTopic, UnreadableMessage
from magnetar.client.message import Message


class MessageReceiver:
    """Messages of several streams, one after another: what readers and consumers have in common."""

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
        """Whether a message is ready, opening entries until one is. Raises what ends the stream."""
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
            raise EndOfTopic(f"{self.topic} is terminated and was read to its end")
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
    """Made by `AsyncClient.reader`. Messages of a partition come in their order, partitions as they come."""

    async def read(self, timeout_s: float | None = None) -> Message:
        """The next message. `Timeout` after `timeout_s`; None waits as long as it takes.

        `EndOfTopic` when the topic was terminated and is read to its end. `UnreadableMessage` for a message that is
        corrupt or encrypted: the next call goes on after it.
        """
        return await self._next(timeout_s)

    async def read_many(self, messages_max: int, timeout_s: float | None = None) -> list[Message]:
        """At least one message, waiting as `read` does, and those that are there already, up to `messages_max`."""
        messages = [await self._next(timeout_s)]
        while len(messages) < messages_max and self._has_message():
            item = self._queue.ready.popleft()[1]
            assert isinstance(item, Message)
            messages.append(item)
        return messages

    def _has_message(self) -> bool:
        """An error keeps its place: it is raised by the next call."""
        try:
            return self._fill() and isinstance(self._queue.ready[0][1], Message)
        except ClientError:
            return False

    async def has_next(self) -> bool:
        """Whether the topic has a message now that was not read yet."""
        try:
            if self._fill():
                return True
            more = await asyncio.gather(*(stream.has_more() for stream in self._streams))
            return any(more) or self._fill()  # it may have come with the answer
        except EndOfTopic:
            return False

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Messages for ever, waiting for new ones; ends where a terminated topic ends."""
        while True:
            try:
                message = await self.read()
            except EndOfTopic:
                return
            yield message

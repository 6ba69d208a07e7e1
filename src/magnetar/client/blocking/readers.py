"""Readers, consumers, tails, watchers and cursors of the blocking client: asyncio classes with methods that wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Self

from magnetar.client.blocking.loop_thread import LoopThread
from magnetar.client.consume.consumer import AsyncConsumer
from magnetar.client.consume.cursor import AsyncCursor
from magnetar.client.consume.raw_consumer import Bounds
from magnetar.client.consume.reader import AsyncReader
from magnetar.client.consume.tail import AsyncTopicTail
from magnetar.client.consume.topic_watcher import AsyncTopicWatcher
from magnetar.client.errors import ClientError, EndOfTopic
from magnetar.client.message import Message, MessageId

_READ_AHEAD = 100  # messages that a reader takes from the loop at once


class Reader:
    """Created by `Client.reader`; a context manager, and an iterator that ends with a terminated topic.

    See `AsyncReader`.
    """

    def __init__(self, thread: LoopThread, reader: AsyncReader) -> None:
        self.topic = reader.topic
        self.partitions = reader.partitions
        self._thread = thread
        self._reader = reader
        self._taken: deque[Message] = deque()

    def read(self, timeout_s: float | None = None) -> Message:
        if not self._taken:
            self._taken.extend(self._thread.run(self._reader.read_many(_READ_AHEAD, timeout_s)))
        return self._taken.popleft()

    def has_next(self) -> bool:
        return bool(self._taken) or self._thread.run(self._reader.has_next())

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                message = self.read()
            except EndOfTopic:
                return
            yield message

    def close(self) -> None:
        self._taken.clear()
        if self._thread.is_running:
            self._thread.run(self._reader.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class TopicTail:
    """Created by `Client.tail`; a context manager. See `AsyncTopicTail`."""

    def __init__(self, thread: LoopThread, inner: AsyncTopicTail) -> None:
        self.topic = inner.topic
        self.inner = inner
        self._thread = thread

    def bounds(self) -> Bounds:
        return self._thread.run(self.inner.bounds())

    def last(self) -> MessageId:
        return self._thread.run(self.inner.last())

    def wait(self, after: MessageId, timeout_s: float | None) -> bool:
        return self._thread.run(self.inner.wait(after, timeout_s))

    def close(self) -> None:
        if self._thread.is_running:
            self._thread.run(self.inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class TopicWatcher:
    """Created by `Client.topic_watcher`; a context manager, and safe to use from several threads."""

    def __init__(self, thread: LoopThread, inner: AsyncTopicWatcher) -> None:
        self._thread = thread
        self._inner = inner

    def watch(self, topic: str, after: MessageId) -> None:
        """Does not wait for the broker: an error of the topic is reported by `next`."""
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


class Consumer:
    """Created by `Client.consumer`; a context manager. See `AsyncConsumer`."""

    def __init__(self, thread: LoopThread, consumer: AsyncConsumer) -> None:
        self.topic = consumer.topic
        self.partitions = consumer.partitions
        self.subscription = consumer.subscription
        self._thread = thread
        self._consumer = consumer

    def receive(self, timeout_s: float | None = None) -> Message:
        return self._thread.run(self._consumer.receive(timeout_s))

    def acknowledge(self, message: Message) -> None:
        self._thread.run(self._consumer.acknowledge(message))

    def acknowledge_cumulative(self, message: Message) -> None:
        self._thread.run(self._consumer.acknowledge_cumulative(message))

    def negative_acknowledge(self, message: Message) -> None:
        self._thread.run(self._consumer.negative_acknowledge(message))

    def unsubscribe(self) -> None:
        self._thread.run(self._consumer.unsubscribe())

    def close(self) -> None:
        if self._thread.is_running:
            self._thread.run(self._consumer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class Cursor:
    """Created by `Client.cursor`; a context manager. See `AsyncCursor`."""

    def __init__(self, thread: LoopThread, cursor: AsyncCursor) -> None:
        self.topic = cursor.topic
        self.subscription = cursor.subscription
        self._thread = thread
        self._cursor = cursor

    def position(self) -> MessageId:
        return self._thread.run(self._cursor.position())

    def acknowledge_up_to(self, position: MessageId) -> None:
        self._thread.run(self._cursor.acknowledge_up_to(position))

    def acknowledge_each(self, positions: Sequence[MessageId]) -> None:
        self._thread.run(self._cursor.acknowledge_each(positions))

    def close(self) -> None:
        if self._thread.is_running:
            self._thread.run(self._cursor.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

"""Readers, consumers, watches and cursors of the blocking client: each its asyncio twin, with methods that wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Self

from magnetar.client.blocking.loop_thread import LoopThread
from magnetar.client.consume.consumer import AsyncConsumer
from magnetar.client.consume.cursor import AsyncCursor
from magnetar.client.consume.raw_consumer import Bounds
from magnetar.client.consume.reader import AsyncReader
from magnetar.client.consume.tail import AsyncTopicTail
from magnetar.client.errors import EndOfTopic
from magnetar.client.message import Message, MessageId

_READ_AHEAD = 100  # messages a reader takes over at once: one way through the loop for many


class Reader:
    """Made by `Client.reader`; a context manager, and an iterator that ends where a terminated topic does.

    Messages of a partition come in their order, partitions as they come.
    """

    def __init__(self, thread: LoopThread, reader: AsyncReader) -> None:
        self.topic = reader.topic
        self.partitions = reader.partitions
        self._thread = thread
        self._reader = reader
        self._taken: deque[Message] = deque()

    def read(self, timeout_s: float | None = None) -> Message:
        """The next message. `Timeout` after `timeout_s`; None waits as long as it takes.

        `EndOfTopic` when the topic was terminated and is read to its end. `UnreadableMessage` for a message that is
        corrupt or encrypted: the next call goes on after it.
        """
        if not self._taken:
            self._taken.extend(self._thread.run(self._reader.read_many(_READ_AHEAD, timeout_s)))
        return self._taken.popleft()

    def has_next(self) -> bool:
        """Whether the topic has a message now that was not read yet."""
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
    """Made by `Client.tail`; a context manager. Idle watches cost nothing."""

    def __init__(self, thread: LoopThread, inner: AsyncTopicTail) -> None:
        self.topic = inner.topic
        self.inner = inner
        self._thread = thread

    def bounds(self) -> Bounds:
        """What the topic stores at this moment. `NotFound` if it does not exist."""
        return self._thread.run(self.inner.bounds())

    def last(self) -> MessageId:
        """The last message stored, as `bounds` says it, with less effort."""
        return self._thread.run(self.inner.last())

    def wait(self, after: MessageId, timeout_s: float | None) -> bool:
        """Returns True as soon as something after `after` is stored, False after `timeout_s` (None: never)."""
        return self._thread.run(self.inner.wait(after, timeout_s))

    def close(self) -> None:
        if self._thread.is_running:
            self._thread.run(self.inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class Consumer:
    """Made by `Client.consumer`; a context manager.

    After a lost connection the broker sends again what was not acknowledged, also what was received and is being worked
    on.
    """

    def __init__(self, thread: LoopThread, consumer: AsyncConsumer) -> None:
        self.topic = consumer.topic
        self.partitions = consumer.partitions
        self.subscription = consumer.subscription
        self._thread = thread
        self._consumer = consumer

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. `Timeout` after `timeout_s`; None waits as long as it takes."""
        return self._thread.run(self._consumer.receive(timeout_s))

    def acknowledge(self, message: Message) -> None:
        """Returns when the broker has it on disk."""
        self._thread.run(self._consumer.acknowledge(message))

    def acknowledge_cumulative(self, message: Message) -> None:
        """This message and all before it, of its partition. Not for shared subscriptions."""
        self._thread.run(self._consumer.acknowledge_cumulative(message))

    def negative_acknowledge(self, message: Message) -> None:
        """Asks for the message again, at once; of a batch, for all of its messages that are not acknowledged."""
        self._thread.run(self._consumer.negative_acknowledge(message))

    def unsubscribe(self) -> None:
        """Deletes the subscription, and closes."""
        self._thread.run(self._consumer.unsubscribe())

    def close(self) -> None:
        if self._thread.is_running:
            self._thread.run(self._consumer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class Cursor:
    """Made by `Client.cursor`; a context manager."""

    def __init__(self, thread: LoopThread, cursor: AsyncCursor) -> None:
        self.topic = cursor.topic
        self.subscription = cursor.subscription
        self._thread = thread
        self._cursor = cursor

    def position(self) -> MessageId:
        """The last entry that is acknowledged with everything before it."""
        return self._thread.run(self._cursor.position())

    def acknowledge_up_to(self, position: MessageId) -> None:
        """The entry there and all before it; one that is acknowledged already is left so. Returns when it is stored."""
        self._thread.run(self._cursor.acknowledge_up_to(position))

    def close(self) -> None:
        if self._thread.is_running:
            self._thread.run(self._cursor.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

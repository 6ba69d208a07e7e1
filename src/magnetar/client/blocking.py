"""The blocking client: `Client` is `AsyncClient` in a thread of its own, with methods that wait.

Owns the thread and the way to it and back. May be used from several threads at once; a reader or consumer by one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar, Unpack
from weakref import WeakSet

from magnetar.client.aio import AsyncClient
from magnetar.client.catalogue import Schema
from magnetar.client.consumer import AsyncConsumer
from magnetar.client.cursor import AsyncCursor
from magnetar.client.entry import Entry
from magnetar.client.errors import ClientError, Closed, EndOfTopic, Timeout
from magnetar.client.message import LATEST, Message, MessageId
from magnetar.client.options import AccessMode, Compression, SendOptions, SubscriptionType
from magnetar.client.pipeline import Outgoing, outgoing
from magnetar.client.producer import AsyncProducer
from magnetar.client.reader import AsyncReader
from magnetar.client.routing import HashingScheme
from magnetar.client.security import Security
from magnetar.client.tap import Bounds
from magnetar.client.watch import AsyncTopicWatch

_T = TypeVar("_T")
_Posted = tuple[Outgoing, Future[MessageId], bool]

_READ_AHEAD = 100  # messages a reader takes over at once: one way through the loop for many


class _Thread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="magnetar-client", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:  # which ends what is left over
            runner.get_loop().run_forever()

    @property
    def is_running(self) -> bool:
        return not self.loop.is_closed() and self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Every coroutine that is run here limits its own waiting; an interrupt of the caller cancels it."""
        if not self.is_running:
            coroutine.close()
            raise Closed("the client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


class Client:
    """`with Client("pulsar://localhost:6650") as client:`

    The address is `pulsar://host:port`, several hosts of one cluster separated by commas, or `http://host:port`; with
    TLS `pulsar+ssl://` or `https://`. `security` has certificates and tokens. With `admin_url`, also `http://host:port`,
    topics, partitions and schemas are asked for there.
    Nothing is connected before the first call. Every error is a `ClientError`. A broker that cannot be reached at first
    is an error at once; a connection that is lost later is made again with back-off, for `reconnect_timeout_s` at most.
    """

    def __init__(
        self,
        url: str,
        *,
        security: Security | None = None,
        admin_url: str | None = None,
        operation_timeout_s: float = 30,
        connect_timeout_s: float = 10,
        reconnect_timeout_s: float = 300,
        keepalive_s: float = 30,
    ) -> None:
        self._client = AsyncClient(
            url,
            security=security,
            admin_url=admin_url,
            operation_timeout_s=operation_timeout_s,
            connect_timeout_s=connect_timeout_s,
            reconnect_timeout_s=reconnect_timeout_s,
            keepalive_s=keepalive_s,
        )
        self._thread = _Thread()
        self._producers: WeakSet[Producer] = WeakSet()

    def get_partitions_for_topic(self, topic: str, create_if_auto_creation_enabled: bool = True) -> list[str]:
        """The full names of the topic's partitions, or its own full name when it is not partitioned (PIP-344).

        A topic that does not exist is created if the flag and the broker's auto-creation allow it, partitioned or not
        as the broker is set; otherwise it is `NotFound`. Without the flag nothing is created; a broker that cannot do
        that (over `pulsar://`, where it would announce it) is `NotSupported`.
        """
        return self._thread.run(self._client.get_partitions_for_topic(topic, create_if_auto_creation_enabled))

    def topics(self, namespace: str, pattern: str | None = None) -> list[str]:
        """The full names of the topics of `tenant/namespace`, partitions one by one, in the order of their names.

        `pattern` is a regular expression for `tenant/namespace/topic`, or for `domain://tenant/namespace/topic`, the
        whole of it; of a partition, for its topic. What brokers keep for themselves is left out.
        """
        return self._thread.run(self._client.topics(namespace, pattern))

    def schema(self, topic: str, version: bytes | None = None) -> Schema | None:
        """The schema of a topic, the newest or the `version` that a message has; None if there is none."""
        return self._thread.run(self._client.schema(topic, version))

    def position_at(self, topic: str, time_ms: int) -> MessageId:
        """The position before the first message of a topic or partition that was published at `time_ms` or later.

        It takes a durable subscription, which is there for some milliseconds.
        """
        return self._thread.run(self._client.position_at(topic, time_ms))

    def first_after(self, topic: str, position: MessageId) -> MessageId | None:
        """The id of the first entry that a topic or partition stores after the entry at `position`; None: nothing."""
        return self._thread.run(self._client.first_after(topic, position))

    def server_version(self, topic: str) -> str:
        """What the broker that serves the topic calls itself."""
        return self._thread.run(self._client.server_version(topic))

    def entries(
        self,
        topic: str,
        start: MessageId,
        end: MessageId,
        *,
        start_inclusive: bool = False,
        bytes_max: int = 16 << 20,
    ) -> Iterator[list[Entry]]:
        """The entries of a range in lists, as `AsyncClient.entries` says it."""
        reader = self._thread.run(
            self._client.entries(topic, start, end, start_inclusive=start_inclusive, bytes_max=bytes_max)
        )
        try:
            while entries := self._thread.run(reader.next()):
                yield entries
        finally:
            if self._thread.is_running:
                self._thread.run(reader.close())

    def watch(self, topic: str) -> TopicWatch:
        """What a persistent topic, or one partition, stores, and waiting for more; `NotFound` if it does not exist."""
        return TopicWatch(self._thread, self._thread.run(self._client.watch(topic)))

    def wait_any(self, watched: Sequence[tuple[TopicWatch, MessageId]], timeout_s: float | None) -> list[TopicWatch]:
        """The watches with something stored after the given positions, as soon as there is one.

        None after `timeout_s`; without a limit it waits as long as it takes.
        """
        by_inner = {id(watch.inner): watch for watch, _ in watched}
        news = self._thread.run(self._client.wait_any([(watch.inner, after) for watch, after in watched], timeout_s))
        return [by_inner[id(inner)] for inner in news]

    def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        access_mode: AccessMode = "Shared",
        batching: bool = True,
        batch_messages_max: int = 1000,
        batch_bytes_max: int = 128 * 1024,
        batch_delay_s: float = 0.001,
        compression: Compression = "none",
        pending_max: int = 1000,
        send_timeout_s: float = 30,
        hashing_scheme: HashingScheme = "Murmur3_32Hash",
        properties: Mapping[str, str] | None = None,
    ) -> Producer:
        """A producer for a topic, or for all partitions of it; the topic is created where the broker allows that.

        Messages with a key go to the partition that the hash of the key says, others to all in turn. `pending_max` is
        how many messages may be on their way to the broker. `hashing_scheme` "JavaStringHash" is the default of Java
        clients. `WaitForExclusive` waits no longer than an operation may take.
        """
        made = self._thread.run(
            self._client.producer(
                topic,
                name=name,
                access_mode=access_mode,
                batching=batching,
                batch_messages_max=batch_messages_max,
                batch_bytes_max=batch_bytes_max,
                batch_delay_s=batch_delay_s,
                compression=compression,
                pending_max=pending_max,
                send_timeout_s=send_timeout_s,
                hashing_scheme=hashing_scheme,
                properties=properties,
            )
        )
        producer = Producer(self._thread, made, pending_max, send_timeout_s)
        self._producers.add(producer)
        return producer

    def reader(
        self,
        topic: str,
        start: MessageId | Mapping[str, MessageId] = LATEST,
        *,
        start_inclusive: bool = False,
        create_topic: bool = False,
        queue_size: int = 1000,
        name: str | None = None,
    ) -> Reader:
        """A reader of a topic, or of all partitions of it.

        `start` is EARLIEST, LATEST, the id after which to begin (with which, if `start_inclusive`), or for a
        partitioned topic such ids by the name of the partition. A topic that does not exist is `NotFound` unless
        `create_topic`. `queue_size` is how many messages are fetched ahead per partition.
        """
        reader = self._thread.run(
            self._client.reader(
                topic,
                start,
                start_inclusive=start_inclusive,
                create_topic=create_topic,
                queue_size=queue_size,
                name=name,
            )
        )
        return Reader(self._thread, reader)

    def consumer(
        self,
        topic: str,
        subscription: str,
        *,
        subscription_type: SubscriptionType = "Exclusive",
        initial_position: MessageId = LATEST,
        queue_size: int = 1000,
        name: str | None = None,
    ) -> Consumer:
        """A consumer of a durable subscription on a topic, or on all partitions of it; what is missing is created.

        `initial_position`, EARLIEST or LATEST, is where a new subscription begins.
        """
        consumer = self._thread.run(
            self._client.consumer(
                topic,
                subscription,
                subscription_type=subscription_type,
                initial_position=initial_position,
                queue_size=queue_size,
                name=name,
            )
        )
        return Consumer(self._thread, consumer)

    def cursor(self, topic: str, subscription: str, *, initial_position: MessageId = LATEST) -> Cursor:
        """The position of a durable subscription on a persistent topic or one partition, without receiving anything.

        A subscription that is missing is created; `initial_position`, EARLIEST or LATEST, is where it begins.
        """
        cursor = self._thread.run(self._client.cursor(topic, subscription, initial_position=initial_position))
        return Cursor(self._thread, cursor)

    def close(self) -> None:
        """Closes what it made, sending what producers still have, and all connections."""
        if not self._thread.is_running:
            return
        try:
            self._thread.run(self._close())
        finally:
            self._thread.stop()

    async def _close(self) -> None:
        """What producers have not handed over yet first; whatever fails, everything is closed."""
        closed = await asyncio.gather(*(producer.finish() for producer in self._producers), return_exceptions=True)
        await self._client.close()
        for error in closed:
            if isinstance(error, BaseException):
                raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


class Producer:
    """Made by `Client.producer`; a context manager. Messages to one partition are stored in the order of the calls."""

    def __init__(self, thread: _Thread, producer: AsyncProducer, pending_max: int, send_timeout_s: float) -> None:
        self.topic = producer.topic
        self.partitions = producer.partitions
        self.name = producer.name
        self._thread = thread
        self._producer = producer
        self._pending_max = pending_max
        self._send_timeout_s = send_timeout_s
        self._room = threading.BoundedSemaphore(pending_max)
        # What the loop has not taken over yet; emptied in one go, however many messages were put in meanwhile.
        self._outbox: deque[_Posted] = deque()
        self._outbox_turn = asyncio.Lock()
        self._emptying_is_due = False

    def send(self, value: bytes | None, **options: Unpack[SendOptions]) -> MessageId:
        """Publishes a message and waits until the broker has stored it; the time for that is `send_timeout_s`.

        None is "no value", which is not the same as an empty one. The id of a message that the broker's deduplication
        dropped is -1:-1.
        """
        # The caller waits: nothing else will come to fill the batch.
        return self._post(value, options, seals=True).result()

    def send_async(self, value: bytes | None, **options: Unpack[SendOptions]) -> Future[MessageId]:
        """As `send`, but returns at once, except while `pending_max` messages are on their way: it waits for room."""
        return self._post(value, options, seals=False)

    def flush(self) -> None:
        """Waits until everything sent so far is stored; raises the first error of `send_async` since the last flush."""
        self._thread.run(self._flush())

    def close(self) -> None:
        """Sends what is pending and leaves; an error of what was pending is raised."""
        if self._thread.is_running:
            self._thread.run(self.finish())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _post(self, value: bytes | None, options: SendOptions, *, seals: bool) -> Future[MessageId]:
        message = outgoing(value, **options)
        if not self._thread.is_running:
            raise Closed("the client is closed")
        if not self._room.acquire(timeout=self._send_timeout_s):
            raise Timeout(
                f"room among {self._pending_max} pending messages of {self.topic} took longer than"
                f" {self._send_timeout_s:g} s"
            )
        future: Future[MessageId] = Future()
        future.add_done_callback(lambda _: self._room.release())
        self._outbox.append((message, future, seals))
        if not self._emptying_is_due:
            self._emptying_is_due = True
            asyncio.run_coroutine_threadsafe(self._empty_outbox(), self._thread.loop)
        return future

    # -- in the loop's thread

    async def _empty_outbox(self) -> None:
        async with self._outbox_turn:
            # First, so that whoever posts from here on sees to it that somebody looks again.
            self._emptying_is_due = False
            while self._outbox:
                await self._take_over(*self._outbox.popleft())

    async def _take_over(self, message: Outgoing, future: Future[MessageId], seals: bool) -> None:
        if not future.set_running_or_notify_cancel():
            return  # cancelled before it was sent
        try:
            stored = await self._producer.post(message, is_watched=seals)
        except ClientError as error:
            future.set_exception(error)
        except BaseException:
            future.set_exception(Closed(f"the producer of {self.topic} is closed"))
            raise
        else:
            stored.add_done_callback(lambda _: _copy(stored, future))
            if seals:
                self._producer.seal()

    async def _flush(self) -> None:
        await self._empty_outbox()
        await self._producer.flush()

    async def finish(self) -> None:
        """`close`, as the client itself does it."""
        await self._empty_outbox()
        await self._producer.close()


def _copy(source: asyncio.Future[MessageId], target: Future[MessageId]) -> None:
    if source.cancelled():
        target.set_exception(Closed("the client is closed"))
    elif (error := source.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())


class Reader:
    """Made by `Client.reader`; a context manager, and an iterator that ends where a terminated topic does.

    Messages of a partition come in their order, partitions as they come.
    """

    def __init__(self, thread: _Thread, reader: AsyncReader) -> None:
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


class TopicWatch:
    """Made by `Client.watch`; a context manager. Idle watches cost nothing."""

    def __init__(self, thread: _Thread, inner: AsyncTopicWatch) -> None:
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

    def __init__(self, thread: _Thread, consumer: AsyncConsumer) -> None:
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

    def __init__(self, thread: _Thread, cursor: AsyncCursor) -> None:
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

"""Producers for asyncio: one outbox and one link per partition.

Owns sending again after a lost connection, the limit on pending messages, and time limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Self, Unpack

import msgspec

from magnetar.client.connection.connection import Connection
from magnetar.client.connection.protocol import Receipt, SendError
from magnetar.client.connection.retry import is_retriable, within
from magnetar.client.errors import ClientError, Closed, ConnectionLost, Timeout
from magnetar.client.message import MessageId
from magnetar.client.options import SendOptions, check_positive
from magnetar.client.produce.in_flight import InFlightLimit
from magnetar.client.produce.outbox import Done, Outbox, OutboxOptions, Outgoing, outgoing
from magnetar.client.produce.producer_link import LinkOptions, ProducerLink
from magnetar.client.produce.routing import Router
from magnetar.clock import SystemClock
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb

PENDING_BYTES_MAX = 64 << 20
"""The limit on the bytes of pending messages, besides their number: values may be megabytes."""


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    outbox: OutboxOptions
    link: LinkOptions
    batch_delay_s: float
    pending_max: int
    send_timeout_s: float

    def __post_init__(self) -> None:
        check_positive(
            batch_delay_s=self.batch_delay_s, pending_max=self.pending_max, send_timeout_s=self.send_timeout_s
        )


class PartitionProducer:
    """The producer of one topic without partitions, or of one partition."""

    def __init__(
        self,
        topic: TopicName,
        producer_id: int,
        options: ProducerOptions,
        connect: Callable[[], Awaitable[Connection]],
    ) -> None:
        self.topic = topic
        self.error: ClientError | None = None
        self._options = options
        self._outbox = Outbox(options.outbox, producer_id, topic.partition)
        self._link = ProducerLink(self, topic, producer_id, options.link, connect)
        self._loop = asyncio.get_running_loop()
        self._clock = SystemClock()
        self._batch_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None

    # -- life

    @property
    def name(self) -> str:
        return self._link.name

    async def open(self, name: str | None = None) -> None:
        """`name` is the name that the broker generated for another partition of the topic."""
        await self._link.open(name)

    def on_opened(self, connection: Connection, success: pb.CommandProducerSuccess) -> None:
        outbox = self._outbox
        outbox.producer_name = success.producer_name
        outbox.last_sequence_id = max(outbox.last_sequence_id, success.last_sequence_id)
        outbox.message_size_max = connection.broker.message_size_max
        outbox.rewind()
        self._send_frames()

    async def close(self) -> None:
        self._link.stop()
        self.on_failed(Closed(f"the producer of {self.topic.full} is closed"))
        await self._link.close()

    # -- sending

    def add(self, message: Outgoing, done: Done) -> None:
        """Takes a message and calls `done` with its id or an error. Sends complete batches."""
        if self.error is not None:
            done(self.error)
            return
        now_s = self._loop.time()
        outbox = self._outbox
        outbox.add(message, done, now_ms=self._clock.now_ms(), deadline_s=now_s + self._options.send_timeout_s)
        if outbox.has_open_batch and self._batch_timer is None:
            self._batch_timer = self._loop.call_later(self._options.batch_delay_s, self.seal)
        if self._expiry_timer is None:
            self._expiry_timer = self._loop.call_later(self._options.send_timeout_s, self._expire)
        self._send_frames()

    def seal(self) -> None:
        """Sends the open batch now."""
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None
        self._outbox.seal(self._clock.now_ms())
        self._send_frames()

    def _send_frames(self) -> None:
        connection = self._link.connection
        if connection is not None:
            for frame in self._outbox.take_frames():
                connection.write(frame)

    def _expire(self) -> None:
        self._expiry_timer = None
        text = f"storing a message in {self.topic.full} took longer than {self._options.send_timeout_s:g} s"
        self._outbox.expire(self._loop.time(), Timeout(text))
        next_s = self._outbox.next_deadline_s
        if next_s is not None:
            self._expiry_timer = self._loop.call_at(next_s, self._expire)

    # -- events of the connection

    def on_receipt(self, receipt: Receipt) -> None:
        if not self._outbox.on_receipt(receipt.sequence_id, receipt.id):
            self._start_over(ConnectionLost(f"receipts of {self.topic.full} are missing"))

    def on_send_error(self, failure: SendError) -> None:
        if is_retriable(failure.error):
            self._start_over(failure.error)
        else:
            self._outbox.on_rejected(failure.sequence_id, failure.error)

    def _start_over(self, error: ClientError) -> None:
        """A new producer sends again all entries without a receipt."""
        self._link.start_over(error)

    def on_lost(self, error: ClientError) -> None:
        self._link.lost(error)

    def on_failed(self, error: ClientError) -> None:
        self.error = error
        for timer in (self._batch_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        self._batch_timer = self._expiry_timer = None
        self._outbox.fail_all(error)


class AsyncProducer:
    """Created by `AsyncClient.producer`. Messages of one partition are stored in the order of the calls."""

    def __init__(
        self, topic: TopicName, parts: Sequence[PartitionProducer], router: Router, options: ProducerOptions
    ) -> None:
        self.topic = topic.full
        self.partitions = [part.topic.full for part in parts]
        self._parts = parts
        self._router = router
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._limit = InFlightLimit(options.pending_max, PENDING_BYTES_MAX)
        self._open: set[asyncio.Future[MessageId]] = set()
        self._failure: ClientError | None = None
        self.is_closed = False

    @property
    def name(self) -> str:
        """The given name, or the one that the broker generated."""
        return self._parts[0].name

    async def send(self, value: bytes | None, **options: Unpack[SendOptions]) -> MessageId:
        """Publishes a message and waits until the broker has stored it, for `send_timeout_s` at most.

        None is no value, which is not the same as an empty one. The id of a duplicate that the broker dropped is -1:-1.
        """
        return await (await self.post(outgoing(value, **options), is_watched=True))

    async def send_async(self, value: bytes | None, **options: Unpack[SendOptions]) -> asyncio.Future[MessageId]:
        """As `send`, but returns at once, unless `pending_max` messages are pending: then it waits for one of them."""
        return await self.post(outgoing(value, **options))

    async def post(self, message: Outgoing, *, is_watched: bool = False) -> asyncio.Future[MessageId]:
        """`flush` does not raise the error of a message that has a waiter (`is_watched`)."""
        what = f"waiting for one of {self._options.pending_max} pending messages of {self.topic}"
        async with within(self._options.send_timeout_s, what):
            await self._limit.acquire(message.size)
        if self.is_closed:
            self._limit.release(message.size)
            raise Closed(f"the producer of {self.topic} is closed")
        future: asyncio.Future[MessageId] = self._loop.create_future()
        self._open.add(future)

        def done(result: MessageId | ClientError) -> None:
            self._limit.release(message.size)
            self._open.discard(future)
            if isinstance(result, ClientError) and not is_watched:
                self._failure = self._failure or result
            if not future.done():
                _settle(future, result)

        self._parts[self._router.choose(message.key, self._loop.time())].add(message, done)
        return future

    def seal(self) -> None:
        """Sends open batches now."""
        for part in self._parts:
            part.seal()

    async def flush(self) -> None:
        """Waits until all messages are stored; raises the first error of `send_async` since the last flush."""
        self.seal()
        if self._open:
            await asyncio.wait(list(self._open))
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Sends pending messages, raises their error, and closes the producer."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            await self.flush()
        finally:
            await asyncio.gather(*(part.close() for part in self._parts), return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


def _settle(future: asyncio.Future[MessageId], result: MessageId | ClientError) -> None:
    if isinstance(result, MessageId):
        future.set_result(result)
    else:
        future.set_exception(result)
        future.exception()  # marked as retrieved: `flush` raises it too

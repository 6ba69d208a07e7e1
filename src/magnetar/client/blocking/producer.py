"""The blocking producer: hands messages over to the loop's thread in bulk, and returns futures."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from typing import Self, Unpack

from magnetar.client.blocking.loop_thread import LoopThread
from magnetar.client.errors import ClientError, Closed, Timeout
from magnetar.client.message import MessageId
from magnetar.client.options import SendOptions
from magnetar.client.produce.outbox import Outgoing, outgoing
from magnetar.client.produce.producer import AsyncProducer

_Posted = tuple[Outgoing, Future[MessageId], bool]


class Producer:
    """Created by `Client.producer`; a context manager. See `AsyncProducer`."""

    def __init__(self, thread: LoopThread, producer: AsyncProducer, pending_max: int, send_timeout_s: float) -> None:
        self.topic = producer.topic
        self.partitions = producer.partitions
        self.name = producer.name
        self._thread = thread
        self._producer = producer
        self._pending_max = pending_max
        self._send_timeout_s = send_timeout_s
        self._slots = threading.BoundedSemaphore(pending_max)
        # Messages that the loop has not taken yet; it takes all of them at once.
        self._handover: deque[_Posted] = deque()
        self._handover_turn = asyncio.Lock()
        self._handover_is_due = False

    def send(self, value: bytes | None, **options: Unpack[SendOptions]) -> MessageId:
        # The caller waits: no other message will fill the batch.
        return self._post(value, options, seals=True).result()

    def send_async(self, value: bytes | None, **options: Unpack[SendOptions]) -> Future[MessageId]:
        return self._post(value, options, seals=False)

    def flush(self) -> None:
        self._thread.run(self._flush())

    def close(self) -> None:
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
        if not self._slots.acquire(timeout=self._send_timeout_s):
            raise Timeout(
                f"waiting for one of {self._pending_max} pending messages of {self.topic} took longer than"
                f" {self._send_timeout_s:g} s"
            )
        future: Future[MessageId] = Future()
        future.add_done_callback(lambda _: self._slots.release())
        self._handover.append((message, future, seals))
        if not self._handover_is_due:
            self._handover_is_due = True
            asyncio.run_coroutine_threadsafe(self._hand_over_all(), self._thread.loop)
        return future

    # -- in the loop's thread

    async def _hand_over_all(self) -> None:
        async with self._handover_turn:
            # First, so that a message posted from here on schedules the next handover.
            self._handover_is_due = False
            while self._handover:
                await self._hand_over(*self._handover.popleft())

    async def _hand_over(self, message: Outgoing, future: Future[MessageId], seals: bool) -> None:
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
        await self._hand_over_all()
        await self._producer.flush()

    async def finish(self) -> None:
        """`close`, for the loop's thread."""
        await self._hand_over_all()
        await self._producer.close()


def _copy(source: asyncio.Future[MessageId], target: Future[MessageId]) -> None:
    if source.cancelled():
        target.set_exception(Closed("the client is closed"))
    elif (error := source.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())

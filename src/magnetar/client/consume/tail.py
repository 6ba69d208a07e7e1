"""The tail of a topic: its stored range, and the wait for the next message without polling.

A tail is a consumer with one permit: the arrival of an entry ends the wait. Owns when the consumer has to start again
at another position, which takes one or two requests; while nothing is published it costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, Self, TypeVar

from magnetar.client.connection.protocol import Delivery
from magnetar.client.connection.retry import Retry
from magnetar.client.consume.positions import bounds
from magnetar.client.consume.raw_consumer import BEFORE_ALL, Bounds, RawConsumer, RawConsumerFactory
from magnetar.client.errors import ClientError, Closed, InvalidArgument
from magnetar.client.gather import gather
from magnetar.client.message import LATEST, MessageId, Position
from magnetar.wire.metadata import messages_in

_T = TypeVar("_T")

_INDEX_MAX = 1 << 31


class Waiter(Protocol):
    """A waiter of a tail; an `asyncio.Event` is one."""

    def set(self) -> None: ...


class AsyncTopicTail:
    """Created by `AsyncClient.tail`; an async context manager.

    `_after` is the position after which the consumer started, or that of the last entry it received; it receives one
    more if `_permits` is above 0. `_seen` is the ledger, entry and batch index of the newest message known.
    """

    def __init__(self, factory: RawConsumerFactory) -> None:
        self.topic = factory.topic.full
        self.is_closed = False
        self._factory = factory
        self._consumer: RawConsumer | None = None
        self._after: Position = BEFORE_ALL
        self._permits = 0
        self._seen = (*BEFORE_ALL, -1)
        self._retry: Retry | None = None  # since the broker was lost
        self._was_reached = False
        self._waiters: set[Waiter] = set()
        self._turn = asyncio.Lock()

    # -- stored range

    async def bounds(self) -> Bounds:
        """The stored range at this moment. `NotFound` if the topic does not exist."""
        return await self._with_retry(self._request_bounds)

    async def _request_bounds(self) -> Bounds:
        found = await bounds(self._factory)
        self._note(found.last)
        return found

    async def last(self) -> MessageId:
        """The last message stored; cheaper than `bounds`."""
        return await self._with_retry(self._request_last)

    async def _request_last(self) -> MessageId:
        async with self._turn:
            consumer = self._consumer or await self._begin(BEFORE_ALL)
        return await self._last_of(consumer)

    async def _last_of(self, consumer: RawConsumer) -> MessageId:
        last, _ = await consumer.last()
        self._note(last)
        return last

    async def wait(self, after: MessageId, timeout_s: float | None) -> bool:
        """Returns True as soon as a message after `after` is stored, False after `timeout_s`; None is no limit."""
        return bool(await wait_any([(self, after)], timeout_s))

    # -- waiting, for `wait_any` and the topic watcher

    def has_more(self, after: MessageId) -> bool:
        """Whether a message after `after` is known."""
        return self._seen > _place(after)

    def is_armed(self, after: MessageId) -> bool:
        """Whether the next message after `after` will wake the waiters."""
        return self._consumer is not None and self._permits > 0 and self._after == after.position

    async def arm(self, after: MessageId) -> None:
        """Makes `has_more` or `is_armed` true."""
        await self._with_retry(lambda: self._arm(after))

    async def _arm(self, after: MessageId) -> None:
        async with self._turn:
            if self.has_more(after) or self.is_armed(after):
                return
            consumer = self._consumer
            if consumer is None:
                consumer = await self._begin(after.position)
                if after.batch_index >= 0:  # the rest of that batch counts too, and will not arrive
                    await self._last_of(consumer)
            elif self._after != after.position:
                # The consumer lags behind, so probably much is published: a request shows it without a new consumer.
                await self._last_of(consumer)
                if self.has_more(after):
                    return
                consumer = await self._begin(after.position)
            if self._permits <= 0:
                consumer.flow(1 - self._permits)
                self._permits = 1

    async def _begin(self, after: Position) -> RawConsumer:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._after = after
        self._permits = 0
        self._consumer = await self._factory.open(self, after, was_there=self._was_reached)
        return self._consumer

    def _note(self, last: MessageId) -> None:
        """Not the newer of both: the message seen before may have been deleted."""
        self._seen = (*last.position, max(last.batch_index, 0))

    def add_waiter(self, waiter: Waiter) -> None:
        """It is set whenever a message arrives, or the tail has to be armed again."""
        self._waiters.add(waiter)

    def remove_waiter(self, waiter: Waiter) -> None:
        self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    # -- events of the connection

    def on_delivery(self, delivery: Delivery) -> None:
        last = delivery.entry_id + len(delivery.blobs) - 1
        self._permits -= sum(map(messages_in, delivery.blobs))
        self._after = Position(delivery.ledger_id, last)
        self._seen = max(self._seen, (*self._after, messages_in(delivery.blobs[-1]) - 1))
        self._wake()

    def on_end_reached(self) -> None:
        """The topic is terminated: nothing arrives any more."""

    def on_lost(self, error: ClientError) -> None:
        self._consumer = None
        if isinstance(error, Closed):
            self.is_closed = True
        self._wake()

    # -- life

    async def _with_retry(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Tries again while the broker cannot be reached, for `reconnect_timeout_s` since it was lost."""
        while True:
            if self.is_closed:
                raise Closed(f"the tail of {self.topic} is closed")
            try:
                reply = await attempt()
            except ClientError as error:
                if self._retry is None:
                    self._retry = Retry(self._factory.reconnect_timeout_s if self._was_reached else 0)
                delay_s = self._retry.delay_s(error)
                if delay_s is None:
                    raise
                await asyncio.sleep(delay_s)
            else:
                self._was_reached = True
                self._retry = None
                return reply

    async def close(self) -> None:
        self.is_closed = True
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


async def wait_any(tails: Sequence[tuple[AsyncTopicTail, MessageId]], timeout_s: float | None) -> list[AsyncTopicTail]:
    """The tails with messages after the given positions, as soon as there is one; [] after `timeout_s`."""
    for tail, after in tails:
        if after.position == LATEST.position:
            raise InvalidArgument(f"cannot wait for a message after LATEST on {tail.topic}: give a position")
    changed = asyncio.Event()
    for tail, _ in tails:
        tail.add_waiter(changed)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                changed.clear()
                await _arm_all(tails)
                found = [tail for tail, after in tails if tail.has_more(after)]
                if found:
                    return found
                await changed.wait()
    except TimeoutError:
        return []
    finally:
        for tail, _ in tails:
            tail.remove_waiter(changed)


async def _arm_all(tails: Iterable[tuple[AsyncTopicTail, MessageId]]) -> None:
    idle = [(tail, after) for tail, after in tails if not (tail.has_more(after) or tail.is_armed(after))]
    if len(idle) == 1:
        tail, after = idle[0]
        await tail.arm(after)
    elif idle:
        await gather(tail.arm(after) for tail, after in idle)


def _place(after: MessageId) -> tuple[int, int, int]:
    """The last place before the wait: without a batch index, the end of the entry."""
    return (*after.position, after.batch_index if after.batch_index >= 0 else _INDEX_MAX)

"""Watching a topic: what it stores, and waiting for more without polling.

A watch is a consumer that may get one message: the entry that arrives is the news. Owns when it has to begin anew at
another position, which takes a question or two to the broker; while nothing is published it costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, Self, TypeVar

from magnetar.client.connection.backoff import Backoff
from magnetar.client.connection.protocol import Delivery
from magnetar.client.connection.recovery import is_passing
from magnetar.client.consume.positions import bounds
from magnetar.client.consume.raw_consumer import BEFORE_ALL, Bounds, Position, Tap, Tapping
from magnetar.client.errors import ClientError, Closed, InvalidArgument
from magnetar.client.message import LATEST, MessageId
from magnetar.wire.metadata import messages_in

_T = TypeVar("_T")

_INDEX_MAX = 1 << 31


class Waiter(Protocol):
    """Whoever waits for a watch; an `asyncio.Event` is one."""

    def set(self) -> None: ...


class AsyncTopicWatch:
    """Made by `AsyncClient.watch`; an async context manager.

    `_after` is the position that the consumer began after, or the one of the last entry it got; it gets one more if
    `_permits`, the messages it may get, is above 0. `_seen` is the ledger, entry and batch index of the newest message
    that is known of.
    """

    def __init__(self, tapping: Tapping) -> None:
        self.topic = tapping.topic.full
        self.is_closed = False
        self._tapping = tapping
        self._tap: Tap | None = None
        self._after: Position = BEFORE_ALL
        self._permits = 0
        self._seen = (*BEFORE_ALL, -1)
        self._lost_at_s: float | None = None
        self._was_reached = False
        self._waiters: set[Waiter] = set()
        self._turn = asyncio.Lock()

    # -- questions

    async def bounds(self) -> Bounds:
        """What the topic stores at this moment. `NotFound` if it does not exist."""
        return await self._patiently(self._ask_bounds)

    async def _ask_bounds(self) -> Bounds:
        found = await bounds(self._tapping)
        self._note(found.last)
        return found

    async def last(self) -> MessageId:
        """The last message stored, as `bounds` says it, with less effort."""
        return await self._patiently(self._ask_last)

    async def _ask_last(self) -> MessageId:
        async with self._turn:
            tap = self._tap or await self._begin(BEFORE_ALL)
        return await self._last_of(tap)

    async def _last_of(self, tap: Tap) -> MessageId:
        last, _ = await tap.last()
        self._note(last)
        return last

    async def wait(self, after: MessageId, timeout_s: float | None) -> bool:
        """Returns True as soon as something after `after` is stored, False after `timeout_s` (None: never)."""
        return bool(await wait_any([(self, after)], timeout_s))

    # -- waiting, as `wait_any` does it

    def has_news(self, after: MessageId) -> bool:
        """Whether a message after `after` is known of."""
        return self._seen > _place(after)

    def is_waiting_for(self, after: MessageId) -> bool:
        """Whether the next message after `after` will be noticed."""
        return self._tap is not None and self._permits > 0 and self._after == after.position

    async def aim(self, after: MessageId) -> None:
        """Sees to it that there is news, or that the next message will be."""
        await self._patiently(lambda: self._aim(after))

    async def _aim(self, after: MessageId) -> None:
        async with self._turn:
            if self.has_news(after) or self.is_waiting_for(after):
                return
            tap = self._tap
            if tap is None:
                tap = await self._begin(after.position)
                if after.batch_index >= 0:  # what is left of that batch is news too, and will not arrive
                    await self._last_of(tap)
            elif self._after != after.position:
                # It lags behind, so probably much is published: then a question says so, without a new consumer.
                await self._last_of(tap)
                if self.has_news(after):
                    return
                tap = await self._begin(after.position)
            if self._permits <= 0:
                tap.flow(1 - self._permits)
                self._permits = 1

    async def _begin(self, after: Position) -> Tap:
        if self._tap is not None:
            self._tap.close()
            self._tap = None
        self._after = after
        self._permits = 0
        self._tap = await self._tapping.open(self, after, was_there=self._was_reached)
        return self._tap

    def _note(self, last: MessageId) -> None:
        """Not the newer of both: what was seen before may have been deleted."""
        self._seen = (*last.position, max(last.batch_index, 0))

    def join(self, waiter: Waiter) -> None:
        """It is set whenever there is news, or the watch has to be aimed again."""
        self._waiters.add(waiter)

    def leave(self, waiter: Waiter) -> None:
        self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    # -- what the connection tells

    def on_delivery(self, delivery: Delivery) -> None:
        last = delivery.entry_id + len(delivery.blobs) - 1
        self._permits -= sum(map(messages_in, delivery.blobs))
        self._after = (delivery.ledger_id, last)
        self._seen = max(self._seen, (*self._after, messages_in(delivery.blobs[-1]) - 1))
        self._wake()

    def on_end_reached(self) -> None:
        """The topic is terminated: nothing will come, which is what waiting for it finds."""

    def on_lost(self, error: ClientError) -> None:
        self._tap = None
        if isinstance(error, Closed):
            self.is_closed = True
        self._wake()

    # -- life

    async def _patiently(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Asks again while the broker cannot be reached, for as long as that may take since it began."""
        backoff = Backoff()
        loop = asyncio.get_running_loop()
        while True:
            if self.is_closed:
                raise Closed(f"the watch of {self.topic} is closed")
            try:
                answer = await ask()
            except ClientError as error:
                delay_s = backoff.next_s()
                if self._lost_at_s is None:
                    self._lost_at_s = loop.time()
                give_up_s = self._tapping.reconnect_timeout_s if self._was_reached else 0
                if not is_passing(error) or loop.time() + delay_s > self._lost_at_s + give_up_s:
                    raise
                await asyncio.sleep(delay_s)
            else:
                self._was_reached = True
                self._lost_at_s = None
                return answer

    async def close(self) -> None:
        self.is_closed = True
        if self._tap is not None:
            self._tap.close()
            self._tap = None
        self._wake()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


async def wait_any(
    watched: Sequence[tuple[AsyncTopicWatch, MessageId]], timeout_s: float | None
) -> list[AsyncTopicWatch]:
    """The watches with something stored after the given positions, as soon as there is one; [] after `timeout_s`."""
    for watch, after in watched:
        if after.position == LATEST.position:
            raise InvalidArgument(f"cannot wait for what is after LATEST on {watch.topic}: give a position")
    changed = asyncio.Event()
    for watch, _ in watched:
        watch.join(changed)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                changed.clear()
                await _aim_all(watched)
                news = [watch for watch, after in watched if watch.has_news(after)]
                if news:
                    return news
                await changed.wait()
    except TimeoutError:
        return []
    finally:
        for watch, _ in watched:
            watch.leave(changed)


async def _aim_all(watched: Iterable[tuple[AsyncTopicWatch, MessageId]]) -> None:
    idle = [(w, after) for w, after in watched if not (w.has_news(after) or w.is_waiting_for(after))]
    if len(idle) == 1:
        watch, after = idle[0]
        await watch.aim(after)
    elif idle:
        for result in await asyncio.gather(*(w.aim(after) for w, after in idle), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result


def _place(after: MessageId) -> tuple[int, int, int]:
    """The last place that is not news: without a batch index, the end of the entry."""
    return (*after.position, after.batch_index if after.batch_index >= 0 else _INDEX_MAX)

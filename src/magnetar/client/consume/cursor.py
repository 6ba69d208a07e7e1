"""The cursor of a durable subscription: reads and moves its position without receiving messages.

For jobs that read a topic in another way, and acknowledge here so that the backlog is true. Owns reconnecting. The
subscription is held exclusively meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Self, TypeVar

from magnetar.client.connection.retry import Backoff, is_retriable, with_retry
from magnetar.client.consume.positions import FirstEntry
from magnetar.client.consume.raw_consumer import RawConsumer, RawConsumerFactory
from magnetar.client.errors import ClientError, Closed, ConsumerBusy
from magnetar.client.message import EARLIEST, MessageId, Position

_T = TypeVar("_T")

_EACH_MAX = 1000
"""The most entries that one command acknowledges individually."""


class AsyncCursor:
    """Created by `AsyncClient.cursor`; an async context manager."""

    def __init__(
        self, factory: RawConsumerFactory, subscription: str, initial_position: MessageId, busy_s: float | None
    ) -> None:
        self.topic = factory.topic.full
        self.subscription = subscription
        self.is_closed = False
        self._factory = factory
        self._begins_at_first = initial_position == EARLIEST
        self._busy_s = factory.timeout_s if busy_s is None else min(busy_s, factory.timeout_s)
        self._was_open = False
        self._consumer: RawConsumer | None = None
        self._turn = asyncio.Lock()

    async def position(self) -> MessageId:
        """The mark-delete position: the last entry that is acknowledged together with all before it."""
        return await self._with_retry(self._request_position)

    async def _request_position(self) -> MessageId:
        _, position = await (await self._opened()).last()
        return position

    async def acknowledge_up_to(self, position: MessageId) -> None:
        """Acknowledges the entry and all before it; returns once the broker has stored it."""
        await self._with_retry(lambda: self._acknowledge(position))

    async def _acknowledge(self, position: MessageId) -> None:
        await (await self._opened()).acknowledge_up_to_durably(position.position)

    def acknowledge_soon(self, position: MessageId) -> None:
        """The same without waiting, for callers that acknowledge more later: it may be lost with a connection."""
        if self._consumer is not None and self._consumer.is_open:
            self._consumer.acknowledge_up_to(position.position)

    async def acknowledge_each(self, positions: Sequence[MessageId]) -> None:
        """Acknowledges these entries and no others; returns once the broker has stored it."""
        for start in range(0, len(positions), _EACH_MAX):
            part = [position.position for position in positions[start : start + _EACH_MAX]]
            await self._with_retry(partial(self._acknowledge_each, part))

    async def _acknowledge_each(self, positions: list[Position]) -> None:
        await (await self._opened()).acknowledge_each(positions)

    async def _opened(self) -> RawConsumer:
        if self._consumer is None or not self._consumer.is_open:
            end = FirstEntry()  # receives nothing, since it gives no permits
            self._consumer = await self._factory.open_durable(
                end, self.subscription, begins_at_first=self._begins_at_first
            )
            self._was_open = True
        return self._consumer

    async def _with_retry(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Tries again while the broker cannot be reached, or still holds the subscription for a lost consumer.

        A subscription that this cursor never held is more likely held by a consumer that stays: it has `busy_s`.
        """
        busy_until_s = time.monotonic() + self._busy_s

        def is_worth_it(error: ClientError) -> bool:
            is_taken = isinstance(error, ConsumerBusy) and not self._was_open
            return is_retriable(error) and not (is_taken and time.monotonic() > busy_until_s)

        async def attempt_if_open() -> _T:
            if self.is_closed:
                raise Closed(f"the cursor of {self.topic} is closed")
            return await attempt()

        what = f"subscription {self.subscription!r} of {self.topic}"
        async with self._turn:
            try:
                return await with_retry(
                    what, attempt_if_open, self._factory.timeout_s, backoff=Backoff(last_s=1.0), rule=is_worth_it
                )
            except ConsumerBusy as error:
                if error.text.startswith(what):
                    raise
                raise ConsumerBusy(f"{what} is in use: {error.text}", code=error.code) from None

    async def close_and_wait(self) -> None:
        """Returns once the subscription is free for others."""
        self.is_closed = True
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await consumer.close_and_wait()

    async def close(self) -> None:
        self.is_closed = True
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()

"""Positions that a short-lived consumer finds: the stored range, the position of a time, the entry after a position.

Each function leaves the topic as it was: its consumer, or its subscription, is gone when it returns.
"""

from __future__ import annotations

import asyncio
import secrets

from magnetar.client.connection.protocol import Delivery
from magnetar.client.connection.retry import Backoff, is_retriable, with_retry
from magnetar.client.consume.raw_consumer import BEFORE_ALL, Bounds, RawConsumer, RawConsumerFactory
from magnetar.client.errors import ClientError, ConnectionLost
from magnetar.client.message import MessageId, Position

# The wait for an entry that the broker reports, before it is asked again.
_QUIET_S = 1.0


class FirstEntry:
    """The listener of a consumer that receives at most one entry; `id` is that of the entry."""

    def __init__(self, partition: int = -1) -> None:
        self._partition = partition
        self.id: MessageId | None = None
        self.error: ClientError | None = None
        self.changed = asyncio.Event()

    def on_delivery(self, delivery: Delivery) -> None:
        if self.id is None:
            self.id = MessageId(delivery.ledger_id, delivery.entry_id, self._partition)
        self.changed.set()

    def on_end_reached(self) -> None:
        self.changed.set()

    def on_lost(self, error: ClientError) -> None:
        self.error = error
        self.changed.set()


async def bounds(factory: RawConsumerFactory) -> Bounds:
    """The stored range of a topic at this moment."""
    # Deleting entries does not move the cursor of an existing consumer, hence a new one.
    consumer = await factory.open(FirstEntry(), BEFORE_ALL)
    try:
        last, before_first = await consumer.last()
    finally:
        consumer.close()
    return Bounds(before_first, last)


async def first_after(factory: RawConsumerFactory, after: Position) -> MessageId | None:
    """The id of the first entry after a position; None if there is none."""
    end = FirstEntry(factory.topic.partition)
    consumer = await factory.open(end, after)
    try:
        consumer.flow(1)
        while end.id is None:
            last, _ = await consumer.last()
            if end.id is None and last.position <= after:
                return None
            try:
                async with asyncio.timeout(_QUIET_S):
                    await end.changed.wait()
            except TimeoutError:
                continue
            if end.id is None and end.error is not None:
                raise end.error
        return end.id
    finally:
        consumer.close()


async def position_at(factory: RawConsumerFactory, time_ms: int) -> MessageId:
    """The position before the first message that was published at a time or later.

    Only a cursor can seek to a time, and brokers disconnect its consumer then. To outlive that, it is the cursor of a
    durable subscription, which is deleted at the end.
    """
    name = factory.own_subscription(f"position-at-{secrets.token_hex(8)}")
    consumer = await factory.open_durable(FirstEntry(), name)
    try:
        await consumer.seek_to_time(time_ms)
        consumer = await _reopened(factory, consumer, name)
        _, mark = await consumer.last()
        return mark
    finally:
        consumer = await _reopened(factory, consumer, name)
        await consumer.unsubscribe()


async def _reopened(factory: RawConsumerFactory, consumer: RawConsumer, name: str) -> RawConsumer:
    """After a seek the subscription may not accept consumers yet."""
    if consumer.is_open:
        return consumer
    return await with_retry(
        f"reopening subscription {name!r} of {factory.topic.full}",
        lambda: factory.open_durable(FirstEntry(), name),
        factory.timeout_s,
        backoff=Backoff(first_s=0.005),
        rule=lambda error: is_retriable(error) and not isinstance(error, ConnectionLost),
    )

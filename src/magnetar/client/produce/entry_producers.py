"""Several producers of entries that belong together: opened, flushed and closed at the same time.

Owns that they share one limit on what is on its way. Which there are, and what they send, the caller decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from magnetar.client.async_client import AsyncClient
from magnetar.client.gather import gather
from magnetar.client.produce.entry_producer import AsyncEntryProducer
from magnetar.client.produce.in_flight import InFlightLimit
from magnetar.wire import schema_pb2 as pb


class ProducerKey(NamedTuple):
    """Who sends where. `name` None lets the broker make one up."""

    topic: str
    name: str | None


class EntryProducers:
    def __init__(
        self,
        client: AsyncClient,
        *,
        deduplicated: bool,
        pending_max: int = 1000,
        pending_bytes_max: int = 16 << 20,
        open_timeout_s: float = 30,
        send_timeout_s: float = 120,
    ) -> None:
        self._client = client
        self._deduplicated = deduplicated
        self._open_timeout_s = open_timeout_s
        self._send_timeout_s = send_timeout_s
        self._limit = InFlightLimit(pending_max, pending_bytes_max)
        self._producers: dict[ProducerKey, AsyncEntryProducer] = {}

    def __getitem__(self, sender: ProducerKey) -> AsyncEntryProducer:
        return self._producers[sender]

    def __contains__(self, sender: ProducerKey) -> bool:
        return sender in self._producers

    @property
    def senders(self) -> tuple[ProducerKey, ...]:
        return tuple(self._producers)

    async def open(self, senders: Iterable[ProducerKey], schema: pb.Schema | None = None) -> None:
        """Opens those that are not open yet, all at once."""
        await gather([self._open(sender, schema) for sender in dict.fromkeys(senders) if sender not in self._producers])

    async def _open(self, sender: ProducerKey, schema: pb.Schema | None) -> None:
        self._producers[sender] = await self._client.entry_producer(
            sender.topic,
            name=sender.name,
            deduplicated=self._deduplicated,
            schema=schema,
            limit=self._limit,
            open_timeout_s=self._open_timeout_s,
            send_timeout_s=self._send_timeout_s,
        )

    async def flush(self) -> None:
        """Waits until everything is stored; raises the first error that says why not."""
        await gather([producer.flush() for producer in self._producers.values()])

    async def close(self) -> None:
        """Leaves all of them. That one cannot be told any more is no error: its connection is gone."""
        producers, self._producers = list(self._producers.values()), {}
        await asyncio.gather(*(producer.close() for producer in producers), return_exceptions=True)

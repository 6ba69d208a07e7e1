"""A group of entry producers that are opened, flushed and closed together.

They share one limit on entries in flight. The caller decides which producers there are and what they send.
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
    """A producer by topic, name and metadata, in pairs. With `name` None the broker generates one."""

    topic: str
    name: str | None
    metadata: tuple[tuple[str, str], ...] = ()


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

    def __getitem__(self, key: ProducerKey) -> AsyncEntryProducer:
        return self._producers[key]

    def __contains__(self, key: ProducerKey) -> bool:
        return key in self._producers

    @property
    def keys(self) -> tuple[ProducerKey, ...]:
        return tuple(self._producers)

    async def open(self, keys: Iterable[ProducerKey], schema: pb.Schema | None = None) -> None:
        """Opens the producers that are not open yet, concurrently."""
        await gather([self._open(key, schema) for key in dict.fromkeys(keys) if key not in self._producers])

    async def _open(self, key: ProducerKey, schema: pb.Schema | None) -> None:
        self._producers[key] = await self._client.entry_producer(
            key.topic,
            name=key.name,
            deduplicated=self._deduplicated,
            schema=schema,
            properties=dict(key.metadata),
            limit=self._limit,
            open_timeout_s=self._open_timeout_s,
            send_timeout_s=self._send_timeout_s,
        )

    async def flush(self) -> None:
        """Waits until everything is stored; raises the first error."""
        await gather([producer.flush() for producer in self._producers.values()])

    async def close(self) -> None:
        """Errors are ignored: a producer whose connection is gone is closed already."""
        producers, self._producers = list(self._producers.values()), {}
        await asyncio.gather(*(producer.close() for producer in producers), return_exceptions=True)

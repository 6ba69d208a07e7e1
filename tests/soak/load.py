"""The load: opens all clients, publishes at a rate, lets consumers come and go, and reconnects everybody at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from random import Random
from time import monotonic

from .clients import Client, ConsumingClient, ProducingClient
from .entries import Entries
from .tally import Tally

_TICK_S = 0.02
_OPENING_AT_A_TIME = 50
_DRAIN_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Size:
    connections: int
    topics: int
    messages_per_s: int
    messages_per_entry: int
    message_size: int
    changes_per_s: float
    """Consumers, or connections with all their consumers, that go and come back."""


class Load:
    """Half of the connections produce, half consume; each has its share of the topics."""

    def __init__(self, port: int, size: Size, seed: int) -> None:
        self._size = size
        self._rng = Random(f"load {seed}")
        self.tally = Tally(size.topics)
        entries = Entries(size.messages_per_entry, size.message_size)
        half = max(1, size.connections // 2)
        shares = [range(first, size.topics, half) for first in range(half)]

        def clients(kind: type[Client]) -> list[Client]:
            return [kind(port, share, self.tally, entries, Random(f"{seed} {share.start}")) for share in shares]

        self.consuming: Sequence[ConsumingClient] = clients(ConsumingClient)  # type: ignore[assignment]
        self.producing: Sequence[ProducingClient] = clients(ProducingClient)  # type: ignore[assignment]
        self.changes = 0

    @property
    def clients(self) -> list[Client]:
        return [*self.consuming, *self.producing]

    async def open(self) -> None:
        """Consumers first: their subscriptions keep what the producers send."""
        for clients in (self.consuming, self.producing):
            gate = asyncio.Semaphore(_OPENING_AT_A_TIME)

            async def open_one(client: Client, gate: asyncio.Semaphore = gate) -> None:
                async with gate:
                    await client.open()

            await asyncio.gather(*map(open_one, clients))

    async def publish(self, *, entries: int = 0, seconds: float = 0.0) -> float:
        """Publishes a number of entries as fast as they are confirmed, or at the rate for a time; returns the time."""
        started = monotonic()
        published = asyncio.Event()
        changing = asyncio.create_task(self._change(published))
        try:
            if entries:
                await self._publish_number(entries)
            else:
                await self._publish_for(seconds)
        finally:
            published.set()
            taken = monotonic() - started
            await changing  # a client that went has come back
        return taken

    async def _publish_for(self, seconds: float) -> None:
        per_s = self._size.messages_per_s / self._size.messages_per_entry
        order = self._order()
        started = monotonic()
        sent = 0
        while (passed := monotonic() - started) < seconds:
            due = int(passed * per_s)
            unconfirmed = sent - self.tally.receipts
            while sent < due and unconfirmed < 5 * per_s:  # a broker that does not keep up is not buried
                client, topic = next(order)
                client.publish(topic)
                sent += 1
            await asyncio.sleep(_TICK_S)

    async def _publish_number(self, entries: int) -> None:
        order = self._order()
        before = self.tally.receipts
        for number in range(entries):
            client, topic = next(order)
            client.publish(topic)
            while number - (self.tally.receipts - before) > 200:
                await asyncio.sleep(0)

    def _order(self) -> Iterator[tuple[ProducingClient, int]]:
        pairs = [(client, topic) for client in self.producing for topic in client.topics]
        self._rng.shuffle(pairs)
        return cycle(pairs)

    async def _change(self, published: asyncio.Event) -> None:
        """Consumers go and come back, until everything is published."""
        while not published.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(published.wait(), 1 / self._size.changes_per_s)
            client = self._rng.choice(self.consuming)
            self.changes += 1
            if self._rng.random() < 0.5:
                await client.reopen_one()
            else:
                client.end()
                await client.open()

    async def drain(self) -> None:
        """Waits until everything has a receipt and has arrived; what is missing then is left to the tally."""
        until = monotonic() + _DRAIN_TIMEOUT_S
        while not self.tally.is_complete and monotonic() < until:
            await asyncio.sleep(0.05)

    async def reconnect_all(self) -> float:
        """Everybody loses the connection at once and returns; the time until all are served."""
        for client in self.clients:
            client.end()
        started = monotonic()
        await asyncio.gather(*(client.open() for client in self.clients))
        taken = monotonic() - started
        for client in self.producing:
            for topic in client.topics[:1]:
                client.publish(topic)
        await self.drain()
        return taken

    def close(self) -> None:
        for client in self.clients:
            client.end()

    @property
    def lost_connections(self) -> int:
        return sum(client.lost for client in self.clients)

    @property
    def errors(self) -> list[str]:
        return [error for client in self.clients for error in client.errors]

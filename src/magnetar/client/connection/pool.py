"""The connections of one client: at most one to each broker, opened on first use, and again after it was lost.

Knows nothing of topics; `lookup` finds the broker of one.
"""

from __future__ import annotations

import asyncio
from itertools import count

from magnetar.client.connection.address import Address, ServiceUrl, parse_service_url
from magnetar.client.connection.connection import Connection, open_connection
from magnetar.client.errors import ClientError, Closed, ConnectionLost, NotSupported, Timeout
from magnetar.security.credentials import Security

_CLOSE_TIMEOUT_S = 1.0

_Key = tuple[Address, str | None]


class Pool:
    """`next_id` numbers producers and consumers: unique in the client, hence on every connection."""

    def __init__(
        self, service: ServiceUrl, *, connect_timeout_s: float, keepalive_s: float, security: Security
    ) -> None:
        self.is_tls = service.is_tls
        self._service = service
        self._security = security
        self._connect_timeout_s = connect_timeout_s
        self._keepalive_s = keepalive_s
        self._connections: dict[_Key, Connection] = {}
        self._opening: dict[_Key, asyncio.Task[Connection]] = {}
        self._preferred = 0
        self._ids = count(1)
        self._is_closed = False

    def next_id(self) -> int:
        return next(self._ids)

    async def any(self) -> Connection:
        """A connection to one of the service's addresses, beginning with the one that worked last."""
        addresses = self._service.addresses
        errors: list[ClientError] = []
        for offset in range(len(addresses)):
            index = (self._preferred + offset) % len(addresses)
            try:
                connection = await self._get((addresses[index], None))
            except (ConnectionLost, Timeout) as error:
                errors.append(error)
            else:
                self._preferred = index
                return connection
        if len(errors) == 1:
            raise errors[0]
        raise ConnectionLost("; ".join(error.text for error in errors)) from errors[0]

    async def broker(self, url: str, *, through_proxy: bool = False) -> Connection:
        """A connection to the broker at `url`, directly or through the service's own address."""
        broker = parse_service_url(url)
        if broker.is_tls != self.is_tls:
            raise NotSupported(f"{self._service} leads to {url}: both have to be encrypted, or neither")
        address = broker.addresses[0]
        if not through_proxy:
            return await self._get((address, None))
        proxy = self._service.addresses[self._preferred % len(self._service.addresses)]
        return await self._get((proxy, str(address)))

    async def _get(self, key: _Key) -> Connection:
        if self._is_closed:
            raise Closed("the client is closed")
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            return connection
        task = self._opening.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(key))
            self._opening[key] = task
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        try:
            # Shielded: other callers may wait for the same connection when this one is cancelled.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # which only `close` does
                raise Closed("the client is closed") from None
            raise

    async def _open(self, key: _Key) -> Connection:
        address, proxy_to_broker = key
        connection = await open_connection(
            address,
            proxy_to_broker=proxy_to_broker,
            timeout_s=self._connect_timeout_s,
            keepalive_s=self._keepalive_s,
            security=self._security,
            is_tls=self.is_tls,
        )
        self._connections[key] = connection
        return connection

    async def close(self) -> None:
        self._is_closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for connection in self._connections.values():
            connection.close()
        await asyncio.gather(*(connection.wait_closed(_CLOSE_TIMEOUT_S) for connection in self._connections.values()))

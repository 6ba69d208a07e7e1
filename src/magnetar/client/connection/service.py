"""The cluster that a client is connected to: its connections, its lookups and its time limits.

Owns which lookup answers a question, and the retries of the application's calls. Knows nothing of producers and
consumers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from magnetar.client.connection.address import ServiceUrl, parse_service_url
from magnetar.client.connection.connection import Connection
from magnetar.client.connection.lookup import BinaryLookup, TopicLookup
from magnetar.client.connection.pool import Pool
from magnetar.client.connection.retry import is_momentary, with_retry
from magnetar.client.errors import InvalidArgument, NotFound, NotSupported
from magnetar.client.options import check_positive
from magnetar.names import TopicName
from magnetar.security.credentials import Security
from magnetar.security.tls import check_settings

_T = TypeVar("_T")


class Service:
    """`lookup` uses the service URL; `admin_lookup` the admin URL, and is the same where there is none."""

    def __init__(
        self,
        url: str,
        *,
        security: Security | None,
        admin_url: str | None,
        operation_timeout_s: float,
        connect_timeout_s: float,
        reconnect_timeout_s: float,
        keepalive_s: float,
    ) -> None:
        check_positive(
            operation_timeout_s=operation_timeout_s,
            connect_timeout_s=connect_timeout_s,
            reconnect_timeout_s=reconnect_timeout_s,
            keepalive_s=keepalive_s,
        )
        self.url = parse_service_url(url)
        self.timeout_s = operation_timeout_s
        self.reconnect_timeout_s = reconnect_timeout_s
        self._security = security or Security()
        admin = self.url if admin_url is None else _parse_admin_url(admin_url)
        check_settings(self._security, self.url, admin)
        self._pool = Pool(
            self.url, connect_timeout_s=connect_timeout_s, keepalive_s=keepalive_s, security=self._security
        )
        self.lookup = self._create_lookup(self.url)
        self.admin_lookup = self.lookup if admin_url is None else self._create_lookup(admin)
        self.next_id = self._pool.next_id

    def _create_lookup(self, url: ServiceUrl) -> TopicLookup:
        if not url.is_http:
            return BinaryLookup(self._pool, self.timeout_s)
        # The HTTP library takes long to import, and few clients need it.
        from magnetar.client.connection.http_lookup import HttpLookup

        return HttpLookup(url, self.timeout_s, self._security)

    async def connection_to(self, topic: TopicName) -> Connection:
        """A connection to the broker that serves the topic."""
        broker = await self.lookup.broker(topic)
        return await self._pool.broker(broker.url, through_proxy=broker.through_proxy)

    def connector(self, topic: TopicName) -> Callable[[], Awaitable[Connection]]:
        return lambda: self.connection_to(topic)

    async def with_retry(self, what: str, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Tries again while the broker is not ready, or goes away meanwhile."""
        return await with_retry(what, attempt, self.timeout_s, rule=is_momentary)

    async def partitions(self, topic: TopicName, *, create: bool) -> list[TopicName]:
        """The partitions of a topic, or the topic itself where it is not partitioned."""
        what = f"the partitions of {topic.full}"
        count = await self.with_retry(what, lambda: self.admin_lookup.partitions(topic, create=create))
        return [topic.with_partition(index) for index in range(count)] or [topic]

    async def is_partition(self, topic: TopicName) -> bool:
        """Whether a partitioned topic has this partition, which need not have been used yet."""
        try:
            return topic.partition < await self.admin_lookup.partitions(topic.base, create=False)
        except (NotFound, NotSupported):
            return False

    async def close(self) -> None:
        await self.lookup.close()
        await self.admin_lookup.close()
        await self._pool.close()


def _parse_admin_url(text: str) -> ServiceUrl:
    url = parse_service_url(text)
    if not url.is_http:
        raise InvalidArgument(f"admin url {url} does not start with http:// or https://")
    return url

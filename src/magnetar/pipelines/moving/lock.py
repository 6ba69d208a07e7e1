"""Locks on topics: a producer with a fixed name, of which a broker lets in one.

Any Pulsar gives the same guarantee, no subscription keeps messages for it, and it ends with the connection of a process
that is killed. Publishes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from magnetar.client.async_client import AsyncClient
from magnetar.client.blocking.loop_thread import LoopThread
from magnetar.client.errors import ClientError, ProducerBusy
from magnetar.client.gather import gather
from magnetar.client.produce.entry_producer import AsyncEntryProducer
from magnetar.errors import MagnetarError
from magnetar.replication.cluster import ClusterEndpoint

_RECONNECT_S = 60.0
_BUSY_S = 3.0
"""The connection of a killed process ends at once, or by the broker's keep-alive."""


class TopicLocked(MagnetarError):
    """Another process works on the topic."""


class TopicLocks:
    """Held from `take` until `close`."""

    def __init__(self, endpoint: ClusterEndpoint, name: str, busy_s: float = _BUSY_S) -> None:
        self._name = name
        self._busy_s = busy_s
        self._client = AsyncClient(
            endpoint.service_url,
            security=endpoint.security,
            admin_url=endpoint.admin_url,
            reconnect_timeout_s=_RECONNECT_S,
        )
        self._thread = LoopThread()
        self._producers: list[AsyncEntryProducer] = []

    def take(self, topics: Iterable[str]) -> None:
        """Of topics without partitions, or single partitions. Raises `TopicLocked`, which names the topic."""
        self._thread.run(gather([self._take(topic) for topic in topics]))

    async def _take(self, topic: str) -> None:
        try:
            producer = await self._client.entry_producer(topic, name=self._name, open_timeout_s=self._busy_s)
        except ProducerBusy as error:
            raise TopicLocked(f"{topic} is in use by another {self._name}, one at a time may work on it") from error
        self._producers.append(producer)

    def check(self) -> None:
        """Raises `TopicLocked` once a lock may be another's."""
        for producer in self._producers:
            if producer.error is not None:
                raise TopicLocked(f"the lock of {producer.topic} is lost: {producer.error.text}")

    def close(self) -> None:
        try:
            self._thread.run(self._client.close())
        except ClientError:
            pass  # a broker that is gone holds no lock
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

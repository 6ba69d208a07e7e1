"""The clients of one worker process: one for each cluster, in one loop, kept from task to task.

Owns the cache, and short time limits: a cluster that does not reply is reported to the driver soon, and does not delay
others in the task. A forked process creates its own.
"""

from __future__ import annotations

import os

from magnetar.client.async_client import AsyncClient
from magnetar.client.inline import InlineLoop
from magnetar.client.options import ClientOptions
from magnetar.replication.cluster import ClusterEndpoint

OPERATION_S = 3.0
"""The time limit of one request."""

_CONNECT_S = 2.0
_RECONNECT_S = 2.0

_OURS = "Magnetar"


class Clusters:
    """The clients of this process, by cluster."""

    def __init__(self) -> None:
        self.loop = InlineLoop()
        self._clients: dict[ClusterEndpoint, AsyncClient] = {}
        self._is_ours: dict[ClusterEndpoint, bool] = {}
        self._deduplicates: dict[tuple[ClusterEndpoint, str], bool | None] = {}
        self._retired: list[AsyncClient] = []

    def client(self, endpoint: ClusterEndpoint) -> AsyncClient:
        client = self._clients.get(endpoint)
        if client is None:
            self._retire(endpoint.name)
            # By the binary protocol alone: REST is needed only for Apache Pulsar, see `deduplicates`.
            client = self._clients[endpoint] = AsyncClient(endpoint.service_url, **_options(endpoint))
        return client

    def _retire(self, name: str) -> None:
        """The cluster has another address or token now."""
        for endpoint in [endpoint for endpoint in self._clients if endpoint.name == name]:
            self._retired.append(self._clients.pop(endpoint))
            self._is_ours.pop(endpoint, None)
            self._deduplicates = {key: known for key, known in self._deduplicates.items() if key[0] != endpoint}

    def close_retired(self) -> None:
        """Between tasks, when no copier uses them any more."""
        retired, self._retired = self._retired, []
        for client in retired:
            self.loop.run(client.close())

    async def is_ours(self, endpoint: ClusterEndpoint, topic: str) -> bool:
        """Whether it is a Magnetar cluster, which recognises copies by the producer's name."""
        known = self._is_ours.get(endpoint)
        if known is None:
            version = await self.client(endpoint).server_version(topic)
            known = self._is_ours[endpoint] = version.startswith(_OURS)
        return known

    async def deduplicates(self, endpoint: ClusterEndpoint, topic: str) -> bool | None:
        """Whether a topic of Apache Pulsar has deduplication, by REST; None if unknown."""
        if endpoint.admin_url is None:
            return None
        key = (endpoint, topic)
        if not self._deduplicates.get(key):
            options = _options(endpoint)
            options["admin_url"] = endpoint.admin_url
            async with AsyncClient(endpoint.service_url, **options) as client:
                self._deduplicates[key] = await client.deduplicates(topic)
        return self._deduplicates[key]

    async def forget(self, endpoint: ClusterEndpoint) -> None:
        """After a cluster did not reply: the next task starts with new connections."""
        client = self._clients.pop(endpoint, None)
        if client is not None:
            await client.close()


def _options(endpoint: ClusterEndpoint) -> ClientOptions:
    return ClientOptions(
        security=endpoint.security,
        operation_timeout_s=OPERATION_S,
        connect_timeout_s=_CONNECT_S,
        reconnect_timeout_s=_RECONNECT_S,
    )


_clusters: dict[int, Clusters] = {}


def clusters() -> Clusters:
    """The clients of this process, for the next task."""
    pid = os.getpid()
    found = _clusters.get(pid)
    if found is None:
        found = _clusters[pid] = Clusters()
    found.close_retired()
    return found

"""The clients of one process that copies: one for each cluster, in one loop, kept from task to task.

Owns the cache, and how long anything may take: a cluster that does not answer is told to the driver soon, and whoever
shares the task does not wait for it. A process that was forked makes its own.
"""

from __future__ import annotations

import os

from magnetar.client.async_client import AsyncClient
from magnetar.client.inline import InlineLoop
from magnetar.client.options import ClientOptions
from magnetar.replication.cluster import ClusterEndpoint

OPERATION_S = 3.0
"""How long one question may take."""

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
            # By the binary protocol alone: what is asked by REST is asked for Apache Pulsar's sake, see below.
            client = self._clients[endpoint] = AsyncClient(endpoint.service_url, **_options(endpoint))
        return client

    def _retire(self, name: str) -> None:
        """How a cluster was reached before is over: there was another address, or another token."""
        for endpoint in [endpoint for endpoint in self._clients if endpoint.name == name]:
            self._retired.append(self._clients.pop(endpoint))
            self._is_ours.pop(endpoint, None)
            self._deduplicates = {key: known for key, known in self._deduplicates.items() if key[0] != endpoint}

    def close_retired(self) -> None:
        """Between tasks, when nobody uses them any more."""
        retired, self._retired = self._retired, []
        for client in retired:
            self.loop.run(client.close())

    async def is_ours(self, endpoint: ClusterEndpoint, topic: str) -> bool:
        """Whether its brokers are of this project, which know copies by the command that sends them."""
        known = self._is_ours.get(endpoint)
        if known is None:
            version = await self.client(endpoint).server_version(topic)
            known = self._is_ours[endpoint] = version.startswith(_OURS)
        return known

    async def deduplicates(self, endpoint: ClusterEndpoint, topic: str) -> bool | None:
        """Of Apache Pulsar, which has to be asked by REST; None if it cannot be told."""
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
        """After a cluster did not answer, the next task begins with new connections."""
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
    """Those of this process, for the next task."""
    pid = os.getpid()
    found = _clusters.get(pid)
    if found is None:
        found = _clusters[pid] = Clusters()
    found.close_retired()
    return found

"""Finding topics by the binary protocol: how many partitions, and which broker has them.

`Finder` is what the rest of the client needs; its twin over HTTP is in `rest`.
"""

from __future__ import annotations

from typing import Protocol as Interface

import msgspec

from magnetar.client.connection import Connection
from magnetar.client.errors import ClientError, NotSupported, ServerFailure, of_code
from magnetar.client.pool import Pool
from magnetar.client.protocol import Command
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb

REDIRECTS_MAX = 20


class Broker(msgspec.Struct, frozen=True):
    """Where a topic is served."""

    url: str
    through_proxy: bool = False


class Finder(Interface):
    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """The number of partitions, 0 for a topic without; `NotFound`.

        `create` lets the broker create the topic where its auto-creation allows it (PIP-344).
        """
        ...

    async def broker(self, topic: TopicName) -> Broker: ...

    async def close(self) -> None: ...


class BinaryFinder:
    def __init__(self, pool: Pool, timeout_s: float) -> None:
        self._pool = pool
        self._timeout_s = timeout_s

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        connection = await self._pool.any()
        if not create and not connection.broker.lists_partitions_without_creation:
            # An older broker would not see the flag, and create the topic.
            raise NotSupported(
                f"the broker at {connection.address} ({connection.broker.server_version}) cannot tell the partitions"
                f" of {topic.full} without creating it: it does not announce"
                " supports_get_partitioned_metadata_without_auto_creation"
            )
        answer = await connection.request(
            lambda request_id: Command(
                type=Command.PARTITIONED_METADATA,
                partitionMetadata=pb.CommandPartitionedTopicMetadata(
                    topic=topic.full, request_id=request_id, metadata_auto_creation_enabled=create
                ),
            ),
            f"the number of partitions of {topic.full}",
            self._timeout_s,
        )
        response = answer.partitionMetadataResponse
        if response.response == pb.CommandPartitionedTopicMetadataResponse.Failed or response.HasField("error"):
            raise refusal(f"partitions of {topic.full}", response.error, response.message)
        return response.partitions

    async def broker(self, topic: TopicName) -> Broker:
        connection = await self._pool.any()
        authoritative = False
        for _ in range(REDIRECTS_MAX):
            response = await self._lookup(connection, topic, authoritative)
            if response.response == pb.CommandLookupTopicResponse.Failed:
                raise refusal(f"lookup of {topic.full}", response.error, response.message)
            if not response.brokerServiceUrl:
                raise ServerFailure(f"lookup of {topic.full} at {connection.address} named no broker")
            if response.response == pb.CommandLookupTopicResponse.Connect:
                return Broker(response.brokerServiceUrl, response.proxy_through_service_url)
            authoritative = response.authoritative
            connection = await self._pool.broker(
                response.brokerServiceUrl, through_proxy=response.proxy_through_service_url
            )
        raise ServerFailure(f"lookup of {topic.full} was redirected more than {REDIRECTS_MAX} times")

    async def _lookup(
        self, connection: Connection, topic: TopicName, authoritative: bool
    ) -> pb.CommandLookupTopicResponse:
        answer = await connection.request(
            lambda request_id: Command(
                type=Command.LOOKUP,
                lookupTopic=pb.CommandLookupTopic(topic=topic.full, request_id=request_id, authoritative=authoritative),
            ),
            f"lookup of {topic.full}",
            self._timeout_s,
        )
        return answer.lookupTopicResponse

    async def close(self) -> None:
        """The pool is the client's."""


def refusal(what: str, code: int, text: str) -> ClientError:
    """Apache Pulsar often gives the code alone."""
    return of_code(code, f"{what}: {text or pb.ServerError.Name(code)}")  # type: ignore[arg-type]

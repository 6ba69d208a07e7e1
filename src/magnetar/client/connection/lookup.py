"""Topic lookup by the binary protocol: topics of a namespace, partitions, the broker that serves a topic, schemas.

`TopicLookup` is the interface that the client needs; `http_lookup` implements it over HTTP.
"""

from __future__ import annotations

from typing import Protocol as Interface

import msgspec

from magnetar.client.connection.connection import Connection
from magnetar.client.connection.pool import Pool
from magnetar.client.connection.protocol import Command
from magnetar.client.errors import ClientError, NeedsRest, NotFound, NotSupported, ServerFailure, of_code
from magnetar.client.schema import Schema, schema_of_wire
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb

REDIRECTS_MAX = 20


class BrokerAddress(msgspec.Struct, frozen=True):
    """The broker that serves a topic."""

    url: str
    through_proxy: bool = False


class TopicLookup(Interface):
    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        """The number of partitions, 0 for a topic without; `NotFound`.

        `create` lets the broker create the topic where its auto-creation allows it (PIP-344).
        """
        ...

    async def broker(self, topic: TopicName) -> BrokerAddress: ...

    async def topics(self, namespace: str) -> list[str]:
        """The full names of all topics of a namespace, each partition on its own."""
        ...

    async def schema(self, topic: TopicName, version: bytes | None) -> Schema | None:
        """None if there is no such version, or no schema."""
        ...

    async def deduplicates(self, topic: TopicName) -> bool | None:
        """None if unknown."""
        ...

    async def change(self, method: str, path: str, query: dict[str, str], body: object, what: str) -> None:
        """A change that only REST can make, `path` below /admin/v2/; `body` is sent as JSON, None is no body."""
        ...

    async def close(self) -> None: ...


class BinaryLookup:
    def __init__(self, pool: Pool, timeout_s: float) -> None:
        self._pool = pool
        self._timeout_s = timeout_s

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        connection = await self._pool.any()
        if not create and not connection.broker.lists_partitions_without_creation:
            # An older broker would ignore the flag and create the topic.
            raise NotSupported(
                f"the broker at {connection.address} ({connection.broker.server_version}) cannot list the partitions"
                f" of {topic.full} without creating it: it does not announce"
                " supports_get_partitioned_metadata_without_auto_creation"
            )
        reply = await connection.request(
            lambda request_id: Command(
                type=Command.PARTITIONED_METADATA,
                partitionMetadata=pb.CommandPartitionedTopicMetadata(
                    topic=topic.full, request_id=request_id, metadata_auto_creation_enabled=create
                ),
            ),
            f"the number of partitions of {topic.full}",
            self._timeout_s,
        )
        response = reply.partitionMetadataResponse
        if response.response == pb.CommandPartitionedTopicMetadataResponse.Failed or response.HasField("error"):
            raise response_error(f"partitions of {topic.full}", response.error, response.message)
        return response.partitions

    async def broker(self, topic: TopicName) -> BrokerAddress:
        connection = await self._pool.any()
        authoritative = False
        for _ in range(REDIRECTS_MAX):
            response = await self._lookup(connection, topic, authoritative)
            if response.response == pb.CommandLookupTopicResponse.Failed:
                raise response_error(f"lookup of {topic.full}", response.error, response.message)
            what = f"lookup of {topic.full} at {connection.address}"
            url = chosen_url(what, response.brokerServiceUrl, response.brokerServiceUrlTls, is_tls=self._pool.is_tls)
            if response.response == pb.CommandLookupTopicResponse.Connect:
                return BrokerAddress(url, response.proxy_through_service_url)
            authoritative = response.authoritative
            connection = await self._pool.broker(url, through_proxy=response.proxy_through_service_url)
        raise ServerFailure(f"lookup of {topic.full} was redirected more than {REDIRECTS_MAX} times")

    async def _lookup(
        self, connection: Connection, topic: TopicName, authoritative: bool
    ) -> pb.CommandLookupTopicResponse:
        reply = await connection.request(
            lambda request_id: Command(
                type=Command.LOOKUP,
                lookupTopic=pb.CommandLookupTopic(topic=topic.full, request_id=request_id, authoritative=authoritative),
            ),
            f"lookup of {topic.full}",
            self._timeout_s,
        )
        return reply.lookupTopicResponse

    async def topics(self, namespace: str) -> list[str]:
        connection = await self._pool.any()
        reply = await connection.request(
            lambda request_id: Command(
                type=Command.GET_TOPICS_OF_NAMESPACE,
                getTopicsOfNamespace=pb.CommandGetTopicsOfNamespace(
                    request_id=request_id, namespace=namespace, mode=pb.CommandGetTopicsOfNamespace.ALL
                ),
            ),
            f"the topics of {namespace}",
            self._timeout_s,
        )
        return list(reply.getTopicsOfNamespaceResponse.topics)

    async def schema(self, topic: TopicName, version: bytes | None) -> Schema | None:
        connection = await self._pool.any()
        reply = await connection.request(
            lambda request_id: Command(
                type=Command.GET_SCHEMA,
                getSchema=pb.CommandGetSchema(request_id=request_id, topic=topic.full, schema_version=version),
            ),
            f"the schema of {topic.full}",
            self._timeout_s,
        )
        response = reply.getSchemaResponse
        if response.HasField("error_code"):
            error = response_error(f"the schema of {topic.full}", response.error_code, response.error_message)
            if isinstance(error, NotFound):  # also the reply for a topic that exists and has no schema
                return None
            raise error
        return schema_of_wire(response)

    async def deduplicates(self, topic: TopicName) -> bool | None:
        """The protocol has no command for it."""
        return None

    async def change(self, method: str, path: str, query: dict[str, str], body: object, what: str) -> None:
        raise NeedsRest(f"{what} requires REST: give the client an admin_url")

    async def close(self) -> None:
        """The pool belongs to the service."""


def chosen_url(what: str, plain: str, encrypted: str, *, is_tls: bool) -> str:
    """The broker's TLS address for a client that uses TLS, and only then."""
    url = encrypted if is_tls else plain
    if url:
        return url
    if plain and is_tls:
        raise NotSupported(f"{what} named a broker without TLS, {plain}: its brokerServicePortTls is not set")
    if encrypted:
        raise NotSupported(f"{what} named a broker with TLS only, {encrypted}: write pulsar+ssl:// or https://")
    raise ServerFailure(f"{what} named no broker")


def response_error(what: str, code: int, text: str) -> ClientError:
    """The error of a response; Apache Pulsar often sends a code without a text."""
    return of_code(code, f"{what}: {text or pb.ServerError.Name(code)}")  # type: ignore[arg-type]

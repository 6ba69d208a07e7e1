"""Questions about the topics of a cluster, and the creation of topics: the part of `AsyncClient` that moves no message.

Owns which way each question takes, and that none of them changes a topic by accident.
"""

from __future__ import annotations

from collections.abc import Mapping

from magnetar import errors as server_errors
from magnetar.client.admin.topics import check_shape, create_topic, grow_topic, partition_count
from magnetar.client.connection.service import Service
from magnetar.client.consume.positions import first_after, position_at
from magnetar.client.consume.raw_consumer import RawConsumerFactory
from magnetar.client.errors import Closed, InvalidArgument, InvalidName
from magnetar.client.message import MessageId
from magnetar.client.options import parse_topic
from magnetar.client.schema import Schema, chosen_topics, version_number
from magnetar.names import parse_namespace


class TopicAdmin:
    def __init__(self, service: Service, subscription_role_prefix: str) -> None:
        self._service = service
        self._subscription_role_prefix = subscription_role_prefix
        self._is_closed = False

    async def get_partitions_for_topic(self, topic: str, create_if_auto_creation_enabled: bool = True) -> list[str]:
        """The full names of the topic's partitions, or its own full name when it is not partitioned (PIP-344).

        A topic that does not exist is created if the flag and the broker's auto-creation allow it, partitioned or not
        as the broker is configured; otherwise it is `NotFound`. Without the flag nothing is created; a broker that
        does not announce this feature over `pulsar://` is `NotSupported`.
        """
        self._check_open()
        partitions = await self._service.partitions(parse_topic(topic), create=create_if_auto_creation_enabled)
        return [partition.full for partition in partitions]

    async def deduplicates(self, topic: str) -> bool | None:
        """Whether a topic drops duplicates. None: unknown, since REST is not available or not allowed."""
        self._check_open()
        name = parse_topic(topic)
        lookup = self._service.admin_lookup
        return await self._service.with_retry(f"deduplication of {name.full}", lambda: lookup.deduplicates(name))

    async def partition_count(self, topic: str) -> int | None:
        """The number of partitions, 0 for a topic that is not partitioned, None for no topic. Creates nothing.

        A missing namespace is `NamespaceNotFound`.
        """
        self._check_open()
        name = parse_topic(topic)
        service = self._service
        by_rest = None if service.admin_lookup is service.lookup else service.admin_lookup
        what = f"the partitions of {name.full}"
        return await service.with_retry(what, lambda: partition_count(service.lookup, name, by_rest=by_rest))

    async def create_topic(self, topic: str, partitions: int = 0, copy_of: str = "") -> None:
        """Creates a topic, not partitioned if `partitions` is 0. An existing topic of any shape is `Conflict`.

        By REST: the client needs an `admin_url`, or an `http://` address. Apache Pulsar does not report a partitioned
        topic that exists already with the same number of partitions. `copy_of` is `{cluster}/{topic}` for a topic with
        copies of one with another name, which is not replicated itself.
        """
        self._check_open()
        name = parse_topic(topic)
        lookup = self._service.admin_lookup
        await self._service.with_retry(f"creating {name.full}", lambda: create_topic(lookup, name, partitions, copy_of))
        if partitions:
            check_shape(name, partitions, await self.partition_count(topic))

    async def grow_topic(self, topic: str, partitions: int) -> None:
        """Adds partitions to a partitioned topic, up to `partitions` in total. By REST, like `create_topic`.

        `Conflict` if the topic is not partitioned or does not exist, `NotAllowed` if it has more already.
        """
        self._check_open()
        name = parse_topic(topic)
        lookup = self._service.admin_lookup
        await self._service.with_retry(f"growing {name.full}", lambda: grow_topic(lookup, name, partitions))

    async def topics(self, namespace: str, pattern: str | None = None) -> list[str]:
        """The full names of the topics of `tenant/namespace`, each partition on its own, sorted.

        `pattern` is a regular expression for the whole of `tenant/namespace/topic`, or with `://` in it for
        `domain://tenant/namespace/topic`; a partition matches by the name of its topic. System topics are left out.
        """
        self._check_open()
        try:
            parse_namespace(namespace)
        except server_errors.InvalidName as error:
            raise InvalidName(str(error)) from None
        lookup = self._service.admin_lookup
        found = await self._service.with_retry(f"the topics of {namespace}", lambda: lookup.topics(namespace))
        return chosen_topics(found, pattern)

    async def schema(self, topic: str, version: bytes | None = None) -> Schema | None:
        """The newest schema of a topic, or the given `version` (`Message.schema_version`); None if there is none."""
        self._check_open()
        name = parse_topic(topic)
        if version is not None:
            version_number(version)
        lookup = self._service.admin_lookup
        return await self._service.with_retry(f"the schema of {name.full}", lambda: lookup.schema(name, version))

    async def server_version(self, topic: str) -> str:
        """The version that the broker of the topic announces."""
        self._check_open()
        return (await self._service.connection_to(parse_topic(topic))).broker.server_version

    async def position_at(self, topic: str, time_ms: int) -> MessageId:
        """The position before the first message of a topic or partition that was published at `time_ms` or later.

        Creates a durable subscription for some milliseconds.
        """
        if isinstance(time_ms, bool) or not isinstance(time_ms, int) or not 0 <= time_ms < 1 << 63:
            raise InvalidArgument(f"time_ms {time_ms!r} is not a number of milliseconds since the epoch")
        factory = self._raw_consumers(topic)
        what = f"the position of {factory.topic.full} at {time_ms} ms"
        return await self._service.with_retry(what, lambda: position_at(factory, time_ms))

    async def first_after(self, topic: str, position: MessageId) -> MessageId | None:
        """The id of the first entry after `position` in a topic or partition, or None."""
        factory = self._raw_consumers(topic)
        what = f"the entry of {factory.topic.full} after {position}"
        return await self._service.with_retry(what, lambda: first_after(factory, position.position))

    def _raw_consumers(self, topic: str, properties: Mapping[str, str] | None = None) -> RawConsumerFactory:
        self._check_open()
        service, name = self._service, parse_topic(topic)
        if not name.is_persistent:
            raise InvalidArgument(f"topic {name.full} is not persistent: it stores nothing")
        return RawConsumerFactory(
            topic=name,
            connect=service.connector(name),
            next_id=service.next_id,
            is_partition=lambda: service.is_partition(name),
            timeout_s=service.timeout_s,
            reconnect_timeout_s=service.reconnect_timeout_s,
            properties=properties or {},
            subscription_role_prefix=self._subscription_role_prefix,
        )

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the client is closed")

"""The blocking client: `Client` is `AsyncClient` in a thread of its own, with methods that wait.

May be used from several threads at once; a reader or consumer by one. What it makes is in `blocking_producer` and
`blocking_reading`, the thread in `thread`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Self
from weakref import WeakSet

from magnetar.client.admin.schemas import Schema
from magnetar.client.async_client import AsyncClient
from magnetar.client.blocking.loop_thread import LoopThread
from magnetar.client.blocking.producer import Producer
from magnetar.client.blocking.readers import Consumer, Cursor, Reader, TopicTail
from magnetar.client.consume.entry import Entry
from magnetar.client.consume.topic_watcher import TopicWatcher
from magnetar.client.message import LATEST, MessageId
from magnetar.client.options import AccessMode, Compression, SubscriptionType
from magnetar.client.produce.routing import HashingScheme
from magnetar.security.credentials import Security


class Client:
    """`with Client("pulsar://localhost:6650") as client:`

    The address is `pulsar://host:port`, several hosts of one cluster separated by commas, or `http://host:port`; with
    TLS `pulsar+ssl://` or `https://`. `security` has certificates and tokens. With `admin_url`, also `http://host:port`,
    topics, partitions and schemas are asked for there.
    Nothing is connected before the first call. Every error is a `ClientError`. A broker that cannot be reached at first
    is an error at once; a connection that is lost later is made again with back-off, for `reconnect_timeout_s` at most.
    """

    def __init__(
        self,
        url: str,
        *,
        security: Security | None = None,
        admin_url: str | None = None,
        operation_timeout_s: float = 30,
        connect_timeout_s: float = 10,
        reconnect_timeout_s: float = 300,
        keepalive_s: float = 30,
    ) -> None:
        self._client = AsyncClient(
            url,
            security=security,
            admin_url=admin_url,
            operation_timeout_s=operation_timeout_s,
            connect_timeout_s=connect_timeout_s,
            reconnect_timeout_s=reconnect_timeout_s,
            keepalive_s=keepalive_s,
        )
        self._thread = LoopThread()
        self._producers: WeakSet[Producer] = WeakSet()

    def get_partitions_for_topic(self, topic: str, create_if_auto_creation_enabled: bool = True) -> list[str]:
        """The full names of the topic's partitions, or its own full name when it is not partitioned (PIP-344).

        A topic that does not exist is created if the flag and the broker's auto-creation allow it, partitioned or not
        as the broker is set; otherwise it is `NotFound`. Without the flag nothing is created; a broker that cannot do
        that (over `pulsar://`, where it would announce it) is `NotSupported`.
        """
        return self._thread.run(self._client.get_partitions_for_topic(topic, create_if_auto_creation_enabled))

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, 0 if it is not partitioned, None if it does not exist. Creates nothing.

        A namespace that does not exist is `NamespaceNotFound`.
        """
        return self._thread.run(self._client.partition_count(topic))

    def create_topic(self, topic: str, partitions: int = 0) -> None:
        """Creates a topic, not partitioned if `partitions` is 0. One that exists, in any shape, is `Conflict`.

        By REST: the client needs an `admin_url`, or an `http://` address. Apache Pulsar does not tell a partitioned
        topic that exists already with as many partitions from a new one.
        """
        self._thread.run(self._client.create_topic(topic, partitions))

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Gives a partitioned topic more partitions, so that it has `partitions`. By REST, as `create_topic`.

        `Conflict` if it is not partitioned or not there, `NotAllowed` if it has more already.
        """
        self._thread.run(self._client.grow_topic(topic, partitions))

    def topics(self, namespace: str, pattern: str | None = None) -> list[str]:
        """The full names of the topics of `tenant/namespace`, partitions one by one, in the order of their names.

        `pattern` is a regular expression for `tenant/namespace/topic`, or for `domain://tenant/namespace/topic`, the
        whole of it; of a partition, for its topic. What brokers keep for themselves is left out.
        """
        return self._thread.run(self._client.topics(namespace, pattern))

    def schema(self, topic: str, version: bytes | None = None) -> Schema | None:
        """The schema of a topic, the newest or the `version` that a message has; None if there is none."""
        return self._thread.run(self._client.schema(topic, version))

    def position_at(self, topic: str, time_ms: int) -> MessageId:
        """The position before the first message of a topic or partition that was published at `time_ms` or later.

        It takes a durable subscription, which is there for some milliseconds.
        """
        return self._thread.run(self._client.position_at(topic, time_ms))

    def first_after(self, topic: str, position: MessageId) -> MessageId | None:
        """The id of the first entry that a topic or partition stores after the entry at `position`; None: nothing."""
        return self._thread.run(self._client.first_after(topic, position))

    def server_version(self, topic: str) -> str:
        """What the broker that serves the topic calls itself."""
        return self._thread.run(self._client.server_version(topic))

    def entries(
        self,
        topic: str,
        start: MessageId,
        end: MessageId,
        *,
        start_inclusive: bool = False,
        bytes_max: int = 16 << 20,
    ) -> Iterator[list[Entry]]:
        """The entries of a range in lists, as `AsyncClient.entries` says it."""
        reader = self._thread.run(
            self._client.entries(topic, start, end, start_inclusive=start_inclusive, bytes_max=bytes_max)
        )
        try:
            while entries := self._thread.run(reader.next()):
                yield entries
        finally:
            if self._thread.is_running:
                self._thread.run(reader.close())

    def tail(self, topic: str) -> TopicTail:
        """What a persistent topic, or one partition, stores, and waiting for more; `NotFound` if it does not exist."""
        return TopicTail(self._thread, self._thread.run(self._client.tail(topic)))

    def wait_any(self, watched: Sequence[tuple[TopicTail, MessageId]], timeout_s: float | None) -> list[TopicTail]:
        """The watches with something stored after the given positions, as soon as there is one.

        None after `timeout_s`; without a limit it waits as long as it takes.
        """
        by_inner = {id(watch.inner): watch for watch, _ in watched}
        news = self._thread.run(self._client.wait_any([(watch.inner, after) for watch, after in watched], timeout_s))
        return [by_inner[id(inner)] for inner in news]

    def topic_watcher(self) -> TopicWatcher:
        """Waiting for news of any number of topics, each of which may be added and left out at any time."""
        return TopicWatcher(self._thread, self._thread.run(self._client.topic_watcher()))

    def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        access_mode: AccessMode = "Shared",
        batching: bool = True,
        batch_messages_max: int = 1000,
        batch_bytes_max: int = 128 * 1024,
        batch_delay_s: float = 0.001,
        compression: Compression = "none",
        pending_max: int = 1000,
        send_timeout_s: float = 30,
        hashing_scheme: HashingScheme = "Murmur3_32Hash",
        properties: Mapping[str, str] | None = None,
    ) -> Producer:
        """A producer for a topic, or for all partitions of it; the topic is created where the broker allows that.

        Messages with a key go to the partition that the hash of the key says, others to all in turn. `pending_max` is
        how many messages may be on their way to the broker. `hashing_scheme` "JavaStringHash" is the default of Java
        clients. `WaitForExclusive` waits no longer than an operation may take.
        """
        made = self._thread.run(
            self._client.producer(
                topic,
                name=name,
                access_mode=access_mode,
                batching=batching,
                batch_messages_max=batch_messages_max,
                batch_bytes_max=batch_bytes_max,
                batch_delay_s=batch_delay_s,
                compression=compression,
                pending_max=pending_max,
                send_timeout_s=send_timeout_s,
                hashing_scheme=hashing_scheme,
                properties=properties,
            )
        )
        producer = Producer(self._thread, made, pending_max, send_timeout_s)
        self._producers.add(producer)
        return producer

    def reader(
        self,
        topic: str,
        start: MessageId | Mapping[str, MessageId] = LATEST,
        *,
        start_inclusive: bool = False,
        create_topic: bool = False,
        queue_size: int = 1000,
        name: str | None = None,
    ) -> Reader:
        """A reader of a topic, or of all partitions of it.

        `start` is EARLIEST, LATEST, the id after which to begin (with which, if `start_inclusive`), or for a
        partitioned topic such ids by the name of the partition. A topic that does not exist is `NotFound` unless
        `create_topic`. `queue_size` is how many messages are fetched ahead per partition.
        """
        reader = self._thread.run(
            self._client.reader(
                topic,
                start,
                start_inclusive=start_inclusive,
                create_topic=create_topic,
                queue_size=queue_size,
                name=name,
            )
        )
        return Reader(self._thread, reader)

    def consumer(
        self,
        topic: str,
        subscription: str,
        *,
        subscription_type: SubscriptionType = "Exclusive",
        initial_position: MessageId = LATEST,
        queue_size: int = 1000,
        name: str | None = None,
    ) -> Consumer:
        """A consumer of a durable subscription on a topic, or on all partitions of it; what is missing is created.

        `initial_position`, EARLIEST or LATEST, is where a new subscription begins.
        """
        consumer = self._thread.run(
            self._client.consumer(
                topic,
                subscription,
                subscription_type=subscription_type,
                initial_position=initial_position,
                queue_size=queue_size,
                name=name,
            )
        )
        return Consumer(self._thread, consumer)

    def cursor(self, topic: str, subscription: str, *, initial_position: MessageId = LATEST) -> Cursor:
        """The position of a durable subscription on a persistent topic or one partition, without receiving anything.

        A subscription that is missing is created; `initial_position`, EARLIEST or LATEST, is where it begins.
        """
        cursor = self._thread.run(self._client.cursor(topic, subscription, initial_position=initial_position))
        return Cursor(self._thread, cursor)

    def close(self) -> None:
        """Closes what it made, sending what producers still have, and all connections."""
        if not self._thread.is_running:
            return
        try:
            self._thread.run(self._close())
        finally:
            self._thread.stop()

    async def _close(self) -> None:
        """What producers have not handed over yet first; whatever fails, everything is closed."""
        closed = await asyncio.gather(*(producer.finish() for producer in self._producers), return_exceptions=True)
        await self._client.close()
        for error in closed:
            if isinstance(error, BaseException):
                raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

"""The blocking client: `Client` is an `AsyncClient` in its own thread, with methods that wait.

Safe to use from several threads; a reader or consumer by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self
from weakref import WeakSet

from magnetar.client.async_client import AsyncClient
from magnetar.client.blocking.loop_thread import LoopThread
from magnetar.client.blocking.producer import Producer
from magnetar.client.blocking.readers import Consumer, Cursor, Reader, TopicTail, TopicWatcher
from magnetar.client.consume.entry import Entry
from magnetar.client.gather import gather
from magnetar.client.message import LATEST, MessageId
from magnetar.client.options import AccessMode, Compression, SubscriptionType
from magnetar.client.produce.routing import HASHING_DEFAULT, HashingScheme
from magnetar.client.schema import Schema
from magnetar.security.credentials import Security


class Client:
    """`with Client("pulsar://localhost:6650") as client:`

    Takes the arguments of `AsyncClient` and has its methods, which are documented there.
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
        subscription_role_prefix: str = "",
    ) -> None:
        self._client = AsyncClient(
            url,
            security=security,
            admin_url=admin_url,
            operation_timeout_s=operation_timeout_s,
            connect_timeout_s=connect_timeout_s,
            reconnect_timeout_s=reconnect_timeout_s,
            keepalive_s=keepalive_s,
            subscription_role_prefix=subscription_role_prefix,
        )
        self._thread = LoopThread()
        self._producers: WeakSet[Producer] = WeakSet()

    def get_partitions_for_topic(self, topic: str, create_if_auto_creation_enabled: bool = True) -> list[str]:
        return self._thread.run(self._client.get_partitions_for_topic(topic, create_if_auto_creation_enabled))

    def partition_count(self, topic: str) -> int | None:
        return self._thread.run(self._client.partition_count(topic))

    def create_topic(self, topic: str, partitions: int = 0, copy_of: str = "") -> None:
        self._thread.run(self._client.create_topic(topic, partitions, copy_of))

    def grow_topic(self, topic: str, partitions: int) -> None:
        self._thread.run(self._client.grow_topic(topic, partitions))

    def topics(self, namespace: str, pattern: str | None = None) -> list[str]:
        return self._thread.run(self._client.topics(namespace, pattern))

    def deduplicates(self, topic: str) -> bool | None:
        return self._thread.run(self._client.deduplicates(topic))

    def schema(self, topic: str, version: bytes | None = None) -> Schema | None:
        return self._thread.run(self._client.schema(topic, version))

    def position_at(self, topic: str, time_ms: int) -> MessageId:
        return self._thread.run(self._client.position_at(topic, time_ms))

    def first_after(self, topic: str, position: MessageId) -> MessageId | None:
        return self._thread.run(self._client.first_after(topic, position))

    def server_version(self, topic: str) -> str:
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
        return TopicTail(self._thread, self._thread.run(self._client.tail(topic)))

    def wait_any(self, tails: Sequence[tuple[TopicTail, MessageId]], timeout_s: float | None) -> list[TopicTail]:
        by_inner = {id(tail.inner): tail for tail, _ in tails}
        found = self._thread.run(self._client.wait_any([(tail.inner, after) for tail, after in tails], timeout_s))
        return [by_inner[id(inner)] for inner in found]

    def topic_watcher(self, properties: Mapping[str, str] | None = None) -> TopicWatcher:
        return TopicWatcher(self._thread, self._thread.run(self._client.topic_watcher(properties)))

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
        hashing_scheme: HashingScheme = HASHING_DEFAULT,
        properties: Mapping[str, str] | None = None,
    ) -> Producer:
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

    def cursor(
        self,
        topic: str,
        subscription: str,
        *,
        initial_position: MessageId = LATEST,
        busy_s: float | None = None,
    ) -> Cursor:
        cursor = self._thread.run(
            self._client.cursor(topic, subscription, initial_position=initial_position, busy_s=busy_s)
        )
        return Cursor(self._thread, cursor)

    def close(self) -> None:
        if not self._thread.is_running:
            return
        try:
            self._thread.run(self._close())
        finally:
            self._thread.stop()

    async def _close(self) -> None:
        """Producers hand over their messages first; whatever fails, everything is closed."""
        try:
            await gather(producer.finish() for producer in self._producers)
        finally:
            await self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

"""The client for asyncio: `AsyncClient` creates producers, readers and consumers.

Owns which of them are open, and closes them. Topics are administered in `admin.topic_admin`.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Self, TypeVar

from magnetar.client.admin.topic_admin import TopicAdmin
from magnetar.client.connection.service import Service
from magnetar.client.consume.consumer import AsyncConsumer
from magnetar.client.consume.cursor import AsyncCursor
from magnetar.client.consume.entry_reader import AsyncEntryReader
from magnetar.client.consume.reader import AsyncReader, MessageReceiver
from magnetar.client.consume.stream import EntryQueue, StreamOptions, SubscriptionStream
from magnetar.client.consume.tail import AsyncTopicTail, wait_any
from magnetar.client.consume.topic_watcher import AsyncTopicWatcher
from magnetar.client.errors import InvalidArgument
from magnetar.client.gather import gather
from magnetar.client.message import EARLIEST, LATEST, MessageId
from magnetar.client.options import (
    ACCESS_MODES,
    COMPRESSIONS,
    SUBSCRIPTION_TYPES,
    AccessMode,
    Compression,
    SubscriptionType,
    check_positive,
    choose,
    own_subscription,
    parse_topic,
)
from magnetar.client.produce.entry_producer import AsyncEntryProducer, EntryProducerOptions
from magnetar.client.produce.in_flight import InFlightLimit
from magnetar.client.produce.outbox import OutboxOptions
from magnetar.client.produce.producer import AsyncProducer, PartitionProducer, ProducerOptions
from magnetar.client.produce.producer_link import LinkOptions
from magnetar.client.produce.routing import HASHES, HASHING_DEFAULT, HashingScheme, Router
from magnetar.names import TopicName
from magnetar.security.credentials import Security
from magnetar.wire import schema_pb2 as pb

_Opened = TypeVar(
    "_Opened",
    AsyncProducer,
    AsyncEntryProducer,
    AsyncReader,
    AsyncConsumer,
    AsyncCursor,
    AsyncEntryReader,
    AsyncTopicTail,
    AsyncTopicWatcher,
)

# A batching producer stays with one partition for so many `batch_delay_s`, like the Java client.
_PARTITION_TURNS = 10


class AsyncClient(TopicAdmin):
    """`async with AsyncClient("pulsar://localhost:6650") as client:`

    The address is `pulsar://host:port`, several hosts of one cluster separated by commas, or `http://host:port`; with
    TLS `pulsar+ssl://` or `https://`. `security` has certificates and tokens. Topics, partitions and schemas are
    requested from `admin_url` where it is given (`http://host:port`).
    `subscription_role_prefix` begins the names of the subscriptions that it creates for itself, those of readers and
    tails: the role, in a namespace with `subscriptionAuthMode=Prefix`.
    The first call connects. Every error is a `ClientError`. A broker that cannot be reached at first is an error at
    once; a lost connection is opened again with back-off, for `reconnect_timeout_s` at most.
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
        super().__init__(
            Service(
                url,
                security=security,
                admin_url=admin_url,
                operation_timeout_s=operation_timeout_s,
                connect_timeout_s=connect_timeout_s,
                reconnect_timeout_s=reconnect_timeout_s,
                keepalive_s=keepalive_s,
            ),
            subscription_role_prefix,
        )
        self._opened: list[
            AsyncProducer
            | AsyncEntryProducer
            | MessageReceiver
            | AsyncCursor
            | AsyncEntryReader
            | AsyncTopicTail
            | AsyncTopicWatcher
        ] = []

    # -- waiting for messages

    async def tail(self, topic: str) -> AsyncTopicTail:
        """The stored range of a persistent topic or of one partition, and the wait for more; `NotFound`."""
        tail = self._track(AsyncTopicTail(self._raw_consumers(topic)))
        await tail.last()
        return tail

    async def wait_any(
        self, tails: Sequence[tuple[AsyncTopicTail, MessageId]], timeout_s: float | None
    ) -> list[AsyncTopicTail]:
        """The tails with messages after the given positions, as soon as there is one; [] after `timeout_s`.

        None is no limit.
        """
        return await wait_any(tails, timeout_s)

    async def topic_watcher(self, properties: Mapping[str, str] | None = None) -> AsyncTopicWatcher:
        """A watcher of any number of topics, which may be added and removed at any time. The properties are those of
        its consumers."""
        self._check_open()
        return self._track(AsyncTopicWatcher(lambda topic: AsyncTopicTail(self._raw_consumers(topic, properties))))

    # -- producers

    async def producer(
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
    ) -> AsyncProducer:
        """A producer for a topic, or for all its partitions; the topic is created where the broker allows that.

        The hash of its key decides the partition of a message; messages without a key go to all in turn. `pending_max`
        limits the messages without a receipt. The official Python client has
        `hashing_scheme` "BoostHash" by default.
        `WaitForExclusive` waits no longer than an operation may take.
        """
        self._check_open()
        service = self._service
        options = ProducerOptions(
            outbox=OutboxOptions(
                batching=batching,
                batch_messages_max=batch_messages_max,
                batch_bytes_max=batch_bytes_max,
                compression=choose("compression", compression, COMPRESSIONS),
            ),
            link=LinkOptions(
                name=name,
                access_mode=choose("access_mode", access_mode, ACCESS_MODES),
                properties=dict(properties or {}),
                timeout_s=service.timeout_s,
                reconnect_timeout_s=service.reconnect_timeout_s,
            ),
            batch_delay_s=batch_delay_s,
            pending_max=pending_max,
            send_timeout_s=send_timeout_s,
        )
        topic_name = parse_topic(topic)
        turn_s = _PARTITION_TURNS * batch_delay_s if batching else 0.0
        choose("hashing_scheme", hashing_scheme, HASHES)
        parts = [
            PartitionProducer(partition, service.next_id(), options, service.connector(partition))
            for partition in await service.partitions(topic_name, create=True)
        ]
        await self._open_parts(topic_name, parts)
        router = Router(len(parts), hashing_scheme, turn_s=turn_s, start=random.randrange(len(parts)))
        return self._track(AsyncProducer(topic_name, parts, router, options))

    async def _open_parts(self, topic: TopicName, parts: list[PartitionProducer]) -> None:
        """The first partition first: the others take the name that the broker generates for it."""
        what = f"opening the producer of {topic.full}"
        try:
            await self._service.with_retry(what, parts[0].open)
            rest = [self._service.with_retry(what, partial(part.open, parts[0].name)) for part in parts[1:]]
            await gather(rest)
        except BaseException:
            await asyncio.gather(*(part.close() for part in parts), return_exceptions=True)
            raise

    async def entry_producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        deduplicated: bool = False,
        schema: pb.Schema | None = None,
        properties: Mapping[str, str] | None = None,
        limit: InFlightLimit | None = None,
        pending_max: int = 1000,
        pending_bytes_max: int = 16 << 20,
        open_timeout_s: float = 30,
        send_timeout_s: float = 120,
    ) -> AsyncEntryProducer:
        """A producer of whole entries for a topic without partitions, or for one partition.

        `deduplicated` declares that the topic deduplicates: a receipt that contradicts this is then an error. Without
        it, entries that the broker drops as duplicates count as stored, as those of a move (`properties` are the
        producer's metadata, see `magnetar.wire.moves`). A name that is still in use is requested again for
        `open_timeout_s`. `pending_max` and `pending_bytes_max` limit the entries without a receipt; producers may share
        a `limit` instead.
        """
        check_positive(pending_max=pending_max, pending_bytes_max=pending_bytes_max)
        self._check_open()
        service, topic_name = self._service, parse_topic(topic)
        options = EntryProducerOptions(
            link=LinkOptions(
                name=name,
                properties=dict(properties or {}),
                schema=schema,
                timeout_s=service.timeout_s,
                reconnect_timeout_s=service.reconnect_timeout_s,
            ),
            deduplicated=deduplicated,
            open_timeout_s=open_timeout_s,
            send_timeout_s=send_timeout_s,
        )
        limit = InFlightLimit(pending_max, pending_bytes_max) if limit is None else limit
        producer = AsyncEntryProducer(topic_name, service.next_id(), options, service.connector(topic_name), limit)
        await producer.open()
        return self._track(producer)

    # -- readers and consumers

    async def reader(
        self,
        topic: str,
        start: MessageId | Mapping[str, MessageId] = LATEST,
        *,
        start_inclusive: bool = False,
        create_topic: bool = False,
        queue_size: int = 1000,
        name: str | None = None,
    ) -> AsyncReader:
        """A reader of a topic, or of all its partitions.

        `start` is EARLIEST, LATEST, the id after which to start (or with which, if `start_inclusive`), or for a
        partitioned topic such ids by the name of the partition. A topic that does not exist is `NotFound` unless
        `create_topic`. `queue_size` messages are fetched ahead per partition.
        """
        self._check_open()
        check_positive(queue_size=queue_size)
        service, topic_name = self._service, parse_topic(topic)
        partitions = await service.partitions(topic_name, create=create_topic)
        starts = _starts_by_partition(start, partitions)
        queue = EntryQueue()
        streams = [
            self._stream(
                partition,
                queue,
                StreamOptions(
                    subscription=own_subscription(f"reader-{secrets.token_hex(5)}", self._subscription_role_prefix),
                    subscription_type=pb.CommandSubscribe.Exclusive,
                    durable=False,
                    start=starts[partition.full],
                    start_inclusive=start_inclusive,
                    # Partitions of a partitioned topic are created on first use.
                    create_topic=create_topic or partition is not topic_name,
                    queue_size=queue_size,
                    name=name,
                    timeout_s=service.timeout_s,
                    reconnect_timeout_s=service.reconnect_timeout_s,
                ),
            )
            for partition in partitions
        ]
        await self._open_streams(topic_name, streams)
        return self._track(AsyncReader(topic_name.full, streams, queue))

    async def entries(
        self,
        topic: str,
        start: MessageId,
        end: MessageId,
        *,
        start_inclusive: bool = False,
        bytes_max: int = 16 << 20,
        properties: Mapping[str, str] | None = None,
    ) -> AsyncEntryReader:
        """A reader of the entries, as the broker stores them, of a persistent topic or one partition.

        `start` is EARLIEST or the id after which to start (or with which, if `start_inclusive`), `end` the last id of
        the range, or LATEST. Entries are whole: those of `start` and `end` may hold messages outside of the range.
        Entries that are not stored yet, or no longer, are not waited for. About `bytes_max` bytes are fetched ahead;
        `properties` are those of the reader's consumer.
        """
        check_positive(bytes_max=bytes_max)
        factory = self._raw_consumers(topic, properties)
        reader = AsyncEntryReader(factory, start, end, start_inclusive=start_inclusive, bytes_max=bytes_max)
        await self._service.with_retry(f"opening a reader of {reader.topic}", reader.open)
        return self._track(reader)

    async def entries_after(
        self,
        topic: str,
        start: MessageId,
        *,
        bytes_max: int = 16 << 20,
        properties: Mapping[str, str] | None = None,
    ) -> AsyncEntryReader:
        """As `entries`, without an end: `runs_within` waits for entries that are published later."""
        check_positive(bytes_max=bytes_max)
        factory = self._raw_consumers(topic, properties)
        reader = AsyncEntryReader(factory, start, LATEST, start_inclusive=False, bytes_max=bytes_max, follows=True)
        await self._service.with_retry(f"opening a reader of {reader.topic}", reader.open)
        return self._track(reader)

    async def consumer(
        self,
        topic: str,
        subscription: str,
        *,
        subscription_type: SubscriptionType = "Exclusive",
        initial_position: MessageId = LATEST,
        queue_size: int = 1000,
        name: str | None = None,
    ) -> AsyncConsumer:
        """A consumer of a durable subscription on a topic, or on all its partitions. Creates topic and subscription.

        `initial_position`, EARLIEST or LATEST, is where a new subscription starts.
        """
        self._check_open()
        check_positive(queue_size=queue_size)
        _check_subscription(subscription, initial_position)
        service, positions = self._service, pb.CommandSubscribe
        options = StreamOptions(
            subscription=subscription,
            subscription_type=choose("subscription_type", subscription_type, SUBSCRIPTION_TYPES),
            durable=True,
            initial_position=positions.Earliest if initial_position == EARLIEST else positions.Latest,
            queue_size=queue_size,
            name=name,
            timeout_s=service.timeout_s,
            reconnect_timeout_s=service.reconnect_timeout_s,
        )
        topic_name = parse_topic(topic)
        queue = EntryQueue()
        partitions = await service.partitions(topic_name, create=True)
        streams = [self._stream(partition, queue, options) for partition in partitions]
        await self._open_streams(topic_name, streams)
        return self._track(AsyncConsumer(topic_name.full, subscription, streams, queue))

    async def cursor(
        self,
        topic: str,
        subscription: str,
        *,
        initial_position: MessageId = LATEST,
        busy_s: float | None = None,
    ) -> AsyncCursor:
        """The cursor of a durable subscription on a persistent topic or one partition; receives no messages.

        Creates the subscription; `initial_position`, EARLIEST or LATEST, is where a new one starts.
        `busy_s` is how long the first use waits for another consumer to leave, by default the timeout of operations.
        """
        _check_subscription(subscription, initial_position)
        return self._track(AsyncCursor(self._raw_consumers(topic), subscription, initial_position, busy_s))

    def _stream(self, topic: TopicName, queue: EntryQueue, options: StreamOptions) -> SubscriptionStream:
        service = self._service
        return SubscriptionStream(topic, service.next_id(), options, service.connector(topic), queue)

    async def _open_streams(self, topic: TopicName, streams: list[SubscriptionStream]) -> None:
        try:
            await gather([self._service.with_retry(f"subscribing to {topic.full}", stream.open) for stream in streams])
        except BaseException:
            await asyncio.gather(*(stream.close() for stream in streams), return_exceptions=True)
            raise

    # -- life

    def _track(self, opened: _Opened) -> _Opened:
        self._check_open()
        self._opened = [one for one in self._opened if not one.is_closed]
        self._opened.append(opened)
        return opened

    async def close(self) -> None:
        """Closes its producers, which send their pending messages, its consumers and all connections."""
        if self._is_closed:
            return
        self._is_closed = True
        opened, self._opened = self._opened, []
        try:
            await gather([one.close() for one in opened])
        finally:
            await self._service.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


def _check_subscription(subscription: str, initial_position: MessageId) -> None:
    if not subscription:
        raise InvalidArgument("subscription is empty")
    if initial_position not in (EARLIEST, LATEST):
        raise InvalidArgument(f"initial_position {initial_position} is neither EARLIEST nor LATEST")


def _starts_by_partition(
    start: MessageId | Mapping[str, MessageId], partitions: list[TopicName]
) -> dict[str, MessageId]:
    """The start of each partition, by its full name."""
    if isinstance(start, MessageId):
        if len(partitions) > 1 and start not in (EARLIEST, LATEST):
            raise InvalidArgument(
                f"start {start} is an id of one partition, but {partitions[0].base.full} has {len(partitions)}:"
                " give a mapping from partitions to ids"
            )
        return dict.fromkeys((partition.full for partition in partitions), start)
    starts = {parse_topic(name).full: position for name, position in start.items()}
    wanted = {partition.full for partition in partitions}
    for missing in sorted(wanted - starts.keys()):
        raise InvalidArgument(f"start has no position for {missing}")
    for unknown in sorted(starts.keys() - wanted):
        raise InvalidArgument(f"start has a position for {unknown}, which is not one of the {len(wanted)} partitions")
    return starts

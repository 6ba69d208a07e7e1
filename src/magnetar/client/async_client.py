"""The client for asyncio: `AsyncClient` makes producers, readers and consumers, and answers questions about topics."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Self, TypeVar

from magnetar import errors as server_errors
from magnetar.client.admin.schemas import Schema, chosen_topics, version_number
from magnetar.client.admin.topics import check_shape, create_topic, grow_topic, partition_count
from magnetar.client.connection.address import ServiceUrl, parse_service_url
from magnetar.client.connection.connection import Connection
from magnetar.client.connection.lookup import BinaryLookup, TopicLookup
from magnetar.client.connection.pool import Pool
from magnetar.client.connection.retry import is_momentary, with_retry
from magnetar.client.consume.consumer import AsyncConsumer
from magnetar.client.consume.cursor import AsyncCursor
from magnetar.client.consume.entry_reader import AsyncEntryReader
from magnetar.client.consume.positions import first_after, position_at
from magnetar.client.consume.raw_consumer import RawConsumerFactory
from magnetar.client.consume.reader import AsyncReader, MessageReceiver
from magnetar.client.consume.stream import EntryQueue, StreamOptions, SubscriptionStream
from magnetar.client.consume.tail import AsyncTopicTail, wait_any
from magnetar.client.consume.topic_watcher import AsyncTopicWatcher
from magnetar.client.errors import (
    Closed,
    InvalidArgument,
    InvalidName,
    NotFound,
    NotSupported,
)
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
)
from magnetar.client.produce.entry_producer import AsyncEntryProducer, EntryProducerOptions
from magnetar.client.produce.in_flight import InFlightLimit
from magnetar.client.produce.outbox import OutboxOptions
from magnetar.client.produce.producer import AsyncProducer, PartitionProducer, ProducerOptions
from magnetar.client.produce.producer_link import LinkOptions
from magnetar.client.produce.routing import HASHES, HashingScheme, Router
from magnetar.names import TopicName, parse_namespace
from magnetar.security.credentials import Security
from magnetar.wire import schema_pb2 as pb

_T = TypeVar("_T")
_Made = TypeVar(
    "_Made",
    AsyncProducer,
    AsyncEntryProducer,
    AsyncReader,
    AsyncConsumer,
    AsyncCursor,
    AsyncEntryReader,
    AsyncTopicTail,
    AsyncTopicWatcher,
)

# How many turns of `batch_delay_s` a batching producer stays with one partition, as the Java client does.
_PARTITION_TURNS = 10


class AsyncClient:
    """`async with AsyncClient("pulsar://localhost:6650") as client:`

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
        for name, value in (
            ("operation_timeout_s", operation_timeout_s),
            ("connect_timeout_s", connect_timeout_s),
            ("reconnect_timeout_s", reconnect_timeout_s),
            ("keepalive_s", keepalive_s),
        ):
            check_positive(name, value)
        self.url = parse_service_url(url)
        self._timeout_s = operation_timeout_s
        self._reconnect_timeout_s = reconnect_timeout_s
        self._security = security or Security()
        admin = self.url if admin_url is None else _admin_url(admin_url)
        self._security.check_for(self.url, admin)
        self._pool = Pool(
            self.url, connect_timeout_s=connect_timeout_s, keepalive_s=keepalive_s, security=self._security
        )
        self._lookup = self._create_lookup(self.url)
        self._admin_lookup = self._lookup if admin_url is None else self._create_lookup(admin)
        self._made: list[
            AsyncProducer
            | AsyncEntryProducer
            | MessageReceiver
            | AsyncCursor
            | AsyncEntryReader
            | AsyncTopicTail
            | AsyncTopicWatcher
        ] = []
        self._is_closed = False

    def _create_lookup(self, url: ServiceUrl) -> TopicLookup:
        if not url.is_http:
            return BinaryLookup(self._pool, self._timeout_s)
        from magnetar.client.connection.http_lookup import (
            HttpLookup,  # the HTTP library takes long to import, and few need it
        )

        return HttpLookup(url, self._timeout_s, self._security)

    # -- questions

    async def get_partitions_for_topic(self, topic: str, create_if_auto_creation_enabled: bool = True) -> list[str]:
        """The full names of the topic's partitions, or its own full name when it is not partitioned (PIP-344).

        A topic that does not exist is created if the flag and the broker's auto-creation allow it, partitioned or not
        as the broker is set; otherwise it is `NotFound`. Without the flag nothing is created; a broker that cannot do
        that (over `pulsar://`, where it would announce it) is `NotSupported`.
        """
        name = _topic_name(topic)
        partitions = await self._partitions(name, create=create_if_auto_creation_enabled)
        return [partition.full for partition in partitions]

    async def deduplicates(self, topic: str) -> bool | None:
        """Whether a topic drops what a producer sends twice. None: only REST can tell, and it cannot or may not."""
        self._check_open()
        name = _topic_name(topic)
        return await self._with_retry(f"deduplication of {name.full}", lambda: self._admin_lookup.deduplicates(name))

    async def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has, 0 if it is not partitioned, None if it does not exist. Creates nothing.

        A namespace that does not exist is `NamespaceNotFound`.
        """
        self._check_open()
        name = _topic_name(topic)
        by_rest = None if self._admin_lookup is self._lookup else self._admin_lookup
        what = f"the partitions of {name.full}"
        return await self._with_retry(what, lambda: partition_count(self._lookup, name, by_rest=by_rest))

    async def create_topic(self, topic: str, partitions: int = 0) -> None:
        """Creates a topic, not partitioned if `partitions` is 0. One that exists, in any shape, is `Conflict`.

        By REST: the client needs an `admin_url`, or an `http://` address. Apache Pulsar does not tell a partitioned
        topic that exists already with as many partitions from a new one.
        """
        self._check_open()
        name = _topic_name(topic)
        await self._with_retry(f"creating {name.full}", lambda: create_topic(self._admin_lookup, name, partitions))
        if partitions:
            check_shape(name, partitions, await self.partition_count(topic))

    async def grow_topic(self, topic: str, partitions: int) -> None:
        """Gives a partitioned topic more partitions, so that it has `partitions`. By REST, as `create_topic`.

        `Conflict` if it is not partitioned or not there, `NotAllowed` if it has more already.
        """
        self._check_open()
        name = _topic_name(topic)
        await self._with_retry(f"growing {name.full}", lambda: grow_topic(self._admin_lookup, name, partitions))

    async def _partitions(self, topic: TopicName, *, create: bool) -> list[TopicName]:
        self._check_open()
        what = f"the partitions of {topic.full}"
        count = await self._with_retry(what, lambda: self._admin_lookup.partitions(topic, create=create))
        return [topic.with_partition(index) for index in range(count)] or [topic]

    async def topics(self, namespace: str, pattern: str | None = None) -> list[str]:
        """The full names of the topics of `tenant/namespace`, partitions one by one, in the order of their names.

        `pattern` is a regular expression for `tenant/namespace/topic`, or for `domain://tenant/namespace/topic`, the
        whole of it; of a partition, for its topic. What brokers keep for themselves is left out.
        """
        self._check_open()
        try:
            parse_namespace(namespace)
        except server_errors.InvalidName as error:
            raise InvalidName(str(error)) from None
        found = await self._with_retry(f"the topics of {namespace}", lambda: self._admin_lookup.topics(namespace))
        return chosen_topics(found, pattern)

    async def schema(self, topic: str, version: bytes | None = None) -> Schema | None:
        """The schema of a topic, the newest or the `version` that a message has; None if there is none."""
        self._check_open()
        name = _topic_name(topic)
        if version is not None:
            version_number(version)
        return await self._with_retry(f"the schema of {name.full}", lambda: self._admin_lookup.schema(name, version))

    async def position_at(self, topic: str, time_ms: int) -> MessageId:
        """The position before the first message of a topic or partition that was published at `time_ms` or later.

        It takes a durable subscription, which is there for some milliseconds.
        """
        if isinstance(time_ms, bool) or not isinstance(time_ms, int) or not 0 <= time_ms < 1 << 63:
            raise InvalidArgument(f"time_ms {time_ms!r} is not a number of milliseconds since the epoch")
        factory = self._raw_consumers(topic)
        what = f"the position of {factory.topic.full} at {time_ms} ms"
        return await self._with_retry(what, lambda: position_at(factory, time_ms))

    async def first_after(self, topic: str, position: MessageId) -> MessageId | None:
        """The id of the first entry that a topic or partition stores after the entry at `position`; None: nothing."""
        factory = self._raw_consumers(topic)
        what = f"the entry of {factory.topic.full} after {position}"
        return await self._with_retry(what, lambda: first_after(factory, position.position))

    async def tail(self, topic: str) -> AsyncTopicTail:
        """What a persistent topic, or one partition, stores, and waiting for more; `NotFound` if it does not exist."""
        watch = self._keep(AsyncTopicTail(self._raw_consumers(topic)))
        await watch.last()
        return watch

    async def wait_any(
        self, watched: Sequence[tuple[AsyncTopicTail, MessageId]], timeout_s: float | None
    ) -> list[AsyncTopicTail]:
        """The watches with something stored after the given positions, as soon as there is one.

        None after `timeout_s`; without a limit it waits as long as it takes.
        """
        return await wait_any(watched, timeout_s)

    async def topic_watcher(self) -> AsyncTopicWatcher:
        """Waiting for news of any number of topics, each of which may be added and left out at any time."""
        self._check_open()
        return self._keep(AsyncTopicWatcher(lambda topic: AsyncTopicTail(self._raw_consumers(topic))))

    async def server_version(self, topic: str) -> str:
        """What the broker that serves the topic calls itself."""
        self._check_open()
        return (await self._connection_to(_topic_name(topic))).broker.server_version

    async def _connection_to(self, topic: TopicName) -> Connection:
        broker = await self._lookup.broker(topic)
        return await self._pool.broker(broker.url, through_proxy=broker.through_proxy)

    async def _with_retry(self, what: str, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Asks again while the broker says that it is not ready, or goes away meanwhile."""
        return await with_retry(what, ask, self._timeout_s, rule=is_momentary)

    # -- what it makes

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
        hashing_scheme: HashingScheme = "Murmur3_32Hash",
        properties: Mapping[str, str] | None = None,
    ) -> AsyncProducer:
        """A producer for a topic, or for all partitions of it; the topic is created where the broker allows that.

        Messages with a key go to the partition that the hash of the key says, others to all in turn. `pending_max` is
        how many messages may be on their way to the broker. `hashing_scheme` "JavaStringHash" is the default of Java
        clients. `WaitForExclusive` waits no longer than an operation may take.
        """
        for option, value in (
            ("batch_messages_max", batch_messages_max),
            ("batch_bytes_max", batch_bytes_max),
            ("batch_delay_s", batch_delay_s),
            ("pending_max", pending_max),
            ("send_timeout_s", send_timeout_s),
        ):
            check_positive(option, value)
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
                timeout_s=self._timeout_s,
                reconnect_timeout_s=self._reconnect_timeout_s,
            ),
            batch_delay_s=batch_delay_s,
            pending_max=pending_max,
            send_timeout_s=send_timeout_s,
        )
        topic_name = _topic_name(topic)
        turn_s = _PARTITION_TURNS * batch_delay_s if batching else 0.0
        choose("hashing_scheme", hashing_scheme, HASHES)
        parts = [
            PartitionProducer(partition, self._pool.next_id(), options, self._connector(partition))
            for partition in await self._partitions(topic_name, create=True)
        ]
        await self._open_parts(topic_name, parts)
        router = Router(len(parts), hashing_scheme, turn_s=turn_s, start=random.randrange(len(parts)))
        return self._keep(AsyncProducer(topic_name, parts, router, options))

    async def _open_parts(self, topic: TopicName, parts: list[PartitionProducer]) -> None:
        """The first partition first: the others take the name that the broker made up for it."""
        what = f"opening the producer of {topic.full}"
        try:
            await self._with_retry(what, parts[0].open)
            rest = [self._with_retry(what, partial(part.open, parts[0].name)) for part in parts[1:]]
            await _all(rest)
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

        `deduplicated` says that the topic deduplicates: what does not fit its memory of the name is then an error. A
        name that is still taken is asked for again until `open_timeout_s` is over. `pending_max` and
        `pending_bytes_max` are how much may be on its way; producers may share a `room` instead.
        """
        for option, value in (
            ("pending_max", pending_max),
            ("pending_bytes_max", pending_bytes_max),
            ("open_timeout_s", open_timeout_s),
            ("send_timeout_s", send_timeout_s),
        ):
            check_positive(option, value)
        self._check_open()
        topic_name = _topic_name(topic)
        options = EntryProducerOptions(
            link=LinkOptions(
                name=name,
                properties=dict(properties or {}),
                schema=schema,
                timeout_s=self._timeout_s,
                reconnect_timeout_s=self._reconnect_timeout_s,
            ),
            deduplicated=deduplicated,
            open_timeout_s=open_timeout_s,
            send_timeout_s=send_timeout_s,
        )
        limit = InFlightLimit(pending_max, pending_bytes_max) if limit is None else limit
        producer = AsyncEntryProducer(topic_name, self._pool.next_id(), options, self._connector(topic_name), limit)
        await producer.open()
        return self._keep(producer)

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
        """A reader of a topic, or of all partitions of it.

        `start` is EARLIEST, LATEST, the id after which to begin (with which, if `start_inclusive`), or for a
        partitioned topic such ids by the name of the partition. A topic that does not exist is `NotFound` unless
        `create_topic`. `queue_size` is how many messages are fetched ahead per partition.
        """
        check_positive("queue_size", queue_size)
        topic_name = _topic_name(topic)
        partitions = await self._partitions(topic_name, create=create_topic)
        starts = _starts(start, partitions)
        queue = EntryQueue()
        streams = [
            self._stream(
                partition,
                queue,
                StreamOptions(
                    subscription=f"reader-{secrets.token_hex(5)}",
                    subscription_type=pb.CommandSubscribe.Exclusive,
                    durable=False,
                    start=starts[partition.full],
                    start_inclusive=start_inclusive,
                    # Partitions of a partitioned topic come to be when they are first used.
                    create_topic=create_topic or partition is not topic_name,
                    queue_size=queue_size,
                    name=name,
                    timeout_s=self._timeout_s,
                    reconnect_timeout_s=self._reconnect_timeout_s,
                ),
            )
            for partition in partitions
        ]
        await self._open_streams(topic_name, streams)
        return self._keep(AsyncReader(topic_name.full, streams, queue))

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
        """The entries, as the broker stores them, of a persistent topic or of one partition, from `start` to `end`.

        `start` is EARLIEST or the id after which to begin (with which, if `start_inclusive`), `end` the last id that is
        wanted, or LATEST. Entries are whole: those of `start` and `end` may hold messages that are not wanted. What is
        not stored, not yet or no more, is not waited for. `bytes_max` is about how much is fetched ahead; `properties`
        are those of the consumer that reads.
        """
        check_positive("bytes_max", bytes_max)
        factory = self._raw_consumers(topic, properties)
        reader = AsyncEntryReader(factory, start, end, start_inclusive=start_inclusive, bytes_max=bytes_max)
        await self._with_retry(f"opening a reader of {reader.topic}", reader.open)
        return self._keep(reader)

    async def entries_after(
        self,
        topic: str,
        start: MessageId,
        *,
        bytes_max: int = 16 << 20,
        properties: Mapping[str, str] | None = None,
    ) -> AsyncEntryReader:
        """As `entries`, without an end: what is published is waited for, by `runs_within`."""
        check_positive("bytes_max", bytes_max)
        factory = self._raw_consumers(topic, properties)
        reader = AsyncEntryReader(factory, start, LATEST, start_inclusive=False, bytes_max=bytes_max, follows=True)
        await self._with_retry(f"opening a reader of {reader.topic}", reader.open)
        return self._keep(reader)

    def _raw_consumers(self, topic: str, properties: Mapping[str, str] | None = None) -> RawConsumerFactory:
        self._check_open()
        name = _topic_name(topic)
        if not name.is_persistent:
            raise InvalidArgument(f"topic {name.full} is not persistent: it stores nothing")
        return RawConsumerFactory(
            topic=name,
            connect=self._connector(name),
            next_id=self._pool.next_id,
            is_partition=lambda: self._is_partition(name),
            timeout_s=self._timeout_s,
            reconnect_timeout_s=self._reconnect_timeout_s,
            properties=properties or {},
        )

    async def _is_partition(self, name: TopicName) -> bool:
        """Whether a partitioned topic has this partition, whether or not it has been used yet."""
        try:
            return name.partition < await self._admin_lookup.partitions(name.base, create=False)
        except (NotFound, NotSupported):
            return False

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
        """A consumer of a durable subscription on a topic, or on all partitions of it; what is missing is created.

        `initial_position`, EARLIEST or LATEST, is where a new subscription begins.
        """
        check_positive("queue_size", queue_size)
        if not subscription:
            raise InvalidArgument("subscription is empty")
        if initial_position not in (EARLIEST, LATEST):
            raise InvalidArgument(f"initial_position {initial_position} is neither EARLIEST nor LATEST")
        positions = pb.CommandSubscribe
        options = StreamOptions(
            subscription=subscription,
            subscription_type=choose("subscription_type", subscription_type, SUBSCRIPTION_TYPES),
            durable=True,
            initial_position=positions.Earliest if initial_position == EARLIEST else positions.Latest,
            queue_size=queue_size,
            name=name,
            timeout_s=self._timeout_s,
            reconnect_timeout_s=self._reconnect_timeout_s,
        )
        topic_name = _topic_name(topic)
        queue = EntryQueue()
        partitions = await self._partitions(topic_name, create=True)
        streams = [self._stream(partition, queue, options) for partition in partitions]
        await self._open_streams(topic_name, streams)
        return self._keep(AsyncConsumer(topic_name.full, subscription, streams, queue))

    async def cursor(self, topic: str, subscription: str, *, initial_position: MessageId = LATEST) -> AsyncCursor:
        """The position of a durable subscription on a persistent topic or one partition, without receiving anything.

        A subscription that is missing is created; `initial_position`, EARLIEST or LATEST, is where it begins.
        """
        if not subscription:
            raise InvalidArgument("subscription is empty")
        if initial_position not in (EARLIEST, LATEST):
            raise InvalidArgument(f"initial_position {initial_position} is neither EARLIEST nor LATEST")
        return self._keep(AsyncCursor(self._raw_consumers(topic), subscription, initial_position))

    def _stream(self, topic: TopicName, queue: EntryQueue, options: StreamOptions) -> SubscriptionStream:
        return SubscriptionStream(topic, self._pool.next_id(), options, self._connector(topic), queue)

    async def _open_streams(self, topic: TopicName, streams: list[SubscriptionStream]) -> None:
        try:
            await _all([self._with_retry(f"subscribing to {topic.full}", stream.open) for stream in streams])
        except BaseException:
            await asyncio.gather(*(stream.close() for stream in streams), return_exceptions=True)
            raise

    def _connector(self, topic: TopicName) -> Callable[[], Awaitable[Connection]]:
        return lambda: self._connection_to(topic)

    def _keep(self, made: _Made) -> _Made:
        if self._is_closed:
            raise Closed("the client is closed")
        self._made = [thing for thing in self._made if not thing.is_closed]
        self._made.append(made)
        return made

    # -- life

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the client is closed")

    async def close(self) -> None:
        """Closes what it made, sending what producers still have, and all connections."""
        if self._is_closed:
            return
        self._is_closed = True
        made, self._made = self._made, []
        try:
            await _all([thing.close() for thing in made])
        finally:
            await self._lookup.close()
            await self._admin_lookup.close()
            await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()


async def _all(coroutines: Sequence[Awaitable[None]]) -> None:
    """Waits for all of them, and then raises the first error: nothing goes on behind the caller's back."""
    for result in await asyncio.gather(*coroutines, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _admin_url(text: str) -> ServiceUrl:
    url = parse_service_url(text)
    if not url.is_http:
        raise InvalidArgument(f"admin url {url} does not start with http:// or https://")
    return url


def _topic_name(topic: str) -> TopicName:
    try:
        return TopicName.parse(topic)
    except server_errors.InvalidName as error:
        raise InvalidName(str(error)) from None


def _starts(start: MessageId | Mapping[str, MessageId], partitions: list[TopicName]) -> dict[str, MessageId]:
    """Where to begin, by full name."""
    if isinstance(start, MessageId):
        if len(partitions) > 1 and start not in (EARLIEST, LATEST):
            raise InvalidArgument(
                f"start {start} is an id of one partition, but {partitions[0].base.full} has {len(partitions)}:"
                " give a mapping from partitions to ids"
            )
        return dict.fromkeys((partition.full for partition in partitions), start)
    starts = {_topic_name(name).full: position for name, position in start.items()}
    wanted = {partition.full for partition in partitions}
    for missing in sorted(wanted - starts.keys()):
        raise InvalidArgument(f"start names no position for {missing}")
    for unknown in sorted(starts.keys() - wanted):
        raise InvalidArgument(f"start names {unknown}, which is not one of the {len(wanted)} partitions")
    return starts

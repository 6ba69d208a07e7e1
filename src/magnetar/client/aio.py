"""The client for asyncio: `AsyncClient` makes producers, readers and consumers, and answers questions about topics."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Self, TypeVar

from magnetar import errors as server_errors
from magnetar.client.address import ServiceUrl, parse_service_url
from magnetar.client.backoff import Backoff
from magnetar.client.connection import Connection
from magnetar.client.consumer import AsyncConsumer
from magnetar.client.errors import Closed, InvalidArgument, InvalidName, ServiceNotReady, TooManyRequests
from magnetar.client.finding import BinaryFinder, Finder
from magnetar.client.intake import Inbox, Intake, IntakeOptions
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
from magnetar.client.pipeline import PipelineOptions
from magnetar.client.pool import Pool
from magnetar.client.producer import AsyncProducer, PartitionProducer, ProducerOptions
from magnetar.client.reader import AsyncReader, MessageStream
from magnetar.client.routing import HASHES, HashingScheme, Router
from magnetar.client.waiting import within
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb

_T = TypeVar("_T")
_Made = TypeVar("_Made", AsyncProducer, AsyncReader, AsyncConsumer)

# How many turns of `batch_delay_s` a batching producer stays with one partition, as the Java client does.
_PARTITION_TURNS = 10


class AsyncClient:
    """`async with AsyncClient("pulsar://localhost:6650") as client:`

    The address is `pulsar://host:port`, several hosts of one cluster separated by commas, or `http://host:port`.
    Nothing is connected before the first call. Every error is a `ClientError`. A broker that cannot be reached at first
    is an error at once; a connection that is lost later is made again with back-off, for `reconnect_timeout_s` at most.
    """

    def __init__(
        self,
        url: str,
        *,
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
        self._pool = Pool(self.url, connect_timeout_s=connect_timeout_s, keepalive_s=keepalive_s)
        self._finder = self._make_finder(self.url)
        self._made: list[AsyncProducer | MessageStream] = []
        self._is_closed = False

    def _make_finder(self, url: ServiceUrl) -> Finder:
        if not url.is_http:
            return BinaryFinder(self._pool, self._timeout_s)
        from magnetar.client.rest import HttpFinder  # the HTTP library takes long to import, and few need it

        return HttpFinder(url, self._timeout_s)

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

    async def _partitions(self, topic: TopicName, *, create: bool) -> list[TopicName]:
        self._check_open()
        what = f"the partitions of {topic.full}"
        count = await self._patiently(what, lambda: self._finder.partitions(topic, create=create))
        return [topic.with_partition(index) for index in range(count)] or [topic]

    async def _connection_to(self, topic: TopicName) -> Connection:
        broker = await self._finder.broker(topic)
        return await self._pool.broker(broker.url, through_proxy=broker.through_proxy)

    async def _patiently(self, what: str, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Asks again while the broker says that it is not ready, for as long as an operation may take."""
        backoff = Backoff()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._timeout_s
        async with within(self._timeout_s, what):
            while True:
                try:
                    return await ask()
                except (ServiceNotReady, TooManyRequests):
                    delay_s = backoff.next_s()
                    if loop.time() + delay_s > deadline_s:
                        raise
                await asyncio.sleep(delay_s)

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
            pipeline=PipelineOptions(
                batching=batching,
                batch_messages_max=batch_messages_max,
                batch_bytes_max=batch_bytes_max,
                compression=choose("compression", compression, COMPRESSIONS),
            ),
            name=name,
            access_mode=choose("access_mode", access_mode, ACCESS_MODES),
            batch_delay_s=batch_delay_s,
            pending_max=pending_max,
            send_timeout_s=send_timeout_s,
            properties=dict(properties or {}),
            timeout_s=self._timeout_s,
            reconnect_timeout_s=self._reconnect_timeout_s,
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
            await self._patiently(what, parts[0].open)
            rest = [self._patiently(what, partial(part.open, parts[0].name)) for part in parts[1:]]
            await _all(rest)
        except BaseException:
            await asyncio.gather(*(part.close() for part in parts), return_exceptions=True)
            raise

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
        inbox = Inbox()
        intakes = [
            self._intake(
                partition,
                inbox,
                IntakeOptions(
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
        await self._open_intakes(topic_name, intakes)
        return self._keep(AsyncReader(topic_name.full, intakes, inbox))

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
        options = IntakeOptions(
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
        inbox = Inbox()
        partitions = await self._partitions(topic_name, create=True)
        intakes = [self._intake(partition, inbox, options) for partition in partitions]
        await self._open_intakes(topic_name, intakes)
        return self._keep(AsyncConsumer(topic_name.full, subscription, intakes, inbox))

    def _intake(self, topic: TopicName, inbox: Inbox, options: IntakeOptions) -> Intake:
        return Intake(topic, self._pool.next_id(), options, self._connector(topic), inbox)

    async def _open_intakes(self, topic: TopicName, intakes: list[Intake]) -> None:
        try:
            await _all([self._patiently(f"subscribing to {topic.full}", intake.open) for intake in intakes])
        except BaseException:
            await asyncio.gather(*(intake.close() for intake in intakes), return_exceptions=True)
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
            await self._finder.close()
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

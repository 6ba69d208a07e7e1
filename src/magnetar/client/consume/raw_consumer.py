"""A consumer on one connection without queue, permits or reconnection, for entry readers, topic tails and cursors.

Owns how such a consumer is opened and the requests it sends; deliveries go straight to its `ConsumerListener`. A
consumer starts strictly after a position: brokers start with the entry that SUBSCRIBE names, so it names the next one,
whether that exists or not.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec

from magnetar.client.connection.connection import Connection, ConsumerListener
from magnetar.client.connection.lookup import response_error
from magnetar.client.connection.protocol import Command
from magnetar.client.consume import commands
from magnetar.client.errors import ConnectionLost, NotAllowed, NotFound
from magnetar.client.message import EARLIEST, MessageId, Position
from magnetar.client.options import own_subscription
from magnetar.names import ANONYMOUS_PREFIX, TopicName
from magnetar.wire import schema_pb2 as pb

BEFORE_ALL: Position = EARLIEST.position


class Bounds(msgspec.Struct, frozen=True):
    """The stored range of a topic: `before_first` is the position before its first entry, `last` its last message.

    `last` has the batch index of the last message of a batch, and the entry id -1 if the topic is empty.
    """

    before_first: MessageId
    last: MessageId

    @property
    def is_empty(self) -> bool:
        return self.last.entry_id < 0


class RawConsumerFactory(msgspec.Struct, frozen=True, kw_only=True):
    """Opens consumers of one topic; `properties` are those of each consumer."""

    topic: TopicName
    connect: Callable[[], Awaitable[Connection]]
    next_id: Callable[[], int]
    is_partition: Callable[[], Awaitable[bool]]
    timeout_s: float
    reconnect_timeout_s: float
    properties: Mapping[str, str] = {}
    subscription_role_prefix: str = ""

    def own_subscription(self, name: str) -> str:
        return own_subscription(name, self.subscription_role_prefix)

    async def open(self, listener: ConsumerListener, after: Position, *, was_there: bool = False) -> RawConsumer:
        """A consumer with its own cursor, which lives as long as the consumer, on the entries after a position.

        A partition of a partitioned topic is created on first use, so this creates it, unless it `was_there` before:
        then it has been deleted. Nothing else is created; a missing topic is `NotFound`.
        """
        ledger_id, entry_id = after
        start = EARLIEST if ledger_id < 0 else MessageId(ledger_id, max(entry_id, -1) + 1)
        name = self.own_subscription(ANONYMOUS_PREFIX + secrets.token_hex(8))
        subscribe = partial(commands.subscribe, self.topic.full, name, start=start)
        return await self._open_or_create(listener, subscribe, was_there=was_there)

    async def open_durable(
        self, listener: ConsumerListener, subscription: str, *, begins_at_first: bool = True
    ) -> RawConsumer:
        """A consumer of a durable subscription; a new one starts with the first entry, or after the last."""
        positions = pb.CommandSubscribe
        subscribe = partial(
            commands.subscribe,
            self.topic.full,
            subscription,
            start=None,
            initial_position=positions.Earliest if begins_at_first else positions.Latest,
        )
        return await self._open_or_create(listener, subscribe, was_there=False)

    async def _open_or_create(
        self, listener: ConsumerListener, subscribe: Callable[..., Command], *, was_there: bool
    ) -> RawConsumer:
        try:
            return await self._open(listener, subscribe, create_topic=False)
        except (NotFound, NotAllowed) as error:
            if self.topic.partition < 0 or (was_there and isinstance(error, NotFound)):
                raise
            if not await self.is_partition():
                # Brokers report a partition whose topic does not exist as not allowed.
                raise NotFound(error.text, code=error.code) from None
            if was_there or isinstance(error, NotAllowed):
                raise
        return await self._open(listener, subscribe, create_topic=True)

    async def _open(
        self, listener: ConsumerListener, subscribe: Callable[..., Command], *, create_topic: bool
    ) -> RawConsumer:
        connection = await self.connect()
        consumer = RawConsumer(connection, self.next_id(), self.topic, self.timeout_s)
        connection.consumers[consumer.consumer_id] = listener
        build = partial(subscribe, consumer.consumer_id, create_topic=create_topic, properties=self.properties)
        try:
            await consumer.request(build, f"subscribing to {self.topic.full}")
        except BaseException:
            consumer.close()  # the broker may have created the consumer although its reply was lost
            raise
        if not consumer.is_open:
            raise connection.error or ConnectionLost(f"broker {connection.address} closed the consumer at once")
        return consumer


class RawConsumer:
    """Created by `RawConsumerFactory`. Closed for good when the broker closes it or the connection is lost."""

    __slots__ = ("_connection", "_timeout_s", "_topic", "consumer_id")

    def __init__(self, connection: Connection, consumer_id: int, topic: TopicName, timeout_s: float) -> None:
        self.consumer_id = consumer_id
        self._connection = connection
        self._topic = topic
        self._timeout_s = timeout_s

    @property
    def is_open(self) -> bool:
        return self.consumer_id in self._connection.consumers

    def flow(self, permits: int) -> None:
        """Permits so many more messages; a batch that begins within them is sent whole."""
        self._connection.send(commands.flow(self.consumer_id, permits))

    def acknowledge_up_to(self, position: Position) -> None:
        """Keeps the broker's list of unacknowledged entries short, and its statistics true."""
        self._connection.send(commands.acknowledge_up_to(self.consumer_id, MessageId(*position).to_wire()))

    async def acknowledge_up_to_durably(self, position: Position) -> None:
        """As `acknowledge_up_to`; returns once the broker has stored it."""
        what = f"acknowledging {MessageId(*position)} on {self._topic.full}"
        last = MessageId(*position).to_wire()
        reply = await self.request(
            lambda request_id: commands.acknowledge_up_to(self.consumer_id, last, request_id=request_id), what
        )
        check_acknowledged(reply, what)

    async def acknowledge_each(self, positions: Sequence[Position]) -> None:
        """These entries and no others; returns once the broker has stored it."""
        what = f"acknowledging {len(positions)} entries from {MessageId(*positions[0])} on {self._topic.full}"
        ids = [MessageId(*position).to_wire() for position in positions]
        reply = await self.request(
            lambda request_id: commands.acknowledge(self.consumer_id, ids, request_id=request_id), what
        )
        check_acknowledged(reply, what)

    async def last(self) -> tuple[MessageId, MessageId]:
        """The last message of the topic, and the mark-delete position of this consumer's cursor."""
        partition = self._topic.partition
        reply = await self.request(
            partial(commands.get_last_message_id, self.consumer_id), f"the last message id of {self._topic.full}"
        )
        response = reply.getLastMessageIdResponse
        last = MessageId.from_wire(response.last_message_id)
        mark = MessageId.from_wire(response.consumer_mark_delete_position)
        return (
            # It is the last of its batch, hence the size of the batch, which brokers do not send.
            MessageId(last.ledger_id, last.entry_id, partition, last.batch_index, last.batch_index + 1),
            MessageId(mark.ledger_id, mark.entry_id, partition),
        )

    async def seek_to_time(self, time_ms: int) -> None:
        """The broker may close the consumer afterwards."""
        await self.request(
            lambda request_id: commands.seek_to_time(self.consumer_id, request_id, time_ms),
            f"seeking {time_ms} ms on {self._topic.full}",
        )

    async def unsubscribe(self) -> None:
        await self.request(partial(commands.unsubscribe, self.consumer_id), f"unsubscribing from {self._topic.full}")
        self._connection.consumers.pop(self.consumer_id, None)

    async def request(self, build: Callable[[int], Command], what: str) -> Command:
        return await self._connection.request(build, what, self._timeout_s)

    def close(self) -> None:
        """Does not wait for the reply: no other consumer uses the name of the subscription."""
        if self._connection.consumers.pop(self.consumer_id, None) is not None:
            self._connection.send(commands.close(self.consumer_id, self._connection.new_request_id()))

    async def close_and_wait(self) -> None:
        """Returns once the subscription is free for others."""
        if self._connection.consumers.pop(self.consumer_id, None) is not None:
            await self.request(partial(commands.close, self.consumer_id), f"closing the consumer of {self._topic.full}")


def check_acknowledged(reply: Command, what: str) -> None:
    """Raises the error of an acknowledgement that the broker rejected."""
    response = reply.ackResponse
    if response.HasField("error"):
        raise response_error(what, response.error, response.message)

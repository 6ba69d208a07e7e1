"""One consumer on one connection, as thin as it gets: what entry readers, watches and questions about positions use.

Owns the commands of such a consumer. It has no queue, does not reconnect and counts no permits: deliveries go straight
to its `ConsumerListener`. A consumer starts strictly after a position: brokers start with the entry that SUBSCRIBE
names, so it names the next one, whether that exists or not.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from magnetar.client.connection.connection import Connection, ConsumerListener
from magnetar.client.connection.lookup import refusal
from magnetar.client.connection.protocol import Command
from magnetar.client.errors import ConnectionLost, NotAllowed, NotFound
from magnetar.client.message import EARLIEST, MessageId, Position
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb

BEFORE_ALL: Position = EARLIEST.position


class Bounds(msgspec.Struct, frozen=True):
    """What a topic stores: `before_first` is the position before its first entry, `last` its last message.

    `last` has the batch index of the last message of a batch, and the entry id -1 if nothing is stored.
    """

    before_first: MessageId
    last: MessageId

    @property
    def is_empty(self) -> bool:
        return self.last.entry_id < 0


class RawConsumerFactory(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a topic: what every consumer of it needs, and has in common with the others."""

    topic: TopicName
    connect: Callable[[], Awaitable[Connection]]
    next_id: Callable[[], int]
    is_partition: Callable[[], Awaitable[bool]]
    timeout_s: float
    reconnect_timeout_s: float
    properties: Mapping[str, str] = {}  # of its consumers

    async def open(self, end: ConsumerListener, after: Position, *, was_there: bool = False) -> RawConsumer:
        """A consumer with a cursor of its own, which dies with it, and which gets what is after a position.

        Partitions of a partitioned topic come to be when they are first used, and so by this, unless it `was_there`:
        then it has been deleted. Nothing else is created; what does not exist is `NotFound`.
        """
        ledger_id, entry_id = after
        start = EARLIEST if ledger_id < 0 else MessageId(ledger_id, max(entry_id, -1) + 1)
        subscribe = pb.CommandSubscribe(
            subscription=f"magnetar-{secrets.token_hex(8)}", durable=False, start_message_id=start.to_wire()
        )
        return await self._open_or_create(end, subscribe, was_there=was_there)

    async def open_durable(
        self, end: ConsumerListener, subscription: str, *, begins_at_first: bool = True
    ) -> RawConsumer:
        """A consumer of a durable subscription; a new one begins with the first entry, or after the last."""
        positions = pb.CommandSubscribe
        subscribe = pb.CommandSubscribe(
            subscription=subscription,
            durable=True,
            initialPosition=positions.Earliest if begins_at_first else positions.Latest,
        )
        return await self._open_or_create(end, subscribe, was_there=False)

    async def _open_or_create(
        self, end: ConsumerListener, subscribe: pb.CommandSubscribe, *, was_there: bool
    ) -> RawConsumer:
        try:
            return await self._open(end, subscribe, create_topic=False)
        except (NotFound, NotAllowed) as error:
            if self.topic.partition < 0 or (was_there and isinstance(error, NotFound)):
                raise
            if not await self.is_partition():
                # Brokers say of a partition whose topic does not exist that it is not allowed.
                raise NotFound(error.text, code=error.code) from None
            if was_there or isinstance(error, NotAllowed):
                raise
        return await self._open(end, subscribe, create_topic=True)

    async def _open(self, end: ConsumerListener, subscribe: pb.CommandSubscribe, *, create_topic: bool) -> RawConsumer:
        connection = await self.connect()
        consumer = RawConsumer(self, connection, self.next_id())
        subscribe.topic = self.topic.full
        if not subscribe.metadata:
            subscribe.metadata.extend(pb.KeyValue(key=key, value=value) for key, value in self.properties.items())
        subscribe.subType = pb.CommandSubscribe.Exclusive
        subscribe.consumer_id = consumer.consumer_id
        subscribe.force_topic_creation = create_topic
        connection.consumers[consumer.consumer_id] = end
        try:
            await consumer.request(
                lambda request_id: _numbered(subscribe, request_id), f"subscribing to {self.topic.full}"
            )
        except BaseException:
            consumer.close()  # the broker may have made the consumer although we did not hear of it
            raise
        if not consumer.is_open:
            raise connection.error or ConnectionLost(f"broker {connection.address} closed the consumer at once")
        return consumer


class RawConsumer:
    """Made by `RawConsumerFactory`. Does nothing any more once the broker closed it or the connection was lost."""

    __slots__ = ("_connection", "_factory", "consumer_id")

    def __init__(self, factory: RawConsumerFactory, connection: Connection, consumer_id: int) -> None:
        self.consumer_id = consumer_id
        self._factory = factory
        self._connection = connection

    @property
    def is_open(self) -> bool:
        return self.consumer_id in self._connection.consumers

    def flow(self, permits: int) -> None:
        """Lets the broker send that many messages more; of a batch that begins within them, all."""
        flow = pb.CommandFlow(consumer_id=self.consumer_id, messagePermits=permits)
        self._connection.send(Command(type=Command.FLOW, flow=flow))

    def acknowledge_up_to(self, position: Position) -> None:
        """Keeps the broker's account of what is on its way short, and its statistics true."""
        ack = pb.CommandAck(
            consumer_id=self.consumer_id,
            ack_type=pb.CommandAck.Cumulative,
            message_id=[MessageId(*position).to_wire()],
        )
        self._connection.send(Command(type=Command.ACK, ack=ack))

    async def acknowledge_and_wait(self, position: Position) -> None:
        """As `acknowledge_up_to`; returns when the broker has it on disk."""
        what = f"acknowledging {MessageId(*position)} on {self._factory.topic.full}"
        ack = pb.CommandAck(
            consumer_id=self.consumer_id,
            ack_type=pb.CommandAck.Cumulative,
            message_id=[MessageId(*position).to_wire()],
        )
        answer = await self.request(lambda request_id: _numbered_ack(ack, request_id), what)
        if answer.ackResponse.HasField("error"):
            raise refusal(what, answer.ackResponse.error, answer.ackResponse.message)

    async def acknowledge_each(self, positions: Sequence[Position]) -> None:
        """These entries and no others; returns when the broker has it on disk."""
        what = f"acknowledging {len(positions)} entries from {MessageId(*positions[0])} on {self._factory.topic.full}"
        ack = pb.CommandAck(
            consumer_id=self.consumer_id,
            ack_type=pb.CommandAck.Individual,
            message_id=[MessageId(*position).to_wire() for position in positions],
        )
        answer = await self.request(lambda request_id: _numbered_ack(ack, request_id), what)
        if answer.ackResponse.HasField("error"):
            raise refusal(what, answer.ackResponse.error, answer.ackResponse.message)

    async def last(self) -> tuple[MessageId, MessageId]:
        """The last message of the topic, and the last position that this consumer's cursor is done with."""
        topic = self._factory.topic
        answer = await self.request(
            lambda request_id: Command(
                type=Command.GET_LAST_MESSAGE_ID,
                getLastMessageId=pb.CommandGetLastMessageId(consumer_id=self.consumer_id, request_id=request_id),
            ),
            f"the last message id of {topic.full}",
        )
        response = answer.getLastMessageIdResponse
        last = MessageId.from_wire(response.last_message_id)
        mark = MessageId.from_wire(response.consumer_mark_delete_position)
        return (
            # The last message of a batch: hence the size of the batch, which brokers do not say.
            MessageId(last.ledger_id, last.entry_id, topic.partition, last.batch_index, last.batch_index + 1),
            MessageId(mark.ledger_id, mark.entry_id, topic.partition),
        )

    async def seek_time(self, time_ms: int) -> None:
        """Brokers close the consumer afterwards, or they do not."""
        await self.request(
            lambda request_id: Command(
                type=Command.SEEK,
                seek=pb.CommandSeek(consumer_id=self.consumer_id, request_id=request_id, message_publish_time=time_ms),
            ),
            f"seeking {time_ms} ms on {self._factory.topic.full}",
        )

    async def unsubscribe(self) -> None:
        await self.request(
            lambda request_id: Command(
                type=Command.UNSUBSCRIBE,
                unsubscribe=pb.CommandUnsubscribe(consumer_id=self.consumer_id, request_id=request_id),
            ),
            f"unsubscribing from {self._factory.topic.full}",
        )
        self._connection.consumers.pop(self.consumer_id, None)

    async def request(self, build: Callable[[int], Command], what: str) -> Command:
        return await self._connection.request(build, what, self._factory.timeout_s)

    def close(self) -> None:
        """The answer is not waited for: nobody else uses the subscription's name."""
        if self._connection.consumers.pop(self.consumer_id, None) is not None:
            close = pb.CommandCloseConsumer(consumer_id=self.consumer_id, request_id=self._connection.new_request_id())
            self._connection.send(Command(type=Command.CLOSE_CONSUMER, close_consumer=close))

    async def leave(self) -> None:
        """As `close`, and waits for the answer: the subscription is free then."""
        if self._connection.consumers.pop(self.consumer_id, None) is not None:
            await self.request(
                lambda request_id: Command(
                    type=Command.CLOSE_CONSUMER,
                    close_consumer=pb.CommandCloseConsumer(consumer_id=self.consumer_id, request_id=request_id),
                ),
                f"closing the consumer of {self._factory.topic.full}",
            )


def _numbered_ack(ack: pb.CommandAck, request_id: int) -> Command:
    ack.request_id = request_id
    return Command(type=Command.ACK, ack=ack)


def _numbered(subscribe: pb.CommandSubscribe, request_id: int) -> Command:
    subscribe.request_id = request_id
    return Command(type=Command.SUBSCRIBE, subscribe=subscribe)

"""The stream of one subscription on one topic or partition, across connections: readers and consumers consist of them.

Owns subscribing, permits, and continuing after a lost connection. Several streams share an `EntryQueue`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from magnetar.client.connection.connection import Connection
from magnetar.client.connection.protocol import Command, Delivery
from magnetar.client.connection.retry import Reconnector, within
from magnetar.client.consume import commands
from magnetar.client.consume.entry import Entry, EntryDecoder
from magnetar.client.consume.raw_consumer import check_acknowledged
from magnetar.client.errors import ClientError, Closed, ConnectionLost, UnreadableMessage
from magnetar.client.message import LATEST, Message, MessageId, Position
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import messages_in

_INDEX_MAX = 1 << 31

Subscribe = pb.CommandSubscribe


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`start` is where a reader starts; the position of a durable subscription is stored by the broker."""

    subscription: str
    subscription_type: Subscribe.SubType.ValueType
    durable: bool
    initial_position: Subscribe.InitialPosition.ValueType = Subscribe.Latest
    start: MessageId = LATEST
    start_inclusive: bool = False
    create_topic: bool = True
    queue_size: int = 1000
    name: str | None = None
    timeout_s: float = 30
    reconnect_timeout_s: float = 300


class EntryQueue:
    """The entries of one or more streams in order of arrival, and `ready`, the rest of the entry opened last.

    `changed` wakes the reader or consumer.
    """

    def __init__(self) -> None:
        self.entries: deque[tuple[SubscriptionStream, Entry]] = deque()
        self.ready: deque[tuple[SubscriptionStream, Message | UnreadableMessage]] = deque()
        self.error: ClientError | None = None
        self.changed = asyncio.Event()

    def put(self, stream: SubscriptionStream, entry: Entry) -> None:
        self.entries.append((stream, entry))
        self.changed.set()

    def drop(self, stream: SubscriptionStream) -> None:
        """Drops the entries of a stream whose broker will send them again."""
        self.entries = deque(item for item in self.entries if item[0] is not stream)
        self.ready = deque(item for item in self.ready if item[0] is not stream)

    def fail(self, error: ClientError) -> None:
        """The error follows the entries that arrived before it."""
        if self.error is None:
            self.error = error
        self.changed.set()


class SubscriptionStream:
    """A reader continues after the last entry it received; a durable subscription gets unacknowledged entries again.

    `_received` is the last position of a reader. `_unwanted` is the last ledger, entry and batch index before its
    start, where that is known.
    """

    def __init__(
        self,
        topic: TopicName,
        consumer_id: int,
        options: StreamOptions,
        connect: Callable[[], Awaitable[Connection]],
        queue: EntryQueue,
    ) -> None:
        self.topic = topic
        self.options = options
        self.end_is_reached = False
        self._consumer_id = consumer_id
        self._connect = connect
        self._queue = queue
        self._decoder = EntryDecoder()
        self._reconnector = Reconnector(
            f"reading {topic.full}", self.open, self._on_failure, limit_s=options.reconnect_timeout_s
        )
        self._connection: Connection | None = None
        self._settled = asyncio.Event()  # connected, or never again
        self._received: Position | None = None
        self._unwanted = _last_before(options.start, options.start_inclusive)
        self._queued = 0
        self._permits = 0  # to be returned to the broker
        self._is_closed = False

    # -- life

    async def open(self) -> None:
        connection = await self._connect()
        connection.consumers[self._consumer_id] = self
        try:
            await connection.request(self._subscribe, f"subscribing to {self.topic.full}", self.options.timeout_s)
            if self._unwanted is None and not self.options.durable and self.topic.is_persistent:
                await self._pin(connection)
        except BaseException:
            # The broker may have created the consumer although its reply was lost.
            if connection.consumers.pop(self._consumer_id, None) is not None:
                connection.send(commands.close(self._consumer_id, connection.new_request_id()))
            raise
        if self._consumer_id not in connection.consumers:
            raise connection.error or ConnectionLost(f"broker {connection.address} closed the consumer at once")
        self._connection = connection
        self._settled.set()
        self._permits = 0
        self._flow(self.options.queue_size - self._queued)

    async def _pin(self, connection: Connection) -> None:
        """Finds the position of "latest", to continue there after a lost connection, not at a later "latest"."""
        response = await self._request_last_message_id(connection)
        if response.HasField("consumer_mark_delete_position"):
            mark = MessageId.from_wire(response.consumer_mark_delete_position)
            self._unwanted = (*mark.position, _INDEX_MAX)

    def _subscribe(self, request_id: int) -> Command:
        options = self.options
        return commands.subscribe(
            self.topic.full,
            options.subscription,
            self._consumer_id,
            request_id,
            start=None if options.durable else self._start(),
            create_topic=options.create_topic,
            subscription_type=options.subscription_type,
            initial_position=options.initial_position,
            name=options.name,
        )

    def _start(self) -> MessageId:
        if self._received is not None:
            return MessageId(*self._received)
        return MessageId(*self._unwanted[:2]) if self._unwanted is not None else LATEST

    async def close(self) -> None:
        self._is_closed = True
        self._reconnector.stop()
        self._settled.set()
        connection, self._connection = self._connection, None
        if connection is not None and connection.consumers.pop(self._consumer_id, None) is not None:
            await connection.request(
                partial(commands.close, self._consumer_id),
                f"closing the consumer of {self.topic.full}",
                self.options.timeout_s,
            )

    # -- events of the connection

    def on_delivery(self, delivery: Delivery) -> None:
        for entry_id, blob in enumerate(delivery.blobs, delivery.entry_id):
            if not self.options.durable:
                position = Position(delivery.ledger_id, entry_id)
                if not self._is_wanted(position):
                    self._return_permits(messages_in(blob))
                    continue
                self._received = position
            self._queued += 1
            message_id = MessageId(delivery.ledger_id, entry_id, self.topic.partition)
            entry = Entry(self.topic.full, message_id, delivery.redelivery_count, delivery.ack_set, blob)
            self._queue.put(self, entry)

    def _is_wanted(self, position: Position) -> bool:
        """The broker starts with the entry that SUBSCRIBE names; whether it belongs to the range is decided here."""
        if self._received is not None:
            return position > self._received
        return self._unwanted is None or (*position, _INDEX_MAX) > self._unwanted

    def on_end_reached(self) -> None:
        self.end_is_reached = True
        self._queue.changed.set()

    def on_lost(self, error: ClientError) -> None:
        if self._connection is None or self._is_closed:
            return  # it was being opened: the caller of `open` gets the error
        self._connection = None
        if isinstance(error, Closed):
            self._on_failure(error)
            return
        self._settled.clear()
        if self.options.durable:
            self._queued = 0
            self._decoder = EntryDecoder()
            self._queue.drop(self)
        self._reconnector.start(error)

    def _on_failure(self, error: ClientError) -> None:
        self._settled.set()
        self._queue.fail(error)

    # -- reading

    def open_entry(self, entry: Entry) -> list[Message | UnreadableMessage]:
        """The messages of an entry from the queue, without those before the start."""
        self._queued -= 1
        try:
            messages, permits = self._decoder.decode(entry)
        except UnreadableMessage as error:
            self._taken(entry, messages_in(entry.blob))
            return [error]
        self._taken(entry, permits)
        unwanted = self._unwanted
        if unwanted is None or self.options.durable or (entry.id.ledger_id, entry.id.entry_id) != unwanted[:2]:
            return list(messages)
        return [message for message in messages if max(message.id.batch_index, 0) > unwanted[2]]

    def _taken(self, entry: Entry, permits: int) -> None:
        if (
            not self.options.durable
            and self._connection is not None
            and (self._queued == 0 or self._permits + permits >= self._refill)
        ):
            # A reader's cursor lives as long as its consumer; moving it keeps the broker's statistics true, and
            # lets the broker notice the end of a terminated topic.
            self._connection.send(commands.acknowledge_up_to(self._consumer_id, entry.id.to_wire()))
        self._return_permits(permits)

    @property
    def _refill(self) -> int:
        return max(1, self.options.queue_size // 2)

    def _return_permits(self, permits: int) -> None:
        self._permits += permits
        if self._permits >= self._refill:
            self._flow(self._permits)
            self._permits = 0

    def _flow(self, permits: int) -> None:
        if self._connection is not None and permits > 0:
            self._connection.send(commands.flow(self._consumer_id, permits))

    async def has_more(self) -> bool:
        """Whether the broker has a message that was not received yet."""
        if not self.topic.is_persistent:
            return False
        response = await self._request_last_message_id(await self._connected())
        last = MessageId.from_wire(response.last_message_id)
        if last.entry_id < 0:
            return False
        if self._received is not None:
            return last.position > self._received
        unwanted = self._unwanted
        if unwanted is None:
            return last.position > MessageId.from_wire(response.consumer_mark_delete_position).position
        return (*last.position, max(last.batch_index, 0)) > unwanted

    async def _connected(self) -> Connection:
        """While the stream reconnects, requests wait as long as for a reply."""
        async with within(self.options.timeout_s, f"reconnecting for {self.topic.full}"):
            await self._settled.wait()
        if self._connection is None:
            raise self._queue.error or Closed(f"the consumer of {self.topic.full} is closed")
        return self._connection

    async def _request_last_message_id(self, connection: Connection) -> pb.CommandGetLastMessageIdResponse:
        reply = await connection.request(
            partial(commands.get_last_message_id, self._consumer_id),
            f"the last message id of {self.topic.full}",
            self.options.timeout_s,
        )
        return reply.getLastMessageIdResponse

    # -- durable subscriptions

    async def acknowledge(self, ids: list[pb.MessageIdData]) -> None:
        """Returns once the broker has stored it."""
        await self._acknowledge(lambda request_id: commands.acknowledge(self._consumer_id, ids, request_id=request_id))

    async def acknowledge_up_to(self, last: pb.MessageIdData) -> None:
        """Returns once the broker has stored it."""
        await self._acknowledge(
            lambda request_id: commands.acknowledge_up_to(self._consumer_id, last, request_id=request_id)
        )

    async def _acknowledge(self, build: Callable[[int], Command]) -> None:
        connection = await self._connected()
        what = f"acknowledging on {self.topic.full}"
        check_acknowledged(await connection.request(build, what, self.options.timeout_s), what)

    def redeliver(self, ids: list[pb.MessageIdData]) -> None:
        """Without a connection there is nothing to do: the next one gets everything again."""
        if self._connection is not None:
            self._connection.send(commands.redeliver(self._consumer_id, ids))

    async def unsubscribe(self) -> None:
        connection = await self._connected()
        await connection.request(
            partial(commands.unsubscribe, self._consumer_id),
            f"unsubscribing {self.options.subscription!r} from {self.topic.full}",
            self.options.timeout_s,
        )
        connection.consumers.pop(self._consumer_id, None)


def _last_before(start: MessageId, inclusive: bool) -> tuple[int, int, int] | None:
    """The last place before the start; None for "latest", which only the broker knows."""
    if start.position == LATEST.position:
        return None
    if inclusive and start.entry_id >= 0:
        return (*start.position, max(start.batch_index, 0) - 1)
    return (*start.position, start.batch_index if start.batch_index >= 0 else _INDEX_MAX)

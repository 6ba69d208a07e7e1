"""Consumers for asyncio: the messages of a durable subscription, acknowledged one by one or up to one."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.client.consume.reader import MessageReceiver
from magnetar.client.consume.stream import EntryQueue, SubscriptionStream
from magnetar.client.errors import InvalidArgument
from magnetar.client.message import Message, MessageId
from magnetar.wire import schema_pb2 as pb

_WORD_BITS = 64


class AsyncConsumer(MessageReceiver):
    """Created by `AsyncClient.consumer`.

    After a lost connection the broker sends unacknowledged messages again, also those that are being processed.
    Messages of a batch are acknowledged one by one; the batch is acknowledged with its last message.
    """

    def __init__(self, topic: str, subscription: str, streams: Sequence[SubscriptionStream], queue: EntryQueue) -> None:
        super().__init__(topic, streams, queue)
        self.subscription = subscription
        self._by_topic = {stream.topic.full: stream for stream in streams}
        # The unacknowledged messages of partly acknowledged batches, one bit each.
        self._open_bits: dict[tuple[str, int, int], int] = {}

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message. Raises `Timeout` after `timeout_s`; None is no limit."""
        return await self._next(timeout_s)

    async def acknowledge(self, message: Message) -> None:
        """Returns once the broker has stored it."""
        stream = self._stream_of(message)
        ids = [_position(chunk) for chunk in message.chunk_ids] or [self._single_ack(message)]
        await stream.acknowledge(ids)

    async def acknowledge_cumulative(self, message: Message) -> None:
        """Acknowledges this message and all before it in its partition. Not for shared subscriptions."""
        stream = self._stream_of(message)
        done = message.id
        data = _position(done)
        if 0 <= done.batch_index < done.batch_size - 1:
            data.ack_set.extend(_words((1 << done.batch_size) - (1 << done.batch_index + 1), done.batch_size))
            data.batch_size = done.batch_size
        await stream.acknowledge_up_to(data)

    async def negative_acknowledge(self, message: Message) -> None:
        """Requests redelivery at once; for a batch, of all its unacknowledged messages."""
        self._stream_of(message).redeliver([_position(part) for part in message.chunk_ids or (message.id,)])

    async def unsubscribe(self) -> None:
        """Deletes the subscription and closes the consumer."""
        for stream in self._streams:
            await stream.unsubscribe()
        await self.close()

    def _stream_of(self, message: Message) -> SubscriptionStream:
        stream = self._by_topic.get(message.topic)
        if stream is None:
            raise InvalidArgument(
                f"message {message.id} of {message.topic} does not belong to the consumer of {self.topic}"
            )
        return stream

    def _single_ack(self, message: Message) -> pb.MessageIdData:
        done = message.id
        data = _position(done)
        if done.batch_index < 0 or done.batch_size <= 1:
            return data
        key = (message.topic, *done.position)
        open_bits = self._open_bits.get(key, (1 << done.batch_size) - 1) & ~(1 << done.batch_index)
        if not open_bits:
            self._open_bits.pop(key, None)
            return data
        self._open_bits[key] = open_bits
        data.ack_set.extend(_words(open_bits, done.batch_size))
        data.batch_size = done.batch_size
        return data


def _position(message_id: MessageId) -> pb.MessageIdData:
    return MessageId(message_id.ledger_id, message_id.entry_id, message_id.partition).to_wire()


def _words(bits: int, count: int) -> list[int]:
    """A bit set in the protocol's signed 64-bit words."""
    data = bits.to_bytes(-(-count // _WORD_BITS) * 8, "little")
    return [int.from_bytes(data[start : start + 8], "little", signed=True) for start in range(0, len(data), 8)]

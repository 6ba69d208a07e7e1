"""The clients of the load: producing and consuming connections, each with several topics.

They check what arrives and note it in the tally; when they publish and leave is decided by `load`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from time import monotonic_ns

from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame, encode_frame_with_blob

from .entries import Entries
from .link import ANSWER_TIMEOUT_S, Command, Link, Refused
from .tally import Tally

SUBSCRIPTION = "soak"
_PERMITS = 1000
_NACKED = 0.01  # the share of entries that are refused once
_RETRY_S = 0.05


def topic_name(number: int) -> str:
    return f"persistent://public/default/soak-{number}"


class Client:
    """One connection. `lost` counts connections that the broker ended."""

    def __init__(self, port: int, topics: Sequence[int], tally: Tally, entries: Entries, rng: Random) -> None:
        self._port = port
        self.topics = topics
        self._tally = tally
        self._entries = entries
        self._rng = rng
        self._link: Link | None = None
        self.lost = 0
        self.errors: list[str] = []

    async def open(self) -> None:
        """Connects and opens everything; what a former connection of this client still holds is asked for again."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            self._link = await Link.open(self._port, self._on_frame, self._on_lost)
            await asyncio.gather(*map(self._open_one, self.topics))

    async def _open_one(self, topic: int) -> None:
        link = self._link
        assert link is not None
        while True:
            try:
                return await link.request(self._opening(topic))
            except Refused as refused:
                if "already" not in str(refused):
                    raise
                await asyncio.sleep(_RETRY_S)

    def _opening(self, topic: int) -> Callable[[int], Command]:
        raise NotImplementedError

    def end(self) -> None:
        if self._link is not None:
            self._link.end()

    def _on_lost(self) -> None:
        self.lost += 1

    def _on_frame(self, command: Command, blob: bytes) -> None:
        self.errors.append(f"unexpected {Command.Type.Name(command.type)}: {str(command)[:200]}")


class ProducingClient(Client):
    def _opening(self, topic: int) -> Callable[[int], Command]:
        def make(request_id: int) -> Command:
            producer = pb.CommandProducer(topic=topic_name(topic), producer_id=topic, request_id=request_id)
            return Command(type=Command.PRODUCER, producer=producer)

        return make

    def publish(self, topic: int) -> None:
        assert self._link is not None
        number = self._tally.next(topic)
        blob = self._entries.build(topic, number, monotonic_ns())
        send = pb.CommandSend(producer_id=topic, sequence_id=number, num_messages=self._entries.messages)
        self._link.write(encode_frame_with_blob(Command(type=Command.SEND, send=send), blob))

    def _on_frame(self, command: Command, blob: bytes) -> None:
        if command.type == Command.SEND_RECEIPT:
            self._tally.confirmed(command.send_receipt.producer_id, command.send_receipt.sequence_id)
        else:
            super()._on_frame(command, blob)


class ConsumingClient(Client):
    """Acknowledges every entry, some of them only when they come a second time."""

    def _opening(self, topic: int) -> Callable[[int], Command]:
        def make(request_id: int) -> Command:
            subscribe = pb.CommandSubscribe(
                topic=topic_name(topic),
                subscription=SUBSCRIPTION,
                subType=topic % 4,  # type: ignore[arg-type]
                consumer_id=topic,
                request_id=request_id,
                initialPosition=pb.CommandSubscribe.Earliest,
            )
            return Command(type=Command.SUBSCRIBE, subscribe=subscribe)

        return make

    async def _open_one(self, topic: int) -> None:
        await super()._open_one(topic)
        assert self._link is not None
        self._link.write(_flow(topic, _PERMITS))

    async def reopen_one(self) -> None:
        """A consumer that goes and comes back, while its connection stays."""
        topic = self._rng.choice(self.topics)
        link = self._link
        assert link is not None
        await link.request(
            lambda request_id: Command(
                type=Command.CLOSE_CONSUMER,
                close_consumer=pb.CommandCloseConsumer(consumer_id=topic, request_id=request_id),
            )
        )
        await self._open_one(topic)

    def _on_frame(self, command: Command, blob: bytes) -> None:
        if command.type == Command.ACTIVE_CONSUMER_CHANGE:
            return
        if command.type != Command.MESSAGE:
            super()._on_frame(command, blob)
            return
        message = command.message
        try:
            topic, number, sent_ns = self._entries.open(blob)
            is_first = self._tally.received(topic, number)
        except ValueError as error:
            self.errors.append(str(error))
            return
        if topic != message.consumer_id:
            self.errors.append(f"an entry of topic {topic} arrived at a consumer of {message.consumer_id}")
        if is_first:
            self._tally.latencies.add((monotonic_ns() - sent_ns) / 1e6)
        assert self._link is not None
        is_nacked = is_first and self._rng.random() < _NACKED
        self._link.write((_nack if is_nacked else _ack)(message) + _flow(topic, self._entries.messages))


def _flow(consumer_id: int, permits: int) -> bytes:
    return encode_frame(
        Command(type=Command.FLOW, flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=permits))
    )


def _ack(message: pb.CommandMessage) -> bytes:
    ack = pb.CommandAck(consumer_id=message.consumer_id, ack_type=pb.CommandAck.Individual)
    ack.message_id.add().CopyFrom(message.message_id)
    return encode_frame(Command(type=Command.ACK, ack=ack))


def _nack(message: pb.CommandMessage) -> bytes:
    again = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=message.consumer_id)
    again.message_ids.add().CopyFrom(message.message_id)
    return encode_frame(Command(type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=again))

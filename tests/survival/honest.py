"""An honest client: publishes, consumes, reconnects, and sends again what has no receipt, as official clients do.

It notes what the broker acknowledged and what arrived; `world` compares both.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

from magnetar.session.handles import SessionState, request_id_of
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch, split_batch
from magnetar.wire.errors import EntryError
from magnetar.wire.frames import FrameDecoder, encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob, split_blob
from tests.fuzz.vandal import CONNECT
from tests.simulation.failure import expect

Command = pb.BaseCommand
_MARK = b"honest "
_CONSUMERS = 100  # their ids begin here
_NO_ENTRY = (1 << 64) - 1


class Ledger:
    """What is known of all messages: ids with a receipt by topic, and ids acknowledged by topic and subscription."""

    def __init__(self) -> None:
        self.ids = count()
        self.confirmed: dict[str, set[int]] = {}
        self.acked: dict[tuple[str, str], set[int]] = {}
        self.places: dict[tuple[int, int], int] = {}

    def confirm(self, topic: str, ids: list[int], position: pb.MessageIdData) -> None:
        self.confirmed.setdefault(topic, set()).update(ids)
        place = (position.ledgerId, position.entryId)
        if place[1] < _NO_ENTRY:  # a dropped duplicate has none
            known = self.places.setdefault(place, ids[0])
            expect(known == ids[0], f"messages {known} and {ids[0]} have the same id {place}")


class HonestClient:
    """One producer per topic, and consumers of (topic, subscription, type)."""

    def __init__(self, name: str, rng: Random, ledger: Ledger, connect: Callable[[HonestClient], Session]) -> None:
        self.name = name
        self._rng = rng
        self._ledger = ledger
        self._connect = connect
        self.session: Session | None = None
        self.producing: list[str] = []
        self.consuming: list[tuple[str, str, int]] = []
        self.acks_all = False
        self.was_connected = False
        self.unconfirmed: dict[str, dict[int, tuple[bytes, int, list[int]]]] = {}
        self._next_sequence: dict[str, int] = {}
        self._ready: set[int] = set()
        self._asked: set[int] = set()
        self._held: list[tuple[int, pb.MessageIdData, list[int]]] = []
        self._decoder = FrameDecoder(1 << 26)

    @property
    def is_connected(self) -> bool:
        return self.session is not None and self.session.state is not SessionState.CLOSED

    def connect(self) -> None:
        self._decoder = FrameDecoder(1 << 26)
        self._ready.clear()
        self._asked.clear()
        self._held.clear()
        self.session = self._connect(self)
        self.was_connected = True
        self.session.receive(CONNECT)
        self.open_missing()

    def open_missing(self) -> None:
        """Producers and consumers that are not open are asked for (again)."""
        for number, topic in enumerate(self.producing):
            if number not in self._ready and number not in self._asked:
                self._asked.add(number)
                name = f"{self.name}-{number}"
                request = pb.CommandProducer(topic=topic, producer_id=number, request_id=number, producer_name=name)
                self._write(encode_frame(Command(type=Command.PRODUCER, producer=request)))
        for number, (topic, subscription, kind) in enumerate(self.consuming, _CONSUMERS):
            if number not in self._ready and number not in self._asked:
                self._asked.add(number)
                self._write(encode_frame(_subscribing(number, topic, subscription, kind)))

    def _write(self, data: bytes) -> None:
        if self.session is not None and self.is_connected:
            self.session.receive(data)

    # -- producing

    def publish(self) -> None:
        number = self._rng.randrange(len(self.producing))
        topic = self.producing[number]
        ids = [next(self._ledger.ids) for _ in range(self._rng.choice((1, 1, 3)))]
        sequence = self._next_sequence.get(topic, 0)
        self._next_sequence[topic] = sequence + 1
        metadata = pb.MessageMetadata(producer_name=f"{self.name}-{number}", sequence_id=sequence, publish_time=1)
        metadata.partition_key = f"k{ids[0] % 5}"
        payloads = [_MARK + str(one).encode() for one in ids]
        content = payloads[0]
        if len(ids) > 1:
            metadata.num_messages_in_batch = len(ids)
            content = build_batch([(pb.SingleMessageMetadata(), payload) for payload in payloads])
        self.unconfirmed.setdefault(topic, {})[sequence] = (build_blob(metadata, content), len(ids), ids)
        if number in self._ready:
            self._send(number, sequence)

    def _send(self, number: int, sequence: int) -> None:
        blob, messages, _ = self.unconfirmed[self.producing[number]][sequence]
        send = pb.CommandSend(producer_id=number, sequence_id=sequence, num_messages=messages)
        self._write(encode_frame_with_blob(Command(type=Command.SEND, send=send), blob))

    # -- replies

    def take(self) -> None:
        """Handles everything that the broker has sent."""
        if self.session is None:
            return
        for command, blob in self._decoder.receive_data(b"".join(self.session.take_output())):
            assert command is not None
            self._on(command, blob or b"")
        assert self._decoder.error is None, self._decoder.error

    def _on(self, command: Command, blob: bytes) -> None:
        kind = command.type
        if kind == Command.SEND_RECEIPT:
            receipt = command.send_receipt
            topic = self.producing[receipt.producer_id]
            sent = self.unconfirmed[topic].pop(receipt.sequence_id, None)
            if sent is not None:
                self._ledger.confirm(topic, sent[2], receipt.message_id)
        elif kind == Command.MESSAGE:
            self._on_message(command.message, blob)
        elif kind in (Command.SUCCESS, Command.PRODUCER_SUCCESS, Command.ERROR):
            self._on_reply(command)
        elif kind == Command.CLOSE_PRODUCER:
            self._ready.discard(command.close_producer.producer_id)
        elif kind == Command.CLOSE_CONSUMER:
            self._ready.discard(command.close_consumer.consumer_id)
        elif kind == Command.SEND_ERROR:  # official clients reconnect and send again
            assert self.session is not None
            self.session.close()

    def _on_reply(self, command: Command) -> None:
        number = request_id_of(command)
        assert number is not None
        self._asked.discard(number)
        if command.type == Command.ERROR or number in self._ready:
            return
        self._ready.add(number)
        if number >= _CONSUMERS:
            flow = pb.CommandFlow(consumer_id=number, messagePermits=10_000)
            self._write(encode_frame(Command(type=Command.FLOW, flow=flow)))
        else:
            for sequence in sorted(self.unconfirmed.get(self.producing[number], {})):
                self._send(number, sequence)

    def _on_message(self, message: pb.CommandMessage, blob: bytes) -> None:
        self._held.append((message.consumer_id, message.message_id, ids_in(blob)))

    def settle_some(self) -> None:
        """Acknowledges, refuses or keeps what it holds."""
        held, self._held = self._held, []
        for consumer_id, message_id, ids in held:
            action = 0.0 if self.acks_all else self._rng.random()
            if action < 0.7:
                topic, subscription, _ = self.consuming[consumer_id - _CONSUMERS]
                self._ledger.acked.setdefault((topic, subscription), set()).update(ids)
                ack = pb.CommandAck(consumer_id=consumer_id, ack_type=pb.CommandAck.Individual)
                ack.message_id.add().CopyFrom(message_id)
                self._write(encode_frame(Command(type=Command.ACK, ack=ack)))
            elif action < 0.9:
                again = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id)
                again.message_ids.add().CopyFrom(message_id)
                kind = Command.REDELIVER_UNACKNOWLEDGED_MESSAGES
                self._write(encode_frame(Command(type=kind, redeliverUnacknowledgedMessages=again)))
            else:
                self._held.append((consumer_id, message_id, ids))


def _subscribing(number: int, topic: str, subscription: str, kind: int) -> Command:
    request = pb.CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=kind,  # type: ignore[arg-type]
        consumer_id=number,
        request_id=number,
        initialPosition=pb.CommandSubscribe.Earliest,
    )
    if subscription == "failing":
        request.metadata.add(key="deadLetterPolicy.maxRedeliverCount", value="1")
        request.metadata.add(key="deadLetterPolicy.initialSubscriptionName", value="kept")
    return Command(type=Command.SUBSCRIBE, subscribe=request)


def ids_in(blob: bytes) -> list[int]:
    """The ids of the honest messages in an entry; others may have published there too."""
    try:
        metadata, payload = split_blob(blob)
        contents = [payload]
        if metadata.HasField("num_messages_in_batch"):
            contents = [content for _, content in split_batch(metadata, payload)]
    except EntryError:
        return []
    return [int(content.removeprefix(_MARK)) for content in contents if content.startswith(_MARK)]

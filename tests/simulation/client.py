"""A simulated client: one connection at a time, producers that resend, consumers that acknowledge.

It speaks the real protocol. Commands wait in `to_broker` and responses in `to_client` until the world delivers them, so
both directions can be slow, and a lost connection loses queued commands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

from magnetar.session.handles import bits_of, request_id_of, words_of
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.frames import Frame, FrameDecoder
from magnetar.wire.metadata import MetadataError, build_blob, metadata_of

Command = pb.BaseCommand
_TOPIC_TERMINATED, _PRODUCER_FENCED = 15, 25
KEYS = ("a", "b", "c", "d")


class Connection:
    """Both directions of one connection."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.decoder = FrameDecoder(1 << 30)
        self.to_broker: deque[Frame] = deque()
        self.to_client: deque[Frame] = deque()
        self.is_open = True


@dataclass(eq=False, slots=True)
class SimProducer:
    id: int
    topic: str
    name: str = ""
    is_named: bool = True
    access_mode: int = 0
    epoch: int = 0
    topic_epoch: int | None = None
    state: str = "closed"  # closed, opening, ready, dead
    next_sequence: int = 0
    pending: dict[int, Frame] = field(default_factory=dict)


@dataclass(slots=True)
class Received:
    ledger: int
    entry: int
    messages: int
    open_bits: int


@dataclass(eq=False, slots=True)
class SimConsumer:
    id: int
    topic: str
    subscription: str
    type: int
    name: str
    durable: bool = True
    from_earliest: bool = True
    start: tuple[int, int] | None = None
    priority: int = 0
    hash_ranges: list[tuple[int, int]] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    window: int = 10
    epoch: int | None = None
    state: str = "closed"  # closed, opening, ready, gone
    received: dict[tuple[int, int], Received] = field(default_factory=dict)
    done: deque[Received] = field(default_factory=lambda: deque(maxlen=8))
    permits_used: int = 0
    attempts: int = 0


class SimClient:
    def __init__(self, name: str, rng: Random, now_ms: Callable[[], int]) -> None:
        self.name = name
        self.connection: Connection | None = None
        self.producers: dict[int, SimProducer] = {}
        self.consumers: dict[int, SimConsumer] = {}
        self._rng = rng
        self._now_ms = now_ms
        self._ids = count(1)
        self._requests: dict[int, Callable[[Command], None]] = {}
        self._handled = {
            Command.PRODUCER_SUCCESS: self._on_reply,
            Command.SEND_RECEIPT: self._on_receipt,
            Command.SEND_ERROR: self._on_send_error,
            Command.SUCCESS: self._on_reply,
            Command.ERROR: self._on_reply,
            Command.CLOSE_PRODUCER: self._on_close_producer,
            Command.CLOSE_CONSUMER: self._on_close_consumer,
            Command.PING: self._on_ping,
        }

    # -- the connection

    def connected(self, connection: Connection) -> None:
        self.connection = connection
        connect = pb.CommandConnect(client_version="simulation", protocol_version=21)
        self.write(Command(type=Command.CONNECT, connect=connect))
        for producer in self.producers.values():
            self.open_producer(producer)
        for consumer in self.consumers.values():
            self.open_consumer(consumer)

    def disconnected(self) -> None:
        self.connection = None
        self._requests.clear()
        for producer in self.producers.values():
            if producer.state != "dead":
                producer.state = "closed"
        for consumer in self.consumers.values():
            self._detach(consumer)

    @property
    def is_connected(self) -> bool:
        return self.connection is not None

    def write(self, command: Command, blob: bytes | None = None) -> None:
        if self.connection is not None:
            self.connection.to_broker.append((command, blob))

    def deliver(self, command: Command, blob: bytes | None) -> None:
        if command.type == Command.MESSAGE:
            assert blob is not None
            self._on_message(command.message, blob)
            return
        handler = self._handled.get(command.type)
        if handler is not None:
            handler(command)

    def _request(self, on_reply: Callable[[Command], None]) -> int:
        request_id = next(self._ids)
        self._requests[request_id] = on_reply
        return request_id

    def _on_reply(self, command: Command) -> None:
        request_id = request_id_of(command)
        assert request_id is not None
        handler = self._requests.get(request_id)
        if handler is not None:
            handler(command)

    def _on_ping(self, command: Command) -> None:
        self.write(Command(type=Command.PONG, pong=pb.CommandPong()))

    # -- producing

    def add_producer(self, topic: str, **options: object) -> SimProducer:
        number = next(self._ids)
        producer = SimProducer(number, topic, **options)  # type: ignore[arg-type]
        if producer.is_named:
            producer.name = f"{self.name}-{number}"
        self.producers[number] = producer
        self.open_producer(producer)
        return producer

    def open_producer(self, producer: SimProducer) -> None:
        if producer.state == "dead" or not self.is_connected:
            return
        producer.state = "opening"
        attempt = producer.epoch
        request = pb.CommandProducer(
            topic=producer.topic,
            producer_id=producer.id,
            request_id=self._request(lambda reply: self._on_producer_reply(producer, attempt, reply)),
            producer_name=producer.name,
            user_provided_producer_name=producer.is_named,
            epoch=producer.epoch,
            producer_access_mode=producer.access_mode,  # type: ignore[arg-type]
        )
        producer.epoch += 1
        if producer.topic_epoch is not None:
            request.topic_epoch = producer.topic_epoch
        self.write(Command(type=Command.PRODUCER, producer=request))

    def _on_producer_reply(self, producer: SimProducer, attempt: int, reply: Command) -> None:
        if producer.state != "opening" or producer.epoch != attempt + 1:
            return
        if reply.type == Command.ERROR:
            producer.state = "dead" if reply.error.error in (_TOPIC_TERMINATED, _PRODUCER_FENCED) else "closed"
            return
        success = reply.producer_success
        if success.producer_ready:
            producer.state = "ready"
            producer.name = success.producer_name
            producer.topic_epoch = success.topic_epoch if success.HasField("topic_epoch") else None
            for frame in producer.pending.values():
                self.write(*frame)

    def send(self, producer: SimProducer, messages: int, key: str | None, deliver_at_ms: int) -> None:
        sequence_id = producer.next_sequence
        producer.next_sequence += messages
        highest_id = sequence_id + messages - 1
        metadata = pb.MessageMetadata(producer_name=producer.name, sequence_id=sequence_id, publish_time=self._now_ms())
        send = pb.CommandSend(producer_id=producer.id, sequence_id=sequence_id, num_messages=messages)
        if messages > 1:
            metadata.num_messages_in_batch = messages
            metadata.highest_sequence_id = send.highest_sequence_id = highest_id
        elif self._rng.random() < 0.1:
            metadata.num_messages_in_batch = 1
        if key is not None:
            metadata.partition_key = key
        if deliver_at_ms:
            metadata.deliver_at_time = deliver_at_ms
        frame = (Command(type=Command.SEND, send=send), build_blob(metadata, self._payload(metadata)))
        producer.pending[sequence_id] = frame
        if producer.state == "ready":
            self.write(*frame)

    def _payload(self, metadata: pb.MessageMetadata) -> bytes:
        """Payload of a message or of a batch; some batches are encrypted or corrupt, and cannot be split."""
        rng = self._rng
        name = f"{metadata.producer_name}/{metadata.sequence_id}"
        payload = name.encode() + bytes(rng.choice((0, 0, 10, 300)))
        kind = rng.random()
        if metadata.HasField("num_messages_in_batch"):
            if kind < 0.15:
                if kind < 0.1:
                    metadata.encryption_keys.add(key="k", value=b"v")
                return payload
            payload = build_batch([_single(name, index) for index in range(metadata.num_messages_in_batch)])
        elif kind < 0.3:
            metadata.properties.add(key="name", value=name)
            metadata.event_time = metadata.sequence_id + 1
        metadata.compression = rng.choice((pb.NONE, pb.NONE, pb.LZ4, pb.ZLIB))
        metadata.uncompressed_size = len(payload)
        return compress(metadata.compression, payload)

    def _on_receipt(self, command: Command) -> None:
        self._sent(command.send_receipt.producer_id, command.send_receipt.sequence_id)

    def _on_send_error(self, command: Command) -> None:
        self._sent(command.send_error.producer_id, command.send_error.sequence_id)

    def _sent(self, producer_id: int, sequence_id: int) -> None:
        producer = self.producers.get(producer_id)
        if producer is not None:
            producer.pending.pop(sequence_id, None)

    def _on_close_producer(self, command: Command) -> None:
        producer = self.producers.get(command.close_producer.producer_id)
        if producer is not None and producer.state != "dead":
            producer.state = "closed"

    def close_producer(self, producer: SimProducer) -> None:
        """Closes the producer on the broker only: pending messages are resent when it is opened again."""
        close = pb.CommandCloseProducer(producer_id=producer.id, request_id=self._request(lambda reply: None))
        self.write(Command(type=Command.CLOSE_PRODUCER, close_producer=close))
        producer.state = "closed"

    # -- consuming

    def add_consumer(self, topic: str, subscription: str, type: int, **options: object) -> SimConsumer:
        number = next(self._ids)
        consumer = SimConsumer(number, topic, subscription, type, f"{self.name}-{number}", **options)  # type: ignore[arg-type]
        self.consumers[number] = consumer
        self.open_consumer(consumer)
        return consumer

    def open_consumer(self, consumer: SimConsumer) -> None:
        if consumer.state == "gone" or not self.is_connected:
            return
        consumer.state = "opening"
        attempt = consumer.attempts = consumer.attempts + 1
        request = pb.CommandSubscribe(
            topic=consumer.topic,
            subscription=consumer.subscription,
            subType=consumer.type,  # type: ignore[arg-type]
            consumer_id=consumer.id,
            request_id=self._request(lambda reply: self._on_subscribed(consumer, attempt, reply)),
            consumer_name=consumer.name,
            durable=consumer.durable,
            priority_level=consumer.priority,
            initialPosition=(pb.CommandSubscribe.Earliest if consumer.from_earliest else pb.CommandSubscribe.Latest),
            force_topic_creation=True,
        )
        if consumer.start is not None:
            request.start_message_id.ledgerId, request.start_message_id.entryId = consumer.start
        if consumer.epoch is not None:
            request.consumer_epoch = consumer.epoch
        for key, value in consumer.properties.items():
            request.metadata.add(key=key, value=value)
        for start, end in consumer.hash_ranges:
            request.keySharedMeta.keySharedMode = pb.STICKY
            request.keySharedMeta.hashRanges.add(start=start, end=end)
        self.write(Command(type=Command.SUBSCRIBE, subscribe=request))

    def _on_subscribed(self, consumer: SimConsumer, attempt: int, reply: Command) -> None:
        if consumer.state != "opening" or consumer.attempts != attempt:
            return
        if reply.type == Command.ERROR:
            consumer.state = "closed"
            return
        consumer.state = "ready"
        self.flow(consumer, consumer.window)

    def flow(self, consumer: SimConsumer, permits: int) -> None:
        flow = pb.CommandFlow(consumer_id=consumer.id, messagePermits=permits)
        self.write(Command(type=Command.FLOW, flow=flow))

    def _on_message(self, message: pb.CommandMessage, blob: bytes) -> None:
        consumer = self.consumers.get(message.consumer_id)
        if consumer is None or consumer.state != "ready":
            return
        position = (message.message_id.ledgerId, message.message_id.entryId)
        messages = _messages_in(blob)
        open_bits = bits_of(message.ack_set) if message.ack_set else (1 << messages) - 1
        consumer.received[position] = Received(*position, messages, open_bits)
        consumer.permits_used += open_bits.bit_count()
        if consumer.permits_used * 2 >= consumer.window:
            self.flow(consumer, consumer.permits_used)
            consumer.permits_used = 0

    def ack(self, consumer: SimConsumer, items: list[Received], *, wants_reply: bool, cumulative: bool = False) -> None:
        """Acknowledges the closed messages in each of `items`."""
        ack = pb.CommandAck(
            consumer_id=consumer.id,
            ack_type=pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual,
        )
        for item in items:
            message_id = ack.message_id.add(ledgerId=item.ledger, entryId=item.entry)
            if item.open_bits:
                message_id.ack_set.extend(words_of(item.open_bits))
                message_id.batch_size = item.messages
        if wants_reply:
            ack.request_id = next(self._ids)
        self.write(Command(type=Command.ACK, ack=ack))

    def redeliver(
        self, consumer: SimConsumer, items: list[Received] | None, indexes: dict[int, list[int]] | None = None
    ) -> None:
        """Nacks `items`, of which `indexes` selects single messages; None requests redelivery of everything."""
        redeliver = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer.id)
        for item in items or ():
            for index in (indexes or {}).get(item.entry, [-1]):
                redeliver.message_ids.add(ledgerId=item.ledger, entryId=item.entry, batch_index=index)
        if items is None and consumer.type in (0, 2):
            consumer.epoch = (consumer.epoch or 0) + 1
            redeliver.consumer_epoch = consumer.epoch
        self.write(Command(type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=redeliver))

    def seek(
        self, consumer: SimConsumer, position: tuple[int, int] | None, publish_ms: int, open_bits: int = 0
    ) -> None:
        seek = pb.CommandSeek(consumer_id=consumer.id, request_id=self._request(lambda reply: None))
        if position is None:
            seek.message_publish_time = publish_ms
        else:
            seek.message_id.ledgerId, seek.message_id.entryId = position
            if open_bits:
                seek.message_id.ack_set.extend(words_of(open_bits))
        self.write(Command(type=Command.SEEK, seek=seek))

    def unsubscribe(self, consumer: SimConsumer, *, force: bool) -> None:
        def on_reply(reply: Command) -> None:
            if reply.type == Command.SUCCESS:
                self._detach(consumer)
                consumer.state = "gone"
                self.consumers.pop(consumer.id, None)

        unsubscribe = pb.CommandUnsubscribe(consumer_id=consumer.id, request_id=self._request(on_reply), force=force)
        self.write(Command(type=Command.UNSUBSCRIBE, unsubscribe=unsubscribe))

    def close_consumer(self, consumer: SimConsumer) -> None:
        close = pb.CommandCloseConsumer(consumer_id=consumer.id, request_id=self._request(lambda reply: None))
        self.write(Command(type=Command.CLOSE_CONSUMER, close_consumer=close))
        self._detach(consumer)

    def ask(self, consumer: SimConsumer, what: str) -> None:
        request_id = self._request(lambda reply: None)
        if what == "last":
            last = pb.CommandGetLastMessageId(consumer_id=consumer.id, request_id=request_id)
            self.write(Command(type=Command.GET_LAST_MESSAGE_ID, getLastMessageId=last))
        elif what == "stats":
            stats = pb.CommandConsumerStats(consumer_id=consumer.id, request_id=request_id)
            self.write(Command(type=Command.CONSUMER_STATS, consumerStats=stats))
        elif what == "partitions":
            metadata = pb.CommandPartitionedTopicMetadata(topic=consumer.topic, request_id=request_id)
            self.write(Command(type=Command.PARTITIONED_METADATA, partitionMetadata=metadata))
        else:
            lookup = pb.CommandLookupTopic(topic=consumer.topic, request_id=request_id)
            self.write(Command(type=Command.LOOKUP, lookupTopic=lookup))

    def _on_close_consumer(self, command: Command) -> None:
        consumer = self.consumers.get(command.close_consumer.consumer_id)
        if consumer is not None:
            self._detach(consumer)

    def _detach(self, consumer: SimConsumer) -> None:
        if consumer.state != "gone":
            consumer.state = "closed"
        consumer.received.clear()
        consumer.permits_used = 0


def _single(name: str, index: int) -> tuple[pb.SingleMessageMetadata, bytes]:
    single = pb.SingleMessageMetadata()
    if index % 2:
        single.partition_key = KEYS[index % len(KEYS)]
        single.event_time = index
        single.properties.add(key="name", value=name)
    return single, f"{name}/{index}".encode()


def _messages_in(blob: bytes) -> int:
    try:
        return max(1, metadata_of(blob).num_messages_in_batch)
    except MetadataError:
        return 1

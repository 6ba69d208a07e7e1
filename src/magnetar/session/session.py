"""A session: the protocol of one connection, without the connection.

Bytes go in by `receive` and come out of `take_output`; `on_output` announces that there are some. Handlers of commands
are in the modules beside this one, `table` lists them; SEND, the hot path, is handled here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from magnetar.access.needs import Right
from magnetar.access.principal import NO_ONE_ASKED
from magnetar.bounds import ANSWERS, CLOSED_PRODUCERS, COMMAND_SIZE, FIRST_FRAME, FRAMES_OVER_RATE, TURN
from magnetar.broker.broker import Broker
from magnetar.broker.host import FaultKind
from magnetar.broker.peer import Delivery, Receipt
from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.throttling.rate_limit import RateLimit
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.topic import Publish
from magnetar.errors import MagnetarError, NotAllowed
from magnetar.session.guards import (
    REFUSED,
    attempt,
    guarded,
    refusal_of,
    remove_consumer,
    remove_producer,
    restore,
    unexpected,
    where_of,
)
from magnetar.session.handles import (
    ClientAddress,
    Command,
    ConsumerHandle,
    Handles,
    ProducerHandle,
    SessionState,
    request_id_of,
    words_of,
)
from magnetar.session.late_subscribes import LateSubscribes
from magnetar.session.limits import check_limits
from magnetar.session.login.refresh import Refresh
from magnetar.session.refusals import refuse_unlisted, report_failure
from magnetar.session.repeated_dead_letters import may_be_dead_letter, publish_dead_letters
from magnetar.session.rights.needs import check_rights
from magnetar.session.rights.revocation import close_what_is_not_allowed
from magnetar.session.send import fault_of, is_batch_of, is_too_large
from magnetar.session.table import TABLE
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import PING, PONG, Frame, FrameDecoder, encode_frame
from magnetar.wire.metadata import MALFORMED, MAY_BE_DELAYED, examine
from magnetar.wire.templates import encode_send_receipt

# Room for the command and the metadata around the largest payload, as Apache Pulsar's frame decoder leaves.
FRAME_PADDING = 10 * 1024
_CLOSED_REMEMBERED = CLOSED_PRODUCERS.limit
_NONE = (1 << 64) - 1
_SIGN = 1 << 63
_TURN = TURN.limit
_UNREAD_MAX = ANSWERS.limit
_NO_FRAMES: list[Frame] = []
_FEW = FRAMES_OVER_RATE.limit
# Frequent, and without names and maps; their ids only find what exists.
_UNLIMITED = frozenset((Command.ACK, Command.FLOW, Command.PING, Command.PONG))

# After this time ACTIVE_CONSUMER_CHANGE is sent even without a FLOW (see `Session.active_changed`).
_ANNOUNCE_MS = 1000


class Session:
    """`pending_publishes`: messages that were received and are not durable yet.

    `holds`: the rate limits that this client exceeded: it is not read until there are none. `is_limited`: one of its
    topics has a publish rate, so that few frames are handled at a time, and little can exceed it.
    """

    def __init__(
        self, broker: Broker, address: ClientAddress, on_output: Callable[[], None], on_close: Callable[[], None]
    ) -> None:
        self.broker = broker
        self.where = address
        self.address = address.peer
        self.state = SessionState.START
        self.writable = True
        self.client_version = ""
        self.principal = NO_ONE_ASKED
        self.asked: tuple[Right, ...] = ()  # the rights that the command in hand needs
        self.refresh: Refresh | None = None
        self.knows_positions = False  # receipts of its replicators carry positions in the source
        self.producers: Handles[ProducerHandle] = Handles()
        self.consumers: Handles[ConsumerHandle] = Handles()
        self.pending_publishes = 0
        self.holds: set[RateLimit] = set()
        self.is_limited = False
        self.late_subscribes = LateSubscribes(self)
        self.examinations = 0  # of schemas, which take long: what follows waits (see `dear_schemas`)
        self.has_received = True  # data was received since the last keep-alive check
        self._ping_is_open = False
        self._closed_producers: dict[int, None] = {}
        self._decoder = FrameDecoder(FIRST_FRAME.limit, command_size_max=COMMAND_SIZE.limit)
        self._last_send = (0, 0)  # producer and sequence id
        self._waiting: list[Frame] = []  # decoded, for when the client has read its answers
        self.unread_bytes = 0  # of answers that the transport has not taken yet
        self._held_bytes = 0  # of those, answers that wait for the disk
        self._output: list[bytes] = []
        self._on_output = on_output
        self._on_close = on_close

    # -- bytes in

    def receive(self, data: bytes) -> None:
        """Handles every whole frame in `data`; after an unexpected error, none of the rest."""
        self.has_received = True
        try:
            if self.examinations:
                if data:
                    self._waiting = [*self._waiting, *self._decoder.receive_data(data, _TURN)]
                return
            if self.state is SessionState.START:
                self._receive(data, 1)  # what follows CONNECT has other limits
                data = b""
            if self.state is not SessionState.START:
                self._receive(data, _TURN)
        except Exception as error:
            self._end("publish", error, self.address)

    def connected(self) -> None:
        """The handshake is complete: from now on frames may be large."""
        self.state = SessionState.CONNECTED
        self._decoder.frame_size_max = self.broker.settings.maxMessageSize + FRAME_PADDING
        self.broker.authorization.watch(self, partial(close_what_is_not_allowed, self))

    @property
    def has_input(self) -> bool:
        """Input waits: for the next turn of the loop, the client to read, or a schema. `receive(b"")` goes on."""
        return self.state is not SessionState.CLOSED and (bool(self._waiting) or self._decoder.has_rest)

    @property
    def can_answer(self) -> bool:
        """The client has not left too many answers unread, and none of its schemas is examined."""
        return self.writable and self.unread_bytes <= _UNREAD_MAX and not self.examinations

    def _receive(self, data: bytes, budget: int) -> None:
        """Consecutive SENDs of a producer become one publish."""
        # The hot path: one loop, locals only.
        publishes: list[Publish] = []
        handle: ProducerHandle | None = None  # looked up again after anything that may have closed it
        producer_id, sequence_id = self._last_send
        send_type, size_max = Command.SEND, 0
        frames = self._frames(data, budget)
        for command, blob in frames:
            if command is None:
                sequence_id += 1
                highest_id, messages, is_chunk, is_refused = sequence_id, 1, False, False
            elif command.type == send_type:
                send = command.send
                if send.producer_id != producer_id:
                    self.publish(handle, publishes)
                    publishes, handle, producer_id = [], None, send.producer_id
                sequence_id, messages, is_chunk = send.sequence_id, send.num_messages, send.is_chunk
                highest_id = send.highest_sequence_id or sequence_id
                is_refused = highest_id >= _SIGN or sequence_id >= _SIGN or send.HasField("txnid_most_bits")
            else:
                self.publish(handle, publishes)
                publishes, handle = [], None
                if self.state is SessionState.CLOSED:
                    return
                self._handle(command)
                if self.unread_bytes > _UNREAD_MAX or not self.writable or self.examinations:
                    self._waiting = [*frames, *self._waiting]
                    break
                continue
            if handle is None:
                handle = self._sender(producer_id)
                if handle is None:
                    continue
                size_max = handle.topic.policies.max_message_size
            found = MALFORMED if blob is None else examine(blob)
            if (
                found > MAY_BE_DELAYED
                or blob is None
                or (messages != 1 and not is_batch_of(messages, blob, size_max))
                or (len(blob) > size_max and is_too_large(blob, size_max))
                or is_refused
            ):
                self.publish(handle, publishes)
                error = fault_of(sequence_id, highest_id, messages, blob, found, size_max)
                self._reject(handle.producer, sequence_id, error)
                publishes, handle = [], None
                continue
            publish = (sequence_id, highest_id, messages, blob, found == MAY_BE_DELAYED, is_chunk)
            if self.consumers and may_be_dead_letter(handle, blob):
                self.publish(handle, publishes)
                publishes = []
                if publish_dead_letters(self, handle, publish):
                    continue
            publishes.append(publish)
        self._last_send = producer_id, sequence_id
        self.publish(handle, publishes)
        if self._decoder.error is not None and not self._waiting and self.state is not SessionState.CLOSED:
            self.fail(str(self._decoder.error))

    def _frames(self, data: bytes, budget: int) -> Iterator[Frame]:
        waiting, self._waiting = self._waiting, _NO_FRAMES
        frames = self._decoder.receive_data(data, budget)
        if waiting:
            frames = waiting + frames
        if self.is_limited and len(frames) > _FEW:
            frames, self._waiting = frames[:_FEW], frames[_FEW:]
        return iter(frames)

    def publish(self, handle: ProducerHandle | None, publishes: list[Publish]) -> None:
        """Clients wait for the receipts: if there is an error instead, they get the end of the connection."""
        if publishes and handle is not None:
            self.pending_publishes += len(publishes)
            try:
                handle.topic.publish(handle.producer, publishes)
            except Exception as error:
                self._end("publish", error, f"{self.address} {handle.topic.name.full}")

    def drop_repeated(self, handle: ProducerHandle, sequence_id: int, highest_id: int) -> None:
        """Drops a message that was published before, and sends its receipt once the first one is durable."""
        self.pending_publishes += 1
        self.broker.commits.after(lambda: self.receipts(handle.producer, [(sequence_id, highest_id, -1)]))

    def _sender(self, producer_id: int) -> ProducerHandle | None:
        """The producer of a SEND, if it may send."""
        if self.state is not SessionState.CONNECTED:
            if self.state is not SessionState.CLOSED:
                self.fail(f"command SEND is not allowed in state {self.state.value}")
            return None
        handle = self.producers.get(producer_id)
        if handle is not None and handle.is_ready:
            return handle
        # Messages in flight when the producer was closed are expected; the client sends them again.
        if producer_id not in self._closed_producers:
            self.fail(f"producer {producer_id} does not exist on this connection")
        return None

    def handle(self, command: Command) -> None:
        """A command whose time has come."""
        self._handle(command)

    def go_on(self) -> None:
        """The connection looks whether there is input, and whether it may be read again."""
        if self.state is not SessionState.CLOSED:
            self._on_output()

    def _handle(self, command: Command) -> None:
        entry = TABLE[self.state].get(command.type)
        if entry is None:
            refuse_unlisted(self, command)
            return
        try:
            if command.type not in _UNLIMITED:
                check_limits(command)
                check_rights(self, command, entry.needs)
            entry.handler(self, command)
        except REFUSED as raised:
            error = refusal_of(self, command, raised)
            entry.refuse(self, command, error)
            if self.state is SessionState.START:
                self.fail(str(error), error)
            elif error is not raised and request_id_of(command) is None:
                self.close()  # a nack that met a read error has no reply: the client starts again
        except Exception as bug:
            self.reply_error(request_id_of(command), unexpected(bug))
            self._end("command", bug, where_of(self, command))

    # -- bytes out

    def take_output(self) -> list[bytes]:
        output, self._output = self._output, []
        self.unread_bytes = self._held_bytes
        return output

    def write(self, frame: bytes) -> None:
        if self.state is not SessionState.CLOSED:
            if not self._output:
                self._on_output()
            self._output.append(frame)
            self.unread_bytes += len(frame)

    def send(self, command: Command) -> None:
        self.write(encode_frame(command))

    def send_when_durable(self, command: Command) -> None:
        """Sends the command when all changes so far are durable."""
        frame = encode_frame(command)
        if self.broker.commits.idle:
            self.write(frame)
        else:
            self._held_bytes += len(frame)
            self.unread_bytes += len(frame)
            self.broker.commits.after(lambda: self._release(frame))

    def _release(self, frame: bytes) -> None:
        self._held_bytes -= len(frame)
        self.unread_bytes -= len(frame)
        self.write(frame)

    def reply_success(self, request_id: int) -> None:
        self.send_when_durable(Command(type=Command.SUCCESS, success=pb.CommandSuccess(request_id=request_id)))

    def reply_error(self, request_id: int | None, error: MagnetarError) -> None:
        if request_id is not None:
            reply = pb.CommandError(request_id=request_id, error=error.wire_code, message=str(error))  # type: ignore[arg-type]
            self.send(Command(type=Command.ERROR, error=reply))

    def fail(self, reason: str, error: MagnetarError | None = None) -> None:
        """The client violated the protocol, or is not let in: sends the reason and closes the connection."""
        report_failure(self, reason, error)
        self.reply_error(_NONE, error or NotAllowed(reason))
        self.close()

    def _end(self, kind: FaultKind, error: Exception, where: str) -> None:
        """After an unexpected error: the connection is closed, and with it everything that the error may concern."""
        held = [(handle, handle.consumer.subscription) for handle in self.consumers.values()]
        try:
            self.broker.fault(kind, error, where)
        finally:
            self.close()
            for handle, subscription in held:
                restore(self, handle, subscription)

    def close_later(self, kind: FaultKind, error: Exception, where: str) -> None:
        """The same from a callback of the core, which must not be called back: once it has finished."""
        self.writable = False
        self.broker.wake_after(0, self.close)
        self.broker.fault(kind, error, f"{self.address} {where}")

    def close(self, *, vanished: bool = False) -> None:
        if self.state is not SessionState.CLOSED:
            try:
                self._on_close()
            finally:
                self.connection_lost(vanished=vanished)

    # -- Peer

    def receipts(self, producer: Producer, receipts: Sequence[Receipt]) -> None:
        self.pending_publishes -= len(receipts)
        handle = self.producers.get(producer.producer_id)
        if handle is None or handle.producer is not producer:
            return
        encode = handle.encoder.encode
        try:
            frames = [
                # A dropped duplicate has no position, and that of the first message is not known any more.
                encode(*receipt) if receipt[2] >= 0 else encode_send_receipt(producer.producer_id, *receipt[:2], -1, -1)
                for receipt in receipts
            ]
            self.write(b"".join(frames))
        except Exception as error:
            self.close_later("completion", error, handle.topic.name.full)

    @guarded
    def send_error(self, producer: Producer, sequence_id: int, error: MagnetarError) -> None:
        self.pending_publishes -= 1
        self._reject(producer, sequence_id, error)

    def _reject(self, producer: Producer, sequence_id: int, error: MagnetarError) -> None:
        producer.refused = producer.refused or error
        self.broker.refused_messages[error.wire_code] += 1
        reply = pb.CommandSendError(
            producer_id=producer.producer_id,
            sequence_id=sequence_id,
            error=error.wire_code,  # type: ignore[arg-type]
            message=str(error),
        )
        self.send(Command(type=Command.SEND_ERROR, send_error=reply))

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        handle = self.consumers.get(consumer.consumer_id)
        if handle is None:
            return
        encode, epoch = handle.encoder.encode, consumer.epoch
        try:
            frames = [
                encode(entry_id, count, None if open_bits is None else words_of(open_bits), blob, epoch)
                for entry_id, count, open_bits, blob in deliveries
            ]
            self.write(b"".join(frames))
        except Exception as error:
            self.close_later("dispatch", error, handle.topic.name.full)

    @guarded
    def active_changed(self, consumer: Consumer, is_active: bool) -> None:
        """Sent with the first FLOW at the earliest: until it has received SUCCESS, the Go client drops commands for
        this consumer id.
        """
        handle = self.consumers.get(consumer.consumer_id)
        if handle is None or handle.is_known:
            self._send_active(consumer, is_active)
            return
        if handle.is_active is None:
            self.broker.wake_after(_ANNOUNCE_MS, lambda: self.announce_active(handle))
        handle.is_active = is_active

    @guarded
    def announce_active(self, handle: ConsumerHandle) -> None:
        handle.is_known = True
        is_active, handle.is_active = handle.is_active, None
        if is_active is not None and self.consumers.get(handle.consumer.consumer_id) is handle:
            self._send_active(handle.consumer, is_active)

    def _send_active(self, consumer: Consumer, is_active: bool) -> None:
        change = pb.CommandActiveConsumerChange(consumer_id=consumer.consumer_id, is_active=is_active)
        self.send_when_durable(Command(type=Command.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change))

    @guarded
    def end_of_topic(self, consumer: Consumer) -> None:
        end = pb.CommandReachedEndOfTopic(consumer_id=consumer.consumer_id)
        self.send(Command(type=Command.REACHED_END_OF_TOPIC, reachedEndOfTopic=end))

    @guarded
    def close_consumer(self, consumer: Consumer) -> None:
        """Sent after the reply to SUBSCRIBE, which waits for the disk: the client does not know the consumer before."""
        self.consumers.pop(consumer.consumer_id, None)
        close = pb.CommandCloseConsumer(consumer_id=consumer.consumer_id, request_id=_NONE)
        self.send_when_durable(Command(type=Command.CLOSE_CONSUMER, close_consumer=close))

    @guarded
    def close_producer(self, producer: Producer) -> None:
        """Sent after the reply to PRODUCER, as `close_consumer`."""
        self.forget_producer(producer.producer_id)
        close = pb.CommandCloseProducer(producer_id=producer.producer_id, request_id=_NONE)
        self.send_when_durable(Command(type=Command.CLOSE_PRODUCER, close_producer=close))

    def hold(self, limit: RateLimit) -> None:
        self.holds.add(limit)

    def release(self, limit: RateLimit) -> None:
        self.holds.discard(limit)
        if not self.holds:
            self.go_on()

    # -- connection

    def forget_producer(self, producer_id: int) -> None:
        self.producers.pop(producer_id, None)
        self._closed_producers[producer_id] = None
        if len(self._closed_producers) > _CLOSED_REMEMBERED:
            del self._closed_producers[next(iter(self._closed_producers))]

    def set_writable(self, writable: bool) -> None:
        """A full transport pauses delivery; once it drains, dispatch to its consumers resumes."""
        self.writable = writable
        if writable:
            for handle in list(self.consumers.values()):
                subscription = handle.consumer.subscription
                if subscription is not None:
                    resume = partial(subscription.flow, handle.consumer, 0)
                    attempt(self, "dispatch", handle.topic.name.full, resume)

    def keep_alive(self) -> None:
        """Called once per keep-alive interval: pings an idle client, and closes the connection at the next call."""
        self.is_limited = self.is_limited and any(one.topic.limits.publish for one in self.producers.values())
        if self.has_received:
            self.has_received = False
            self._ping_is_open = False
        elif self._ping_is_open or self.state is SessionState.START:
            self.close(vanished=True)
        else:
            self._ping_is_open = True
            self.write(PING)

    def pong(self) -> None:
        self.write(PONG)

    def connection_lost(self, *, vanished: bool = True) -> None:
        """Removes the producers and consumers of the client; messages that its consumers held are redelivered.

        `vanished`: the client's side ended the connection, perhaps because a message crashed it.
        """
        if self.state is SessionState.CLOSED:
            return
        self.state = SessionState.CLOSED
        self.writable = False
        self.late_subscribes.end()
        self.broker.authorization.unwatch(self)
        if self.refresh is not None:
            self.refresh.stop()
        for limit in self.holds:
            limit.forget(self)
        self._waiting = _NO_FRAMES
        producers, self.producers = self.producers, Handles()
        consumers, self.consumers = self.consumers, Handles()
        for producer in producers.values():
            remove_producer(self, producer)
        for consumer in consumers.values():
            remove_consumer(self, consumer, vanished=vanished)

"""The client side of the protocol, without input or output: bytes go in and events come out, commands go in and bytes
come out.

Owns request ids, the handshake, keep-alive, and which command is legal in which state (a table). Knows nothing of
sockets, time, or the contents of a message.

    START ── connect() ──► CONNECTING ── CONNECTED ──► READY ── a fault, ERROR without a request, close() ──► CLOSED

A broker may request credentials in CONNECTING, and fresh ones in READY; `authenticate` sends them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from magnetar.client.errors import ClientError, ConnectionLost, NotSupported, ProtocolBroken, WrongPort, of_code
from magnetar.client.message import EARLIEST, MessageId
from magnetar.security.credentials import Credentials
from magnetar.version import __version__
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import PING, PONG, FrameDecoder, FrameError, HttpInstead, encode_frame

Command = pb.BaseCommand

PROTOCOL_VERSION = 21
MESSAGE_SIZE_MAX = 5 << 20
"""The limit of a broker that announces none."""

FRAME_SIZE_MAX = 128 << 20
"""Far above the limits of brokers, far below the size that the first bytes of another protocol would give."""

_NO_REQUEST = (1 << 64) - 1
_CLIENT_VERSION = f"Magnetar {__version__}"
_TLS_RECORDS = (
    b"\x15\x03",
    b"\x16\x03",
)  # an alert, the first record of a handshake; as frames they would be too large

TLS_PORT_HINT = "if it is a port for TLS, write pulsar+ssl://"


class ProtocolState(enum.Enum):
    START = "start"
    CONNECTING = "connecting"
    READY = "ready"
    CLOSED = "closed"


# -- events


class Connected(msgspec.Struct, frozen=True):
    """The handshake is done. `lists_partitions_without_creation` is the feature flag of PIP-344."""

    server_version: str
    message_size_max: int
    lists_partitions_without_creation: bool


class Reply(msgspec.Struct, frozen=True):
    """The reply to a request, as a command."""

    request_id: int
    command: Command


class ErrorReply(msgspec.Struct, frozen=True):
    request_id: int
    error: ClientError


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """An entry is stored. A duplicate that the broker dropped has the id -1:-1."""

    producer_id: int
    sequence_id: int
    id: MessageId


class SendError(msgspec.Struct, frozen=True):
    producer_id: int
    sequence_id: int
    error: ClientError


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """Entries for a consumer, one after another: the first is `entry_id`, and each has its blob.

    `ack_set` has a 1 for each message of a batch that is still open; empty means all.
    """

    consumer_id: int
    ledger_id: int
    entry_id: int
    redelivery_count: int
    ack_set: tuple[int, ...]
    blobs: list[bytes]


class ProducerClosed(msgspec.Struct, frozen=True):
    producer_id: int


class ConsumerClosed(msgspec.Struct, frozen=True):
    consumer_id: int


class EndReached(msgspec.Struct, frozen=True):
    consumer_id: int


class Challenged(msgspec.Struct, frozen=True):
    """The broker requests the current credentials."""


class Broken(msgspec.Struct, frozen=True):
    """The last event: the connection has to be closed, because of the error."""

    error: ClientError


Event = (
    Connected
    | Reply
    | ErrorReply
    | Receipt
    | SendError
    | Delivery
    | ProducerClosed
    | ConsumerClosed
    | EndReached
    | Challenged
    | Broken
)


class Protocol:
    """The client side of one connection. After a `Broken` event neither events nor bytes come out."""

    def __init__(self) -> None:
        self.state = ProtocolState.START
        self._is_alive = True  # since the last keep-alive check
        self._ping_is_open = False
        self._decoder = FrameDecoder(FRAME_SIZE_MAX, followed=Command.MESSAGE)
        self._delivery: Delivery | None = None  # the last one
        self._output: list[bytes] = []
        self._request_id = 0
        self._auth_method = ""
        self._has_received = False

    # -- output

    def connect(self, proxy_to_broker: str | None = None, credentials: Credentials | None = None) -> None:
        """`proxy_to_broker` is the host and port of the broker to which a proxy forwards the connection."""
        assert self.state is ProtocolState.START
        self.state = ProtocolState.CONNECTING
        connect = pb.CommandConnect(
            client_version=_CLIENT_VERSION,
            protocol_version=PROTOCOL_VERSION,
        )
        if credentials is not None:
            self._auth_method = connect.auth_method_name = credentials.method
            connect.auth_data = credentials.data
            # Without it the broker closes the connection when a token expires, and does not request the next one.
            connect.feature_flags.supports_auth_refresh = True
        if proxy_to_broker is not None:
            connect.proxy_to_broker_url = proxy_to_broker
        self.send(Command(type=Command.CONNECT, connect=connect))

    def authenticate(self, credentials: Credentials) -> None:
        """Replies to `Challenged`."""
        response = pb.CommandAuthResponse(
            client_version=_CLIENT_VERSION,
            protocol_version=PROTOCOL_VERSION,
            response=pb.AuthData(auth_method_name=credentials.method, auth_data=credentials.data),
        )
        self.send(Command(type=Command.AUTH_RESPONSE, authResponse=response))

    def new_request_id(self) -> int:
        self._request_id += 1
        return self._request_id

    def send(self, command: Command) -> None:
        self.write(encode_frame(command))

    def write(self, frame: bytes) -> None:
        if self.state is not ProtocolState.CLOSED:
            self._output.append(frame)

    def take_output(self) -> list[bytes]:
        output, self._output = self._output, []
        return output

    def keep_alive(self) -> Broken | None:
        """Called once per keep-alive interval: pings a silent broker, and gives it up after the next interval."""
        if self._is_alive:
            self._is_alive = False
            self._ping_is_open = False
        elif self._ping_is_open:
            return self._break(ConnectionLost("no data from the broker for two keep-alive intervals"))
        else:
            self._ping_is_open = True
            self.write(PING)
        return None

    def close(self) -> None:
        self.state = ProtocolState.CLOSED
        self._output.clear()

    # -- input

    def receive_data(self, data: bytes) -> list[Event]:
        """Events of every whole frame in `data`, in order."""
        self._is_alive = True
        if not self._has_received and data[:2] in _TLS_RECORDS:
            return [self._break(ProtocolBroken("it is a port for TLS: write pulsar+ssl://"))]
        self._has_received = True
        events: list[Event] = []
        more: list[bytes] | None = None  # of the delivery that is the last event
        for command, blob in self._decoder.receive_data(data):
            if command is None and more is not None and blob is not None:
                more.append(blob)
                continue
            if self.state is ProtocolState.CLOSED:
                return events
            event = self._event_of(command, blob)
            if event is not None:
                events.append(event)
                more = event.blobs if isinstance(event, Delivery) else None
        if self._decoder.error is not None and self.state is not ProtocolState.CLOSED:
            events.append(self._break(_fault_of(self._decoder.error)))
        return events

    def _event_of(self, command: Command | None, blob: bytes | None) -> Event | None:
        if command is None:
            return self._on_next_message(blob)
        handler = TABLE[self.state].get(command.type)
        if handler is None:
            return self._refuse(Command.Type.Name(command.type))
        return handler(self, command, blob)

    def _refuse(self, name: str) -> Broken:
        return self._break(
            ProtocolBroken(f"the broker broke the protocol: {name} is unexpected in state {self.state.value}")
        )

    def _break(self, error: ClientError) -> Broken:
        self.close()
        return Broken(error)

    def _on_connected(self, command: Command, blob: bytes | None) -> Event | None:
        connected = command.connected
        self.state = ProtocolState.READY
        size_max = connected.max_message_size if connected.max_message_size > 0 else MESSAGE_SIZE_MAX
        flags = connected.feature_flags
        return Connected(
            connected.server_version, size_max, flags.supports_get_partitioned_metadata_without_auto_creation
        )

    def _on_ping(self, command: Command, blob: bytes | None) -> Event | None:
        self.write(PONG)
        return None

    def _on_pong(self, command: Command, blob: bytes | None) -> Event | None:
        return None

    def _on_auth_challenge(self, command: Command, blob: bytes | None) -> Event | None:
        method = command.authChallenge.challenge.auth_method_name or self._auth_method
        if self._auth_method and method == self._auth_method:
            return Challenged()
        has = f"has credentials for {self._auth_method!r} only" if self._auth_method else "has no credentials"
        return self._break(NotSupported(f"the broker requests authentication by {method!r}, but the client {has}"))

    def _on_connect_error(self, command: Command, blob: bytes | None) -> Event | None:
        text = f"the broker refused the connection: {command.error.message}"
        if command.error.error == pb.AuthenticationError and not self._auth_method:
            text += "; no credentials were given"
        return self._break(of_code(command.error.error, text))

    def _on_error(self, command: Command, blob: bytes | None) -> Event | None:
        error = of_code(command.error.error, command.error.message or _name_of(command.error.error))
        if command.error.request_id == _NO_REQUEST:
            return self._break(of_code(command.error.error, f"the broker ended the connection: {error.text}"))
        return ErrorReply(command.error.request_id, error)

    def _on_reply(self, command: Command, blob: bytes | None) -> Event | None:
        field = _REPLIES[command.type]
        return Reply(getattr(command, field).request_id, command)

    def _on_producer_success(self, command: Command, blob: bytes | None) -> Event | None:
        success = command.producer_success
        # Not ready: the producer waits for exclusive access, and a second reply to the same request follows.
        return Reply(success.request_id, command) if success.producer_ready else None

    def _on_receipt(self, command: Command, blob: bytes | None) -> Event | None:
        receipt = command.send_receipt
        position = MessageId.from_wire(receipt.message_id) if receipt.HasField("message_id") else EARLIEST
        return Receipt(receipt.producer_id, receipt.sequence_id, position)

    def _on_send_error(self, command: Command, blob: bytes | None) -> Event | None:
        refusal = command.send_error
        error = of_code(refusal.error, refusal.message or _name_of(refusal.error))
        return SendError(refusal.producer_id, refusal.sequence_id, error)

    def _on_message(self, command: Command, blob: bytes | None) -> Event | None:
        message = command.message
        position = message.message_id
        return self._deliver(
            message.consumer_id,
            position.ledgerId,
            position.entryId,
            message.redelivery_count,
            tuple(message.ack_set),
            blob,
        )

    def _on_next_message(self, blob: bytes | None) -> Event | None:
        """Repeats the previous MESSAGE with the next entry."""
        last = self._delivery
        assert last is not None
        entry_id = last.entry_id + len(last.blobs)
        return self._deliver(last.consumer_id, last.ledger_id, entry_id, last.redelivery_count, last.ack_set, blob)

    def _deliver(
        self,
        consumer_id: int,
        ledger_id: int,
        entry_id: int,
        redelivery_count: int,
        ack_set: tuple[int, ...],
        blob: bytes | None,
    ) -> Event:
        if blob is None:
            return self._break(ProtocolBroken("the broker broke the protocol: MESSAGE has no payload"))
        self._delivery = Delivery(consumer_id, ledger_id, entry_id, redelivery_count, ack_set, [blob])
        return self._delivery

    def _on_close_producer(self, command: Command, blob: bytes | None) -> Event | None:
        return ProducerClosed(command.close_producer.producer_id)

    def _on_close_consumer(self, command: Command, blob: bytes | None) -> Event | None:
        return ConsumerClosed(command.close_consumer.consumer_id)

    def _on_end_of_topic(self, command: Command, blob: bytes | None) -> Event | None:
        return EndReached(command.reachedEndOfTopic.consumer_id)

    def _on_active_change(self, command: Command, blob: bytes | None) -> Event | None:
        """Ignored: the broker sends messages only to the active consumer."""
        return None


def _fault_of(error: FrameError) -> ProtocolBroken:
    if isinstance(error, HttpInstead):
        return WrongPort(str(error))
    return ProtocolBroken(f"the broker broke the protocol: {error}")


def _name_of(code: int) -> str:
    return pb.ServerError.Name(code)  # type: ignore[arg-type]


# Replies that carry the id of the request, with their field.
_REPLIES: dict[int, str] = {
    Command.SUCCESS: "success",
    Command.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
    Command.LOOKUP_RESPONSE: "lookupTopicResponse",
    Command.GET_LAST_MESSAGE_ID_RESPONSE: "getLastMessageIdResponse",
    Command.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
    Command.GET_SCHEMA_RESPONSE: "getSchemaResponse",
    Command.ACK_RESPONSE: "ackResponse",
}

_Handler = Callable[[Protocol, Command, bytes | None], Event | None]

TABLE: dict[ProtocolState, dict[int, _Handler]] = {
    ProtocolState.START: {},
    ProtocolState.CONNECTING: {
        Command.CONNECTED: Protocol._on_connected,
        Command.ERROR: Protocol._on_connect_error,
        Command.AUTH_CHALLENGE: Protocol._on_auth_challenge,
        Command.PING: Protocol._on_ping,
        Command.PONG: Protocol._on_pong,
    },
    ProtocolState.READY: {
        **dict.fromkeys(_REPLIES, Protocol._on_reply),
        Command.PRODUCER_SUCCESS: Protocol._on_producer_success,
        Command.ERROR: Protocol._on_error,
        Command.SEND_RECEIPT: Protocol._on_receipt,
        Command.SEND_ERROR: Protocol._on_send_error,
        Command.MESSAGE: Protocol._on_message,
        Command.CLOSE_PRODUCER: Protocol._on_close_producer,
        Command.CLOSE_CONSUMER: Protocol._on_close_consumer,
        Command.REACHED_END_OF_TOPIC: Protocol._on_end_of_topic,
        Command.ACTIVE_CONSUMER_CHANGE: Protocol._on_active_change,
        Command.PING: Protocol._on_ping,
        Command.PONG: Protocol._on_pong,
        Command.AUTH_CHALLENGE: Protocol._on_auth_challenge,
    },
    ProtocolState.CLOSED: {},
}
"""The commands that are legal in each state. Any other ends the connection."""

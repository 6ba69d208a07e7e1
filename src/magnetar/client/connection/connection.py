"""A connection to one broker: the protocol object on an asyncio transport.

Owns the socket, the pending requests, and the dispatch of events to producers and consumers. Does no lookup and does
not reconnect: a lost connection stays lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast
from typing import Protocol as Interface

from magnetar.client.connection.address import Address
from magnetar.client.connection.protocol import (
    TLS_PORT_HINT,
    Broken,
    Challenged,
    Command,
    Connected,
    ConsumerClosed,
    Delivery,
    EndReached,
    ErrorReply,
    Event,
    ProducerClosed,
    Protocol,
    Receipt,
    Reply,
    SendError,
)
from magnetar.client.connection.retry import within
from magnetar.client.errors import (
    ClientError,
    Closed,
    ConnectionLost,
    Interrupted,
    InvalidArgument,
    NotAuthenticated,
    ProtocolBroken,
    Unreachable,
)
from magnetar.security.credentials import Credentials, Security
from magnetar.security.tls import CERTIFICATE_HINT, SHUTDOWN_TIMEOUT_S, context_of, explain, explain_loss
from magnetar.security.token import with_hint


class ProducerListener(Interface):
    """The events of a producer."""

    def on_receipt(self, receipt: Receipt) -> None: ...

    def on_send_error(self, failure: SendError) -> None: ...

    def on_lost(self, error: ClientError) -> None:
        """The broker closed the producer, or the connection is gone."""


class ConsumerListener(Interface):
    """The events of a consumer."""

    def on_delivery(self, delivery: Delivery) -> None: ...

    def on_end_reached(self) -> None: ...

    def on_lost(self, error: ClientError) -> None:
        """The broker closed the consumer, or the connection is gone."""


class Connection(asyncio.Protocol):
    """Created by `open_connection`; `broker` is the result of the handshake."""

    broker: Connected

    def __init__(
        self,
        address: Address,
        proxy_to_broker: str | None,
        keepalive_s: float,
        security: Security,
        credentials: Credentials | None,
        is_tls: bool,
    ) -> None:
        self.address = address
        self.producers: dict[int, ProducerListener] = {}
        self.consumers: dict[int, ConsumerListener] = {}
        self.error: ClientError | None = None
        self._proxy_to_broker = proxy_to_broker
        self._keepalive_s = keepalive_s
        self._security = security
        self._credentials = credentials
        self._is_tls = is_tls
        self._loop = asyncio.get_running_loop()
        self._handshake: asyncio.Future[Connected] = self._loop.create_future()
        self._gone = asyncio.Event()
        self._requests: dict[int, asyncio.Future[Command]] = {}
        self._protocol = Protocol()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flush_is_due = False
        self._answer: asyncio.Future[Credentials | None] | None = None

    @property
    def is_open(self) -> bool:
        return self.error is None

    # -- requests

    async def handshake(self) -> None:
        self.broker = await self._handshake

    async def request(self, build: Callable[[int], Command], what: str, timeout_s: float) -> Command:
        """Sends the command that `build` returns for a new request id, and waits for the reply."""
        if self.error is not None:
            raise self.error
        request_id = self._protocol.new_request_id()
        reply: asyncio.Future[Command] = self._loop.create_future()
        self._requests[request_id] = reply
        try:
            self.send(build(request_id))
            async with within(timeout_s, f"{what} at {self.address}"):
                return await reply
        finally:
            self._requests.pop(request_id, None)

    def new_request_id(self) -> int:
        """For a request without a waiter for its reply."""
        return self._protocol.new_request_id()

    def send(self, command: Command) -> None:
        self._protocol.send(command)
        self._flush_soon()

    def write(self, frame: bytes) -> None:
        self._protocol.write(frame)
        self._flush_soon()

    def close(self) -> None:
        self._lose(Closed(f"the connection to {self.address} was closed"))

    async def wait_closed(self, timeout_s: float) -> None:
        """With TLS both sides close the session; a broker that does not is disconnected."""
        if self._transport is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._gone.wait()
        except TimeoutError:
            self.abort()
            await asyncio.sleep(0)

    def abort(self) -> None:
        """Closes the socket without closing the TLS session."""
        self.close()
        if self._transport is not None:
            self._transport.abort()

    # -- transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._protocol.connect(self._proxy_to_broker, self._credentials)
        self._flush()
        self._timer = self._loop.call_later(self._keepalive_s, self._keep_alive)

    def data_received(self, data: bytes) -> None:
        for event in self._protocol.receive_data(data):
            self._dispatch(event)
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone.set()
        reason = f": {explain_loss(error)}" if error is not None else " by the broker"
        kind = Interrupted if self._handshake.done() else ConnectionLost
        if not self._handshake.done() and (error is None or isinstance(error, ConnectionError)):
            reason += f" before it replied; {CERTIFICATE_HINT if self._is_tls else TLS_PORT_HINT}"
        self._lose(kind(f"the connection to {self.address} was closed{reason}"))

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        output = self._protocol.take_output()
        if output and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(output) if len(output) > 1 else output[0])

    def _keep_alive(self) -> None:
        broken = self._protocol.keep_alive()
        if broken is not None:
            self._dispatch(broken)
            return
        self._flush()
        self._timer = self._loop.call_later(self._keepalive_s, self._keep_alive)

    # -- events

    def _dispatch(self, event: Event) -> None:
        if isinstance(event, Delivery):
            if consumer := self.consumers.get(event.consumer_id):
                consumer.on_delivery(event)
        elif isinstance(event, Receipt):
            if producer := self.producers.get(event.producer_id):
                producer.on_receipt(event)
        elif isinstance(event, Reply | ErrorReply):
            self._complete(event)
        elif isinstance(event, SendError):
            if producer := self.producers.get(event.producer_id):
                producer.on_send_error(event)
        elif isinstance(event, ProducerClosed):
            if producer := self.producers.pop(event.producer_id, None):
                producer.on_lost(ConnectionLost(f"broker {self.address} closed the producer"))
        elif isinstance(event, ConsumerClosed):
            if consumer := self.consumers.pop(event.consumer_id, None):
                consumer.on_lost(ConnectionLost(f"broker {self.address} closed the consumer"))
        elif isinstance(event, EndReached):
            if consumer := self.consumers.get(event.consumer_id):
                consumer.on_end_reached()
        elif isinstance(event, Challenged):
            self._challenged()
        elif isinstance(event, Connected):
            self._handshake.set_result(event)
        elif isinstance(event, Broken):
            self._lose(self._located(event.error))

    def _complete(self, event: Reply | ErrorReply) -> None:
        """A reply without a waiter came after its timeout."""
        waiter = self._requests.get(event.request_id)
        if waiter is None or waiter.done():
            return
        if isinstance(event, ErrorReply):
            waiter.set_exception(event.error)
        else:
            waiter.set_result(event.command)

    def _challenged(self) -> None:
        if self._security.takes_time:
            self._answer = self._loop.run_in_executor(None, self._security.credentials)
            self._answer.add_done_callback(lambda found: self._authenticate(found.result))
        else:
            self._authenticate(self._security.credentials)

    def _authenticate(self, source: Callable[[], Credentials | None]) -> None:
        try:
            credentials = source()
        except (InvalidArgument, asyncio.CancelledError) as error:
            self._lose(ConnectionLost(f"{self.address} requests fresh credentials, but {error}"))
            return
        if self.error is not None:
            return
        assert credentials is not None  # brokers challenge only clients that sent some
        self._credentials = credentials
        self._protocol.authenticate(credentials)
        self._flush()

    def _located(self, error: ClientError) -> ClientError:
        if isinstance(error, ProtocolBroken):
            return type(error)(f"the connection to {self.address} was closed: {error.text}", code=error.code)
        text = f"{self.address}: {error.text}"
        if (
            isinstance(error, NotAuthenticated)
            and self._credentials is not None
            and self._credentials.method == "token"
        ):
            text = with_hint(text, self._credentials.data.decode())
        return type(error)(text, code=error.code)

    def _lose(self, error: ClientError) -> None:
        """Notifies all waiters, producers and consumers, once."""
        if self.error is not None:
            return
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
        self._protocol.close()
        if self._transport is not None:
            self._transport.close()
        requests, self._requests = self._requests, {}
        for waiter in requests.values():
            _fail(waiter, error)
        _fail(self._handshake, error)
        producers, self.producers = self.producers, {}
        consumers, self.consumers = self.consumers, {}
        for producer in producers.values():
            producer.on_lost(error)
        for consumer in consumers.values():
            consumer.on_lost(error)


def _fail(waiter: asyncio.Future[Any], error: ClientError) -> None:
    if not waiter.done():
        waiter.set_exception(error)
        waiter.exception()  # marked as retrieved: the waiter may be gone


async def open_connection(
    address: Address,
    *,
    proxy_to_broker: str | None,
    timeout_s: float,
    keepalive_s: float,
    security: Security,
    is_tls: bool,
) -> Connection:
    """Connects and does the handshake; raises `Unreachable`, `Timeout` or the error of the broker."""
    try:
        credentials = await asyncio.to_thread(security.credentials) if security.takes_time else security.credentials()
        context = context_of(security) if is_tls else None
    except InvalidArgument as error:  # it was valid when the client was created: a file is being replaced, or gone
        raise ConnectionLost(f"cannot connect to {address}: {error.text}") from error
    connection = Connection(address, proxy_to_broker, keepalive_s, security, credentials, is_tls)
    loop = asyncio.get_running_loop()
    shutdown_timeout_s = SHUTDOWN_TIMEOUT_S if is_tls else None
    try:
        async with within(timeout_s, f"connecting to {address}"):
            await loop.create_connection(
                lambda: connection, address.host, address.port, ssl=context, ssl_shutdown_timeout=shutdown_timeout_s
            )
            await connection.handshake()
    except OSError as error:
        reason = explain(error) if is_tls else error.strerror or error
        raise Unreachable(f"cannot connect to {address}: {reason}") from error
    except BaseException:
        connection.abort()
        raise
    return connection

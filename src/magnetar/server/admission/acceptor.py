"""Acceptors: they take connections of a port as long as there are seats, and refuse the others with a reason.

They accept by themselves, a few in each turn of the loop: asyncio would accept everything that waits, and take all
descriptors before the first protocol object could refuse.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.bounds import ACCEPTED_PER_TURN, HANDSHAKE_WAIT
from magnetar.errors import NotAllowed
from magnetar.log.events import CONNECT_REFUSED
from magnetar.security.server_tls import explain_refusal
from magnetar.server.admission.seats import Seats
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame

if TYPE_CHECKING:
    from magnetar.server.server import Server

_PER_TURN = ACCEPTED_PER_TURN.limit
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 0.1  # until the next attempt when the operating system has no descriptors or memory
_LINGER_S = 1.0  # for a refused client to read the reason
_LINGERING_MAX = 32
_NO_REQUEST = (1 << 64) - 1
_HANDSHAKE_S = HANDSHAKE_WAIT.limit
_TLS_END_S = 3.0  # for a client to end the TLS session before its socket is closed

NewProtocol = Callable[[Callable[[], None]], asyncio.Protocol]
"""Makes the protocol of a connection, which calls the argument when it is lost."""


class Acceptor:
    """Of a port without TLS for the binary protocol."""

    def __init__(self, server: Server, listener: socket.socket, seats: Seats, protocol: NewProtocol) -> None:
        self._server = server
        self._loop = server.loop
        self._listener = listener
        self._seats = seats
        self._protocol = protocol
        self._opening: set[asyncio.Task[None]] = set()
        self._lingering: set[socket.socket] = set()
        self._retry: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()
        for task in self._opening:
            task.cancel()
        for refused in list(self._lingering):
            self._end(refused)
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(_PER_TURN):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._loop.remove_reader(self._listener)
                    self._retry = self._loop.call_later(_PAUSE_S, self.start)
                    return
                continue  # the client has left already
            host, client = str(address[0]), f"{address[0]}:{address[1]}"
            refusal = self._seats.refusal_for(host)
            if refusal is None:
                self._take(accepted, host, client)
            else:
                self._refuse(accepted, client, refusal)

    # -- taken

    def _take(self, accepted: socket.socket, host: str, client: str) -> None:
        accepted.setblocking(False)
        leave = self._seats.enter(host)
        task = self._loop.create_task(self._open(accepted, client, leave))
        self._opening.add(task)

        def opened(task: asyncio.Task[None]) -> None:
            self._opening.discard(task)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, Exception) and not isinstance(error, OSError):
                self._server.fault("task", error, "acceptor")
            if task.cancelled() or error is not None:  # not in the task: its first step may never come
                accepted.close()
                leave()

        task.add_done_callback(opened)

    async def _open(self, accepted: socket.socket, client: str, leave: Callable[[], None]) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await self._connect(accepted, self._protocol(leave), client)

    async def _connect(self, accepted: socket.socket, protocol: asyncio.Protocol, client: str) -> None:
        await self._loop.connect_accepted_socket(lambda: protocol, accepted)

    # -- refused

    def _refuse(self, accepted: socket.socket, client: str, reason: str) -> None:
        self._server.event(CONNECT_REFUSED, client=client, version="unknown client", reason=reason)
        error = pb.CommandError(request_id=_NO_REQUEST, error=NotAllowed.wire_code, message=reason)  # type: ignore[arg-type]
        accepted.setblocking(False)
        with contextlib.suppress(OSError):
            accepted.send(encode_frame(pb.BaseCommand(type=pb.BaseCommand.ERROR, error=error)))
            accepted.shutdown(socket.SHUT_WR)
        # Closed at once, unread data of the client would make the operating system drop the reason.
        self._lingering.add(accepted)
        self._loop.call_later(_LINGER_S, self._end, accepted)
        if len(self._lingering) > _LINGERING_MAX:
            self._end(next(iter(self._lingering)))

    def _end(self, refused: socket.socket) -> None:
        if refused in self._lingering:
            self._lingering.discard(refused)
            refused.close()


class TlsAcceptor(Acceptor):
    """Of a port with TLS: the handshake has its time from the start of the connection, and takes a seat."""

    def __init__(
        self,
        server: Server,
        listener: socket.socket,
        seats: Seats,
        protocol: NewProtocol,
        context: Callable[[], ssl.SSLContext],
    ) -> None:
        super().__init__(server, listener, seats, protocol)
        self._context = context

    async def _connect(self, accepted: socket.socket, protocol: asyncio.Protocol, client: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._context(),
                ssl_handshake_timeout=_HANDSHAKE_S,
                ssl_shutdown_timeout=_TLS_END_S,
            )
        except ssl.SSLError as error:
            self._report(client, explain_refusal(error))
            raise
        except ConnectionAbortedError:  # by us; a client that leaves is not worth a line
            self._report(client, f"the TLS handshake is not complete within {_HANDSHAKE_S} s")
            raise

    def _refuse(self, accepted: socket.socket, client: str, reason: str) -> None:
        """Without a word: that would take a handshake."""
        self._report(client, reason)
        accepted.close()

    def _report(self, client: str, reason: str) -> None:
        self._server.event(CONNECT_REFUSED, client=client, version="TLS", reason=reason)

"""The binary port: one protocol object per connection, between the transport and a session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from magnetar.session.handles import ClientAddress
from magnetar.session.session import Session

if TYPE_CHECKING:
    from magnetar.server.server import Server

# Delivery to the consumers of a connection pauses above the first and resumes below the second.
_WRITE_BUFFER_HIGH = 2 << 20
_WRITE_BUFFER_LOW = 512 << 10


class Connection(asyncio.Protocol):
    """Reading pauses while too many published messages are not durable yet, or a rate limit is exceeded.

    The rest waits in the client's socket.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = server.loop
        self._paused = False
        self._pending_max = server.broker.settings.maxPendingPublishRequestsPerConnection
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_HIGH, low=_WRITE_BUFFER_LOW)
        peer = transport.get_extra_info("peername") or ("?", 0)
        host = (transport.get_extra_info("sockname") or ("127.0.0.1", 0))[0]
        address = ClientAddress(
            f"{peer[0]}:{peer[1]}",
            self._server.direct_url("pulsar", host),
            self._server.direct_url("http", host),
            is_local=peer[0] == host,
        )
        self._session = Session(self._server.broker, address, self._flush_soon, self._close_soon)
        self._server.connections.add(self)
        self._server.connections_opened += 1

    def data_received(self, data: bytes) -> None:
        session = self._session
        assert session is not None
        session.receive(data)
        if session.pending_publishes > self._pending_max or self._server.is_full or session.holds:
            self._pause()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()
            self._server.paused.add(self)

    def resume_if_possible(self) -> None:
        session = self._session
        assert session is not None
        if session.holds:
            return
        if self._paused and session.pending_publishes <= self._pending_max // 2 and not self._server.is_full:
            self._paused = False
            self._server.paused.discard(self)
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def _flush_soon(self) -> None:
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        assert self._session is not None and self._transport is not None
        output = self._session.take_output()
        if output and not self._transport.is_closing():
            self._transport.write(b"".join(output) if len(output) > 1 else output[0])
        if self._paused:
            self.resume_if_possible()

    def _close_soon(self) -> None:
        """Closes the connection after the remaining output."""
        assert self._transport is not None
        self._flush()
        self._transport.close()

    @property
    def pending_publishes(self) -> int:
        return self._session.pending_publishes if self._session is not None else 0

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def keep_alive(self) -> None:
        assert self._session is not None
        # While reading is paused, the client cannot show that it is alive.
        if not self._paused:
            self._session.keep_alive()

    def pause_writing(self) -> None:
        assert self._session is not None
        self._session.set_writable(False)

    def resume_writing(self) -> None:
        assert self._session is not None
        self._session.set_writable(True)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.paused.discard(self)
        if self._session is not None:
            self._session.connection_lost()

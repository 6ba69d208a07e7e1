"""The binary port: one protocol object per connection, between the transport and a session."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from magnetar.access_bounds import PASSWORD_WAIT
from magnetar.bounds import CLOSING, HANDSHAKE_WAIT, OUTBOX
from magnetar.security.server_tls import common_name_of
from magnetar.session.handles import ClientAddress, SessionState
from magnetar.session.session import Session

if TYPE_CHECKING:
    from magnetar.server.server import Server

# Delivery to the consumers of a connection pauses above the first and resumes below the second.
_WRITE_BUFFER_HIGH = OUTBOX.limit
_WRITE_BUFFER_LOW = 512 << 10
_CLOSE_MAX_S = CLOSING.limit
_RDHUP = getattr(select, "POLLRDHUP", 0)  # where there is none, only a reset is seen
_HANDSHAKE_S = HANDSHAKE_WAIT.limit


class Connection(asyncio.Protocol):
    """Reading pauses while too many published messages are not durable yet or a rate limit is exceeded, and while input
    that was received waits: for its next turn, for the client to read its answers, or for one of its schemas.

    The rest waits in the client's socket.
    """

    def __init__(self, server: Server, on_lost: Callable[[], None]) -> None:
        self._server = server
        self._on_lost = on_lost
        self._handshake: asyncio.TimerHandle | None = None
        self._loop = server.loop
        self._handshake_end_s = self._loop.time() + _HANDSHAKE_S  # that of TLS counts too
        self._paused = False  # until published messages are durable
        self._held = False  # until the session has handled what it has
        self._early = b""  # input that came while something was examined
        self._goes_on = False  # a turn is scheduled
        self._is_reading = True
        self._left_unread = -1  # bytes at the last keep-alive check
        self._abort: asyncio.TimerHandle | None = None
        self._pending_max = server.broker.settings.maxPendingPublishRequestsPerConnection
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_HIGH, low=_WRITE_BUFFER_LOW)
        peer = transport.get_extra_info("peername") or ("?", 0)
        host = (transport.get_extra_info("sockname") or ("127.0.0.1", 0))[0]
        ours = self._server.addresses.direct(host)
        address = ClientAddress(
            f"{peer[0]}:{peer[1]}",
            ours.service_url,
            ours.any_http_url,
            common_name=common_name_of(transport.get_extra_info("peercert")),
            is_local=peer[0] == host,
            service_url_tls=ours.service_url_tls,
        )
        self._session = Session(self._server.broker, address, self._flush_soon, self._close_soon)
        self._server.connections.add(self)
        self._server.connections_opened += 1
        self._handshake = self._loop.call_at(self._handshake_end_s, self._check_handshake)

    @property
    def is_tls(self) -> bool:
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is not None

    def _check_handshake(self) -> None:
        """The time is absolute: single bytes now and then do not extend it."""
        self._handshake = None
        session = self._session
        if session is None or session.state is not SessionState.START:
            return
        if session.examinations:
            self._handshake = self._loop.call_later(PASSWORD_WAIT.limit, self._check_login)
        else:
            session.fail(f"the handshake is not complete within {_HANDSHAKE_S} s")

    def _check_login(self) -> None:
        """The client showed its password in time, and waited for others."""
        self._handshake = None
        if self._session is not None and self._session.state is SessionState.START:
            self._session.fail(f"the password was not checked within {PASSWORD_WAIT.limit} s, try again")

    # -- bytes in

    def data_received(self, data: bytes) -> None:
        session = self._session
        assert session is not None
        if session.examinations:  # it was read for its end alone
            self._early += data
        else:
            session.receive(data)
        if session.pending_publishes > self._pending_max or self._server.is_full or session.holds:
            self._pause()
        if self._has_to_wait:
            self._held = True
            self._set_reading()
            self._go_on_soon()

    @property
    def _has_to_wait(self) -> bool:
        """While something is examined, reading goes on until there is input: a client that leaves is noticed."""
        session = self._session
        assert session is not None
        return bool(self._early) or session.has_input or not (session.can_answer or session.examinations)

    def _go_on_soon(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """One more turn of input; called again when there is more, and when the client has read."""
        session = self._session
        self._goes_on = False
        assert session is not None
        if not self._held or self._paused or not session.can_answer:
            return
        if session.has_input or self._early:
            early, self._early = self._early, b""
            session.receive(early)
            if session.pending_publishes > self._pending_max or self._server.is_full or session.holds:
                self._pause()
        if self._has_to_wait:
            self._go_on_soon()
        else:
            self._held = False
            self._set_reading()

    def _set_reading(self) -> None:
        wanted = not (self._paused or self._held)
        if wanted is self._is_reading or self._transport is None or self._transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._server.paused.add(self)
            self._set_reading()

    def resume_if_possible(self) -> None:
        session = self._session
        assert session is not None
        if session.holds:
            return
        if self._paused and session.pending_publishes <= self._pending_max // 2 and not self._server.is_full:
            self._paused = False
            self._server.paused.discard(self)
            self._set_reading()
            if self._held:
                self._go_on_soon()

    # -- bytes out

    def _flush_soon(self) -> None:
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        assert self._session is not None and self._transport is not None
        output = self._session.take_output()
        if output and not self._transport.is_closing():
            self._transport.write(b"".join(output) if len(output) > 1 else output[0])
        if self._paused:
            self.resume_if_possible()
        if self._held:
            self._go_on_soon()

    def _close_soon(self) -> None:
        """Closes the connection after the remaining output, which a client that does not read cannot hold up."""
        assert self._transport is not None
        self._flush()
        self._transport.close()
        if self._abort is None:
            self._abort = self._loop.call_later(_CLOSE_MAX_S, self._transport.abort)

    @property
    def is_held(self) -> bool:
        """Input waits that was received already."""
        return self._held

    @property
    def unread_bytes(self) -> int:
        """Of answers and messages that the client has not taken."""
        if self._session is None or self._transport is None:
            return 0
        return self._session.unread_bytes + self._transport.get_write_buffer_size()

    @property
    def pending_publishes(self) -> int:
        return self._session.pending_publishes if self._session is not None else 0

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def abort(self) -> None:
        """Ends at once: what the client has not read yet is lost."""
        if self._transport is not None:
            self._transport.abort()

    def keep_alive(self) -> None:
        assert self._session is not None
        # While reading is paused, the client cannot show that it is alive, except by reading.
        if self._session.examinations or (self._held and not self._session.can_answer):
            self._check_progress()
        elif not self._paused:
            self._left_unread = -1
            self._session.keep_alive()
        elif self._is_left():
            self._session.close(vanished=True)

    def _is_left(self) -> bool:
        """Whether the client has closed a connection that is not read, where the end of the input is not seen."""
        assert self._transport is not None
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), _RDHUP)
        return any(event & (_RDHUP | select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))

    def _check_progress(self) -> None:
        assert self._session is not None and self._transport is not None
        before, self._left_unread = self._left_unread, self._transport.get_write_buffer_size()
        if self._left_unread and self._left_unread == before:
            self._session.close(vanished=True)

    def pause_writing(self) -> None:
        assert self._session is not None
        self._session.set_writable(False)

    def resume_writing(self) -> None:
        assert self._session is not None
        self._session.set_writable(True)
        if self._held:
            self._go_on_soon()

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.paused.discard(self)
        self._on_lost()
        for timer in (self._abort, self._handshake):
            if timer is not None:
                timer.cancel()
        if self._session is not None:
            self._session.connection_lost()

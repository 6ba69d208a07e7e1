"""The acceptor of the binary port: takes connections as long as there is room, and refuses the others with a reason.

It accepts by itself, a few in each turn of the loop: asyncio would accept everything that waits, and take all
descriptors before the first protocol object could refuse.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections import Counter
from typing import TYPE_CHECKING

from magnetar.bounds import ACCEPTED_PER_TURN
from magnetar.errors import NotAllowed
from magnetar.log.events import CONNECT_REFUSED
from magnetar.server.tcp import Connection
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


class Acceptor:
    """`connections_max` is the most that there is room for; a limit per address is the setting's."""

    def __init__(self, server: Server, listener: socket.socket, connections_max: int) -> None:
        self._server = server
        self._loop = server.loop
        self._listener = listener
        self.connections_max = connections_max
        self._open = 0
        self._by_host: Counter[str] = Counter()
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
            host = str(address[0])
            refusal = self._refusal_for(host)
            if refusal is None:
                self._take(accepted, host)
            else:
                self._refuse(accepted, f"{host}:{address[1]}", refusal)

    def _refusal_for(self, host: str) -> str | None:
        """The words are Apache Pulsar's, the numbers ours."""
        if self._open >= self.connections_max:
            return f"Reached the maximum number of connections: {self.connections_max}"
        per_host = self._server.broker.settings.brokerMaxConnectionsPerIp
        if 0 < per_host <= self._by_host[host]:
            return (
                f"Reached the maximum number of connections on address {host}: brokerMaxConnectionsPerIp is {per_host}"
            )
        return None

    # -- taken

    def _take(self, accepted: socket.socket, host: str) -> None:
        self._open += 1
        self._by_host[host] += 1
        accepted.setblocking(False)
        task = self._loop.create_task(self._connect(accepted, host))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, accepted: socket.socket, host: str) -> None:
        connection = Connection(self._server, lambda: self._lost(host))
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(lambda: connection, accepted)
        except (OSError, asyncio.CancelledError):
            accepted.close()
            if not connection.is_made:
                self._lost(host)

    def _lost(self, host: str) -> None:
        self._open -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

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

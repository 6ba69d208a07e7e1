"""The HTTP ports: the admin application on uvicorn, in the broker's event loop.

Connections with TLS are accepted elsewhere, and get their protocol here: uvicorn could not replace its certificates.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from weakref import WeakSet

import uvicorn
from starlette.types import Receive

from magnetar.admin.app import create_app
from magnetar.admin.http.guard import Guard
from magnetar.server.admission.http import BoundedRequests, bounded_http
from magnetar.server.admission.seats import Seats
from magnetar.server.backup import Backups
from magnetar.server.ports.own_names import own_names

if TYPE_CHECKING:
    from magnetar.server.server import Server


_BACKLOG = 64  # connections that may be accepted in one turn, before the first is counted


class _Uvicorn(uvicorn.Server):
    """Ticks once a second and stops immediately: uvicorn itself would cost each test with a broker 0.2 s."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopping = asyncio.Event()

    async def main_loop(self) -> None:
        tenths = 0
        while not await self.on_tick(tenths):
            tenths += 10
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stopping.wait(), 1.0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.server_state.connections:
            await super().shutdown(sockets)
            return
        for server in self.servers:
            server.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the broker handles signals and stops this server


class Alarm:
    """Wakes a handler that waits for a change; see `magnetar.admin.http.request`.

    Without `receive` it does not notice that the client disconnects: the body of the request is not read yet.
    """

    def __init__(self, receive: Receive | None) -> None:
        self._receive = receive
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Until it rings, the time is over or the client disconnects; only then False. It can ring again."""
        rings = asyncio.ensure_future(self._event.wait())
        # The request is read: nothing but the end can follow.
        leaves = asyncio.ensure_future(self._receive() if self._receive else asyncio.Event().wait())
        try:
            await asyncio.wait((rings, leaves), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return not leaves.done()
        finally:
            rings.cancel()
            leaves.cancel()
            self._event.clear()


class HttpServer:
    """`listener` is that of the port without TLS, if there is one."""

    def __init__(self, server: Server, listener: socket.socket | None, seats: Seats) -> None:
        self._listener = listener
        self._on_end = server.http_ended
        self._alarms: WeakSet[Alarm] = WeakSet()
        app = create_app(
            server.broker,
            addresses=server.addresses.of,
            committed=server.committer.drained,
            alarm=self._new_alarm,
            vitals=server.vitals,
            backups=Backups(server.storage, server.committer.drained),
            guard=Guard(server.settings, server.bind, own_names(server.bind)),
        )
        protocol = self._protocol = bounded_http(seats, server.refused_http)
        config = uvicorn.Config(
            BoundedRequests(app, server.settings.maxConcurrentHttpRequests),
            http=protocol,
            backlog=_BACKLOG,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # any client could name another address
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        self._uvicorn = _Uvicorn(config)
        self._task: asyncio.Task[None] | None = None

    def _new_alarm(self, receive: Receive | None) -> Alarm:
        alarm = Alarm(receive)
        self._alarms.add(alarm)
        return alarm

    def protocol(self, leave: Callable[[], None]) -> asyncio.Protocol:
        """Of a connection that is accepted by others; only after `start`."""
        server = self._uvicorn
        return self._protocol(
            config=server.config, server_state=server.server_state, app_state=server.lifespan.state, leave=leave
        )

    async def start(self) -> None:
        sockets = [] if self._listener is None else [self._listener]
        self._task = asyncio.get_running_loop().create_task(self._uvicorn.serve(sockets=sockets))
        self._task.add_done_callback(self._ended)
        while not self._uvicorn.started and not self._task.done():
            await asyncio.sleep(0.001)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Not restarted: what uvicorn holds after a failure is unknown, and a new process is quick."""
        if not self._uvicorn.stopping.is_set() and not task.cancelled():
            self._on_end(task.exception())

    async def close(self) -> None:
        self._uvicorn.should_exit = True
        self._uvicorn.stopping.set()
        for alarm in list(self._alarms):
            alarm.ring()  # handlers that wait reply with what they have
        if self._task is not None:
            await asyncio.wait([self._task])  # how it ended is reported already
        for connection in list(self._uvicorn.server_state.connections):  # with TLS, it waits for the client's goodbye
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)

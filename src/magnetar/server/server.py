"""A broker in an event loop: storage, committer, ports and timers.

`Server` is the broker's host. Knows nothing of processes and signals; see `standalone`.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.access.access import Access
from magnetar.access.providers.guesses import network_of
from magnetar.broker.broker import Broker
from magnetar.broker.catalog.access_view import AccessView
from magnetar.broker.host import FaultKind
from magnetar.clock import Clock
from magnetar.health import Phase
from magnetar.log.events import (
    COMMIT_WAITING,
    CONNECT_REFUSED,
    FAULT,
    HTTP_FAILED,
    SLOW_COMMIT,
    STORAGE_FAILED,
    Event,
    emit,
    emit_traceback,
)
from magnetar.server.admission.acceptor import Acceptor, TlsAcceptor
from magnetar.server.admission.descriptors import capacity, limit
from magnetar.server.admission.seats import Seats
from magnetar.server.committer import CommitFailed, Committer
from magnetar.server.disk.space import SpaceReclaimer
from magnetar.server.disk.watch import DiskWatch
from magnetar.server.ports.addresses import Addresses, Ports
from magnetar.server.ports.listen import OpenPorts
from magnetar.server.remote_topics import RemoteTopics
from magnetar.server.tasks import Aside, Run, spawn
from magnetar.server.tcp import Connection
from magnetar.server.vitals import ServerVitals
from magnetar.settings.settings import Settings
from magnetar.storage.api import Storage, StorageError

if TYPE_CHECKING:
    from magnetar.server.http import HttpServer
    from magnetar.server.ports.certificates import Certificates

_MB = 1 << 20
_TIMER_MAX_S = 60.0  # clocks are set: timers are checked at least this often
_PARTING_S = 1.0  # for clients to end their TLS sessions when the broker stops


class Server:
    """Runs a broker: `start`, then `wait` until `stop` is called or storage fails.

    `access` is by default that of the settings, for which keys are read.
    """

    def __init__(
        self,
        settings: Settings,
        storage: Storage,
        clock: Clock,
        *,
        bind: str,
        ports: Ports,
        access: Access | None = None,
    ) -> None:
        access = access or Access.from_settings(settings)  # first: it may raise
        self.settings = settings
        self.storage = storage
        self.bind = bind
        self.addresses = Addresses(settings, ports)
        self.loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0  # kept here: what uvloop returns for a time that is now has no `when`
        self.committer = Committer(
            self.loop,
            storage,
            on_commit=self._resume_readers,
            on_failure=self._on_storage_failure,
            on_written=self._check_duration,
            on_waiting=self._on_waiting,
        )
        self.vitals = ServerVitals(self)  # before the broker, whose events it counts
        self.phase: Phase = "starting"
        self._aside = Aside(self.loop)
        self._logins = Aside(self.loop, "logins")  # other work may take long, and its clients are known
        self._slow_s = settings.slowCommitMillis / 1000 or float("inf")
        self.broker = Broker(settings, storage, clock, self)
        self.internal_token = access.internal_token
        self.broker.authentication = access.authentication
        self.broker.authorization = access.authorization(AccessView(self.broker.catalog))
        self.disk = DiskWatch(self.broker, storage, self.event)
        self.committer.start(self.broker.commits)
        self.connections: set[Connection] = set()
        self.connections_opened = 0
        self.paused: set[Connection] = set()
        self.failure: Exception | None = None
        self.faults: Counter[FaultKind] = Counter()
        self.stop_reason = ""
        self.is_wanted = True  # until the operator stops it, whatever else does
        self._stopped = asyncio.Event()
        self._buffer_max = settings.maxMessagePublishBufferSizeInMB * _MB
        self._tasks: list[asyncio.Task[None]] = []
        self.capacity = capacity(limit(), settings.brokerMaxConnections, settings.maxHttpServerConnections)
        self._acceptors: list[Acceptor] = []
        self._http: HttpServer | None = None
        self._open_ports: OpenPorts | None = None
        self.certificates: Certificates | None = None
        self._remote_topics = RemoteTopics(
            self.broker.replication.declaration,
            lambda: self.broker.replication.clusters()[1],
            self.broker.replication.remote_topic_checked,
            pause_last_s=settings.replicationRetryMaxSeconds,
            spawn=self.spawn,
        )

    # -- start and stop

    async def start(self) -> None:
        """Opens the ports; binary clients are served before HTTP is ready. Raises StartError and InvalidSetting."""
        await self.disk.check()
        ports = self.addresses.ports
        ports.check()
        if ports.have_tls:
            from magnetar.server.ports.certificates import Certificates

            self.certificates = Certificates(self.settings, self.event)
        self._open_ports = OpenPorts(self.bind, ports)
        self.addresses.ports = self._open_ports.ports
        self._accept_binary(self._open_ports)
        space = SpaceReclaimer(self.broker, self.storage, self.committer.drained)
        self._tasks = [
            self.spawn("keep-alive", self._keep_alive),
            self.spawn("space of deleted messages", space.run),
            self.spawn("disk watch", self.disk.run),
        ]
        if self.certificates is not None:
            self._tasks.append(self.spawn("certificates", self.certificates.run))
        self.vitals.loop_lag.start()
        await self._start_http(self._open_ports)
        self.broker.replication.watch(self._remote_topics.changed)
        self._remote_topics.changed()
        if not self._stopped.is_set():
            self.phase = "serving"

    def _accept_binary(self, opened: OpenPorts) -> None:
        seats = Seats(self.capacity.binary, per_host=lambda: self.broker.settings.brokerMaxConnectionsPerIp)

        def connection(leave: Callable[[], None]) -> Connection:
            return Connection(self, leave)

        if opened.binary is not None:
            self._accept(Acceptor(self, opened.binary, seats, connection))
        if opened.binary_tls is not None and self.certificates is not None:
            self._accept(TlsAcceptor(self, opened.binary_tls, seats, connection, self.certificates.binary))

    async def _start_http(self, opened: OpenPorts) -> None:
        # The web framework takes longer to import than everything else: in a thread, while binary clients are served.
        http = await asyncio.to_thread(importlib.import_module, "magnetar.server.http")
        seats = Seats(self.capacity.http, "HTTP connections")
        server: HttpServer = http.HttpServer(self, opened.http, seats)
        self._http = server
        await server.start()
        if opened.http_tls is not None and self.certificates is not None:
            self._accept(TlsAcceptor(self, opened.http_tls, seats, server.protocol, self.certificates.http))

    def _accept(self, acceptor: Acceptor) -> None:
        self._acceptors.append(acceptor)
        acceptor.start()

    def spawn(self, name: str, run: Run, /) -> asyncio.Task[None]:
        """A background task that is reported and started again when it fails."""
        return spawn(name, run, self.fault)

    async def wait(self) -> None:
        await self._stopped.wait()

    def stop(self, reason: str = "") -> None:
        self.stop_reason = self.stop_reason or reason
        self.phase = "stopping"
        self._stopped.set()

    async def close(self) -> None:
        """Disconnects clients, makes everything durable and releases the data folder."""
        self.phase = "stopping"
        self.vitals.loop_lag.close()
        for acceptor in self._acceptors:
            acceptor.close()
        for task in self._tasks:
            task.cancel()
        self.broker.replication.unwatch(self._remote_topics.changed)
        await self._remote_topics.close()
        if self._http is not None:
            await self._http.close()
        if self._open_ports is not None:
            self._open_ports.close()
        await self._disconnect()
        if self._timer is not None:
            self._timer.cancel()
        self._aside.close()
        self._logins.close()
        await self.committer.close()
        for connection in list(self.connections):  # of clients that did not read what was left for them
            self._guard("disconnect", connection.abort)
        await asyncio.sleep(0)
        if self.committer.is_stuck:
            return  # it would wait for the same disk
        try:
            self.storage.close()
        except StorageError as error:  # acknowledged changes are in the log; those after the last sync may not be
            self._on_storage_failure(error)

    async def _disconnect(self) -> None:
        """Closed connections release the messages of their consumers; those with TLS when the client has replied."""
        for connection in list(self.connections):
            self._guard("disconnect", connection.close)
        await asyncio.sleep(0)
        end_s = self.loop.time() + _PARTING_S
        while any(connection.is_tls for connection in self.connections) and self.loop.time() < end_s:
            await asyncio.sleep(0.005)

    def _on_storage_failure(self, error: StorageError) -> None:
        """Nothing can be made durable any more, so nothing may be acknowledged."""
        self.failure = error
        if isinstance(error, CommitFailed):
            self.fault("task", error, "committer")
        self.event(STORAGE_FAILED, reason=str(error))
        self.stop("storage failed")

    def http_ended(self, error: BaseException | None) -> None:
        """The HTTP server ended while the broker runs: clients could not find their topics any more."""
        reason = "it returned" if error is None else f"{type(error).__name__}: {error}"
        self.failure = error if isinstance(error, Exception) else RuntimeError(f"the HTTP server ended: {reason}")
        self.event(HTTP_FAILED, reason=reason)
        self.stop("the HTTP server ended")

    def _check_duration(self, groups: int, seconds: float) -> None:
        if seconds >= self._slow_s:
            self.event(SLOW_COMMIT, groups=groups, milliseconds=round(seconds * 1000))

    def _on_waiting(self, seconds: float) -> None:
        self.event(COMMIT_WAITING, seconds=round(seconds))

    def _resume_readers(self) -> None:
        for connection in list(self.paused):
            self._guard("command", connection.resume_if_possible)

    def _guard(self, kind: FaultKind, step: Callable[[], None]) -> None:
        """One step for one connection: its failure costs no other connection anything."""
        try:
            step()
        except Exception as error:
            self.fault(kind, error, getattr(step, "__qualname__", ""))

    # -- Host

    def commit_soon(self) -> None:
        self.committer.wake()

    def pump_soon(self) -> None:
        self.loop.call_soon(self.broker.pump)

    def wake_after(self, delay_ms: int) -> None:
        at_s = self.loop.time() + min(delay_ms / 1000, _TIMER_MAX_S)
        if self._timer is not None:
            if self._timer_at_s <= at_s:
                return
            self._timer.cancel()
        self._timer, self._timer_at_s = self.loop.call_at(at_s, self.tick), at_s

    def fault(self, kind: FaultKind, error: Exception, where: str = "") -> None:
        self.faults[kind] += 1
        self.vitals.fault()
        emit_traceback(FAULT, error, kind=kind, where=where)

    def run_aside(self, work: Callable[[], object], then: Callable[[], None], client: str) -> None:
        self._aside.run(work, lambda: self._guard("command", then), client)

    def check_login(self, work: Callable[[], object], then: Callable[[], None], address: str) -> None:
        self._logins.run(work, lambda: self._guard("command", then), network_of(address))

    def event(self, event: Event, **values: object) -> None:
        self.vitals.count(event, values)
        emit(event, **values)

    # -- for connections and HTTP

    @property
    def is_full(self) -> bool:
        """More published data waits for the disk than allowed: no connection is read until it is written."""
        return self.broker.commits.waiting_bytes > self._buffer_max

    def refused_http(self, client: str, reason: str) -> None:
        self.event(CONNECT_REFUSED, client=client, version="HTTP", reason=reason)

    @property
    def port(self) -> int:
        """Of the binary protocol without TLS, 0 if it is off."""
        return self.addresses.ports.binary or 0

    @property
    def http_port(self) -> int:
        return self.addresses.ports.http or 0

    def service_url(self, host: str) -> str:
        """The binary address of this broker for a client that reached `host` and names no listener."""
        return self.addresses.of(host).any_service_url

    def http_url(self, host: str) -> str:
        return self.addresses.of(host).any_http_url

    # -- time

    @property
    def timer_overdue_s(self) -> float:
        """How long the next timer has been due and did not run."""
        return 0.0 if self._timer is None else max(0.0, self.loop.time() - self._timer_at_s)

    def tick(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self.broker.tick()
        finally:  # whatever happens: without a next tick no timer would ever run again
            wait_ms = self.broker.wait_ms
            if wait_ms is not None:
                self.wake_after(wait_ms)

    async def _keep_alive(self) -> None:
        interval_s = self.settings.keepAliveIntervalSeconds
        while interval_s:
            await asyncio.sleep(interval_s)
            for connection in list(self.connections):
                self._guard("command", connection.keep_alive)


def check_ports(settings: Settings, ports: Ports) -> None:
    """Before anything is opened; raises InvalidSetting for ports or certificates that a broker cannot have."""
    ports.check()
    if ports.have_tls:
        from magnetar.security.server_tls import read_contexts

        read_contexts(settings)

"""Starting and stopping: storage, broker, committer, both ports, signals. `Server` is one broker in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.broker import keys
from magnetar.broker.broker import Broker
from magnetar.clock import Clock, SystemClock
from magnetar.errors import MagnetarError
from magnetar.server.committer import Committer
from magnetar.server.remote_topics import RemoteTopics
from magnetar.server.tcp import Connection
from magnetar.settings.settings import Settings
from magnetar.storage.api import Space, Storage, StorageError
from magnetar.version import __version__

if TYPE_CHECKING:
    from magnetar.server.http import HttpServer
    from magnetar.server.pipelines_process import PipelinesProcess

log = logging.getLogger(__name__)

_MB = 1 << 20
# A thread that comes back from the disk waits this long at most for a busy loop to let it go on.
_SWITCH_INTERVAL_S = 0.0002


class StartError(MagnetarError):
    """A port or the data folder cannot be had."""


class Server:
    """Runs a broker: `start`, then `wait` until somebody calls `stop` or storage fails."""

    def __init__(self, settings: Settings, storage: Storage, clock: Clock, *, bind: str, port: int, http_port: int):
        self.settings = settings
        self.storage = storage
        self.bind = bind
        self.port = port
        self.http_port = http_port
        self.loop = asyncio.get_running_loop()
        self.broker = Broker(settings, storage, clock)
        self.connections: set[Connection] = set()
        self.paused: set[Connection] = set()
        self.failure: Exception | None = None
        self._stopped = asyncio.Event()
        self._buffer_max = settings.maxMessagePublishBufferSizeInMB * _MB
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._listener: asyncio.Server | None = None
        self._http: HttpServer | None = None
        self._http_listener: socket.socket | None = None
        self._remote_topics = RemoteTopics(
            self.broker.replication.declaration,
            self.broker.replication.remote_topic_checked,
            pause_last_s=settings.replicationRetryMaxSeconds,
        )
        self.committer = Committer(
            self.loop,
            storage,
            self.broker.commits,
            on_commit=self._resume_readers,
            on_failure=self._on_storage_failure,
        )
        self.broker.on_pump = self._pump_soon
        self.broker.on_fault = self.broker.commits.on_fault = self._on_fault
        self.broker.timers.on_earlier = self._schedule_timer
        if not self.broker.commits.idle:
            self.broker.commits.on_work()

    # -- start and stop

    async def start(self) -> None:
        """Opens the binary port; a client that connects from here on is served."""
        listener = _listen(self.bind, self.port, "brokerServicePort")
        self.port = listener.getsockname()[1]
        self._http_listener = _listen(self.bind, self.http_port, "webServicePort")
        self.http_port = self._http_listener.getsockname()[1]
        self._listener = await self.loop.create_server(lambda: Connection(self), sock=listener, backlog=1024)
        self._schedule_timer()
        self._tasks = [
            self.loop.create_task(self._keep_alive()),
            self.loop.create_task(self._compact()),
        ]
        # The web framework takes longer to import than all the rest: in a thread, while binary clients are served.
        http = await asyncio.to_thread(importlib.import_module, "magnetar.server.http")
        self._http = http.HttpServer(self, self._http_listener)
        await self._http.start()
        self.broker.replication.watch(self._remote_topics.changed)
        self._remote_topics.changed()

    async def wait(self) -> None:
        await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    async def close(self) -> None:
        """Sends clients away, makes everything durable and lets go of the data folder."""
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        self.broker.replication.unwatch(self._remote_topics.changed)
        await self._remote_topics.close()
        if self._http is not None:
            await self._http.close()
        if self._http_listener is not None:
            self._http_listener.close()
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)  # closing connections release what their consumers held
        if self._timer is not None:
            self._timer.cancel()
        await self.committer.close()
        with contextlib.suppress(StorageError):
            self.storage.close()

    def _on_storage_failure(self, error: Exception) -> None:
        """Nothing can be made durable any more, so nothing may be acknowledged any more."""
        self.failure = error
        self.stop()

    def _on_fault(self, error: Exception) -> None:
        """A bug met by one client's message must not stop the others."""
        log.error("unexpected error in the broker, please report it", exc_info=error)

    def _pump_soon(self) -> None:
        self.loop.call_soon(self.broker.pump)

    def _resume_readers(self) -> None:
        for connection in list(self.paused):
            connection.resume_if_possible()

    # -- what the rest of the server asks

    @property
    def is_full(self) -> bool:
        """More was published than may wait for the disk: nobody is read from until it is written."""
        return self.broker.commits.waiting_bytes > self._buffer_max

    def service_url(self, host: str) -> str:
        """The binary address under which a client that reached `host` finds this broker."""
        return f"pulsar://{_url_host(self.settings.advertisedAddress or host)}:{self.port}"

    def http_url(self, host: str) -> str:
        return f"http://{_url_host(self.settings.advertisedAddress or host)}:{self.http_port}"

    # -- time

    def _schedule_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_ms = self.broker.timers.next_ms
        if next_ms is not None:
            delay_s = max(0, next_ms - self.broker.now_ms()) / 1000
            self._timer = self.loop.call_later(min(delay_s, 60.0), self.tick)

    def tick(self) -> None:
        self.broker.tick()
        self._schedule_timer()

    async def _keep_alive(self) -> None:
        interval_s = self.settings.keepAliveIntervalSeconds
        while interval_s:
            await asyncio.sleep(interval_s)
            for connection in list(self.connections):
                connection.keep_alive()

    async def _compact(self) -> None:
        """Gives the room of trimmed entries back, in a thread."""
        while True:
            await asyncio.sleep(self.settings.retentionCheckIntervalInSeconds)
            for ledger_id in self.broker.take_trimmed():
                prefix = keys.ID.pack(ledger_id)
                await asyncio.to_thread(self.storage.compact, Space.ENTRIES, prefix, keys.after(prefix))


def _listen(bind: str, port: int, setting: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's algorithm off only where it reads TCP here.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((bind, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise StartError(f"cannot listen on {bind}:{port} ({setting}): {error.strerror or error}") from error
    listener.setblocking(False)
    return listener


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def run_standalone(
    settings: Settings, data: Path | None, *, bind: str, port: int, http_port: int, out: Callable[[str], None]
) -> int:
    """Runs a broker in this process until it is told to stop; returns the exit code."""
    import uvloop

    from magnetar.storage.rocks import RocksStorage

    folder = data or Path("data/standalone")
    try:
        storage = RocksStorage(folder)
    except StorageError as error:
        raise StartError(str(error)) from error
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(settings, storage, folder, bind, port, http_port, out))


async def _run(
    settings: Settings, storage: Storage, folder: Path, bind: str, port: int, http_port: int, out: Callable[[str], None]
) -> int:
    server = Server(settings, storage, SystemClock(), bind=bind, port=port, http_port=http_port)
    for number in (signal.SIGINT, signal.SIGTERM):
        server.loop.add_signal_handler(number, server.stop)
    pipelines: PipelinesProcess | None = None
    try:
        await server.start()
        out(_block(server, folder))
        out(f"ready {server.service_url(bind)} {server.http_url(bind)}")
        pipelines = _pipelines(server)
        pipelines.run()
        await server.wait()
    finally:
        if pipelines is not None:
            pipelines.end()
        await server.close()
        if pipelines is not None:
            await pipelines.close()
    if server.failure is not None:
        print(f"magnetar: storage failed, nothing more is acknowledged: {server.failure}", file=sys.stderr)
        return 1
    out("stopped")
    return 0


def _pipelines(server: Server) -> PipelinesProcess:
    """It reaches the broker where it listens; the executors of a cluster, where the broker says that it is."""
    from magnetar.server.pipelines_process import PipelinesProcess, command  # clients are served already

    settings = server.settings
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.bind, server.bind)
    url, service_url = f"http://{_url_host(host)}:{server.http_port}", f"pulsar://{_url_host(host)}:{server.port}"
    if not settings.pipelinesMaster.startswith("local"):
        url, service_url = server.http_url(host), server.service_url(host)
    words = command(url, service_url, settings.pipelinesMaster, settings.replicationRetryMaxSeconds)
    return PipelinesProcess(server.broker.replication, words, is_enabled=settings.pipelinesEnabled)


def _block(server: Server, folder: Path) -> str:
    url = server.service_url(server.bind)
    return "\n".join(
        (
            f"Magnetar {__version__}, cluster {server.settings.clusterName}",
            f"  binary   {url}",
            f"  http     {server.http_url(server.bind)}",
            f"  data     {folder.resolve()}",
            "  try it   pip install pulsar-client, then in Python:",
            f"             client = pulsar.Client('{url}')",
            "             client.create_producer('hello').send(b'world')",
        )
    )

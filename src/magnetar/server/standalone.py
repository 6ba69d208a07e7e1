"""The standalone broker: one process with a server on RocksDB, signals, and the pipelines process as its child.

Owns the start and the end of the process and the lines that it prints.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.access.access import Access
from magnetar.allocator import keep_buffers
from magnetar.broker import own_cluster
from magnetar.clock import SystemClock
from magnetar.log.events import (
    BALLAST_USED,
    COMPACTION_OFF,
    DESCRIPTORS,
    LOSS_ACCEPTED,
    MARK_UNREADABLE,
    OPEN_TO_OTHERS,
    RECOVERED,
    STARTED,
    STOPPED,
    emit,
)
from magnetar.server.admission.descriptors import limit, raise_limit
from magnetar.server.ports.addresses import Ports, direct, host_here
from magnetar.server.ports.listen import StartError
from magnetar.server.server import Server, check_ports
from magnetar.server.stop_deadline import StopDeadline
from magnetar.settings.settings import Settings
from magnetar.storage.api import Storage, StorageDamaged, StorageError, StorageLoss
from magnetar.storage.ballast import Ballast, open_with
from magnetar.storage.folder import PRIVATE_UMASK, claim_folder, protect_folder
from magnetar.version import __version__

if TYPE_CHECKING:
    from magnetar.server.console.process import ConsoleProcess
    from magnetar.server.pipelines_process import PipelinesProcess
    from magnetar.server.secure.folder import SecureFolder

# A thread that returns from the disk waits at most this long for a busy loop to yield the interpreter.
_SWITCH_INTERVAL_S = 0.0002

_SIGNAL = "signal {}"
_TERMINATED = _SIGNAL.format(signal.SIGTERM.name)


def run_standalone(
    settings: Settings,
    folder: Path,
    *,
    cluster: str | None,
    rename_cluster: bool,
    accept_loss: bool,
    bind: str,
    port: int | None,
    http_port: int | None,
    secure: SecureFolder | None,
    out: Callable[[str], None],
    console_port: int | None = None,
) -> int:
    """Runs a broker in this process until a signal stops it; returns the exit code.

    `cluster` is the name that the operator gave; without one, the data folder keeps its name. `secure` is prepared.
    With a `console_port` a console is started beside it.
    """
    import uvloop

    ports = Ports(port, http_port, settings.brokerServicePortTls, settings.webServicePortTls)
    check_ports(settings, ports)
    access = Access.from_settings(settings)
    started_s = time.monotonic()
    os.umask(PRIVATE_UMASK)
    keep_buffers()
    raise_limit()
    ballast = Ballast(folder, settings.ballastSizeInMB << 20)
    storage = _open(folder, ballast, accept_loss)
    try:
        name = own_cluster.choose_name(storage, cluster, rename=rename_cluster)
    except own_cluster.OtherCluster as error:
        storage.close()
        raise StartError(f"data folder {folder}: {error}") from error
    except StorageError as error:
        raise _unreadable(error, storage, folder) from error
    settings = settings.with_texts({} if name is None else {"clusterName": name})
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.freeze()  # modules: there is no garbage to look for
    while True:
        deadline = StopDeadline()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            run = _run(
                settings, storage, folder, ballast, bind, ports, access, secure, out, console_port, started_s, deadline
            )
            server = runner.run(run)
        if not isinstance(server.failure, StorageDamaged) or storage.damage or not server.is_wanted:
            break
        deadline.cancel()
        storage = _open(
            folder, ballast, accept_loss=False
        )  # and does not compact, so it does not meet the damage again
        ports, started_s = server.addresses.ports, time.monotonic()
    if server.failure is not None:
        return 1  # the deadline stays: a thread that hangs would keep the interpreter from ending
    deadline.cancel()
    out("stopped")
    return 0


def _open(folder: Path, ballast: Ballast, accept_loss: bool) -> Storage:
    from magnetar.storage.rocks import RocksStorage

    try:
        claim_folder(folder)  # first: rights of a folder that is not ours stay as they are
        warning = protect_folder(folder)
        storage, is_given_up = open_with(ballast, lambda: RocksStorage(folder, accept_loss=accept_loss))
    except StorageLoss as error:
        raise StartError(
            f"{error}; nothing was changed. --accept-loss starts without them, keeps the damaged log in {folder}, and"
            " gives no message the id of a lost one"
        ) from error
    except StorageError as error:
        raise StartError(str(error)) from error
    if warning is not None:
        emit(OPEN_TO_OTHERS, warning=warning)
    if is_given_up:
        emit(BALLAST_USED, path=ballast.path)
    if storage.mark is not None and storage.mark.is_damaged:
        emit(MARK_UNREADABLE, path=storage.mark.path)
    if storage.damage:
        emit(COMPACTION_OFF, reason=storage.damage)
    if storage.lost_writes:
        emit(LOSS_ACCEPTED, count=storage.lost_writes, kept=storage.kept_log)
    return storage


async def _run(
    settings: Settings,
    storage: Storage,
    folder: Path,
    ballast: Ballast,
    bind: str,
    ports: Ports,
    access: Access,
    secure: SecureFolder | None,
    out: Callable[[str], None],
    console_port: int | None,
    started_s: float,
    deadline: StopDeadline,
) -> Server:
    try:
        server = Server(settings, storage, SystemClock(), bind=bind, ports=ports, access=access)
    except StorageError as error:
        raise _unreadable(error, storage, folder) from error
    server.disk.ballast = ballast
    for number in (signal.SIGINT, signal.SIGTERM):
        server.loop.add_signal_handler(number, _obey, server, deadline, _SIGNAL.format(number.name))
    _report_recovery(server, started_s)
    pipelines: PipelinesProcess | None = None
    console: ConsoleProcess | None = None
    renewal: asyncio.Task[None] | None = None
    try:
        await server.start()
        gc.enable()  # `magnetar standalone` starts without
        if secure is not None:
            renewal = _keep_secure(server, secure)
        out(_block(server, folder, secure))
        out(f"ready {server.service_url(bind)} {server.http_url(bind)}")
        _report_start(server, folder)
        pipelines = _pipelines(server, folder, secure)
        pipelines.run()
        if console_port is not None:
            console = _console(server, secure, console_port, out)
            console.run()
        await server.wait()
    finally:
        deadline.start()
        if renewal is not None:
            renewal.cancel()
        if pipelines is not None:
            _part_from(pipelines, server)
        if console is not None:
            await console.close()
        await server.close()
        if pipelines is not None:
            await pipelines.close()
    emit(STOPPED, reason=server.stop_reason)
    return server


def _keep_secure(server: Server, secure: SecureFolder) -> asyncio.Task[None]:
    """The addresses for clients go to the folder, and its certificate is made again before it expires."""
    from magnetar.server.ports.own_names import certificate_names
    from magnetar.server.secure.renewal import keep_certificate

    own = server.addresses.of(host_here(server.bind))
    secure.write_client_conf(own.service_url_tls, own.http_url_tls)
    names = certificate_names(server.settings)
    return server.spawn("renewal of the certificate", lambda: keep_certificate(secure, names, SystemClock()))


def _unreadable(error: StorageError, storage: Storage, folder: Path) -> StartError:
    """The catalog cannot be read: there is nothing to serve without it."""
    with contextlib.suppress(StorageError):
        storage.close()
    return StartError(f"{error}; `magnetar doctor data {folder}` shows what can be repaired")


def _obey(server: Server, deadline: StopDeadline, reason: str) -> None:
    deadline.start()  # whatever the broker is doing: a start may hang too
    server.is_wanted = False
    server.stop(reason)


def _part_from(pipelines: PipelinesProcess, server: Server) -> None:
    """Ctrl-C means both. A supervisor that restarts the broker sends SIGTERM: the pipelines process then waits for the
    next broker for a while."""
    if server.stop_reason == _TERMINATED and server.settings.pipelinesLingerSeconds:
        pipelines.leave()
    else:
        pipelines.end()


def _report_recovery(server: Server, started_s: float) -> None:
    catalog = server.broker.catalog
    if not server.broker.is_new:
        milliseconds = round((time.monotonic() - started_s) * 1000)
        emit(RECOVERED, namespaces=len(catalog.namespaces), topics=len(catalog.topics), milliseconds=milliseconds)


def _report_start(server: Server, folder: Path) -> None:
    emit(
        STARTED,
        version=__version__,
        cluster=server.settings.clusterName,
        service_url=server.service_url(server.bind),
        http_url=server.http_url(server.bind),
        data=folder.resolve(),
    )
    emit(DESCRIPTORS, limit=limit(), connections=server.capacity.binary, http=server.capacity.http)


def _pipelines(server: Server, folder: Path, secure: SecureFolder | None) -> PipelinesProcess:
    """The child connects to the address the broker listens on; executors of a cluster, to the advertised one."""
    from magnetar.server.pipelines_process import PipelinesProcess, command  # clients are served already

    settings = server.settings
    host = host_here(server.bind)
    own = direct(server.addresses.ports, host)
    if not settings.pipelinesMaster.startswith("local"):
        own = server.addresses.of(host)
    url, service_url = own.any_http_url, own.any_service_url
    spark_log = folder.resolve() / "logs" / "spark.log"
    trust = None if secure is None else secure.trust_certs_file
    words = command(url, service_url, settings, spark_log, trust)
    return PipelinesProcess(
        server.broker.replication,
        words,
        folder,
        pipelines=server.broker.pipelines,
        token=server.internal_token.text,
        is_enabled=settings.pipelinesEnabled,
        spark_log=spark_log,
        spawn=server.spawn,
    )


def _console(server: Server, secure: SecureFolder | None, port: int, out: Callable[[str], None]) -> ConsoleProcess:
    """Its address is printed when it serves for the first time, and the front page has it as long as it serves."""
    from magnetar.server.console.process import ConsoleProcess, command

    printed: list[str] = []

    def serves(url: str) -> None:
        server.broker.console_url = url
        if url and not printed:
            printed.append(url)
            out(f"console {url}")

    own = direct(server.addresses.ports, host_here(server.bind))
    words = command(own.any_http_url, port, None if secure is None else secure.trust_certs_file)
    return ConsoleProcess(words, serves, server.spawn)


def _block(server: Server, folder: Path, secure: SecureFolder | None) -> str:
    own = server.addresses.of(server.bind)
    addresses = (
        ("binary", own.service_url),
        ("tls", own.service_url_tls),
        ("http", own.http_url),
        ("https", own.http_url_tls),
    )
    return "\n".join(
        (
            f"Magnetar {__version__}, cluster {server.settings.clusterName}",
            *(f"  {name:8} {address}" for name, address in addresses if address),
            f"  data     {folder.resolve()}",
            *_first_steps(server, secure),
        )
    )


def _first_steps(server: Server, secure: SecureFolder | None) -> tuple[str, ...]:
    """What a reader of the block can type."""
    if secure is not None:
        return secure.first_steps(server.addresses.of(host_here(server.bind)).service_url_tls)
    own = server.addresses.of(server.bind)
    url = own.any_service_url
    trust = "" if own.service_url else ", tls_trust_certs_file_path='ca.pem'"
    return (
        "  try it   pip install pulsar-client, then in Python:",
        f"             client = pulsar.Client('{url}'{trust})",
        "             client.create_producer('hello').send(b'world')",
    )

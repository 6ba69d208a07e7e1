"""The two brokers under comparison: starts each with empty or existing data, and detects when it serves.

A `Running` broker is a process with a binary and an HTTP port on loopback. Knows nothing about the measurements.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from java import Java
from process import memory_mb, running, tail
from raw_connection import HOST, RawConnection

START_TIMEOUT_S = 120.0
POLL_S = 0.005


class StartFailed(Exception):
    """A broker exited or did not serve in time; the text ends with its log."""


class RequestFailed(Exception):
    """A running broker rejected an HTTP request."""


@dataclass(frozen=True, slots=True)
class Login:
    """What clients of a secured broker need: a token, and the authority of the certificate on its port with TLS."""

    token: str
    authority: Path
    port_tls: int


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that serves; times count from the start of its process. With a login its clients use TLS and a token."""

    process: subprocess.Popen[bytes]
    port: int
    http_port: int
    binary_s: float
    http_s: float
    login: Login | None = None

    @property
    def service_url(self) -> str:
        if self.login is not None:
            return f"pulsar+ssl://{HOST}:{self.login.port_tls}"
        return f"pulsar://{HOST}:{self.port}"

    @property
    def http_url(self) -> str:
        return f"http://{HOST}:{self.http_port}"

    def get(self, path: str) -> dict[str, Any]:
        """The JSON object at a path; raises `RequestFailed`."""
        try:
            status, body = _request(self.http_port, path, token=_token(self.login))
        except (OSError, http.client.HTTPException) as error:
            raise RequestFailed(f"GET {path} failed: {error}") from error
        if status != 200:
            raise RequestFailed(f"GET {path} returned status {status}: {body[:200]!r}")
        found: dict[str, Any] = json.loads(body)
        return found

    def post(self, path: str, body: object) -> None:
        """Raises `RequestFailed`."""
        self._change("POST", path, body)

    def put(self, path: str, body: object) -> None:
        """Raises `RequestFailed`."""
        self._change("PUT", path, body)

    def _change(self, method: str, path: str, body: object) -> None:
        try:
            status, answer = _request(self.http_port, path, method, body, _token(self.login))
        except (OSError, http.client.HTTPException) as error:
            raise RequestFailed(f"{method} {path} failed: {error}") from error
        if status not in (200, 204):
            raise RequestFailed(f"{method} {path} returned status {status}: {answer[:200]!r}")

    def memory_mb(self, kind: str = "Pss") -> float:
        return memory_mb(self.process.pid, kind)


class Contestant(ABC):
    name: str

    def __init__(self, folder: Path, cluster: str = "standalone") -> None:
        self.folder = folder
        self.cluster = cluster

    def twin(self, cluster: str) -> Self:
        """A second broker of the same kind, in a folder next to this one's."""
        twin = copy.copy(self)
        twin.folder, twin.cluster = self.folder.with_name(f"{self.folder.name}-{cluster}"), cluster
        return twin

    @abstractmethod
    def command(self, ports: Sequence[int]) -> list[str]:
        """The command that starts the broker on the binary, HTTP and third port, with its data in `folder`.

        The fourth port is for TLS, where there is a login.
        """

    def login(self, ports: Sequence[int]) -> Login | None:
        return None

    def usable(self, http_port: int, token: str) -> bool:
        """Whether clients can connect, once both ports serve."""
        return True

    def discard_data(self) -> None:
        """Deletes the data and keeps the log."""
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    @contextlib.contextmanager
    def started(self, *, keep_data: bool = False) -> Iterator[Running]:
        """Runs the broker for the duration of the block."""
        if not keep_data:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "log"
        ports = _free_ports(4)
        command = self.command(ports)
        login = self.login(ports)
        token = _token(login)
        began = time.monotonic()
        with running(command, log, self.folder) as process:

            def wait(ready: Callable[[], bool]) -> float:
                return _wait(ready, began, process, log, self.name)

            binary_s = wait(lambda: _answers_connect(ports[0], token))
            http_s = wait(lambda: _is_healthy(ports[1], token))
            wait(lambda: self.usable(ports[1], token))
            yield Running(process, ports[0], ports[1], binary_s, http_s, login)


class Magnetar(Contestant):
    name = "Magnetar"

    def command(self, ports: Sequence[int]) -> list[str]:
        program = Path(sys.executable).parent / "magnetar"
        options = {
            "--data": self.folder / "data",
            "--port": ports[0],
            "--http-port": ports[1],
            "--cluster": self.cluster,
        }
        return [str(program), "standalone", *(str(word) for option in options.items() for word in option)]


class ApachePulsar(Contestant):
    """Apache Pulsar standalone: broker, bookie and metadata in one JVM, with the release's memory and GC flags."""

    name = "Apache Pulsar"

    def __init__(self, folder: Path, java: Java, *, journal_sync: bool) -> None:
        super().__init__(folder)
        self.java = java
        self.journal_sync = journal_sync

    def command(self, ports: Sequence[int]) -> list[str]:
        settings = self.folder / "standalone.conf"
        pairs = _standalone_settings(self.cluster, ports[0], ports[1], self.journal_sync)
        settings.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
        memory = ("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g")
        collector = ("-XX:+UseZGC", "-XX:+PerfDisableSharedMem", "-XX:+AlwaysPreTouch")
        return self.java.command(
            memory + collector,
            "org.apache.pulsar.PulsarStandaloneStarter",
            *("--config", str(settings)),
            *("--metadata-dir", str(self.folder / "data" / "metadata")),
            *("--bookkeeper-dir", str(self.folder / "data" / "bookkeeper")),
            *("--bookkeeper-port", str(ports[2])),
            "--no-functions-worker",
            "--no-stream-storage",
        )

    def usable(self, http_port: int, token: str) -> bool:
        # Apache Pulsar creates the default namespace last, after the ports serve.
        return _status(http_port, "/admin/v2/namespaces/public/default", token) == 200


def _standalone_settings(cluster: str, port: int, http_port: int, journal_sync: bool) -> dict[str, object]:
    """Settings of Apache Pulsar's standalone.conf that differ from the built-in defaults."""
    return {
        "clusterName": cluster,
        "bindAddress": HOST,
        "advertisedAddress": HOST,
        "brokerServicePort": port,
        "webServicePort": http_port,
        "numHttpServerThreads": 8,
        "managedLedgerDefaultEnsembleSize": 1,
        "managedLedgerDefaultWriteQuorum": 1,
        "managedLedgerDefaultAckQuorum": 1,
        "managedLedgerNumSchedulerThreads": 4,
        "managedLedgerDefaultMarkDeleteRateLimit": 0.1,
        "bookkeeperClientMinNumRacksPerWriteQuorum": 1,
        "bookkeeperClientReorderReadSequenceEnabled": "false",
        "topicOrderedExecutorThreadNum": 8,
        "loadBalancerEnabled": "false",
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.NoopLoadManager",
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "nettyMaxFrameSizeBytes": 5253120,
        "flushInterval": 60000,
        "journalMaxGroupWaitMSec": 1,
        "journalSyncData": "true" if journal_sync else "false",
        "diskUsageThreshold": 0.99,
        "diskUsageWarnThreshold": 0.99,
        "allowLoopback": "true",
        "allowEphemeralPorts": "true",
        "listeningInterface": "lo",
        "gcWaitTime": 300000,
    }


def _wait(ready: Callable[[], bool], began: float, process: subprocess.Popen[bytes], log: Path, name: str) -> float:
    """Seconds from `began` until `ready`; raises `StartFailed`."""
    while not ready():
        if process.poll() is not None:
            raise StartFailed(f"{name} exited with code {process.returncode}; its log ends with:\n{tail(log)}")
        if time.monotonic() - began > START_TIMEOUT_S:
            raise StartFailed(f"{name} did not serve within {START_TIMEOUT_S:.0f} s; its log ends with:\n{tail(log)}")
        time.sleep(POLL_S)
    return time.monotonic() - began


def _token(login: Login | None) -> str:
    return "" if login is None else login.token


def _answers_connect(port: int, token: str) -> bool:
    try:
        with RawConnection(port, timeout_s=5.0, token=token):
            return True
    except OSError:
        return False


def _is_healthy(http_port: int, token: str) -> bool:
    return _status(http_port, "/admin/v2/brokers/health", token) == 200


def _status(http_port: int, path: str, token: str) -> int | None:
    try:
        return _request(http_port, path, token=token)[0]
    except (OSError, http.client.HTTPException):
        return None


def _request(http_port: int, path: str, method: str = "GET", body: object = None, token: str = "") -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = http.client.HTTPConnection(HOST, http_port, timeout=30.0)
    try:
        if method == "GET":
            connection.request(method, path, headers=headers)
        else:
            connection.request(method, path, json.dumps(body), headers | {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]

"""The replicating clusters, Apache Pulsar and ours: each a process that can be killed.

Owns their start, kill and restart on the same ports with their data, and the tests' access to them: the admin API and
the official client. Knows nothing of pipelines.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pulsar
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "spark"))

from java import Java
from process import running, tail
from small_ledgers import SmallLedgers

HOST = "127.0.0.1"
WAIT_S = 120.0
START_S = 120.0
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}

_numbers = count()


def until(is_true: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> float:
    """Waits for a condition and returns the elapsed time."""
    started_s = time.monotonic()
    while not is_true():
        if time.monotonic() - started_s > timeout_s:
            _fail(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(0.05)
    return time.monotonic() - started_s


def _fail(text: str) -> NoReturn:
    pytest.fail(text)


class Cluster(ABC):
    """A broker that forms a cluster, on fixed ports."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.ports = _free_ports(3)
        self.service_url = f"pulsar://{HOST}:{self.ports[0]}"
        self.http_url = f"http://{HOST}:{self.ports[1]}"
        self.process: subprocess.Popen[bytes] | None = None
        self._scope = contextlib.ExitStack()
        self._http = httpx.Client(base_url=f"{self.http_url}/admin/v2/", timeout=30, trust_env=False)
        self._client: pulsar.Client | None = None

    @abstractmethod
    def _command(self) -> list[str]: ...

    # -- its process

    def start(self) -> None:
        """Starts the broker with its existing data."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "log"
        self.process = self._scope.enter_context(running(self._command(), log, self.folder))
        deadline_s = time.monotonic() + START_S
        while not self._serves():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                _fail(f"{self.name} did not start; its log ends with:\n{tail(log)}")
            time.sleep(0.1)

    def _serves(self) -> bool:
        try:
            return self._http.get("namespaces/public/default").is_success
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """Kills the broker without a shutdown, like a power cut."""
        assert self.process is not None
        self.process.kill()
        self._scope.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._http.close()
        assert self.process is not None
        self.process.kill()  # its data is no longer needed
        self._scope.close()

    # -- admin API

    def ask(self, method: str, path: str, body: object = None, **query: object) -> Any:
        headers = {"Content-Type": "application/json"}
        answer = self._http.request(method, path, json=body, params=_texts(query), headers=headers)
        assert answer.is_success, f"{method} {path} of {self.name}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def know(self, other: Cluster) -> None:
        urls = {"serviceUrl": other.http_url, "brokerServiceUrl": other.service_url}
        self.ask("POST" if other.name in self.ask("GET", "clusters") else "PUT", f"clusters/{other.name}", urls)
        tenant = self.ask("GET", "tenants/public")
        tenant["allowedClusters"] = sorted({*tenant["allowedClusters"], other.name})
        self.ask("POST", "tenants/public", tenant)

    def make_namespace(self, namespace: str, *, deduplicates: bool = True) -> None:
        """Creates a namespace that retains everything."""
        self.ask("PUT", f"namespaces/{namespace}")
        self.ask("POST", f"namespaces/{namespace}/retention", FOREVER)
        if deduplicates:
            self.ask("POST", f"namespaces/{namespace}/deduplication", True)

    def replicate(self, namespace: str, *others: Cluster) -> None:
        for other in others:
            self.know(other)
        self.ask("POST", f"namespaces/{namespace}/replication", [self.name, *(other.name for other in others)])

    def create(self, topic: str, partitions: int = 0) -> None:
        if partitions:
            self.ask("PUT", f"{path_of(topic)}/partitions", partitions)
        else:
            self.ask("PUT", path_of(topic))

    def partitions(self, topic: str) -> int | None:
        """Number of partitions, queried without creating the topic; None without a topic, 0 without partitions."""
        answer = self._http.get(f"{path_of(topic)}/partitions")
        if answer.status_code == 404:
            return None
        found = int(answer.raise_for_status().json()["partitions"])
        if found or self._http.get(f"{path_of(topic)}/stats").is_success:
            return found
        return None

    def stats(self, topic: str) -> dict[str, Any]:
        return dict(self.ask("GET", f"{path_of(topic)}/stats", getPreciseBacklog="true"))

    def entries(self, topic: str) -> int:
        """Number of stored entries; 0 also if the topic does not exist."""
        answer = self._http.get(f"{path_of(topic)}/internalStats")
        return int(answer.json()["numberOfEntries"]) if answer.is_success else 0

    def metrics(self) -> str:
        return httpx.get(f"{self.http_url}/metrics/", timeout=30, trust_env=False, follow_redirects=True).text

    # -- official client

    @property
    def client(self) -> pulsar.Client:
        if self._client is None:
            quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            self._client = pulsar.Client(self.service_url, logger=quiet, operation_timeout_seconds=60)
        return self._client

    def renew_client(self) -> None:
        """Reconnects: the chunk size is the limit of the last broker that any client of the process connected to."""
        if self._client is not None:
            self._client.close()
        self._client = None

    @contextlib.contextmanager
    def producer(self, topic: str, **options: Any) -> Iterator[pulsar.Producer]:
        settings = {"batching_enabled": False, "block_if_queue_full": True, "send_timeout_millis": 0, **options}
        producer = self.client.create_producer(topic, **settings)
        try:
            yield producer
            producer.flush()
        finally:
            producer.close()

    def publish(self, topic: str, values: Sequence[bytes], **options: Any) -> None:
        with self.producer(topic, **options) as producer:
            for value in values:
                producer.send_async(value, None)

    def read(self, topic: str, **options: Any) -> list[pulsar.Message]:
        """All current messages of one partition, or of a topic without partitions."""
        reader = self.client.create_reader(topic, pulsar.MessageId.earliest, **options)
        try:
            messages = []
            while reader.has_message_available():
                messages.append(reader.read_next(round(WAIT_S * 1000)))
            return messages
        finally:
            reader.close()

    def values(self, topic: str) -> list[bytes]:
        return [message.data() for message in self.read(topic)]

    def has(self, topic: str, values: Sequence[bytes], timeout_s: float = WAIT_S) -> None:
        """Waits for as many messages as there are values, and compares them."""
        until(lambda: self.partitions(_base(topic)) is not None, f"{topic} in {self.name}", timeout_s)
        found: list[bytes] = []

        def has_enough() -> bool:
            found[:] = self.values(topic)
            return len(found) >= len(values)

        with contextlib.suppress(pytest.fail.Exception):
            until(has_enough, "", timeout_s)
        assert found == list(values), f"{topic} in {self.name}"


class Apache(Cluster):
    def __init__(self, name: str, folder: Path, java: Java) -> None:
        super().__init__(name, folder)
        self._release = SmallLedgers(folder, java, journal_sync=False)
        self._release.cluster = name

    def _command(self) -> list[str]:
        return self._release.command(self.ports)


class Ours(Cluster):
    """Starts no pipelines process: pipelines run in the tests' Spark session."""

    def __init__(self, name: str, folder: Path, **settings: object) -> None:
        super().__init__(name, folder)
        self._settings = {"pipelinesEnabled": False, **settings}

    def _command(self) -> list[str]:
        options = {
            "--data": self.folder / "data",
            "--port": self.ports[0],
            "--http-port": self.ports[1],
            "--cluster": self.name,
        }
        words = [str(word) for option in options.items() for word in option]
        for key, value in _texts(self._settings).items():
            words += ["--set", f"{key}={value}"]
        return [str(Path(sys.executable).parent / "magnetar"), "standalone", *words]

    def status(self, topic: str, remote: Cluster) -> list[dict[str, Any]]:
        """Status of the topic, or of its partitions in order."""
        return list(self.ask("GET", "replication/status", topic=topic, remote=remote.name))

    def states(self, topic: str, remote: Cluster) -> list[str]:
        return [row["state"] for row in self.status(topic, remote)]

    def is_copied(self, topic: str, remote: Cluster) -> bool:
        rows = self.status(topic, remote)
        return bool(rows) and all(row["state"] == "running" and not row["backlog"] for row in rows)


def new_namespace(*clusters: Cluster, deduplicates: bool = True) -> str:
    namespace = f"public/geo-{next(_numbers)}"
    for cluster in clusters:
        cluster.make_namespace(namespace, deduplicates=deduplicates)
    return namespace


def path_of(topic: str) -> str:
    return topic.replace("://", "/")


def partition(topic: str, index: int) -> str:
    return f"{topic}-partition-{index}"


def _base(topic: str) -> str:
    return topic.rpartition("-partition-")[0] or topic


def _texts(query: dict[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in query.items()}


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]

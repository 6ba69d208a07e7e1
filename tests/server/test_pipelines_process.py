"""The pipelines process as a child of the broker: started on demand, restarted, and stopped with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import msgspec
import pytest

import magnetar.testing
from magnetar.client import EARLIEST, Client
from magnetar.replication.model import ClusterAddress, Process
from magnetar.server import lifeline
from magnetar.server.children import pipelines_process
from magnetar.server.children.pipelines_process import NEEDS_SPARK, PipelinesProcess, command
from magnetar.settings.environment import without_secrets
from magnetar.settings.settings import Settings
from magnetar.version import __version__

WAIT_S = 90.0


class FakeReplication:
    """Routes, which may be expected."""

    def __init__(self) -> None:
        self.process = "unknown"
        self.is_expected = False
        self.watchers: list[Callable[[], None]] = []
        self.version = "1"
        self.addresses: dict[str, ClusterAddress] = {}

    def is_expecting_routes(self) -> bool:
        return self.is_expected

    def clusters(self) -> tuple[str, dict[str, ClusterAddress]]:
        return self.version, self.addresses

    def expect_process(self) -> None:
        self.process = "starting"

    def no_process(self, reason: str, process: Process = Process.ABSENT) -> None:
        self.process = reason

    def watch(self, watcher: Callable[[], None]) -> None:
        self.watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        self.watchers.remove(watcher)

    def declare(self) -> None:
        self.is_expected = True
        for watcher in self.watchers:
            watcher()


class FakePipelines(FakeReplication):
    """Declared pipelines, which may be expected to run."""

    def is_expecting_runs(self) -> bool:
        return self.is_expected


class FakeProcess:
    """A process that exits when terminated, or when a test ends it."""

    def __init__(self, *, ends_by_itself: bool = False) -> None:
        self.told: list[str] = []
        self.handed: list[bytes] = []
        self._ended = asyncio.Event()
        self._how = "ended"
        if ends_by_itself:
            self.end("ended with code 1")

    def end(self, how: str) -> None:
        self._how = how
        self._ended.set()

    async def wait(self) -> str:
        await self._ended.wait()
        return self._how

    def send(self, line: bytes) -> None:
        self.handed.append(line)

    def terminate(self) -> None:
        self.told.append("terminate")
        self.end("ended with code 0")

    def kill(self) -> None:
        self.told.append("kill")

    def release(self) -> None:
        self.told.append("release")


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[FakeProcess]:
    started: list[FakeProcess] = []

    def start(path: Path, words: list[str], environment: dict[str, str]) -> FakeProcess:
        started.append(FakeProcess(ends_by_itself=len(started) == 0))
        return started[-1]

    monkeypatch.setattr(lifeline, "start", start)
    monkeypatch.setattr(pipelines_process, "PAUSE_FIRST_S", 0.01)
    return started


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_fault_pipelines_process_that_ends_is_started_again(tmp_path: Path, children: list[FakeProcess]) -> None:
    async def live() -> None:
        replication = FakeReplication()
        process = PipelinesProcess(replication, ["words"], tmp_path, pipelines=FakePipelines(), token="t")  # type: ignore[arg-type]
        process.run()
        await turns()
        assert children == [], "nothing is replicated yet"
        assert replication.process == "starting"
        replication.declare()
        await turns()
        assert len(children) == 1
        assert replication.process.startswith("it ended with code 1; restarting in")
        while len(children) < 2:
            await asyncio.sleep(0.01)
        assert replication.process == "starting"
        process.end()
        await process.close()
        assert children[1].told == ["terminate", "release"]
        await asyncio.sleep(0.05)
        assert len(children) == 2, "it is over"

    asyncio.run(live())


def test_it_is_started_for_a_declared_pipeline_and_both_verbs_learn_of_its_end(
    tmp_path: Path, children: list[FakeProcess]
) -> None:
    async def live() -> None:
        replication, pipelines = FakeReplication(), FakePipelines()
        process = PipelinesProcess(replication, ["words"], tmp_path, pipelines=pipelines, token="t")  # type: ignore[arg-type]
        process.run()
        await turns()
        assert children == [] and pipelines.process == "starting"
        pipelines.declare()
        await turns()
        assert len(children) == 1
        assert replication.process == pipelines.process == "it ended with code 1; restarting in 0 s"
        process.end()
        await process.close()

    asyncio.run(live())


def test_it_is_started_with_the_broker_where_something_is_replicated(
    tmp_path: Path, children: list[FakeProcess]
) -> None:
    async def live() -> None:
        replication = FakeReplication()
        replication.declare()
        process = PipelinesProcess(replication, ["words"], tmp_path, pipelines=FakePipelines(), token="t")  # type: ignore[arg-type]
        process.run()
        await turns()
        assert len(children) == 1
        process.end()
        await process.close()

    asyncio.run(live())


def test_it_is_handed_the_credentials_at_once_and_after_every_change(
    tmp_path: Path, children: list[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def live() -> None:
        replication = FakeReplication()
        replication.addresses = {"b": ClusterAddress(authentication_parameters="token:first")}
        replication.declare()
        process = PipelinesProcess(replication, ["words"], tmp_path, pipelines=FakePipelines(), token="internal")  # type: ignore[arg-type]
        process.run()
        while len(children) < 2:
            await asyncio.sleep(0.01)
        await turns()
        replication.declare()  # of topics only
        await turns()
        replication.version, replication.addresses = "2", {}
        replication.declare()
        await turns()
        handed = [msgspec.json.decode(line) for line in children[1].handed]
        assert [(one["token"], one["version"]) for one in handed] == [("internal", "1"), ("internal", "2")]
        assert handed[0]["credentials"] == {"b": {"authenticationParameters": "token:first"}}
        assert handed[1]["credentials"] == {}
        process.end()
        await process.close()

    asyncio.run(live())


def test_the_process_does_not_inherit_secrets_of_the_environment() -> None:
    secret = ("brokerClientAuthenticationParameters", "PULSAR_PREFIX_tokenSecretKey", "MAGNETAR_BASIC_AUTH_CONF")
    kept = {"PATH": "/bin", "MAGNETAR_CLUSTER_NAME": "a", "PULSAR_PREFIX_clusterName": "a", "JAVA_HOME": "/jdk"}
    given = {**kept, "MAGNETAR_TOKEN": "t", "MAGNETAR_REMOTE_TOKEN": "t", **dict.fromkeys(secret, "t")}
    assert without_secrets(given) == kept


def test_a_missing_spark_is_logged_in_one_line_and_shown_in_the_status(
    tmp_path: Path, children: list[FakeProcess], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipelines_process, "find_spec", lambda _: None)

    async def live() -> None:
        replication = FakeReplication()
        process = PipelinesProcess(replication, ["words"], tmp_path, pipelines=FakePipelines(), token="t")  # type: ignore[arg-type]
        process.run()
        replication.declare()
        await turns()
        assert replication.process == NEEDS_SPARK
        await process.close()

    asyncio.run(live())
    assert children == []
    assert [record.getMessage() for record in caplog.records] == [
        f"the pipelines process cannot be started: {NEEDS_SPARK}"
    ]
    assert "pip install 'magnetar[spark]'" in NEEDS_SPARK


def test_when_disabled_it_is_never_started_and_the_status_has_the_reason(
    tmp_path: Path, children: list[FakeProcess]
) -> None:
    async def live() -> None:
        replication = FakeReplication()
        process = PipelinesProcess(
            replication,  # type: ignore[arg-type]
            ["words"],
            tmp_path,
            pipelines=FakePipelines(),  # type: ignore[arg-type]
            token="t",
            is_enabled=False,
        )
        process.run()
        replication.declare()
        await turns()
        assert replication.process == "pipelinesEnabled is false"
        await process.close()

    asyncio.run(live())
    assert children == []


@pytest.mark.parametrize(
    ("url", "own", "trusted"),
    [("https://b", "own.pem", "own.pem"), ("https://b", None, "remote.pem"), ("http://b", "own.pem", None)],
)
def test_the_process_trusts_the_authority_of_the_broker(url: str, own: str | None, trusted: str | None) -> None:
    settings = Settings(brokerClientTrustCertsFilePath="remote.pem")
    words = command(url, "pulsar+ssl://b", settings, Path("spark.log"), Path(own) if own else None)
    assert ("--trust-certs" in words) == (trusted is not None)
    assert trusted is None or words[words.index("--trust-certs") + 1] == trusted


def test_no_secret_appears_in_the_process_list() -> None:
    settings = Settings(brokerClientAuthenticationParameters="token:secret")
    words = command("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650", settings, Path("spark.log"), None)
    assert words[:4] == [sys.executable, "-m", "magnetar.pipelines", "--spark-log"]
    assert "token" not in " ".join(words)


# -- a process that only waits


WAITING = """
import os, sys, threading
from magnetar.pipelines import lifeline
from magnetar.pipelines.handed import Handed
over = threading.Event()
lifeline.watch(60, over.set, Handed())
open(sys.argv[1], "w").write(f"{os.getpid()}.")
over.wait()
"""


@pytest.mark.parametrize("is_adopted", [False, True])
def test_b10_a_killed_process_is_seen_by_its_end_and_not_by_its_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_adopted: bool
) -> None:
    """`is_adopted`: the one that an earlier broker left."""
    caplog.set_level(logging.INFO, "magnetar.event.replication")
    for name in ("PAUSE_FIRST_S", "PAUSE_LAST_S"):
        monkeypatch.setattr(pipelines_process, name, 600.0)
    file = tmp_path / "pid"
    words = [sys.executable, "-c", WAITING, str(file)]
    left = lifeline.start(lifeline.path_of(tmp_path, words, __version__), words) if is_adopted else None
    with magnetar.testing.broker(clusterName="a") as a, magnetar.testing.broker(clusterName="b") as b:
        broker = a.server.broker
        process = a.run(
            lambda: PipelinesProcess(broker.replication, words, tmp_path, pipelines=broker.pipelines, token="t")
        )
        a.run(process.run)
        declare(a.http_url, b)
        wait_for(lambda: file.is_file() and file.read_text().endswith("."))
        with httpx.Client(base_url=a.http_url, trust_env=False) as rest:
            assert rest.put("/admin/v2/persistent/public/default/t").is_success
            row = {"topic": "persistent://public/default/t", "remote": "b", "state": "running", "reason": ""}
            report = {"pipeline": "test", "isAll": True, "rows": [row]}
            assert rest.put("/admin/v2/replication/reports", json=report).is_success

            def status() -> dict[str, str]:
                (found,) = rest.get("/admin/v2/replication/status").json()
                return dict(found)

            assert status()["state"] == "running"
            assert 'state="running"} 1' in rest.get("/metrics/").text
            os.kill(int(file.read_text()[:-1]), signal.SIGKILL)
            wait_for(lambda: status()["state"] == "stopped")
            assert ("it ended; restarting" if is_adopted else "it ended with code -9") in status()["reason"]
            assert 'state="stopped"} 1' in rest.get("/metrics/").text
        a.run(process.end)
    assert ("process of the broker before this one goes on" in caplog.text) == is_adopted
    if left is not None:
        assert asyncio.run(left.wait()) == "ended with code -9"
        left.release()


# -- the real process


@contextlib.contextmanager
def standalone(folder: Path, ports: Sequence[int]) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    words = ("--cluster", "a", "--data", str(folder), "--port", str(ports[0]), "--http-port", str(ports[1]))
    log = folder.with_suffix(".log")
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "magnetar", "standalone", *words, "--set", "pipelinesMaster=local[1]"],
            env={**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.match(rb"ready (\S+) (\S+)", line):
                    yield process, found[1].decode(), found[2].decode()
                    break
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    said = log.read_text()
    assert "Traceback" not in said, said


def children_of(process_id: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process_id)], capture_output=True, text=True).stdout
    return [int(word) for word in listed.split()]


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def free_ports() -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        return [each.getsockname()[1] for each in sockets]


def wait_for_children(process_id: int) -> list[int]:
    wait_for(lambda: bool(children_of(process_id)))
    return children_of(process_id)


def declare(url: str, b: magnetar.testing.TestBroker) -> None:
    urls = {"serviceUrl": b.http_url, "brokerServiceUrl": b.service_url}
    tenant = {"allowedClusters": ["a", "b"], "adminRoles": []}
    with httpx.Client(base_url=f"{url}/admin/v2/", trust_env=False) as rest:
        for method, path, body in (
            ("PUT", "clusters/b", urls),
            ("POST", "tenants/public", tenant),
            ("POST", "namespaces/public/default/replication", ["a", "b"]),
        ):
            assert rest.request(method, path, json=body).is_success


def copies(service_url: str, b: magnetar.testing.TestBroker, value: bytes) -> None:
    """Publishes a message, and waits until it is the last one in the other cluster."""
    with Client(service_url) as client, client.producer("orders") as producer:
        producer.send(value)
    with Client(b.service_url) as client:
        wait_for(lambda: client.partition_count("orders") is not None)
        with client.reader("orders", EARLIEST) as reader:
            while reader.read(WAIT_S).value != value:
                pass


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked for in /proc")
def test_gr1_pipelines_survive_a_restart_of_the_broker_and_end_with_ctrl_c(tmp_path: Path) -> None:
    folder, ports = tmp_path / "a", free_ports()
    with magnetar.testing.broker(clusterName="b") as b:
        with standalone(folder, ports) as (process, service_url, url):
            declare(url, b)
            (pipelines,) = wait_for_children(process.pid)  # before there is a topic
            copies(service_url, b, b"1")
            (java,) = children_of(pipelines)
            os.kill(process.pid, signal.SIGKILL)
        with standalone(folder, ports) as (process, service_url, _):
            copies(service_url, b, b"2")
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_S)
        with standalone(folder, ports) as (process, service_url, _):
            copies(service_url, b, b"3")
            assert is_alive(pipelines) and is_alive(java) and children_of(process.pid) == [], "it is the same process"
            os.kill(java, signal.SIGKILL)
            left = [pipelines, *wait_for_children(process.pid)]  # another one
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_S)
        wait_for(lambda: not any(map(is_alive, left)))
    said = (tmp_path / "a.log").read_text()
    assert "the pipelines process ended; restarting in" in said
    lines = said.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\S+Z [A-Z]+ +[a-z]+: ", line) for line in lines), lines
    assert (folder / "logs" / "spark.log").exists()
    assert f"write to {folder / 'logs' / 'spark.log'}" in said

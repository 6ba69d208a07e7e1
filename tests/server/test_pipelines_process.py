"""The pipelines process as a child of the broker: started on demand, restarted, and stopped with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import magnetar.testing
from magnetar.client import EARLIEST, Client
from magnetar.replication.model import Process
from magnetar.server import pipelines_process
from magnetar.server.pipelines_process import NEEDS_SPARK, PipelinesProcess, command
from magnetar.settings.settings import Settings

WAIT_S = 90.0


class FakeReplication:
    """A declaration that may have topics."""

    def __init__(self) -> None:
        self.process = "unknown"
        self.topics: list[str] = []
        self.watchers: list[Callable[[], None]] = []

    def declaration(self) -> FakeReplication:
        return self

    def expect_process(self) -> None:
        self.process = "starting"

    def no_process(self, reason: str, process: Process = Process.ABSENT) -> None:
        self.process = reason

    def watch(self, watcher: Callable[[], None]) -> None:
        self.watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        self.watchers.remove(watcher)

    def add(self, topic: str) -> None:
        self.topics.append(topic)
        for watcher in self.watchers:
            watcher()


class FakeChild:
    """A child that exits when terminated, or when a test ends it."""

    stdin = None

    def __init__(self, *, ends_by_itself: bool = False) -> None:
        self.returncode: int | None = None
        self.told: list[str] = []
        self._ended = asyncio.Event()
        if ends_by_itself:
            self.end(1)

    def end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self.told.append("terminate")
        self.end(0)

    def kill(self) -> None:
        self.told.append("kill")
        self.end(-9)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[FakeChild]:
    started: list[FakeChild] = []

    async def start(words: list[str], environment: Any = None) -> FakeChild:
        started.append(FakeChild(ends_by_itself=len(started) == 0))
        return started[-1]

    monkeypatch.setattr(pipelines_process, "start", start)
    monkeypatch.setattr(pipelines_process, "PAUSE_FIRST_S", 0.01)
    return started


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_it_is_started_with_the_first_topic_and_restarted_after_a_failure(children: list[FakeChild]) -> None:
    async def live() -> None:
        replication = FakeReplication()
        process = PipelinesProcess(replication, ["words"])  # type: ignore[arg-type]
        process.run()
        await turns()
        assert children == [], "nothing is replicated yet"
        assert replication.process == "starting"
        replication.add("t")
        await turns()
        assert len(children) == 1
        assert replication.process.startswith("it ended with code 1; restarting in")
        while len(children) < 2:
            await asyncio.sleep(0.01)
        assert replication.process == "starting"
        await process.close()
        assert children[1].told == ["terminate"]
        await asyncio.sleep(0.05)
        assert len(children) == 2, "it is over"

    asyncio.run(live())


def test_a_missing_spark_is_logged_in_one_line_and_shown_in_the_status(
    children: list[FakeChild], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipelines_process, "find_spec", lambda _: None)

    async def live() -> None:
        replication = FakeReplication()
        process = PipelinesProcess(replication, ["words"])  # type: ignore[arg-type]
        process.run()
        replication.add("t")
        await turns()
        assert replication.process == NEEDS_SPARK
        await process.close()

    asyncio.run(live())
    assert children == []
    assert [record.getMessage() for record in caplog.records] == [
        f"the pipelines process cannot be started: {NEEDS_SPARK}"
    ]
    assert "pip install 'magnetar[spark]'" in NEEDS_SPARK


def test_when_disabled_it_is_never_started_and_the_status_has_the_reason(children: list[FakeChild]) -> None:
    async def live() -> None:
        replication = FakeReplication()
        process = PipelinesProcess(replication, ["words"], is_enabled=False)  # type: ignore[arg-type]
        process.run()
        replication.add("t")
        await turns()
        assert replication.process == "pipelinesEnabled is false"
        await process.close()

    asyncio.run(live())
    assert children == []


def test_no_secret_appears_in_the_process_list() -> None:
    settings = Settings(brokerClientAuthenticationParameters="token:secret")
    words = command("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650", settings, Path("spark.log"))
    assert words[:4] == [sys.executable, "-m", "magnetar.pipelines", "--until-stdin-ends"]
    assert "token" not in " ".join(words)


# -- the real process


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, str]]:
    words = ("--cluster", "a", "--data", str(folder), "--port", "0", "--http-port", "0")
    log = folder.with_suffix(".log")
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "magnetar", "standalone", *words, "--set", "pipelinesMaster=local[1]"],
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


@pytest.mark.timeout(180)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked for in /proc")
def test_gr1_a_broker_starts_its_pipelines_and_they_exit_when_it_is_killed(tmp_path: Path) -> None:
    with magnetar.testing.broker(clusterName="b") as b, standalone(tmp_path / "a") as (process, service_url, url):
        urls = {"serviceUrl": b.http_url, "brokerServiceUrl": b.service_url}
        tenant = {"allowedClusters": ["a", "b"], "adminRoles": []}
        with httpx.Client(base_url=f"{url}/admin/v2/", trust_env=False) as rest:
            for method, path, body in (
                ("PUT", "clusters/b", urls),
                ("POST", "tenants/public", tenant),
                ("POST", "namespaces/public/default/replication", ["a", "b"]),
            ):
                assert rest.request(method, path, json=body).is_success
            assert children_of(process.pid) == [], "there is no topic yet"
            with Client(service_url) as client, client.producer("orders") as producer:
                producer.send(b"1")
            with Client(b.service_url) as client:
                deadline_s = time.monotonic() + WAIT_S
                while client.partition_count("orders") is None:
                    assert time.monotonic() < deadline_s
                    time.sleep(0.05)
                with client.reader("orders", EARLIEST) as reader:
                    assert reader.read(WAIT_S).value == b"1"
            pipelines = children_of(process.pid)
            assert len(pipelines) == 1
            (java,) = children_of(pipelines[0])
        os.kill(java, signal.SIGKILL)
        log = tmp_path / "a.log"
        deadline_s = time.monotonic() + WAIT_S
        while "the pipelines process ended with code 1" not in log.read_text():
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.05)
        lines = log.read_text().splitlines()
        assert all(re.match(r"\d{4}-\d\d-\d\dT\S+Z [A-Z]+ +[a-z]+: ", line) for line in lines), lines
        assert (tmp_path / "a" / "logs" / "spark.log").exists()
        assert f"write to {tmp_path / 'a' / 'logs' / 'spark.log'}" in log.read_text()
        pipelines += children_of(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        deadline_s = time.monotonic() + 30
        while any(map(is_alive, [*pipelines, java])):
            assert time.monotonic() < deadline_s, "they outlive the broker"
            time.sleep(0.05)

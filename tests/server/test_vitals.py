"""Health of a real broker: it says no when the disk, the timers or the loop do not work, and yes again afterwards."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from magnetar import health
from magnetar.server import vitals
from magnetar.server.vitals import SAMPLES_KEPT, LoopLag
from magnetar.settings.settings import Settings
from magnetar.storage.memory import MemoryStorage
from magnetar.testing import TestBroker
from magnetar.wire import schema_pb2 as pb

from .raw_client import Command, RawClient


class SlowDisk(MemoryStorage):
    """A sync waits until the disk answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.answers.set()
        self.syncs = 0

    def sync(self) -> None:
        self.answers.wait()
        self.syncs += 1
        super().sync()


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def running(disk: SlowDisk) -> Iterator[TestBroker]:
    broker = TestBroker(disk, Settings())
    yield broker
    disk.answers.set()
    broker.close()


def ask(running: TestBroker, path: str) -> httpx.Response:
    return httpx.get(running.http_url + path, timeout=60)


def wait_for(running: TestBroker, path: str, status: int) -> httpx.Response:
    deadline_s = time.monotonic() + 60
    while (response := ask(running, path)).status_code != status:
        assert time.monotonic() < deadline_s, response.text
        time.sleep(0.05)
    return response


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_a_health_check_makes_a_write_durable(running: TestBroker, disk: SlowDisk) -> None:
    before = disk.syncs
    assert ask(running, "/admin/v2/brokers/health").text == "ok"
    assert disk.syncs > before


def test_health_checks_at_the_same_time_share_one_write(
    running: TestBroker, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vitals, "PROOF_DEADLINE_S", 0.05)
    disk.answers.clear()
    server = running.server
    written: list[None] = []
    write = server.broker.write_something
    monkeypatch.setattr(server.broker, "write_something", lambda: written.append(write()))

    async def many() -> list[str]:
        return [await server.vitals.proof() for _ in range(5)] + list(
            await asyncio.gather(*(server.vitals.proof() for _ in range(20)))
        )

    outcomes = asyncio.run_coroutine_threadsafe(many(), server.loop).result(60)
    assert set(outcomes) == {"a write was not durable within 0.05 s"} and len(outcomes) == 25
    assert len(written) == 1
    monkeypatch.undo()
    disk.answers.set()
    wait_for(running, "/admin/v2/brokers/health", 200)


def test_fault_hanging_disk_is_seen_by_health(
    running: TestBroker, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(running, "/health/live").json()["status"] == "ok"
    monkeypatch.setattr(vitals, "PROOF_DEADLINE_S", 0.2)
    monkeypatch.setattr(health, "COMMIT_FAILED_S", 0.2)
    monkeypatch.setattr(health, "COMMIT_WARNING_S", 0.1)
    disk.answers.clear()
    refused = ask(running, "/admin/v2/brokers/health")
    assert refused.status_code == 503 and "a write was not durable within 0.2 s" in refused.json()["reason"]
    for path in ("/health/live", "/health/ready"):
        assert "the disk does not answer" in wait_for(running, path, 503).json()["reason"]
    disk.answers.set()
    monkeypatch.undo()
    for path in ("/health/live", "/health/ready", "/admin/v2/brokers/health"):
        wait_for(running, path, 200)


def test_fault_stopped_timers_are_seen_by_the_probes(running: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "TIMER_WARNING_S", 0.2)
    monkeypatch.setattr(health, "TIMER_FAILED_S", 0.2)
    server = running.server

    def break_timers() -> None:
        monkeypatch.setattr(server, "tick", lambda: None)
        server.wake_after(0)

    running.run(break_timers)
    assert "timers do not run" in wait_for(running, "/health/live", 503).json()["reason"]


def test_fault_blocked_loop_is_seen_by_health(running: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOOP_LAG_WARNING_S", 0.2)
    monkeypatch.setattr(health, "LOOP_LAG_FAILED_S", 0.2)
    running.run(lambda: time.sleep(vitals.SAMPLE_EVERY_S + 0.5))
    refused = ask(running, "/admin/v2/brokers/health")
    assert refused.status_code == 503 and "the event loop was blocked" in refused.json()["reason"]
    assert ask(running, "/health/ready").status_code == 200


def test_a_fault_is_a_warning_for_ten_minutes(running: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    running.run(lambda: running.server.fault("task", ValueError("a bug")))
    found = ask(running, "/health/ready").json()
    assert (found["status"], found["reason"]) == (
        "warning",
        "1 unexpected error within 10 minutes: see the broker's log",
    )
    assert ask(running, "/admin/v2/brokers/health").text == "ok"
    monkeypatch.setattr(vitals, "FAULTS_WITHIN_S", -1.0)
    assert ask(running, "/health/ready").json()["status"] == "ok"


def test_a_failed_disk_is_named(running: TestBroker) -> None:
    def facts() -> health.Facts:
        server = running.server
        server.failure = OSError("no space left on device")
        try:
            return server.vitals.facts()
        finally:
            server.failure = None

    assert running.run(facts).storage_failure == "no space left on device"


def test_a_broker_is_not_ready_before_it_started_nor_when_it_stops(running: TestBroker) -> None:
    server = running.server
    assert server.phase == "serving"

    def stop() -> health.Facts:
        server.stop("test")
        return server.vitals.facts()

    loop = server.loop
    phases: list[str] = []
    done = threading.Event()

    def in_loop() -> None:
        phases.append(stop().phase)
        done.set()

    loop.call_soon_threadsafe(in_loop)
    assert done.wait(60)
    assert phases == ["stopping"]


class Loop:
    """An event loop whose time the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, action: object) -> object:
        return action


def test_the_longest_delay_is_remembered_for_ten_seconds() -> None:
    loop = Loop()
    lag = LoopLag(loop)  # type: ignore[arg-type]
    assert lag.longest_s == 0.0
    lag.start()
    loop.now_s += vitals.SAMPLE_EVERY_S + 3.0
    assert lag.longest_s == pytest.approx(3.0)  # not over yet
    lag._sample()
    for _ in range(SAMPLES_KEPT - 1):
        loop.now_s += vitals.SAMPLE_EVERY_S
        lag._sample()
        assert lag.longest_s == pytest.approx(3.0)
    loop.now_s += vitals.SAMPLE_EVERY_S
    lag._sample()
    assert lag.longest_s == pytest.approx(0.0, abs=1e-6)
    assert lag.seconds.count == SAMPLES_KEPT + 1


# -- metrics


def readings(running: TestBroker) -> dict[str, Any]:
    server = running.server
    return dict(asyncio.run_coroutine_threadsafe(server.vitals.readings(), server.loop).result(60))


def test_clients_and_refusals_are_counted(running: TestBroker) -> None:
    client, other = RawClient(running), RawClient(running, connect=False)
    client.produce_to("t")
    client.send(1, messages=0)
    assert client.receive().type == Command.SEND_ERROR
    client.send_command(
        Command(
            type=Command.SUBSCRIBE,
            subscribe=pb.CommandSubscribe(
                topic="a://b", subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=2
            ),
        )
    )
    assert client.receive().type == Command.ERROR
    other.send_command(Command(type=Command.PONG, pong=pb.CommandPong()))
    assert other.is_closed()
    found = readings(running)
    assert found["pulsar_connection_created_total_count"] == 2
    assert found["pulsar_connection_create_fail_count"] == 1
    assert found["magnetar_refused_requests_total"] == {
        ("subscribe", "InvalidTopicName"): 1,
        ("send", "NotAllowedError"): 1,
    }
    client.close()
    other.close()
    wait_until(lambda: not readings(running)["pulsar_active_connections"])
    assert readings(running)["pulsar_connection_closed_total_count"] == 2


def test_a_disk_that_does_not_answer_holds_no_scrape(
    running: TestBroker, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until(lambda: "process_open_fds" in readings(running))
    known = running.server.vitals._machine["process_open_fds"]
    answers, asked = threading.Event(), 0
    monkeypatch.setattr(vitals, "MACHINE_WAIT_S", 0.05)

    def disk_use() -> None:
        nonlocal asked
        asked += 1
        answers.wait(60)

    monkeypatch.setattr(disk, "disk_use", disk_use)
    for _ in range(5):
        assert readings(running)["process_open_fds"] == known
    answers.set()
    assert asked == 1  # not one thread for each scrape


def test_groups_that_wait_are_counted(running: TestBroker, disk: SlowDisk) -> None:
    disk.answers.clear()
    server = running.server
    for _ in range(2):
        server.loop.call_soon_threadsafe(server.broker.write_something)
        wait_until(lambda: server.committer.waiting_since_s is not None)
    wait_until(lambda: readings(running)["magnetar_commit_waiting_groups"] == 1)
    assert readings(running)["magnetar_commit_waiting_seconds"] > 0
    disk.answers.set()


# -- what waits for the disk


def test_bound_publish_buffer_stops_reading_from_all(disk: SlowDisk) -> None:
    running = TestBroker(disk, Settings(maxMessagePublishBufferSizeInMB=1))
    try:
        client, other = RawClient(running), RawClient(running)
        for one in (client, other):
            one.produce_to("t")
        disk.answers.clear()
        client.send(1, b"x" * (3 << 20))
        wait_until(lambda: running.server.is_full and len(running.server.paused) == 1)
        other.send(1)  # the broker reads it, and then no more
        wait_until(lambda: len(running.server.paused) == 2)
        disk.answers.set()
        assert client.receive().type == other.receive().type == Command.SEND_RECEIPT
        wait_until(lambda: not running.server.paused)
    finally:
        disk.answers.set()
        running.close()

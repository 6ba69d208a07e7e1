"""Declared pipelines from the broker to Spark and back: a real broker that is killed, and a verb that only counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from magnetar.pipelines.declared.verb import DeclaredRuns
from magnetar.pipelines.declared_sources import DeclaringBroker
from tests.crash.killable import KillableBroker
from tests.pipelines.declared import counting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60.0
RUNNERS = {"redrive": "tests.pipelines.declared.counting:run"}


class World:
    """A broker, and the verb on the Spark of the tests."""

    def __init__(self, broker: KillableBroker, spark: SparkSession) -> None:
        self.broker = broker
        self.spark = spark
        self.http = httpx.Client(base_url=f"{broker.http_url}/admin/v2/pipelines/", timeout=10, trust_env=False)
        self.verb: DeclaredRuns | None = None

    def start(self) -> None:
        broker = DeclaringBroker(self.broker.http_url, self.broker.service_url)
        self.verb = DeclaredRuns(broker, 1.0, runners=RUNNERS)
        self.verb.open()
        self.verb.start(self.spark.sparkContext)

    def stop(self) -> None:
        if self.verb is not None:
            self.verb.stop()
            self.verb = None

    def declare(self, name: str) -> None:
        body = {"verb": "redrive", "spec": {"sources": [f"{name}-DLQ"]}}
        answer = self.http.put(f"public/default/{name}", json=body)
        assert answer.is_success, answer.text

    def change(self, name: str, verb: str) -> None:
        answer = self.http.post(f"public/default/{name}/{verb}", headers={"Content-Type": "application/json"})
        assert answer.is_success, answer.text

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.http.get(f"public/default/{name}").json())

    def wait(self, name: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline_s = time.monotonic() + WAIT_S
        while True:
            try:
                found = self.status(name)
            except httpx.TransportError:
                found = {}
            if found and is_so(found):
                return found
            assert time.monotonic() < deadline_s, found
            time.sleep(0.05)

    def wait_for(self, name: str, state: str) -> dict[str, Any]:
        return self.wait(name, lambda found: found["state"] == state)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.fixture
def world(tmp_path: Path, spark: SparkSession) -> Iterator[World]:
    broker = KillableBroker(tmp_path / "data", ("pipelinesEnabled=false",))
    broker.start()
    counting.position.clear()
    counting.attempts.clear()
    counting.asks_broker.clear()
    world = World(broker, spark)
    try:
        yield world
    finally:
        world.stop()
        world.http.close()
        broker.kill()


@pytest.mark.timeout(240)
def test_sp3_sp7_declared_pipelines_run_pause_fail_and_survive_kills(world: World) -> None:
    world.declare("slow")
    world.declare("broken")
    assert "pipelinesEnabled is false" in world.status("slow")["reason"]
    world.start()

    # One that fails by itself shows why, and runs again when it is resumed.
    found = world.wait_for("broken", "failed")
    assert (found["reason"], found["failedRuns"]) == ("it has no such column", 1)
    world.change("broken", "resume")
    world.wait("broken", lambda found: found["failedRuns"] == 2)
    assert counting.attempts.count("broken-DLQ") == 2

    # Progress arrives while it runs; a pause ends it, and a resume continues.
    world.wait("slow", lambda found: found["progress"].get("done", 0) >= 2)
    world.change("slow", "pause")
    paused = world.wait_for("slow", "paused")
    done = paused["progress"]["done"]
    assert 2 <= done < counting.TOTAL and paused["progress"]["total"] == counting.TOTAL
    assert paused["progress"]["counts"] == {"even": done // 2} and paused["wanted"] == "paused"
    assert counting.position["slow-DLQ"] == done, "nothing is done after it is reported as paused"

    # The broker is killed, and the process goes on without a new one.
    world.broker.kill()
    world.broker.start()
    assert world.wait_for("slow", "paused")["run"] == 1
    world.change("slow", "resume")
    world.wait("slow", lambda found: found["progress"].get("done", 0) > done)

    # The process ends, and another one continues the same run.
    world.stop()
    stopped = world.wait_for("slow", "waiting")
    assert stopped["reason"] != ""
    world.start()
    world.wait("slow", lambda found: found["state"] == "running" and found["rate"] > 0)
    found = world.wait_for("slow", "done")
    assert (found["progress"]["done"], found["run"]) == (counting.TOTAL, 1)
    assert counting.position["slow-DLQ"] == counting.TOTAL
    assert counting.attempts.count("slow-DLQ") == 3

    # A broker that is away is waited for, whatever the run was doing.
    world.declare("away")
    assert counting.asks_broker.wait(WAIT_S)
    world.broker.kill()
    wait_until(lambda: counting.attempts.count("away-DLQ") >= 2)
    world.broker.start()
    found = world.wait_for("away", "done")
    assert (found["failedRuns"], found["run"]) == (0, 1)
    assert "127.0.0.1" in found["lastError"], "which is over, and names the broker"

    # A cancelled one ends soon.
    world.declare("fast")
    world.wait_for("fast", "done")
    counting.position["slow-DLQ"] = 0
    world.change("slow", "resume")
    world.wait("slow", lambda found: found["state"] == "running" and found["progress"].get("done", 0) >= 1)
    world.change("slow", "cancel")
    found = world.wait_for("slow", "cancelled")
    assert (found["run"], found["progress"]["done"] < counting.TOTAL) == (2, True)
    runs = world.http.get("public/default/slow/runs").json()
    assert [(one["run"], one["state"]) for one in runs] == [(1, "done"), (2, "cancelled")]

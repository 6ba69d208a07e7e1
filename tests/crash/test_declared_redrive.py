"""Kill -9 for the pipelines process in the middle of declared redrives: it is started again, and they continue (SP3).

`MAGNETAR_DECLARED_LETTERS=100000 MAGNETAR_DECLARED_KILLS=40` sets the size. `MAGNETAR_DECLARED_SEED` repeats the
moments of kills.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.crash.killable import KillableBroker
from tests.crash.redriving import Origin
from tests.spark.killable_driver import Process, processes_of

_LETTERS = int(os.environ.get("MAGNETAR_DECLARED_LETTERS", "3000"))
_KILLS = int(os.environ.get("MAGNETAR_DECLARED_KILLS", "2"))
_SEED = int(os.environ.get("MAGNETAR_DECLARED_SEED", random.randrange(1_000_000)))

_PATIENCE_S = 150
_MOMENT_MAX_S = 0.4
_LOOK_S = 0.05

_SPECS: dict[str, dict[str, Any]] = {
    "plain": {"rate": 150},
    "edited": {"rate": 300, "where": "value is not null", "set": {"properties.redriven": "'yes'"}},
}
"""Letters that the broker copies as they are, and letters that Spark chooses and edits, which begins later."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KillableBroker]:
    started = KillableBroker(tmp_path / "data", ("pipelinesMaster=local[2]", "pipelinesLingerSeconds=0"))
    started.start()
    session = started.process_id
    try:
        yield started
    finally:
        kill_all(session, started)


def kill_all(session: int, broker: KillableBroker) -> None:
    """The broker first, which would start the process again."""
    broker.kill()
    while left := list(processes_of(session)):
        for each in left:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        time.sleep(_LOOK_S)


class Redrives:
    """A declared redrive for each spec, and the pipelines process that the broker has started for them."""

    def __init__(self, broker: KillableBroker) -> None:
        self._broker = broker
        self._http = httpx.Client(base_url=f"{broker.http_url}/admin/v2/pipelines/public/default/", trust_env=False)
        self.origins = {name: Origin(broker, name) for name in _SPECS}

    def close(self) -> None:
        self._http.close()

    def declare(self) -> None:
        for name, fields in _SPECS.items():
            spec = {"sources": [self.origins[name].letters], **fields}
            answer = self._http.put(name, json={"verb": "redrive", "spec": spec})
            assert answer.is_success, answer.text

    def statuses(self) -> dict[str, dict[str, Any]]:
        return {name: self._http.get(name).raise_for_status().json() for name in _SPECS}

    def runs(self, name: str) -> list[dict[str, Any]]:
        return list(self._http.get(f"{name}/runs").raise_for_status().json())

    def left(self) -> dict[str, int]:
        return {name: origin.waiting() or 0 for name, origin in self.origins.items()}

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        """As long as letters are sent."""
        left, deadline_s = sum(self.left().values()), time.monotonic() + _PATIENCE_S
        while not is_so():
            now = sum(self.left().values())
            if now < left:
                left, deadline_s = now, time.monotonic() + _PATIENCE_S
            assert time.monotonic() < deadline_s, f"seed {_SEED}: {what}: {left} letters wait: {self.statuses()}"
            time.sleep(_LOOK_S)

    # -- the process

    def processes(self) -> list[Process]:
        """The pipelines process, its JVM and its workers: everything but the broker."""
        return [each for each in processes_of(self._broker.process_id) if each.pid != self._broker.process_id]

    def process_id(self) -> int:
        (found,) = [each.pid for each in self.processes() if "\0magnetar.pipelines\0" in each.command]
        return found

    def kill(self, *, alone: bool) -> None:
        """Alone, its JVM and its workers notice it, and send what they send until then."""
        killed = [self.process_id()] if alone else [each.pid for each in self.processes()]
        for each in killed:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the process is found in /proc")
@pytest.mark.timeout(600)
def test_sp3_kills_of_the_pipelines_process_in_the_middle_of_declared_redrives(broker: KillableBroker) -> None:
    print(f"MAGNETAR_DECLARED_SEED={_SEED}")
    moments = random.Random(_SEED)
    redrives = Redrives(broker)
    try:
        for origin in redrives.origins.values():
            origin.prepare(_LETTERS)
        redrives.declare()
        killed, interrupted = set[int](), set[str]()
        for number in range(_KILLS):
            part = _LETTERS * (_KILLS - number) // (_KILLS + 1)  # at about equal distances
            redrives.wait(f"kill {number}", lambda part=part: redrives.left()["edited"] <= part)  # type: ignore[misc]
            time.sleep(moments.uniform(0, _MOMENT_MAX_S))
            killed.add(redrives.process_id())
            redrives.kill(alone=number % 2 == 0)
            in_the_middle = {name for name, left in redrives.left().items() if 0 < left < _LETTERS}
            assert in_the_middle, "the redrives were over before the kill"
            assert {redrives.statuses()[name]["state"] for name in in_the_middle} <= {"running", "waiting"}
            interrupted |= in_the_middle
        assert interrupted == set(_SPECS)
        assert len(killed) == _KILLS, "the broker has started another one after each kill"
        redrives.wait("the end", lambda: all(one["state"] == "done" for one in redrives.statuses().values()))
        assert redrives.process_id() not in killed
        for name, status in redrives.statuses().items():
            check_record(status, redrives.runs(name))
            redrives.origins[name].check(_LETTERS, _SEED)
    finally:
        redrives.close()


def check_record(status: dict[str, Any], runs: list[dict[str, Any]]) -> None:
    """One run that is done, whatever was killed: an attempt is no run."""
    assert (status["run"], status["failedRuns"], status["reason"]) == (1, 0, ""), status
    (run,) = runs
    assert (run["run"], run["state"], run.get("reason", "")) == (1, "done", ""), run
    assert run["startedMs"] == status["startedMs"] <= run["endedMs"], run
    progress = run["progress"]
    assert progress["done"] == progress["total"] == progress["counts"]["sent"] > 0, run

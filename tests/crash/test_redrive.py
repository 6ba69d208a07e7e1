"""Kill -9 while dead letters are redriven: the origin has each exactly once, in order per key (SP3).

Plain letters are copied by the broker, so it is killed and the driver that sends the requests; the others by workers of
Spark too.

`MAGNETAR_REDRIVE_LETTERS=100000 MAGNETAR_REDRIVE_KILLS=40` sets the size. `MAGNETAR_REDRIVE_SEED` repeats an order of
kills.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.killable import KillableBroker
from tests.crash.redriving import Origin
from tests.spark.killable_driver import environment_without_spark, processes_of

_LETTERS = int(os.environ.get("MAGNETAR_REDRIVE_LETTERS", "0"))
_KILLS = int(os.environ.get("MAGNETAR_REDRIVE_KILLS", "5"))
_SEED = int(os.environ.get("MAGNETAR_REDRIVE_SEED", random.randrange(1_000_000)))

_PATIENCE_S = 150


@dataclass(frozen=True)
class Kind:
    """`moment_s` is the longest time from letters that go to a kill; a round of plain ones takes a few hundredths of a
    second."""

    words: tuple[str, ...]
    letters: int
    rate: int
    moment_s: float
    killed: tuple[str, ...]


_KINDS = {
    "plain letters": Kind((), 20_000, 4000, 0.04, ("broker", "driver", "broker", "broker", "broker")),
    "by columns": Kind(("--where", "true"), 10_000, 600, 1.0, ("worker", "broker", "driver", "broker", "worker")),
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KillableBroker]:
    started = KillableBroker(tmp_path / "data", ("pipelinesEnabled=false",))
    started.start()
    yield started
    started.kill()


class LocalRedrive:
    """`magnetar redrive start --local`, with its JVM and workers in one session."""

    def __init__(self, broker: KillableBroker, letters: str, kind: Kind, log: Path) -> None:
        command = [sys.executable, "-m", "magnetar", "redrive", "start", "--from", letters, "--local", *kind.words]
        command += ["--rate", str(kind.rate), "--url", broker.http_url, "--service-url", broker.service_url]
        with log.open("a") as output:
            self._process = subprocess.Popen(
                command, start_new_session=True, env=environment_without_spark(), stdout=output, stderr=output
            )

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        while left := list(processes_of(self._process.pid)):
            for each in left:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
        self._process.wait()

    def kill_worker(self) -> bool:
        """A busy one, if there is one; whether there was any."""
        found = sorted((not each.is_busy, each.pid) for each in processes_of(self._process.pid) if each.is_worker)
        for _, pid in found[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(found)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", _KINDS.values(), ids=_KINDS)
def test_sp3_kills_in_the_middle_of_a_redrive_lose_and_repeat_nothing(
    broker: KillableBroker, kind: Kind, tmp_path: Path
) -> None:
    print(f"MAGNETAR_REDRIVE_SEED={_SEED}")
    moments, log, letters = random.Random(_SEED), tmp_path / "redrive.log", _LETTERS or kind.letters
    origin = Origin(broker, "orders")
    origin.prepare(letters)
    kills = [kind.killed[number % len(kind.killed)] for number in range(_KILLS)]
    redrive, left = LocalRedrive(broker, origin.letters, kind, log), letters
    deadline_s = time.monotonic() + _PATIENCE_S
    try:
        while redrive.code is None or kills or redrive.code != 0:
            assert time.monotonic() < deadline_s, f"seed {_SEED}: not over, {left} letters wait: {log.read_text()}"
            if redrive.code is not None and origin.waiting():
                redrive = LocalRedrive(broker, origin.letters, kind, log)  # a run that gave up is repeated
            elif redrive.code is not None:
                break
            now = origin.waiting()
            if now is not None and now < left:
                left, deadline_s = now, time.monotonic() + _PATIENCE_S
            if kills and left < letters * len(kills) // (_KILLS + 1):  # at about equal distances
                time.sleep(moments.uniform(0, kind.moment_s))
                killed = kills[0]
                if killed == "worker" and not redrive.kill_worker():
                    continue
                if killed == "broker":
                    broker.kill()
                    broker.start()
                if killed == "driver":
                    redrive.kill()
                    redrive = LocalRedrive(broker, origin.letters, kind, log)
                kills.pop(0)
            time.sleep(0.02)
    finally:
        redrive.kill()
    assert kills == [], "the redrive was over before the last kill"
    origin.check(letters, _SEED)

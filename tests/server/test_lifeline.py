"""The lifeline between a broker and a process, with real processes that run nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from magnetar.server import lifeline
from magnetar.server.lifeline import Held

WAIT_S = 30.0

PROCESS = """
import os, sys, threading
from magnetar.pipelines import lifeline
over = threading.Event()
lifeline.watch(float(sys.argv[1]), over.set)
open(sys.argv[2], "w").write(str(os.getpid()))
over.wait()
sys.exit(3)
"""


class Life:
    def __init__(self, folder: Path, linger_s: float) -> None:
        self.file = folder / "pid"
        self.words = [sys.executable, "-c", PROCESS, str(linger_s), str(self.file)]
        self.path = lifeline.path_of(folder, self.words, "1.0")

    def start(self) -> Held:
        held = lifeline.start(self.path, self.words)
        until(lambda: self.file.is_file() and bool(self.file.read_text()))
        return held

    @property
    def pid(self) -> int:
        return int(self.file.read_text())


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def ended(held: Held) -> str:
    return asyncio.run(asyncio.wait_for(held.wait(), WAIT_S))


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path, 600)
    yield life
    if (left := lifeline.find(life.path)) is not None:
        left.terminate()
        left.release()


def test_gr1_the_next_broker_finds_the_process_of_one_that_is_gone(life: Life) -> None:
    first = life.start()
    assert stat.S_IMODE(life.path.stat().st_mode) == 0o600
    first.release()  # as the end of the broker does, whatever ended it
    second = lifeline.find(life.path)
    assert second is not None
    second.terminate()
    assert ended(second) == "ended"
    assert ended(first) == "ended with code 3", "it ended when it was told to"
    assert lifeline.find(life.path) is None
    assert not life.path.exists()


def test_gr1_a_process_without_a_broker_ends(tmp_path: Path) -> None:
    life = Life(tmp_path, 0.3)
    held = life.start()
    held.release()
    assert ended(held) == "ended with code 3"
    assert lifeline.find(life.path) is None


def test_gr1_a_process_of_another_version_is_ended_and_not_taken_over(life: Life, tmp_path: Path) -> None:
    held = life.start()
    held.release()
    assert lifeline.find(lifeline.path_of(tmp_path, life.words, "1.1")) is None
    assert ended(held) == "ended with code 3"
    assert list(tmp_path.glob("*.pipe")) == []


def test_gr1_the_end_of_a_process_taken_over_is_noticed(life: Life) -> None:
    first = life.start()
    first.release()
    second = lifeline.find(life.path)
    assert second is not None
    os.kill(life.pid, signal.SIGKILL)
    assert ended(second) == "ended"
    assert ended(first) == "ended with code -9"


def test_a_file_that_is_no_pipe_is_not_taken_for_a_process(life: Life) -> None:
    life.path.write_text("")
    assert lifeline.find(life.path) is None
    assert not life.path.exists()

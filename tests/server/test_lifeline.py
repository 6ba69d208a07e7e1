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

import msgspec
import pytest

from magnetar.replication.handover import Handover
from magnetar.server import lifeline
from magnetar.server.lifeline import Held

WAIT_S = 30.0

PROCESS = """
import os, sys, threading
from magnetar.pipelines import lifeline
from magnetar.pipelines.handed import Handed
over, handed = threading.Event(), Handed()
lifeline.watch(float(sys.argv[1]), over.set, handed)
open(sys.argv[2], "w").write(str(os.getpid()))
for version in sys.argv[3:]:
    with open(f"{sys.argv[2]}-{version}", "wb") as file:
        file.write(handed.token().encode() + b" %d" % len(bytes(handed.credentials(version))))
over.wait()
sys.exit(3)
"""


class Life:
    def __init__(self, folder: Path, linger_s: float, *versions: str) -> None:
        self.file = folder / "pid"
        self.words = [sys.executable, "-c", PROCESS, str(linger_s), str(self.file), *versions]
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


def test_credentials_reach_the_process_over_the_pipe_alone(tmp_path: Path) -> None:
    """Also if they are more than a pipe holds at once."""
    life = Life(tmp_path, 600, "v1")
    held = life.start()
    credentials = msgspec.Raw(b'"%s"' % (b"x" * 300_000))
    held.send(msgspec.json.encode(Handover("Tz9token", "v1", credentials)))
    waiting = asyncio.run(asyncio.wait_for(_until_file(held, tmp_path / "pid-v1"), WAIT_S))
    assert waiting == f"Tz9token {len(bytes(credentials))}"
    for shown in ("cmdline", "environ"):
        assert b"Tz9token" not in Path(f"/proc/{life.pid}/{shown}").read_bytes()
    held.terminate()
    assert ended(held) == "ended with code 3"
    held.release()


async def _until_file(held: Held, file: Path) -> str:
    waiting = asyncio.ensure_future(held.wait())  # which writes on
    while not (file.is_file() and file.read_text()):
        await asyncio.sleep(0.02)
    waiting.cancel()
    return file.read_text()


def test_a_file_that_is_no_pipe_is_not_taken_for_a_process(life: Life) -> None:
    life.path.write_text("")
    assert lifeline.find(life.path) is None
    assert not life.path.exists()

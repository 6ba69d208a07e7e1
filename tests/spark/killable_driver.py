"""A Spark driver whose processes can be killed: a program with its JVM and its Python processes."""

from __future__ import annotations

import os
import queue
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PATIENCE_S = 120
LOOK_AGAIN_S = 0.01
_JOB = Path(__file__).with_name("kill_job.py")


def wait_until(what: str, is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s, f"{what}: not in {PATIENCE_S} s"
        time.sleep(LOOK_AGAIN_S)


def environment_without_spark() -> dict[str, str]:
    """The environment of this process, without the variables of its own Spark."""
    theirs = ("PYSPARK", "SPARK")
    return {name: value for name, value in os.environ.items() if not name.startswith(theirs)}


class Process(NamedTuple):
    pid: int
    is_busy: bool
    command: str  # a NUL after each argument

    @property
    def is_worker(self) -> bool:
        """A worker of Spark or the daemon above it. The JVM's command line has the name too, in a longer argument."""
        return re.search(r"\0magnetar\.(spark\.runtime|pipelines)\.worker_daemon\0", self.command) is not None


def processes_of(session: int) -> Iterator[Process]:
    """All processes of a session, whatever their parent. Zombies are left out."""
    for folder in Path("/proc").iterdir():
        with suppress(ValueError, OSError):
            pid = int(folder.name)
            state, _, _, session_id, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(session_id) == session and state not in "ZX":
                yield Process(pid, state == "R", (folder / "cmdline").read_text())


class Driver:
    """A program, `kill_job` unless another one is given, with its JVM and its Python workers, in its own session."""

    def __init__(self, arguments: list[str], scratch: Path, log: Path, program: Path = _JOB) -> None:
        with log.open("a") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, program, *arguments],
                start_new_session=True,
                env={**environment_without_spark(), "TMPDIR": str(scratch)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self._log = log
        self.failures: list[str] = []
        self._tasks_killed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._log.open("a") as log:
                log.write(f"---- {line}")
            if line.startswith("failed "):
                self.failures.append(line.strip())
            elif line.startswith("killed "):
                self._tasks_killed.put(line)

    def check(self) -> None:
        code = self._process.poll()
        assert code is None, f"the driver exited with {code}: see {self._log}"

    def kill_task(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("kill\n")
        self._process.stdin.flush()
        self._tasks_killed.get(timeout=PATIENCE_S)

    def kill_worker(self, moments: random.Random) -> None:
        """Kills a worker that reads or writes, as soon as one is busy."""
        self._kill_one(self._busy_workers, moments)

    def kill_planner(self, moments: random.Random) -> None:
        """Kills the planner process, of which a query has one."""
        self._kill_one(self._planners, moments)

    def _kill_one(self, find: Callable[[], list[int]], moments: random.Random) -> None:
        def is_killed() -> bool:
            self.check()
            if found := find():
                with suppress(ProcessLookupError):
                    os.kill(moments.choice(found), signal.SIGKILL)
                    return True
            return False

        wait_until("a process to kill exists", is_killed)

    def _busy_workers(self) -> list[int]:
        return [each.pid for each in self._processes() if each.is_busy and each.is_worker]

    def _planners(self) -> list[int]:
        return [each.pid for each in self._processes() if "python_streaming_source_runner" in each.command]

    def _processes(self) -> list[Process]:
        return sorted(processes_of(self._process.pid))

    def kill_alone(self) -> None:
        """SIGKILL for the program only: its JVM and its workers notice that. `kill` comes later."""
        self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        """SIGKILL for the JVM and every Python process."""
        while left := self._processes():
            for each in left:
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

"""Programs of this folder, each in its own process, which report results as lines of JSON.

A crashed client thus does not end the benchmark, and no JVM runs inside it. Knows nothing about the measurements.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from process import running, tail

HERE = Path(__file__).resolve().parent
_END_TIMEOUT_S = 60.0

Answer = dict[str, Any]


class ProgramFailed(Exception):
    """A program exited, or printed nothing for too long; the text ends with its log."""


class Program:
    """A running program; the end of its stdin makes it exit."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.name, self.pid = name, process.pid
        self._process, self._log = process, log
        self._stdin, self._stdout = process.stdin, process.stdout

    def answer(self, limit_s: float) -> Answer:
        """The next printed result; raises `ProgramFailed`."""
        deadline = time.monotonic() + limit_s
        while True:
            can_read, _, _ = select.select([self._stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not can_read:
                raise self._failed(f"printed nothing for {limit_s:.0f} s")
            line = self._stdout.readline()
            if not line:
                raise self._failed(f"exited with code {self._process.wait(_END_TIMEOUT_S)}")
            if line.startswith(b"{"):  # libraries may print too
                found: Answer = json.loads(line)
                return found

    def check_runs(self) -> None:
        """Raises `ProgramFailed` if the program exited by itself."""
        if (code := self._process.poll()) is not None:
            raise self._failed(f"exited with code {code}")

    def end(self) -> None:
        """Waits for a clean exit; raises `ProgramFailed`."""
        self._stdin.close()
        try:
            code = self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self._failed(f"did not exit within {_END_TIMEOUT_S:.0f} s") from None
        if code != 0:
            raise self._failed(f"exited with code {code}")

    def _failed(self, what: str) -> ProgramFailed:
        return ProgramFailed(f"{self.name} {what}; its log ends with:\n{tail(self._log)}")


@contextlib.contextmanager
def started(name: str, *words: object, folder: Path) -> Iterator[Program]:
    """Runs the program `name`.py with these arguments during the block; its log is in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}-{words[0]}.log"
    command = [sys.executable, str(HERE / f"{name}.py"), *map(str, words)]
    with running(command, log, folder, talks=True) as process:
        yield Program(f"{name} {words[0]}", process, log)


def outcome_of(name: str, *words: object, folder: Path, limit_s: float) -> Answer:
    """The result of a program that prints one."""
    with started(name, *words, folder=folder) as program:
        return program.answer(limit_s)

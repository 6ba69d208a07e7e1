"""The stage of the tour: brokers and billing processes on this machine, and the commands that are shown.

Owns processes, their ports and their end. Knows no story.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from magnetar.cli.rest import Rest
from magnetar.errors import MagnetarError

_READY_S = 60
_STOP_S = 20
_COMMAND_S = 300
_POLL_S = 0.3


class TourFailed(MagnetarError):
    """A step did not end as it should."""


class Cluster(NamedTuple):
    name: str
    service_url: str
    http_url: str


class CommandResult(NamedTuple):
    code: int
    out: str
    error: str


class TourStage:
    """A context manager: everything that it started ends with it. `home` has the data and the logs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._running: list[subprocess.Popen[str]] = []
        self._crews: list[Crew] = []
        self._reading: list[threading.Thread] = []

    def __enter__(self) -> TourStage:
        return self

    def __exit__(self, *reason: object) -> None:
        for crew in self._crews:
            crew.stop()
        for process in reversed(self._running):
            process.terminate()
        for process in reversed(self._running):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
            process.kill()
            process.wait()
        for reading in self._reading:
            reading.join()
        for process in self._running:
            assert process.stdout is not None
            process.stdout.close()

    def broker(self, name: str, **settings: str) -> Cluster:
        words = ["standalone", "--cluster", name, "--data", str(self.home / name), "--port", "0", "--http-port", "0"]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        with (self.home / f"{name}.log").open("w") as log:
            process = subprocess.Popen(_command(words), stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.home)
        self._running.append(process)
        return self._ready(name, process)

    def _ready(self, name: str, process: subprocess.Popen[str]) -> Cluster:
        lines: list[str] = []
        assert process.stdout is not None
        found = threading.Event()
        reading = threading.Thread(target=_read, args=(process.stdout, lines, found), daemon=True)
        reading.start()
        self._reading.append(reading)
        found.wait(_READY_S)
        for line in lines:
            if line.startswith("ready "):
                _, service_url, http_url = line.split()
                return Cluster(name, service_url, http_url)
        raise TourFailed(f"broker {name} did not start: its log is {self.home / f'{name}.log'}")

    def crew(self, size: int, module: str, *words: str) -> Crew:
        """Processes that are started again when they end."""
        command = [sys.executable, "-m", module, *words]
        crew = Crew(command, size, self.home / "billing.log")
        self._crews.append(crew)
        return crew

    def run(self, cluster: Cluster, words: str) -> CommandResult:
        """One of our commands, without its first word."""
        environment = {**os.environ, "MAGNETAR_URL": cluster.http_url, "NO_COLOR": "1"}
        done = _run(_command(shlex.split(words)), environment, self.home)
        return CommandResult(done.returncode, done.stdout, done.stderr)


class Crew:
    """`restarts` counts the processes that had to be replaced."""

    def __init__(self, command: list[str], size: int, log: Path) -> None:
        self.restarts = 0
        self._command = command
        self._log = log
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._keep, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            with self._log.open("a") as log:
                process = subprocess.Popen(self._command, stdout=log, stderr=log)
            while process.poll() is None and not self._stopping.wait(_POLL_S):
                pass
            if process.poll() is None:
                process.kill()
            else:
                self.restarts += 1
            process.wait()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


def wait_for(what: str, holds: Callable[[], bool], limit_s: float, on_wait: Callable[[], None]) -> None:
    """Raises `TourFailed` after the limit."""
    ends_s = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > ends_s:
            raise TourFailed(f"{what}: not within {limit_s:.0f} s")
        on_wait()
        time.sleep(_POLL_S)


@contextlib.contextmanager
def asking(cluster: Cluster) -> Iterator[Rest]:
    with Rest(cluster.http_url) as rest:
        yield rest


def _command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "magnetar", *words]


def _run(command: list[str], environment: Mapping[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TourFailed(f"{shlex.join(command[2:])}: no end within {_COMMAND_S} s") from error


def _read(stream: IO[str], lines: list[str], found: threading.Event) -> None:
    for line in stream:
        lines.append(line.rstrip("\n"))
        if line.startswith("ready "):
            found.set()
    found.set()  # it ended

"""Processes started by a benchmark: each in its own session, always stopped; and their memory and CPU time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

STOP_TIMEOUT_S = 40.0
KB, MB = 1024, 1024 * 1024
_START_FIELD = 19  # starttime of proc(5), counted from the state field
_CPU_FIELDS = slice(11, 13)  # utime and stime of proc(5), counted from the state field, which follows the name


@contextlib.contextmanager
def running(
    command: Sequence[str], log: Path, folder: Path | None = None, *, talks: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process during the block, with its output in `log`; with `talks`, stdin and stdout are pipes.

    Its own session keeps Ctrl-C at the terminal from reaching it: it is stopped here, in order, and only here.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE if talks else output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        stop(process)
        for pipe in filter(None, (process.stdin, process.stdout)):
            pipe.close()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM, waits, then kills the whole session; a second Ctrl-C kills at once."""
    try:
        if process.poll() is None:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def memory_mb(pid: int, kind: str = "Pss") -> float:
    """Proportional set size of a process and its descendants, in MB; with `Rss` shared pages count in each of them."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    own_kb = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(f"{kind}:"))
    return own_kb * KB / MB + sum(memory_mb(child, kind) for child in _children(pid))


def starts(pid: int) -> dict[str, float]:
    """When the descendants of a process started, by their command lines: seconds of the clock since boot."""
    found: dict[str, float] = {}
    for child in _children(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            command = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            found |= {command: int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")} | starts(child)
    return found


class CpuMeter:
    """CPU time of a process and its descendants, including those that exited, up to the last `look` at them."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._last_s = _cpu_by_process(pid)
        self.used_s = 0.0

    def look(self) -> None:
        now_s = _cpu_by_process(self._pid)
        self.used_s += sum(max(0.0, used - self._last_s.get(pid, 0.0)) for pid, used in now_s.items())
        self._last_s = now_s


def _cpu_by_process(pid: int) -> dict[int, float]:
    """CPU seconds of every live process of a tree."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = list(_children(pid))
    except (FileNotFoundError, ProcessLookupError):  # it has just exited
        return {}
    used_s = {pid: sum(map(int, fields[_CPU_FIELDS])) / os.sysconf("SC_CLK_TCK")}
    for child in children:
        used_s |= _cpu_by_process(child)
    return used_s


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just exited
            yield from map(int, (task / "children").read_text().split())


def tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

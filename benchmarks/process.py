"""Processes that a benchmark starts: in a session of their own, always stopped, with the memory the kernel counts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

STOP_TIMEOUT_S = 40.0
KB, MB = 1024, 1024 * 1024


@contextlib.contextmanager
def running(command: Sequence[str], log: Path, folder: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the length of the block; its output goes to `log`.

    A session of its own keeps Ctrl-C at the terminal from reaching it: it is stopped here, in order, and only here.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True
        )
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Asks politely, waits, then kills the whole session; a second Ctrl-C meanwhile kills at once."""
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


def memory_mb(pid: int) -> float:
    """The proportional set size of a process and all it started, in MB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    own_kb = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return own_kb * KB / MB + sum(memory_mb(child) for child in _children(pid))


def _children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

"""The lifeline of the pipelines process: a named pipe in the data folder, which ties it to the broker of the folder.

The process reads it, the broker holds it open for writing, and writes what no one else may see. Each knows at once when
the other is gone, even if it was killed, and a broker that starts finds the process that an earlier one left. The name
of the pipe contains what the process was started with: another version or other settings make another name, and the
process of an old name is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import select
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

_PATTERN = "pipelines-*.pipe"
_END = b"\nend\n"
_LOOK_S = 0.2
_MODE = 0o600


def path_of(folder: Path, words: list[str], version: str) -> Path:
    """Of a process that is started with these words."""
    digest = hashlib.sha256("\0".join([version, *words]).encode()).hexdigest()
    return folder / f"pipelines-{digest[:16]}.pipe"


class Held:
    """A running process, seen from the broker: its own child, or one that an earlier broker left (`child` is None)."""

    def __init__(self, descriptor: int, child: subprocess.Popen[bytes] | None = None) -> None:
        self._descriptor = descriptor
        self._child = child
        self._unwritten = b""  # of a line that has begun
        self._next = b""  # the line after it

    async def wait(self) -> str:
        """Until it ends; returns how."""
        while self._is_alive():
            self._write()
            await asyncio.sleep(_LOOK_S)
        code = None if self._child is None else self._child.returncode
        return "ended" if code is None else f"ended with code {code}"

    def _is_alive(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        looking = select.poll()
        looking.register(self._descriptor, select.POLLERR)
        return not looking.poll(0)

    def send(self, line: bytes) -> None:
        """The process gets the newest line at least. Never waits."""
        self._next = b"\n%s\n" % line  # ends a line that an earlier broker was killed in
        self._write()

    def _write(self) -> None:
        with contextlib.suppress(BrokenPipeError, BlockingIOError):  # it ends, or the pipe is full
            while self._unwritten or self._next:
                if not self._unwritten:
                    self._unwritten, self._next = self._next, b""
                self._unwritten = self._unwritten[os.write(self._descriptor, self._unwritten) :]

    def terminate(self) -> None:
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._descriptor, _END)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def release(self) -> None:
        """The process stays, and waits for another broker."""
        os.close(self._descriptor)


def start(path: Path, words: list[str], environment: Mapping[str, str] | None = None) -> Held:
    """Starts a process that reads its lifeline as stdin. It keeps no other pipe of the broker's but stderr, so that a
    reader of the broker's output does not wait for it. Raises `OSError`."""
    path.unlink(missing_ok=True)
    os.mkfifo(path, _MODE)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        writing = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            return Held(writing, subprocess.Popen(words, stdin=reading, stdout=subprocess.DEVNULL, env=environment))
        except OSError:
            os.close(writing)
            raise
    finally:
        os.close(reading)


def find(path: Path) -> Held | None:
    """The process that reads this lifeline. Those of other names are ended, pipes that nothing reads are removed."""
    found: Held | None = None
    for each in path.parent.glob(_PATTERN):
        held = _open(each)
        if held is not None and each == path:
            found = held
            continue
        if held is not None:
            held.terminate()
            held.release()
        each.unlink(missing_ok=True)
    return found


def _open(path: Path) -> Held | None:
    """None if nothing reads it, or if it is not a pipe of this user."""
    try:
        status = path.lstat()
        if not stat.S_ISFIFO(status.st_mode) or status.st_uid != os.geteuid():
            return None
        return Held(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:  # ENXIO: nothing reads it
        return None

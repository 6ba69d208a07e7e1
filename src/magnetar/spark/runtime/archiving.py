"""Archiving: `python -m magnetar.spark.runtime.archiving` creates the class archive of a small JVM.

It runs once for each Java and Spark, as a process of the lowest priority with a JVM of its own, because the JVM writes
an archive only when it ends, for some seconds: too long for a program that was interrupted. A failure costs nothing but
the archive.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping

from magnetar.errors import MagnetarError
from magnetar.spark.runtime import class_archive, gateway, java, start

AFTER_S = 60.0  # the start of a program is over, and tests and short programs need no archive
_LIMIT_S = 300
_WRITING_S = 120.0


class Archiving:
    """Creates the archive if there is none, some time after `begin`."""

    def __init__(self, settings: Mapping[str, str], after_s: float = AFTER_S) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self._lock = threading.Lock()
        self._timer = threading.Timer(after_s, self._run)
        self._timer.daemon = True

    def begin(self) -> None:
        self._timer.start()

    def end(self) -> None:
        """Also that of the process, if it runs."""
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._process is not None:
                self._process.terminate()

    def _run(self) -> None:
        try:
            archive = class_archive.of(java.find())
        except MagnetarError:
            return
        if archive is None or archive.find() is not None:
            return
        with self._lock:
            if not self._is_over:
                self._process = subprocess.Popen(command(self._settings), stdin=subprocess.DEVNULL)
        if self._process is not None:
            self._process.wait()


def command(settings: Mapping[str, str]) -> list[str]:
    return [sys.executable, "-m", __spec__.name, *(f"{name}={value}" for name, value in settings.items())]


def main(words: list[str]) -> int:
    os.nice(19)
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, lambda *_: sys.exit(1))
    signal.alarm(_LIMIT_S)
    archive = class_archive.of(java.find())
    if archive is None or archive.find() is not None:
        return 0
    try:
        with archive.written() as path:
            context = start.context("local[1]", writes_archive=path, **dict(word.split("=", 1) for word in words))
            context.runJob(context.parallelize([0], 1), list)
            context.stop()
            gateway.end(_WRITING_S)
    finally:
        gateway.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The lifeline of the process: stdin, which the broker that started it holds open.

Without a broker the process lives on for a while: one that restarts on the same data folder holds the lifeline again,
and finds everything running. A broker writes lines: `end`, or what it hands over. Owns a thread; the other end is
`server.lifeline`.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable

from magnetar.pipelines.handed import Handed

log = logging.getLogger("magnetar.pipelines")

_LOOK_S = 0.1
_READ_SIZE = 65536
_END = b"end"


def watch(linger_s: float, on_over: Callable[[], None], handed: Handed, descriptor: int | None = None) -> None:
    """Calls `on_over` once: when no broker held the lifeline for `linger_s` seconds, or when one ended the process.
    Other lines go to `handed`, which is emptied while no broker is there."""
    if descriptor is None:
        descriptor = os.dup(0)  # not inherited, so that a child does not pass for this process
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
    os.set_blocking(descriptor, False)
    watching = _Watch(descriptor, linger_s, handed)

    def run() -> None:
        watching.run()
        handed.end()
        on_over()

    threading.Thread(target=run, name="lifeline", daemon=True).start()


class _Watch:
    def __init__(self, descriptor: int, linger_s: float, handed: Handed) -> None:
        self._descriptor = descriptor
        self._linger_s = linger_s
        self._handed = handed
        self._unfinished = b""
        self._alone_since_s: float | None = None
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def run(self) -> None:
        """Until the process shall end."""
        while True:
            try:
                read = os.read(self._descriptor, _READ_SIZE)
            except BlockingIOError:
                self._alone_since_s = None  # a broker holds it
                self._poll.poll(_LOOK_S * 1000)
                continue
            if read:
                if self._take(read):
                    return
            elif self._is_alone_too_long():
                return
            else:
                time.sleep(_LOOK_S)

    def _take(self, read: bytes) -> bool:
        """Whether a broker ends the process."""
        self._alone_since_s = None
        *lines, self._unfinished = (self._unfinished + read).split(b"\n")
        if _END in lines:
            return True
        for line in lines:
            if line:
                self._handed.put(line)
        return False

    def _is_alone_too_long(self) -> bool:
        now_s = time.monotonic()
        if self._alone_since_s is None:
            self._alone_since_s = now_s
            self._unfinished = b""
            self._handed.forget()
            if self._linger_s:
                log.info("the broker is gone; waiting %g s for it to come back", self._linger_s)
        return now_s - self._alone_since_s >= self._linger_s

"""The lifeline of the process: stdin, which the broker that started it holds open.

Without a broker the process lives on for a while: one that restarts on the same data folder holds the lifeline again,
and finds everything running. Owns a thread; the other end is `server.lifeline`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

log = logging.getLogger("magnetar.pipelines")

_LOOK_S = 0.1


def watch(linger_s: float, on_over: Callable[[], None], descriptor: int | None = None) -> None:
    """Calls `on_over` once: when no broker held the lifeline for `linger_s` seconds, or when one wrote into it."""
    if descriptor is None:
        descriptor = os.dup(0)  # not inherited, so that a child does not pass for this process
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
    threading.Thread(target=_watch, args=(descriptor, linger_s, on_over), name="lifeline", daemon=True).start()


def _watch(descriptor: int, linger_s: float, on_over: Callable[[], None]) -> None:
    os.set_blocking(descriptor, False)
    alone_since_s: float | None = None
    while True:
        try:
            is_told = bool(os.read(descriptor, 1024))
        except BlockingIOError:
            alone_since_s = None  # a broker holds it
        else:
            now_s = time.monotonic()
            if alone_since_s is None:
                alone_since_s = now_s
                if not is_told and linger_s:
                    log.info("the broker is gone; waiting %g s for it to come back", linger_s)
            if is_told or now_s - alone_since_s >= linger_s:
                on_over()
                return
        time.sleep(_LOOK_S)

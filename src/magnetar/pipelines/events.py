"""The event thread of a verb: one event after another, and a tick when one is due.

Owns the queue and the thread. A verb that decides in events alone needs no lock.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

Event = Callable[[float], None]
"""Called with the time."""


class EventThread:
    """`tick` is called after every event, and at the time that it returned, None for no such time."""

    def __init__(self, name: str, tick: Callable[[float], float | None]) -> None:
        self._tick = tick
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, event: Event) -> None:
        """May be called from any thread."""
        self._events.put(event)

    def stop(self) -> None:
        """Events that wait are dropped."""
        self._stopped.set()
        self._events.put(None)

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        next_s: float | None = None
        while True:
            event = self._next(next_s)
            if self._stopped.is_set():
                return
            try:
                if event is not None:
                    event(time.monotonic())
                next_s = self._tick(time.monotonic())
            except Exception:
                if self._stopped.is_set():
                    return  # the event used something that is closed by now
                log.exception("unexpected error in an event, please report it")

    def _next(self, next_s: float | None) -> Event | None:
        """None when a tick is due."""
        try:
            return self._events.get(timeout=None if next_s is None else max(0.0, next_s - time.monotonic()))
        except queue.Empty:
            return None

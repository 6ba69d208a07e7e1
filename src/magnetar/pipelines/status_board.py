"""How it stands with every topic and remote cluster: states with their reasons, told when they change.

Owns what a report says, what is logged of it, and which rows the source has not been told of yet. It knows neither
Spark nor how anything is copied, and sends nothing itself.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable

import msgspec

from magnetar.clock import Clock
from magnetar.pipelines.copy.assignment import Outcome
from magnetar.replication.model import Report, Reports, State

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""A topic without partitions, or one partition, and a remote cluster."""

LINES_MAX = 20
"""Lines of the log for topics that come into the same state at the same time."""

_QUIET = (State.RUNNING, State.CATCHING_UP, State.PAUSED)


class StatusBoard:
    """Written by one thread; `take` and `put_back` are for another, which sends the reports."""

    def __init__(self, pipeline: str, clock: Clock, on_change: Callable[[], None]) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._on_change = on_change
        self._rows: dict[Key, Report] = {}
        self._changed: set[Key] = set()
        self._is_all = True
        self._lines: Counter[tuple[str, State]] = Counter()  # since the last report
        self._lock = threading.Lock()

    def state_of(self, key: Key) -> State | None:
        row = self._rows.get(key)
        return None if row is None else row.state

    def set(self, key: Key, state: State, reason: str = "", error: str = "") -> None:
        """What `error` says may be over already; without one, the last is kept."""
        now_ms = self._clock.now_ms()
        with self._lock:
            before = self._rows.get(key)
            row = before or Report(key[0], key[1], state, since_ms=now_ms)
            self._rows[key] = row
            is_new_state = before is None or row.state is not state
            is_new = is_new_state or row.reason != reason or (error != "" and row.error != error)
            if not is_new:
                return
            before_state = None if before is None else row.state
            row.state, row.reason = state, reason
            if is_new_state:
                row.since_ms = now_ms
            if error:
                row.error, row.error_ms = error, now_ms
            self._changed.add(key)
        if is_new_state:
            self._say(key, before_state, state, reason or error)
        self._on_change()

    def count(self, key: Key, outcome: Outcome) -> None:
        """Goes with the next report; nobody is woken for it."""
        with self._lock:
            row = self._rows.get(key)
            if row is not None and outcome.entries:
                row.entries_out += outcome.entries
                row.messages_out += outcome.messages
                row.bytes_out += outcome.bytes
                self._changed.add(key)

    def remove(self, key: Key) -> None:
        with self._lock:
            if self._rows.pop(key, None) is None:
                return
            self._changed.discard(key)
            self._is_all = True  # a row that is left out says so
        log.info("%s -> %s: no longer replicated", *key)
        self._on_change()

    def take(self, *, is_all: bool = False) -> Reports:
        """What has not been told yet, or all of it."""
        with self._lock:
            is_all = is_all or self._is_all
            keys = self._rows.keys() if is_all else self._changed
            rows = [msgspec.structs.replace(self._rows[key]) for key in keys]
            self._changed = set()
            self._is_all = False
            lines, self._lines = self._lines, Counter()
        for (remote, state), count in lines.items():
            if count > LINES_MAX:
                log.log(_level(None, state), "%d more -> %s: %s", count - LINES_MAX, remote, state.value)
        return Reports(self._pipeline, is_all, rows)

    def put_back(self) -> None:
        """What was taken did not arrive, and whoever did not get it may have forgotten what it knew."""
        with self._lock:
            self._is_all = True

    def _say(self, key: Key, before: State | None, state: State, reason: str) -> None:
        """One line for each change; of a cluster that takes all its topics along, some are enough."""
        self._lines[key[1], state] += 1
        if self._lines[key[1], state] <= LINES_MAX:
            log.log(_level(before, state), "%s -> %s: %s%s", *key, state.value, f": {reason}" if reason else "")


def _level(before: State | None, state: State) -> int:
    """That a topic begins, or catches up for a while, is no news."""
    if state not in _QUIET:
        return logging.WARNING
    is_routine = state is State.CATCHING_UP if before is None else before.is_copying and state.is_copying
    return logging.DEBUG if is_routine else logging.INFO

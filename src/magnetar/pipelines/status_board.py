"""The status board of a verb: the state of every row with its reason, and which rows have changed.

Owns the times of changes, the log lines, and which rows the source has not received yet. The verb names the states. It
sends nothing itself: see `heartbeats`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, TypeVar

from magnetar.clock import Clock
from magnetar.log.events import Event, emit_at

log = logging.getLogger(__name__)

Key = tuple[str, ...]
"""The names of a row, for example a topic and a remote cluster. Rows with the same last name often fail together."""

StateT = TypeVar("StateT", bound=StrEnum)

LINES_MAX = 20
"""Log lines for rows that enter the same state at the same time."""


@dataclass
class StatusRow(Generic[StateT]):
    state: StateT
    reason: str = ""
    error: str = ""  # the last one, which may be over
    since_ms: int = 0  # when it entered this state
    error_ms: int = 0
    problem: str = ""  # the subject of the reason, as the verb names it
    counts: Counter[str] = field(default_factory=Counter)  # since the process started


@dataclass(frozen=True)
class Snapshot(Generic[StateT]):
    """The rows that changed since the last one, or all of them: then a row that is missing is gone."""

    is_all: bool
    rows: dict[Key, StatusRow[StateT]]


class StatusBoard(Generic[StateT]):
    """Written by one thread; `take` and `put_back` are for another one, which waits for `changed`.

    `event` is the log line of a change: its first fields are the names of a row. `level` is that of the line: the state
    before, None for a new row, and the state after.
    """

    def __init__(self, clock: Clock, event: Event, level: Callable[[StateT | None, StateT], int]) -> None:
        self.changed = threading.Event()
        self._clock = clock
        self._event = event
        self._level = level
        self._rows: dict[Key, StatusRow[StateT]] = {}
        self._unsent: set[Key] = set()
        self._is_all = True
        self._lines: Counter[tuple[str, StateT]] = Counter()  # since the last snapshot
        self._lock = threading.Lock()

    def state_of(self, key: Key) -> StateT | None:
        row = self._rows.get(key)
        return None if row is None else row.state

    def set(self, key: Key, state: StateT, reason: str = "", error: str = "", problem: str = "") -> None:
        """`error` may be over already; without one, the last is kept."""
        now_ms = self._clock.now_ms()
        with self._lock:
            row = self._rows.get(key)
            before = None if row is None else row.state
            if row is None:
                row = self._rows[key] = StatusRow(state, since_ms=now_ms)
            elif row.state is state and row.reason == reason and error in ("", row.error):
                return
            row.state, row.reason, row.problem = state, reason, problem
            if before is not state:
                row.since_ms = now_ms
            if error:
                row.error, row.error_ms = error, now_ms
            self._unsent.add(key)
        if before is not state:
            self._log_change(key, before, state, reason or (f"after an error: {error}" if error else ""))
        self.changed.set()

    def count(self, key: Key, **counts: int) -> None:
        """Adds to the counts of a row. They go with the next heartbeat, which is not sent earlier for them."""
        with self._lock:
            row = self._rows.get(key)
            if row is not None:
                row.counts.update(counts)
                self._unsent.add(key)

    def remove(self, key: Key) -> None:
        with self._lock:
            if self._rows.pop(key, None) is None:
                return
            self._unsent.discard(key)
            self._is_all = True  # a snapshot of all rows without it
        log.info("%s: no longer declared", _title(key))
        self.changed.set()

    def take(self, *, is_all: bool = False) -> Snapshot[StateT]:
        """The rows that were not taken yet, or all of them."""
        with self._lock:
            is_all = is_all or self._is_all
            keys = self._rows.keys() if is_all else self._unsent
            rows = {key: replace(self._rows[key], counts=Counter(self._rows[key].counts)) for key in keys}
            self._unsent = set()
            self._is_all = False
            lines, self._lines = self._lines, Counter()
        for (group, state), count in lines.items():
            if count > LINES_MAX:
                log.log(self._level(None, state), "%d more -> %s: %s", count - LINES_MAX, group, state.value)
        return Snapshot(is_all, rows)

    def put_back(self) -> None:
        """The last snapshot did not arrive, and the source may have lost what it knew."""
        with self._lock:
            self._is_all = True

    def _log_change(self, key: Key, before: StateT | None, state: StateT, reason: str) -> None:
        """One line for each change; of rows that fail together, some lines are enough."""
        self._lines[key[-1], state] += 1
        if self._lines[key[-1], state] <= LINES_MAX:
            level = self._level(before, state)
            names = dict(zip(self._event.fields, key, strict=False))
            emit_at(level, self._event, state=state.value, reason=reason, **names)


def _title(key: Key) -> str:
    return " -> ".join(key)

"""Suspects among conditions: those evaluated when Spark's JVM ended, since one of them may have ended it.

The next process evaluates each of them alone. If Spark ends again, the one that was alone is stopped, until it is
changed; one that comes to its end is a suspect no longer. Owns the file that remembers them for the next process, and
whose turn it is. Knows no Spark: the driver says that it ended.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from magnetar.pipelines.jobs import SparkFailed

log = logging.getLogger(__name__)

FILE = "suspect-conditions.json"

TURN_WAIT_S = 30.0
"""A condition that takes longer holds up the others no more: then it is not alone."""

ENDS_MAX = 3
"""One that is never alone is stopped when Spark ended this often while it was evaluated."""

DYING_S = 3.0
"""A JVM without memory reports an error, and ends a little later."""

RECENT_S = 30.0
REMEMBERED_MAX = 1000

ALONE = "Spark ended while it was evaluated, and again while it alone was"
OFTEN = f"Spark ended {ENDS_MAX} times while it was evaluated"


class Condition(NamedTuple):
    namespace: str
    where: str

    @property
    def id(self) -> str:
        """Without its text, which may have values."""
        return f"{self.namespace} {sha256(self.where.encode()).hexdigest()[:32]}"


class _Memory(msgspec.Struct):
    """By the id of a condition: how often Spark ended, and why a condition is stopped."""

    suspects: dict[str, int] = {}
    stopped: dict[str, str] = {}


@dataclass(eq=False)
class _Turn:
    """One evaluation, of the same condition in one or more namespaces."""

    ids: frozenset[str]
    is_suspect: bool
    is_alone: bool = False


class ConditionSuspects:
    """Thread-safe. Without a file, nothing is remembered when the process ends."""

    def __init__(self, file: Path | None = None, is_dead: Callable[[], bool] = lambda: False) -> None:
        self._file = file
        self._is_dead = is_dead
        self._memory = _read(file)
        self._running: list[_Turn] = []
        self._waiting = 0  # suspects
        self._failed: dict[str, float] = {}  # and when
        self._is_over = False
        self._changed = threading.Condition()

    def reason_against(self, condition: Condition) -> str:
        """Why a condition is stopped; empty if it is not."""
        reason = self._memory.stopped.get(condition.id, "")
        return reason and f"{reason}, so it is not evaluated until it is changed"

    def is_suspect(self, condition: Condition) -> bool:
        """Then it is evaluated by itself."""
        return condition.id in self._memory.suspects

    @contextmanager
    def evaluating(self, conditions: Collection[Condition]) -> Iterator[None]:
        """Waits for the turn of the conditions. Raises `SparkFailed` if Spark ends with them."""
        turn = self._begin(frozenset(condition.id for condition in conditions))
        try:
            yield
        except Exception as error:
            if self._is_ending(turn):
                raise SparkFailed(f"Spark ended: {error}") from error  # the turn goes on, for `on_spark_ended`
            self._end(turn, has_failed=True)
            raise
        self._end(turn)

    def on_spark_ended(self) -> None:
        """Remembers what was being evaluated. The process ends next."""
        with self._changed:
            self._is_over = True
            alone = [turn for turn in self._running if turn.is_suspect and turn.is_alone]
            if alone:
                for name in alone[0].ids:
                    self._stop(name, ALONE)
            else:
                self._suspect({name for turn in self._running for name in turn.ids} | self._failed_recently().keys())
            _write(self._file, self._memory)

    # -- turns

    def _begin(self, ids: frozenset[str]) -> _Turn:
        with self._changed:
            turn = _Turn(ids, is_suspect=not ids.isdisjoint(self._memory.suspects))
            self._waiting += turn.is_suspect
            self._changed.wait_for(lambda: self._may_begin(turn), TURN_WAIT_S)
            self._waiting -= turn.is_suspect
            turn.is_alone = not self._running
            for other in self._running:
                other.is_alone = False
            self._running.append(turn)
            return turn

    def _may_begin(self, turn: _Turn) -> bool:
        if turn.is_suspect:
            return not self._running
        return not self._waiting and not any(other.is_suspect for other in self._running)

    def _end(self, turn: _Turn, *, has_failed: bool = False) -> None:
        with self._changed:
            self._running.remove(turn)
            if has_failed:
                self._failed = self._failed_recently() | dict.fromkeys(turn.ids, time.monotonic())
            if turn.is_suspect and not self._is_over:
                for name in turn.ids:
                    self._memory.suspects.pop(name, None)
                _write(self._file, self._memory)
            self._changed.notify_all()

    def _is_ending(self, turn: _Turn) -> bool:
        """After an error. A suspect keeps its turn until that is certain."""
        until_s = time.monotonic() + (DYING_S if turn.is_suspect else 0.0)
        while not (is_dead := self._is_dead()) and time.monotonic() < until_s:
            time.sleep(0.1)
        return is_dead

    # -- when Spark ended

    def _suspect(self, names: Collection[str]) -> None:
        for name in names:
            ends = self._memory.suspects.get(name, 0) + 1
            if ends < ENDS_MAX:
                self._memory.suspects[name] = ends
            else:
                self._stop(name, OFTEN)
        if names:
            log.warning("Spark ended while %d conditions were evaluated: the next one evaluates each alone", len(names))

    def _stop(self, name: str, reason: str) -> None:
        self._memory.suspects.pop(name, None)
        self._memory.stopped[name] = reason
        log.warning("a condition of %s is stopped: %s", name.partition(" ")[0], reason)

    def _failed_recently(self) -> dict[str, float]:
        """The error may have been the first sign that Spark ends."""
        since_s = time.monotonic() - RECENT_S
        return {name: failed_s for name, failed_s in self._failed.items() if failed_s >= since_s}


def _read(file: Path | None) -> _Memory:
    if file is None:
        return _Memory()
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Memory)
    except FileNotFoundError:
        return _Memory()
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s cannot be read, and is ignored: %s", file, error)
        return _Memory()


def _write(file: Path | None, memory: _Memory) -> None:
    """All of it or none."""
    if file is None:
        return
    for names in (memory.suspects, memory.stopped):
        while len(names) > REMEMBERED_MAX:
            del names[next(iter(names))]
    new = file.with_suffix(".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(msgspec.json.encode(memory))
        os.replace(new, file)
    except OSError as error:
        log.warning("%s cannot be written: suspect conditions are forgotten: %s", file, error.strerror)

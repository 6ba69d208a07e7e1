"""The runs of declared pipelines: which begin, wait and end. Decides in events alone, so it needs no lock.

    declared      run       state
    running       none      begins, or waits while as many run as may
    running       runs      runs
    paused        runs      is stopped, and then paused
    cancelled     runs      is stopped, and then cancelled
    not           runs      is stopped, and forgotten

A run that is over stays known until the broker no longer declares it, so that it does not begin again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from magnetar.declared.model import DeclaredPipeline, RunState, Wanted
from magnetar.pipeline_bounds import PIPELINES_AT_ONCE
from magnetar.pipelines.status_board import Key, StatusBoard

LIMIT = PIPELINES_AT_ONCE.limit

HANGING_S = 20.0
"""After this time the Spark jobs of a run that was stopped are cancelled."""


class Active(Protocol):
    """A run that has its thread."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def cancel_jobs(self) -> None: ...


@dataclass
class _Running:
    active: Active
    stopped_s: float | None = None  # when it was stopped, or its jobs were cancelled last


def key_of(pipeline: DeclaredPipeline) -> Key:
    return pipeline.full, pipeline.verb, f"{pipeline.id}.{pipeline.run}"


class Runs:
    """`begin` creates a run. Nothing begins until `allow`."""

    def __init__(self, board: StatusBoard[RunState], begin: Callable[[Key, DeclaredPipeline], Active]) -> None:
        self._board = board
        self._begin = begin
        self._limit = 0
        self._declared: dict[Key, DeclaredPipeline] = {}
        self._running: dict[Key, _Running] = {}
        self._shown: set[Key] = set()
        self._over: set[Key] = set()

    # -- events

    def allow(self, limit: int = LIMIT) -> None:
        """Spark is up."""
        self._limit = limit

    def on_declared(self, pipelines: Iterable[DeclaredPipeline], now_s: float) -> None:
        self._declared = {key_of(one): one for one in sorted(pipelines, key=lambda one: one.id)}
        self._over &= self._declared.keys()
        for key, running in self._running.items():
            if running.stopped_s is None and not self._is_wanted(key):
                running.active.stop()
                running.stopped_s = now_s
        for key in [key for key in self._shown if key not in self._declared and key not in self._running]:
            self._forget(key)

    def on_failing(self, key: Key, error: str, delay_s: float) -> None:
        self._set(key, RunState.RUNNING, f"next attempt in {delay_s:.0f} s after an error", error)

    def on_running(self, key: Key) -> None:
        self._set(key, RunState.RUNNING)

    def on_ended(self, key: Key, state: RunState | None, error: str) -> None:
        """`state` is None if it was stopped."""
        self._running.pop(key, None)
        if key not in self._declared:
            self._forget(key)
        elif state is not None:
            self._over.add(key)
            self._set(key, state, error, error)

    def tick(self, now_s: float) -> float | None:
        for key, pipeline in self._declared.items():
            if key not in self._over:
                self._settle(key, pipeline)
        return self._cancel_hanging(now_s)

    # -- state

    def _is_wanted(self, key: Key) -> bool:
        pipeline = self._declared.get(key)
        return pipeline is not None and pipeline.wanted is Wanted.RUNNING

    def _settle(self, key: Key, pipeline: DeclaredPipeline) -> None:
        running = self._running.get(key)
        if running is not None:
            if running.stopped_s is not None:
                self._set(key, RunState.RUNNING, "is being stopped")
        elif pipeline.wanted is Wanted.PAUSED:
            self._set(key, RunState.PAUSED)
        elif pipeline.wanted is Wanted.CANCELLED:
            self._over.add(key)
            self._set(key, RunState.CANCELLED)
        elif len(self._running) < self._limit:
            self._start(key, pipeline)
        else:
            reason = f"{self._limit} pipelines run already" if self._limit else "Spark is starting"
            self._set(key, RunState.WAITING, reason)

    def _start(self, key: Key, pipeline: DeclaredPipeline) -> None:
        active = self._begin(key, pipeline)
        self._running[key] = _Running(active)
        self._set(key, RunState.RUNNING)
        active.start()

    def _cancel_hanging(self, now_s: float) -> float | None:
        """The time of the next call."""
        due: list[float] = []
        for running in self._running.values():
            if running.stopped_s is None:
                continue
            if now_s - running.stopped_s >= HANGING_S:
                running.active.cancel_jobs()
                running.stopped_s = now_s
            due.append(running.stopped_s + HANGING_S)
        return min(due, default=None)

    def _set(self, key: Key, state: RunState, reason: str = "", error: str = "") -> None:
        self._shown.add(key)
        self._board.set(key, state, reason, error)

    def _forget(self, key: Key) -> None:
        self._shown.discard(key)
        self._board.remove(key)

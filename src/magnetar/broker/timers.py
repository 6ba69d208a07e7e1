"""Timers: actions at a time. Nothing here waits.

The broker has two: one by the clock, for times that clients and records name, and one by monotonic time, for intervals,
which take as long as they should when the clock is set.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from magnetar.broker.host import Host

Action = Callable[[], None]

_CANCELLED_KEPT = 64


class Timers:
    """Actions ordered by the time of `now_ms`. The same action at the same time is kept once.

    Those that were cancelled stay in the heap until they are due or are half of it.
    """

    def __init__(self, host: Host, now_ms: Callable[[], int]) -> None:
        self._host = host
        self._now_ms = now_ms
        self._heap: list[tuple[int, int, Action]] = []
        self._known: set[tuple[int, Action]] = set()
        self._order = count()

    @property
    def wait_ms(self) -> int | None:
        """Until the next action; None if there is none."""
        return max(0, self._heap[0][0] - self._now_ms()) if self._heap else None

    def at(self, time_ms: int, action: Action) -> None:
        if (time_ms, action) in self._known:
            return
        self._known.add((time_ms, action))
        heapq.heappush(self._heap, (time_ms, next(self._order), action))
        if self._heap[0][0] == time_ms:
            self._host.wake_after(max(0, time_ms - self._now_ms()))

    def __len__(self) -> int:
        return len(self._heap)

    def cancel(self, time_ms: int, action: Action) -> None:
        self._known.discard((time_ms, action))
        if len(self._heap) > 2 * len(self._known) + _CANCELLED_KEPT:
            self._heap = [timer for timer in self._heap if (timer[0], timer[2]) in self._known]
            heapq.heapify(self._heap)

    def run_due(self) -> None:
        """Each action by itself: one that fails is reported, and costs no other one its turn."""
        now_ms = self._now_ms()
        due: list[Action] = []
        while self._heap and self._heap[0][0] <= now_ms:
            time_ms, _, action = heapq.heappop(self._heap)
            if (time_ms, action) in self._known:
                self._known.remove((time_ms, action))
                due.append(action)
        for action in due:
            try:
                action()
            except Exception as error:  # the others are due too
                self._host.fault("timer", error, getattr(action, "__qualname__", ""))


class MovedTimer:
    """One action with at most one timer, however often its time changes."""

    __slots__ = ("_action", "_time_ms", "_timers")

    def __init__(self, timers: Timers, action: Action) -> None:
        self._timers = timers
        self._action = action
        self._time_ms: int | None = None

    def move(self, time_ms: int | None) -> None:
        """None for never."""
        if time_ms == self._time_ms:
            return
        if self._time_ms is not None:
            self._timers.cancel(self._time_ms, self._run)
        self._time_ms = time_ms
        if time_ms is not None:
            self._timers.at(time_ms, self._run)

    def _run(self) -> None:
        self._time_ms = None
        self._action()

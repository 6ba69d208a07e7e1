"""Timers: actions at a time. The time is an argument; nothing here waits."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from magnetar.broker.host import Host

Action = Callable[[], None]


class Timers:
    """Actions ordered by time. The same action at the same time is kept once."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._heap: list[tuple[int, int, Action]] = []
        self._known: set[tuple[int, Action]] = set()
        self._order = count()

    @property
    def next_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def at(self, time_ms: int, action: Action) -> None:
        if (time_ms, action) in self._known:
            return
        self._known.add((time_ms, action))
        heapq.heappush(self._heap, (time_ms, next(self._order), action))
        if self._heap[0][0] == time_ms:
            self._host.wake_at(time_ms)

    def run_due(self, now_ms: int) -> None:
        """Each action by itself: one that fails is reported, and costs no other one its turn."""
        due: list[Action] = []
        while self._heap and self._heap[0][0] <= now_ms:
            time_ms, _, action = heapq.heappop(self._heap)
            self._known.discard((time_ms, action))
            due.append(action)
        for action in due:
            try:
                action()
            except Exception as error:  # the others are due too
                self._host.fault("timer", error, getattr(action, "__qualname__", ""))

"""The schedule of a retry topic: which of its messages are due, and when the next one is.

Knows times and positions only, so that an idle ladder costs nothing: a message is looked at when it arrives, and again
when it is due. Bounded: what arrives beyond `ENTRIES_MAX` is looked at when there is room.
"""

from __future__ import annotations

import heapq

from magnetar.client.message import Position

ENTRIES_MAX = 200_000


class RetrySchedule:
    """Of one partition."""

    def __init__(self) -> None:
        self._times: dict[Position, int] = {}
        self._heap: list[tuple[int, Position]] = []

    def __len__(self) -> int:
        return len(self._times)

    @property
    def room(self) -> int:
        return max(0, ENTRIES_MAX - len(self._times))

    def add(self, position: Position, due_ms: int) -> None:
        if position not in self._times:
            self._times[position] = due_ms
            heapq.heappush(self._heap, (due_ms, position))

    def due(self, now_ms: int, most: int) -> tuple[Position, ...]:
        """The first messages that are due, in the order of the topic. They stay until they are settled."""
        found: list[tuple[int, Position]] = []
        while self._heap and self._heap[0][0] <= now_ms and len(found) < most:
            each = heapq.heappop(self._heap)
            if self._times.get(each[1]) == each[0]:
                found.append(each)
        for each in found:
            heapq.heappush(self._heap, each)
        return tuple(sorted(position for _, position in found))

    def settle(self, positions: tuple[Position, ...]) -> None:
        """They were processed and acknowledged."""
        for position in positions:
            self._times.pop(position, None)

    @property
    def next_ms(self) -> int | None:
        """When the next message is due; None without any."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

"""Clocks: the system's, two that tests move by hand, and the time by which the age of messages is judged.

Owns "now" in milliseconds since the epoch, and a second time for intervals, which is never set. Knows neither timers
nor event loops: a test that moves a clock also calls the broker's `tick`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypedDict, Unpack

_NS_PER_MS = 1_000_000
JUMP_MS = 60_000
"""By more than this the clock is set, and not merely corrected."""

JUMP_GRACE_MS = 10 * 60_000
"""Between a jump forward and the time from which messages are older by it."""


class Duration(TypedDict, total=False):
    """The keyword arguments of `datetime.timedelta`."""

    days: float
    seconds: float
    microseconds: float
    milliseconds: float
    minutes: float
    hours: float
    weeks: float


class Clock(Protocol):
    """The broker's time. All stamps are milliseconds since the epoch."""

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> int:
        """For intervals: it only passes, and begins anywhere. Setting the clock does not change it."""
        ...

    def from_client_ms(self, stamp: int) -> int:
        """A time that a client stamped with its own clock, such as a delivery time, on this clock."""
        ...


class SystemClock:
    """The machine's time."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // _NS_PER_MS

    def from_client_ms(self, stamp: int) -> int:
        return stamp


class ManualClock:
    """A clock that only moves by hand, for simulations whose clients share it."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, start_ms: int) -> None:
        self._now_ms = self._monotonic_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def from_client_ms(self, stamp: int) -> int:
        return stamp

    def advance_ms(self, ms: int) -> None:
        """Time passes; a negative number sets the clock back."""
        self._now_ms += ms
        self._monotonic_ms += max(0, ms)

    def jump(self, **duration: Unpack[Duration]) -> None:
        """The clock is set, while no time passes: `jump(days=-1)`."""
        self._now_ms += milliseconds(**duration)

    def advance(self, **duration: Unpack[Duration]) -> None:
        """Moves by a duration: `advance(minutes=10)`."""
        self.advance_ms(milliseconds(**duration))


class ShiftedClock:
    """The machine's time plus an offset, for tests with real clients, whose clocks do not move along.

    A client that delays a message by ten seconds stamps its own time plus ten seconds. If this clock is an hour ahead,
    that is in the past, so stamps of clients are shifted by the same offset.
    """

    __slots__ = ("_offset_ms", "_passed_ms")

    def __init__(self, offset_ms: int = 0) -> None:
        self._offset_ms = offset_ms
        self._passed_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // _NS_PER_MS + self._offset_ms

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // _NS_PER_MS + self._passed_ms

    def from_client_ms(self, stamp: int) -> int:
        return stamp + self._offset_ms

    def advance_ms(self, ms: int) -> None:
        """Time passes; a negative number sets the clock back."""
        self._offset_ms += ms
        self._passed_ms += max(0, ms)

    def advance(self, **duration: Unpack[Duration]) -> None:
        """Moves by a duration: `advance(minutes=10)`."""
        self.advance_ms(milliseconds(**duration))


class SteadyTime:
    """The time by which ages are judged: that of a clock, which is believed when it is set forward only after a grace.

    Meanwhile an operator, or whatever set the clock, may set it back, and nothing has expired. A jump back is followed
    at once: messages with a time in the future become older than a limit later, not earlier.
    """

    __slots__ = ("_ahead_ms", "_clock", "_held_ms", "_on_jump", "_release_ms")

    def __init__(self, clock: Clock, on_jump: Callable[[int], None]) -> None:
        """`on_jump` gets the milliseconds by which the clock was set; negative if back."""
        self._clock = clock
        self._on_jump = on_jump
        self._ahead_ms = clock.now_ms() - clock.monotonic_ms()
        self._held_ms = 0  # by which the clock was set forward, not followed yet
        self._release_ms = 0

    def now_ms(self) -> int:
        """Also notices a jump since the last call, so it is to be called regularly."""
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        ahead_ms = now_ms - monotonic_ms
        jump_ms, self._ahead_ms = ahead_ms - self._ahead_ms, ahead_ms
        if abs(jump_ms) > JUMP_MS:
            self._held_ms = max(0, self._held_ms + jump_ms)
            if jump_ms > 0:
                self._release_ms = monotonic_ms + JUMP_GRACE_MS
            self._on_jump(jump_ms)
        if self._held_ms and monotonic_ms >= self._release_ms:
            self._held_ms = 0
        return now_ms - self._held_ms


def milliseconds(**duration: Unpack[Duration]) -> int:
    """The duration in whole milliseconds, rounded down."""
    return timedelta(**duration) // timedelta(milliseconds=1)

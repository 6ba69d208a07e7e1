"""Circuit breaker of a subscription: decides when too many messages become dead letters.

Owns the window in which finished messages are counted; it is not stored, so a restart begins a new one. Calls nothing:
the counts are arguments, and the subscription pauses itself for the reason that `trip` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.catalog.failure_policy import BreakerPolicy


class Breaker:
    __slots__ = ("_acked", "_dead", "_start_ms")

    def __init__(self, now_ms: int) -> None:
        self._start_ms = now_ms
        self._acked = self._dead = 0  # in total, at the start of the window

    def trip(self, policy: BreakerPolicy, now_ms: int, acked: int, dead: int) -> str:
        """The reason to pause the subscription if one more message is dead; empty if the limit allows it.

        `acked` and `dead` are the messages acknowledged and dead-lettered in total.
        """
        self.roll_window(policy, now_ms, acked, dead)
        dying = dead - self._dead + 1
        finished = dying + acked - self._acked
        if finished < policy.minimum or dying * 100 <= policy.percent * finished:
            return ""
        return (
            f"{dying - 1} of {finished - 1} messages within {policy.window_s} s are dead:"
            f" one more would exceed the limit of {policy.percent} %"
        )

    def roll_window(self, policy: BreakerPolicy, now_ms: int, acked: int, dead: int) -> None:
        """Begins a new window if the current one is over; also called periodically, so that none spans a quiet hour."""
        if now_ms - self._start_ms > policy.window_s * 1000:
            self.begin_window(now_ms, acked, dead)

    def begin_window(self, now_ms: int, acked: int, dead: int) -> None:
        self._start_ms, self._acked, self._dead = now_ms, acked, dead

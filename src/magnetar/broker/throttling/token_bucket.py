"""A token bucket: so many tokens per period, and at most those of one period saved.

The time is an argument. Taking is never refused: what exceeds the tokens is a debt, which time pays off, so that
something larger than the bucket passes too. Whole numbers only, so that no rounding adds up.
"""

from __future__ import annotations


class TokenBucket:
    """Full at first. A clock that is set back neither adds tokens nor makes anything wait longer than its debt."""

    __slots__ = ("_at_ms", "_parts", "_period_ms", "rate")

    def __init__(self, rate: int, period_ms: int, now_ms: int) -> None:
        self.rate = rate
        self._period_ms = period_ms
        self._parts = rate * period_ms  # a token has as many parts as the period has ms
        self._at_ms = now_ms

    def _fill(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._at_ms
        self._at_ms = now_ms
        if elapsed_ms > 0:
            self._parts = min(self._parts + elapsed_ms * self.rate, self.rate * self._period_ms)

    def available(self, now_ms: int) -> int:
        """Whole tokens; 0 or less if nothing may be taken now."""
        self._fill(now_ms)
        return self._parts // self._period_ms

    def take(self, count: int, now_ms: int) -> None:
        self._fill(now_ms)
        self._parts -= count * self._period_ms

    def wait_ms(self, now_ms: int) -> int:
        """The time until there is a token; 0 if there is one."""
        self._fill(now_ms)
        missing = self._period_ms - self._parts
        return -(-missing // self.rate) if missing > 0 else 0

    def change(self, rate: int, period_ms: int, now_ms: int) -> None:
        """Another rate from now on. Tokens and debt stay, up to those of one new period."""
        if (rate, period_ms) == (self.rate, self._period_ms):
            return
        self._fill(now_ms)
        tokens = self._parts // self._period_ms
        self.rate, self._period_ms = rate, period_ms
        self._parts = max(-rate, min(rate, tokens)) * period_ms

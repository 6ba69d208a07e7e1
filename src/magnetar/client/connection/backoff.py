"""How long to wait before the next try. Owns the arithmetic; whoever uses it waits."""

from __future__ import annotations

import random


class Backoff:
    """Doubles from `first_s` to `last_s`, each time less by up to a tenth, so that many clients do not come at once."""

    __slots__ = ("_first_s", "_last_s", "_next_s")

    def __init__(self, first_s: float = 0.1, last_s: float = 10.0) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self._next_s = first_s

    def next_s(self) -> float:
        delay_s = self._next_s
        self._next_s = min(delay_s * 2, self._last_s)
        return delay_s * (1 - random.random() / 10)

    def reset(self) -> None:
        self._next_s = self._first_s

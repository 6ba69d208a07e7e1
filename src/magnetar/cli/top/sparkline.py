"""Sparklines: a row of bars in text, and the rates of the last minutes that `top` draws with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
KEPT_MS = 5 * 60_000


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values; the highest bar is the largest of them."""
    shown = list(values)[-width:] if width > 0 else []
    top = max(shown, default=0.0)
    if top <= 0:
        return BARS[0] * len(shown)
    return "".join(BARS[min(len(BARS) - 1, int(max(0.0, value) / top * len(BARS)))] for value in shown)


class History:
    """Rates in and out of the last five minutes. An answer that the broker repeats counts once."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float, float]] = deque()

    def add(self, time_ms: int, rate_in: float, rate_out: float) -> None:
        if self._samples and time_ms <= self._samples[-1][0]:
            return
        self._samples.append((time_ms, rate_in, rate_out))
        while self._samples[0][0] < time_ms - KEPT_MS:
            self._samples.popleft()

    @property
    def rates_in(self) -> list[float]:
        return [sample[1] for sample in self._samples]

    @property
    def rates_out(self) -> list[float]:
        return [sample[2] for sample in self._samples]

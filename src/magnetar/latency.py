"""Latencies: a histogram of durations with fixed buckets. Knows neither clocks nor the format of metrics."""

from __future__ import annotations

from bisect import bisect_left

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds; one more bucket is without a bound."""


class Latencies:
    """`counts[i]` is the number of durations up to `BUCKETS_S[i]` and above the bound before; the last has no bound."""

    __slots__ = ("count", "counts", "sum_s")

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self.counts = [0] * (len(BUCKETS_S) + 1)

    def add(self, seconds: float) -> None:
        self.count += 1
        self.sum_s += seconds
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1

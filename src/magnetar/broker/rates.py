"""Rates per second of growing counters, over the last interval: updated once a minute, as in Apache Pulsar."""

from __future__ import annotations

from collections.abc import Iterator

RATES_EVERY_MS = 60_000


class Rates:
    """Rates of several counters of one object; reads like a tuple."""

    __slots__ = ("_last", "_per_second")

    def __init__(self, count: int) -> None:
        self._last = (0,) * count
        self._per_second = (0.0,) * count

    def update(self, seconds: float, *totals: int) -> None:
        self._per_second = tuple((now - last) / seconds for now, last in zip(totals, self._last, strict=True))
        self._last = totals

    def __getitem__(self, index: int) -> float:
        return self._per_second[index]

    def __iter__(self) -> Iterator[float]:
        return iter(self._per_second)

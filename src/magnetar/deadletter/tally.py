"""Counts of dead letters: by reason, by origin, and over time. Bounded, because any client may publish any property."""

from __future__ import annotations

import msgspec

from magnetar.bounds import ORIGINS
from magnetar.deadletter.properties import UNKNOWN, DeadLetterInfo

ORIGINS_MAX = ORIGINS.limit
"""Origins that are counted separately."""

_REASONS_MAX = 50


class ReasonCounts(msgspec.Struct):
    """The number of dead letters, by reason, and the first and last publish time in ms."""

    total: int = 0
    reasons: dict[str, int] = {}
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, reason: str, time_ms: int) -> None:
        self.total += 1
        counted = reason if reason in self.reasons or len(self.reasons) < _REASONS_MAX else UNKNOWN
        self.reasons[counted] = self.reasons.get(counted, 0) + 1
        self.first_ms = time_ms if self.first_ms is None else min(self.first_ms, time_ms)
        self.last_ms = time_ms if self.last_ms is None else max(self.last_ms, time_ms)


class Tally:
    """Counts over all dead letters, and by origin topic and subscription."""

    def __init__(self) -> None:
        self.all = ReasonCounts()
        self.by_origin: dict[tuple[str | None, str | None], ReasonCounts] = {}
        self.left_out = 0  # dead letters of origins beyond ORIGINS_MAX

    def add(self, info: DeadLetterInfo, time_ms: int) -> None:
        self.all.add(info.reason, time_ms)
        origin = (info.origin_topic, info.origin_subscription)
        counts = self.by_origin.get(origin)
        if counts is None:
            if len(self.by_origin) >= ORIGINS_MAX:
                self.left_out += 1
                return
            counts = self.by_origin[origin] = ReasonCounts()
        counts.add(info.reason, time_ms)

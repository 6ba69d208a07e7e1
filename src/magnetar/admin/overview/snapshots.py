"""The snapshot that all callers share: one is computed at a time, and serves for some seconds.

Owns how long: two seconds, or longer where it took long, so that however many callers there are and however many
topics, snapshots take one part in fifty of the broker's time. Knows neither callers nor what a snapshot has in it.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar.admin.http.errors import TooManyWaiting, Unavailable
from magnetar.admin.http.request import Alarm
from magnetar.admin.overview.snapshot import BrokerSnapshot, MeasuredSlice, Survey
from magnetar.broker.broker import Broker
from magnetar.health import Vitals, health_of

FRESH_MS = 2000
FRESH_MS_MAX = 30_000
TIMES_ITS_WORK = 50
WAITING_MAX = 100
WAIT_S = 10.0
_WAITS = 3  # one that was waited for may fail


class Snapshots:
    """`take` is that of the survey; tests put another one in its place."""

    def __init__(self, broker: Broker, vitals: Vitals) -> None:
        self._broker = broker
        self._vitals = vitals
        self._latest: BrokerSnapshot | None = None
        self._fresh_until_ms = 0
        self._is_computing = False
        self._waiting: set[Alarm] = set()
        self.taken = 0
        self.take = Survey(broker).take

    async def current(self, alarm: Callable[[], Alarm]) -> BrokerSnapshot:
        """Raises TooManyWaiting, or Unavailable if it takes too long."""
        for _ in range(_WAITS):
            if (fresh := self._fresh()) is not None:
                return fresh
            if not self._is_computing:
                return await self._compute()
            await self._wait(alarm())
        raise Unavailable(f"the overview was not computed within {_WAITS * WAIT_S:g} s: the broker is busy")

    def _fresh(self) -> BrokerSnapshot | None:
        return self._latest if self._broker.clock.monotonic_ms() < self._fresh_until_ms else None

    async def _wait(self, alarm: Alarm) -> None:
        if len(self._waiting) >= WAITING_MAX:
            raise TooManyWaiting(f"{WAITING_MAX} requests wait for the overview already")
        self._waiting.add(alarm)
        try:
            await alarm.wait(WAIT_S)
        finally:
            self._waiting.discard(alarm)

    async def _compute(self) -> BrokerSnapshot:
        """Those that wait get the outcome; if it fails, the first of them tries again."""
        self._is_computing = True
        work = MeasuredSlice()
        try:
            self._latest = await self.take(health_of(self._vitals.facts()), work)
        finally:
            self._is_computing = False
            for alarm in self._waiting:
                alarm.ring()
        work.pause()
        self.taken += 1
        fresh_ms = min(max(FRESH_MS, work.worked_s * 1000 * TIMES_ITS_WORK), FRESH_MS_MAX)
        self._fresh_until_ms = self._broker.clock.monotonic_ms() + round(fresh_ms)
        return self._latest

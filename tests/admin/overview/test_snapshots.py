"""One snapshot serves all callers: those that come while it is computed wait for it, and it lasts as it cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from magnetar.admin.http.errors import TooManyWaiting
from magnetar.admin.overview import snapshots as module
from magnetar.admin.overview.snapshot import BrokerSnapshot, MeasuredSlice
from magnetar.admin.overview.snapshots import FRESH_MS, FRESH_MS_MAX, Snapshots
from magnetar.health import Health
from magnetar.server.http import Alarm
from tests.admin.driver import Admin


def alarm() -> Alarm:
    return Alarm(None)


class Slow:
    """Takes a snapshot when the test says so; `failures` of the first ones fail."""

    def __init__(self, admin: Admin, *, failures: int = 0, worked_s: float = 0.0) -> None:
        self.snapshots = Snapshots(admin.broker, admin.vitals)
        self.snapshots.take = self.take
        self.begun = 0
        self.go_on = asyncio.Event()
        self._failures = failures
        self._worked_s = worked_s

    async def take(self, health: Health, work: MeasuredSlice) -> BrokerSnapshot:
        self.begun += 1
        await self.go_on.wait()
        work.worked_s += self._worked_s
        if self.begun <= self._failures:
            raise RuntimeError("this one fails")
        return BrokerSnapshot(self.begun, health)

    async def several(self, count: int) -> list[BrokerSnapshot | BaseException]:
        callers = [asyncio.ensure_future(self.snapshots.current(alarm)) for _ in range(count)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.go_on.set()
        return await asyncio.gather(*callers, return_exceptions=True)


def with_slow(run: Callable[[Slow], object], **options: float) -> None:
    async def inside() -> None:
        await run(Slow(Admin(), **options))  # type: ignore[misc, arg-type]

    asyncio.run(inside())


def test_five_callers_cost_one_snapshot() -> None:
    async def run(slow: Slow) -> None:
        found = await slow.several(5)
        assert slow.begun == 1
        assert all(one is found[0] for one in found)

    with_slow(run)


def test_a_snapshot_that_fails_is_taken_again_by_one_that_waits() -> None:
    async def run(slow: Slow) -> None:
        found = await slow.several(4)
        assert isinstance(found[0], RuntimeError)
        assert all(isinstance(one, BrokerSnapshot) for one in found[1:]) and slow.begun == 2

    with_slow(run, failures=1)


def test_those_that_wait_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)

    async def run(slow: Slow) -> None:
        found = await slow.several(5)
        assert [isinstance(one, TooManyWaiting) for one in found] == [False, False, False, True, True]

    with_slow(run)


@pytest.mark.parametrize(
    ("worked_s", "fresh_ms"), [(0.0, FRESH_MS), (0.2, 10_000), (60.0, FRESH_MS_MAX)], ids=["cheap", "dear", "limit"]
)
def test_a_snapshot_lasts_for_fifty_times_its_work(worked_s: float, fresh_ms: int) -> None:
    admin = Admin()

    async def inside() -> None:
        slow = Slow(admin, worked_s=worked_s)
        slow.go_on.set()
        clock = admin.broker.clock
        first = await slow.snapshots.current(alarm)
        clock.advance_ms(fresh_ms - 1)  # type: ignore[attr-defined]
        assert await slow.snapshots.current(alarm) is first
        clock.advance_ms(200)  # type: ignore[attr-defined]  # the work itself takes some microseconds
        assert await slow.snapshots.current(alarm) is not first

    asyncio.run(inside())

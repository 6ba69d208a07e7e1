"""Clocks: their movement, and the conversion of client timestamps."""

from __future__ import annotations

import time

import pytest

from magnetar.clock import Clock, ManualClock, ShiftedClock, SystemClock, milliseconds


def test_the_system_clock_is_the_machines_time() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1_000_000
    now = clock.now_ms()
    assert before <= now <= time.time_ns() // 1_000_000
    assert clock.from_client_ms(123) == 123


def test_a_manual_clock_moves_only_on_request() -> None:
    clock = ManualClock(1_000)
    assert clock.now_ms() == clock.now_ms() == 1_000
    clock.advance_ms(5)
    assert clock.now_ms() == 1_005
    clock.advance(minutes=10, seconds=1)
    assert clock.now_ms() == 1_005 + 601_000
    clock.advance_ms(-601_005)
    assert clock.now_ms() == 1_000
    assert clock.from_client_ms(7) == 7


def test_monotonic_time_passes_and_is_not_set() -> None:
    clock = ManualClock(1_000)
    clock.advance_ms(5)
    clock.jump(days=1)
    clock.jump(days=-2)
    clock.advance_ms(-5)
    assert clock.monotonic_ms() == 1_005
    assert clock.now_ms() == 1_000 - 86_400_000


@pytest.mark.parametrize("clock", [SystemClock(), ShiftedClock()])
def test_monotonic_time_is_the_machines(clock: Clock) -> None:
    before = time.monotonic_ns() // 1_000_000
    assert before <= clock.monotonic_ms() <= time.monotonic_ns() // 1_000_000


def test_a_shifted_clock_shifts_both_times() -> None:
    clock = ShiftedClock()
    clock.advance(hours=1)
    clock.advance(hours=-2)
    before = time.monotonic_ns() // 1_000_000
    assert before + 3_600_000 <= clock.monotonic_ms() <= time.monotonic_ns() // 1_000_000 + 3_600_000


def test_a_shifted_clock_runs_ahead_of_the_machine() -> None:
    clock = ShiftedClock()
    clock.advance(hours=1)
    clock.advance_ms(1)
    before = time.time_ns() // 1_000_000
    assert before + 3_600_001 <= clock.now_ms() <= time.time_ns() // 1_000_000 + 3_600_001


def test_a_shifted_clock_shifts_client_timestamps_equally() -> None:
    clock = ShiftedClock(offset_ms=500)
    clock.advance(seconds=2)
    assert clock.from_client_ms(10_000) == 12_500


@pytest.mark.parametrize(
    ("duration", "expected"), [({"days": 1}, 86_400_000), ({"seconds": 0.0015}, 1), ({"minutes": -1}, -60_000), ({}, 0)]
)
def test_durations_in_whole_milliseconds(duration: dict[str, float], expected: int) -> None:
    assert milliseconds(**duration) == expected  # type: ignore[arg-type]


def test_an_unknown_unit_is_rejected() -> None:
    with pytest.raises(TypeError, match="fortnights"):
        ManualClock(0).advance(fortnights=1)  # type: ignore[call-arg]

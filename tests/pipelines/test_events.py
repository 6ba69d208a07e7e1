"""The event thread: events in order, ticks when due."""

from __future__ import annotations

import queue
import time

import pytest

from magnetar.pipelines.events import EventThread

WAIT_S = 15.0


def test_events_are_handled_in_order_each_with_a_tick() -> None:
    calls: queue.SimpleQueue[str] = queue.SimpleQueue()

    def tick(now_s: float) -> None:
        calls.put("tick")

    events = EventThread("test", tick)
    events.start()
    for name in ("first", "second"):
        events.put(lambda now_s, name=name: calls.put(name))  # type: ignore[misc]
    assert [calls.get(timeout=WAIT_S) for _ in range(4)] == ["first", "tick", "second", "tick"]
    events.stop()
    events.join()


def test_a_tick_runs_at_its_time() -> None:
    ticks: queue.SimpleQueue[float] = queue.SimpleQueue()

    def tick(now_s: float) -> float:
        ticks.put(now_s)
        return now_s + 0.05

    events = EventThread("test", tick)
    events.start()
    events.put(lambda now_s: None)
    first, second = ticks.get(timeout=WAIT_S), ticks.get(timeout=WAIT_S)
    assert second >= first + 0.05
    events.stop()
    events.join()


def test_a_failing_event_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    seen: queue.SimpleQueue[float] = queue.SimpleQueue()
    events = EventThread("test", lambda now_s: None)
    events.start()
    events.put(lambda now_s: 1 // 0)  # type: ignore[arg-type,return-value]
    events.put(seen.put)
    assert seen.get(timeout=WAIT_S) <= time.monotonic()
    assert "unexpected error in an event" in caplog.text
    events.stop()
    events.join()

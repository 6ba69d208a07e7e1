"""Timers: actions at a time, cancelled ones forgotten, and one that is moved."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.host import ManualHost
from magnetar.broker.timers import MovedTimer, Timers
from magnetar.clock import ManualClock
from tests.broker.dead_letters import configure, fail
from tests.broker.world import World


@given(st.lists(st.tuples(st.sampled_from("ac"), st.integers(0, 5), st.integers(0, 3)), max_size=40))
def test_an_action_runs_at_its_time_unless_it_is_cancelled(steps: list[tuple[str, int, int]]) -> None:
    clock, ran, expected = ManualClock(0), list[tuple[int, int]](), set[tuple[int, int]]()
    timers = Timers(ManualHost(), clock.now_ms)
    actions = {(time, number): partial(ran.append, (time, number)) for time in range(6) for number in range(4)}
    for step, time, number in steps:
        if step == "a":
            timers.at(time, actions[time, number])
            expected.add((time, number))
        else:
            timers.cancel(time, actions[time, number])
            expected.discard((time, number))
    for time in range(6):
        timers.run_due()
        assert sorted(ran) == sorted(one for one in expected if one[0] <= time)
        clock.advance_ms(1)
    assert len(timers) == 0


def test_a_moved_timer_is_one_timer() -> None:
    clock, ran = ManualClock(0), list[int]()
    timers = Timers(ManualHost(), clock.now_ms)
    timer = MovedTimer(timers, lambda: ran.append(1))
    for time_ms in reversed(range(100, 10_000)):
        timer.move(time_ms)
    assert len(timers) < 200
    clock.advance_ms(99)
    timers.run_due()
    assert ran == []
    clock.advance_ms(19_901)
    timers.run_due()
    assert ran == [1] and len(timers) == 0
    timer.move(30_000)
    timer.move(None)
    clock.advance_ms(20_000)
    timers.run_due()
    assert ran == [1]


def test_fault_delayed_messages_each_earlier_than_the_last_need_one_timer() -> None:
    world = World()
    world.consumer()
    before, far_ms = len(world.broker.timers), world.clock.now_ms() + 10_000_000
    for number in range(1000):
        world.publish(1, deliver_at_ms=far_ms - number)
    assert len(world.broker.timers) < before + 200
    world.advance(milliseconds=10_000_000 - 1000 + 1)
    assert world.client.take() == [999]
    world.advance(seconds=2)
    assert world.subscription().backlog == 1000 and not world.topic().has_delayed


def test_entries_that_back_off_for_long_share_few_timers() -> None:
    world = World()
    world.publish(500)
    consumer = world.consumer()
    configure(world, backoff_ms=(3_600_000,))
    before = len(world.broker.intervals)
    world.client.take()
    for entry_id in range(500):
        fail(world, consumer, entry_id)
        world.advance(milliseconds=100)
    assert len(world.broker.intervals) < before + 40
    world.advance(milliseconds=3_600_000 - 60_000)
    assert world.client.take() == []
    world.advance(milliseconds=60_000 + 36_000 * 2)
    assert sorted(world.client.take()) == list(range(500))


def test_many_seeks_of_a_reader_need_few_timers() -> None:
    world = World()
    world.publish(3)
    before = len(world.broker.intervals)
    for _ in range(200):
        world.consumer(durable=False)
        world.subscription().seek(0)
    assert len(world.broker.intervals) < before + 3
    world.advance(seconds=62)
    assert "s" not in world.topic().subscriptions

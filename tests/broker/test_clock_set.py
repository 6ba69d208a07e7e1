"""A clock that is set, forward or back: intervals go on, and nothing is lost or held."""

from __future__ import annotations

import pytest

from magnetar.broker.subscription.consumer import SubscriptionType
from magnetar.broker.throttling.subscribing import SubscribeLimit
from tests.broker.dead_letters import EXCLUSIVE, configure, fail
from tests.broker.world import World

JUMPS = pytest.mark.parametrize("days", [-1, 1])


@JUMPS
def test_rounds_and_intervals_go_on_when_the_clock_is_set(days: int) -> None:
    world, ran = World(), list[int]()
    world.broker.wake_after(5000, lambda: ran.append(1))
    world.clock.jump(days=days)
    world.advance(milliseconds=4999)
    assert ran == []
    world.advance(milliseconds=1)
    assert ran == [1]


def test_a_round_runs_at_its_interval_when_the_clock_was_set_back() -> None:
    world = World(retentionCheckIntervalInSeconds=60, managedLedgerMinLedgerRolloverTimeMinutes=0)
    world.clock.jump(days=-1)
    world.publish(3)  # there is no subscription, and no retention
    world.advance(seconds=59)
    assert world.topic().log.first == 0
    world.advance(seconds=1)
    assert world.topic().log.first == 3


@JUMPS
@pytest.mark.parametrize("type", [SubscriptionType.Shared, EXCLUSIVE])
def test_a_back_off_takes_its_time_when_the_clock_is_set(type: SubscriptionType, days: int) -> None:
    world = World()
    world.publish(1)
    consumer = world.consumer(type=type)
    configure(world, backoff_ms=[10_000])
    world.client.take()
    fail(world, consumer, 0)
    world.clock.jump(days=days)
    world.advance(milliseconds=9999)
    assert world.client.take() == []
    world.advance(milliseconds=60)
    assert world.client.take() == [0]


@pytest.mark.parametrize("type", [SubscriptionType.Shared, EXCLUSIVE])
def test_a_back_off_of_the_future_is_over_after_a_restart(type: SubscriptionType) -> None:
    world = World()
    world.publish(1)
    consumer = world.consumer(type=type)
    configure(world, backoff_ms=[3_600_000])
    fail(world, consumer, 0)
    world.clock.jump(days=-1)
    again = world.restart()
    again.consumer(type=type)
    assert again.client.take() == [0]


@JUMPS
def test_a_delayed_message_is_delivered_at_its_time_of_the_clock(days: int) -> None:
    world = World()
    world.consumer()
    world.publish(1, deliver_at_ms=world.clock.now_ms() + 3_600_000)
    world.clock.jump(days=days)
    world.advance(seconds=60)  # the server looks at its timers once a minute at least
    assert world.client.take() == ([0] if days > 0 else [])
    world.advance(days=1, hours=1)
    assert world.client.take() == ([] if days > 0 else [0])


@JUMPS
def test_a_subscribe_rate_does_not_change_when_the_clock_is_set(days: int) -> None:
    world = World(subscribeThrottlingRatePerConsumer=1, subscribeRatePeriodPerConsumerInSecond=30)
    topic = world.topic()
    assert isinstance(topic.limits.subscribe, SubscribeLimit)
    assert topic.subscribe_wait_ms("h:1", "c", 1, {}) == 0
    world.clock.jump(days=days)
    assert topic.subscribe_wait_ms("h:1", "c", 1, {}) == 30_000
    world.advance(seconds=30)
    assert topic.subscribe_wait_ms("h:1", "c", 1, {}) == 0

"""A clock that is set, forward or back: intervals go on, and nothing is lost or held."""

from __future__ import annotations

import pytest

from magnetar.broker.subscription.consumer import SubscriptionType
from magnetar.broker.throttling.subscribing import SubscribeLimit
from magnetar.log.events import CLOCK_JUMPED
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


TTL: dict[str, object] = {"ttlDurationDefaultInSeconds": 10, "messageExpiryCheckIntervalInMinutes": 1}


def pass_minutes(world: World, minutes: int) -> None:
    for _ in range(minutes):
        world.advance(minutes=1)


def test_fault_clock_set_forward_expires_nothing_at_once() -> None:
    world = World(**TTL)
    world.consumer(permits=0)
    world.publish(3)
    world.clock.jump(days=1)
    world.broker.tick()
    assert world.logged(CLOCK_JUMPED) == [{"direction": "forward", "seconds": 86_400}]
    world.clock.jump(days=-1)
    world.broker.tick()
    assert world.subscription().backlog == 3
    pass_minutes(world, 1)
    assert world.subscription().backlog == 0  # it was 60 s, not a day
    assert [values["direction"] for values in world.logged(CLOCK_JUMPED)] == ["forward", "back"]


def test_fault_clock_set_forward_is_followed_after_a_grace() -> None:
    world = World(ttlDurationDefaultInSeconds=3600, messageExpiryCheckIntervalInMinutes=1)
    world.consumer(permits=0)
    world.publish(3)
    world.clock.jump(days=1)
    pass_minutes(world, 10)
    world.publish(2)
    assert world.subscription().backlog == 5
    pass_minutes(world, 1)
    assert world.subscription().backlog == 2
    assert len(world.logged(CLOCK_JUMPED)) == 1


def test_fault_clock_set_forward_and_back_within_the_grace_loses_nothing() -> None:
    world = World(
        ttlDurationDefaultInSeconds=3600, messageExpiryCheckIntervalInMinutes=1, retentionCheckIntervalInSeconds=60
    )
    world.consumer(permits=0)
    world.publish(3)
    world.clock.jump(days=1)
    pass_minutes(world, 5)
    world.publish(2)
    world.clock.jump(days=-1)
    pass_minutes(world, 50)
    assert world.subscription().backlog == 5
    pass_minutes(world, 11)
    assert world.subscription().backlog == 2
    world.advance(days=1)
    assert world.subscription().backlog == 0  # by the time that they were received at, a day too late


def test_fault_clock_set_forward_keeps_retained_messages() -> None:
    world = World(
        defaultRetentionTimeInMinutes=60,
        defaultRetentionSizeInMB=-1,
        retentionCheckIntervalInSeconds=60,
        managedLedgerMinLedgerRolloverTimeMinutes=0,
    )
    world.publish(3)
    world.clock.jump(days=1)
    pass_minutes(world, 10)
    assert world.topic().log.first == 0
    pass_minutes(world, 1)
    assert world.topic().log.first == 3


def test_fault_clock_set_forward_evicts_and_refuses_nothing_by_age() -> None:
    world = World(backlogQuotaDefaultLimitSecond=3600, backlogQuotaCheckIntervalInSeconds=60)
    world.consumer(permits=0)
    world.publish(1)
    world.clock.jump(days=1)
    world.producer(name="q")  # is not refused
    pass_minutes(world, 9)
    assert world.client.closed == []
    pass_minutes(world, 1)
    assert world.client.closed == ["p", "q"]


def test_fault_clock_set_forward_forgets_no_producer_at_once() -> None:
    world = World(brokerDeduplicationEnabled=True, brokerDeduplicationProducerInactivityTimeoutMinutes=60)
    producer = world.producer()
    world.publish(1, producer=producer)
    world.topic().producers.remove(producer)
    deduplication = world.topic().deduplication
    assert deduplication is not None
    world.clock.jump(days=1)
    world.advance(minutes=9)
    world.broker.maintenance._forget_idle_producers(world.topic())
    assert deduplication.last_sequence("p") == 0
    pass_minutes(world, 11)
    assert deduplication.last_sequence("p") == -1


def test_fault_clock_set_back_loses_nothing_and_is_logged_once() -> None:
    world = World(ttlDurationDefaultInSeconds=3600, messageExpiryCheckIntervalInMinutes=1)
    world.consumer(permits=0)
    world.publish(1)
    world.clock.jump(days=-1)
    pass_minutes(world, 30)
    world.publish(1)
    assert world.logged(CLOCK_JUMPED) == [{"direction": "back", "seconds": 86_400}]
    assert world.subscription().backlog == 2
    pass_minutes(world, 61)
    assert world.subscription().backlog == 0  # the earlier one with the later one


@pytest.mark.parametrize("seconds", [-60, -1, 1, 60])
def test_a_correction_of_the_clock_is_no_jump(seconds: int) -> None:
    world = World(**TTL)
    world.consumer(permits=0)
    world.publish(3)
    world.clock.jump(seconds=seconds)
    pass_minutes(world, 3)
    assert world.logged(CLOCK_JUMPED) == []
    assert world.subscription().backlog == 0


def test_time_that_passes_is_no_jump() -> None:
    world = World()
    world.advance(days=30)
    assert world.logged(CLOCK_JUMPED) == []

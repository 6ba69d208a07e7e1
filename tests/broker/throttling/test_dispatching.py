"""Dispatch rates: exact amounts over simulated time, for every subscription type and level."""

from __future__ import annotations

import msgspec
import pytest

from magnetar.broker.catalog.rate_policy import DispatchRate
from magnetar.broker.throttling.dispatching import LimitLevel, Throttle
from magnetar.broker.throttling.rate_limit import RateLimit
from magnetar.names import TopicName
from magnetar.replication.model import PIPELINE, ROUTE_FINGERPRINT
from tests.broker.world import Client, SubscriptionType, World

T = TopicName.parse("t")
ALL_TYPES = list(SubscriptionType)


def limit(world: World, **rates: object) -> None:
    world.topic()
    overrides = msgspec.structs.replace(world.broker.catalog.overrides_of(T), **rates)
    world.broker.catalog.set_overrides(T, overrides)
    world.settle()


def run(world: World, ms: int) -> None:
    for _ in range(ms):
        world.advance(milliseconds=1)


def messages(client: Client) -> int:
    return len(client.delivered)


def test_a_subscription_without_a_rate_has_no_throttle() -> None:
    world = World()
    world.consumer()
    world.publish(100)
    assert messages(world.client) == 100 and world.subscription().deliveries.throttle is None


@pytest.mark.parametrize("type", ALL_TYPES)
@pytest.mark.parametrize("field", ["dispatch_rate", "subscription_dispatch_rate"])
def test_a_subscription_delivers_its_rate_and_one_burst(type: SubscriptionType, field: str) -> None:
    world = World()
    limit(world, **{field: DispatchRate(20)})
    world.publish(200, keys=["a", "b", "c"])
    world.consumer(type=type)
    amounts = []
    for _ in range(5):
        amounts.append(messages(world.client))
        run(world, 1000)
    assert amounts == [20, 40, 60, 80, 100]
    run(world, 5000)
    assert sorted(world.client.take()) == list(range(200))


@pytest.mark.parametrize("type", ALL_TYPES)
def test_nothing_is_lost_or_delivered_twice(type: SubscriptionType) -> None:
    world = World()
    limit(world, dispatch_rate=DispatchRate(7), subscription_dispatch_rate=DispatchRate(11, 400))
    world.publish(50, keys=["a", "b", "c"])
    world.consumer(type=type)
    run(world, 30_000)
    assert sorted(world.client.take()) == list(range(50))
    world.broker.invariants()


@pytest.mark.parametrize("type", ALL_TYPES)
def test_bytes_are_limited_entry_by_entry(type: SubscriptionType) -> None:
    world = World()
    world.publish(100, payload=bytes(1000), keys=["a"])
    size = world.topic().bytes_in // 100
    world = world.restart()  # entries are read from disk, many at once
    limit(world, subscription_dispatch_rate=DispatchRate(-1, 5 * size))
    world.consumer(type=type)
    amounts = []
    for _ in range(4):
        amounts.append(messages(world.client))
        run(world, 1000)
    assert amounts == [5, 10, 15, 20]
    throttle = world.subscription().deliveries.throttle
    assert throttle is not None and throttle.byte_events[LimitLevel.SUBSCRIPTION] > 0
    assert throttle.message_events.total() == 0


@pytest.mark.parametrize("type", ALL_TYPES)
def test_batches_count_their_messages_and_one_larger_than_the_rate_passes(type: SubscriptionType) -> None:
    world = World()
    limit(world, subscription_dispatch_rate=DispatchRate(10))
    world.publish(3, messages=50)
    world.consumer(type=type)
    assert messages(world.client) == 1
    run(world, 4099)
    assert messages(world.client) == 1
    run(world, 1)
    assert messages(world.client) == 2  # the debt of 40 and a token


def test_a_period_of_several_seconds() -> None:
    world = World()
    limit(world, subscription_dispatch_rate=DispatchRate(10, period_s=10))
    world.publish(100)
    world.consumer()
    assert messages(world.client) == 10
    run(world, 5000)
    assert messages(world.client) == 15


def test_the_rate_of_one_subscription_comes_before_that_of_all() -> None:
    world = World()
    limit(world, subscription_dispatch_rate=DispatchRate(10), dispatch_rates={"s": DispatchRate(30)})
    world.publish(100)
    other = Client("10.0.0.2:1")
    world.consumer("s")
    world.consumer("other", client=other)
    assert (messages(world.client), messages(other)) == (30, 10)


def test_subscriptions_of_a_topic_share_its_rate_fairly() -> None:
    world = World()
    limit(world, dispatch_rate=DispatchRate(30))
    world.publish(1000)
    clients = [Client(f"10.0.0.{index}:1") for index in range(3)]
    for index, client in enumerate(clients):
        world.consumer(f"s{index}", client=client)
    run(world, 10_000)
    amounts = [messages(client) for client in clients]
    assert sum(amounts) == 330
    assert min(amounts) >= 95  # the first one had the burst


def test_topics_share_the_rate_of_the_broker() -> None:
    world = World()
    world.broker.set_dynamic_setting("dispatchThrottlingRateInMsg", "10")
    world.publish(100, "a")
    world.publish(100, "b")
    one, two = Client("10.0.0.1:1"), Client("10.0.0.2:1")
    world.consumer("s", "a", client=one)
    world.consumer("s", "b", client=two)
    run(world, 10_000)
    assert messages(one) + messages(two) == 110 and min(messages(one), messages(two)) >= 45
    world.broker.remove_dynamic_setting("dispatchThrottlingRateInMsg")
    world.settle()
    assert (messages(one), messages(two)) == (100, 100)


@pytest.mark.parametrize("type", ALL_TYPES)
def test_changes_take_effect_while_it_waits(type: SubscriptionType) -> None:
    world = World()
    limit(world, subscription_dispatch_rate=DispatchRate(1))
    world.publish(300)
    world.consumer(type=type)
    assert messages(world.client) == 1
    limit(world, subscription_dispatch_rate=DispatchRate(100))
    run(world, 1000)
    assert messages(world.client) == 101  # the burst is that of before
    limit(world, subscription_dispatch_rate=None)
    assert messages(world.client) == 300


def test_replication_has_its_own_rate_and_no_other() -> None:
    world = World()
    limit(world, dispatch_rate=DispatchRate(5), replicator_dispatch_rate=DispatchRate(20))
    world.publish(100)
    world.topic().begin_replication("pulsar.repl.b", from_earliest=True)
    client = Client("10.0.0.2:1")
    world.consumer("pulsar.repl.b", client=client)
    assert world.subscription("pulsar.repl.b").is_internal
    assert messages(client) == 20
    run(world, 1000)
    assert messages(client) == 40
    world.consumer()
    assert messages(world.client) == 5


def test_what_reads_for_a_cluster_shares_the_rate_of_its_replicator() -> None:
    world = World()
    limit(world, dispatch_rate=DispatchRate(5), replicator_dispatch_rate=DispatchRate(20))
    world.publish(200)
    for count in (20, 0):  # a task that reads anew has no burst of its own
        client = Client("10.0.0.2:1")
        consumer = world.consumer("r", client=client, durable=False, metadata={ROUTE_FINGERPRINT: "b/123"})
        assert messages(client) == count
        world.topic().remove_consumer(consumer)
    other = Client("10.0.0.2:1")
    world.consumer("r2", client=other, durable=False, metadata={ROUTE_FINGERPRINT: "c/123"})
    assert messages(other) == 20
    watcher = Client("10.0.0.2:1")
    world.consumer("w", client=watcher, durable=False, metadata={PIPELINE: "p"})
    assert messages(watcher) == 200
    world.consumer()
    assert messages(world.client) == 5


def test_a_relative_rate_is_on_top_of_what_is_published() -> None:
    world = World()
    limit(world, subscription_dispatch_rate=DispatchRate(10, relative=True))
    world.consumer(permits=100_000)
    world.publish(6000)
    assert messages(world.client) == 10
    world.advance(seconds=60)  # 100 messages per second were published
    delivered = messages(world.client)
    run(world, 1000)
    assert messages(world.client) - delivered == 110


def test_subscriptions_that_caught_up_are_exempt_if_the_setting_says_so() -> None:
    world = World(dispatchThrottlingOnNonBacklogConsumerEnabled=False)
    limit(world, subscription_dispatch_rate=DispatchRate(10))
    world.consumer(permits=10_000)
    world.publish(500)
    assert messages(world.client) == 500
    behind = Client("10.0.0.2:1")
    world.publish(1000)
    world.consumer("behind", permits=10_000, client=behind)
    run(world, 1000)
    assert messages(behind) == 20
    world.broker.set_dynamic_setting("dispatchThrottlingOnNonBacklogConsumerEnabled", "true")
    world.publish(500)
    assert messages(world.client) < 2000


def test_a_redelivery_counts_too() -> None:
    world = World()
    limit(world, subscription_dispatch_rate=DispatchRate(10))
    world.publish(10)
    consumer = world.consumer()
    assert len(world.client.take()) == 10
    world.subscription().redeliver(consumer, None)
    world.settle()
    assert world.client.take() == []
    run(world, 1000)
    assert len(world.client.take()) == 10


def test_waiting_costs_a_timer_and_not_one_for_each_message() -> None:
    world = World()
    limit(world, subscription_dispatch_rate=DispatchRate(1))
    world.consumer()
    before = len(world.broker.intervals)
    for _ in range(200):
        world.publish(1)
    assert len(world.broker.intervals) - before <= 2
    throttle = world.subscription().deliveries.throttle
    assert throttle is not None and throttle.message_events[LimitLevel.SUBSCRIPTION] == 1


@pytest.mark.parametrize("type", ALL_TYPES)
def test_a_clock_that_is_set_back_does_not_hold_a_subscription_for_long(type: SubscriptionType) -> None:
    world = World()
    limit(world, subscription_dispatch_rate=DispatchRate(10))
    world.consumer(type=type)
    world.publish(30)
    assert messages(world.client) == 10
    world.advance(days=-1)
    world.publish(1)
    run(world, 1000)
    assert messages(world.client) == 20


def test_rates_survive_a_restart() -> None:
    world = World()
    limit(world, dispatch_rate=DispatchRate(5), dispatch_rates={"s": DispatchRate(3, relative=True, period_s=2)})
    world.publish(10)
    world = world.restart()
    world.consumer()
    assert messages(world.client) == 3


def test_a_limit_that_has_room_again_before_it_is_waited_for_resumes_at_once() -> None:
    """Time passes between measuring and waiting: without a waiter nothing would ever resume the subscription."""
    now_ms, resumed = 0, list[bool]()
    rate = RateLimit(lambda: now_ms, lambda *_: None)
    rate.set(100, 0)
    throttle = Throttle(object(), lambda: resumed.append(True))
    throttle.limits = {LimitLevel.SUBSCRIPTION: rate}
    rate.take(100, 0)
    assert not throttle.begin_turn()
    now_ms += 10
    throttle.wait(is_served=False)
    assert resumed == [True] and throttle.begin_turn()

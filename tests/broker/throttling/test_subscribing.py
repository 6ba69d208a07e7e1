"""The subscribe rate: refused with an error that clients retry, for each consumer by itself."""

from __future__ import annotations

import msgspec
import pytest

from magnetar.bounds import SUBSCRIBE_RATE_BUCKETS
from magnetar.broker.catalog.rate_policy import SubscribeRate
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.throttling.subscribing import ConsumerIdentity, SubscribeLimit
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.errors import ServiceNotReady, SubscribeLimited
from magnetar.names import TopicName
from tests.broker.world import START_MS, Client, World

T = TopicName.parse("t")


def limit(world: World, rate: SubscribeRate | None) -> None:
    world.topic()
    overrides = msgspec.structs.replace(world.broker.catalog.overrides_of(T), subscribe_rate=rate)
    world.broker.catalog.set_overrides(T, overrides)


def subscribe(
    world: World, name: str = "c", consumer_id: int = 1, host: str = "10.0.0.1", subscription: str = "s"
) -> None:
    topic = world.topic()
    consumer = Consumer(Client(f"{host}:5000"), consumer_id, name, SubscriptionType.Shared)
    topic.subscribe(consumer, SubscribeRequest(subscription, consumer_name=name))
    topic.remove_consumer(consumer)
    world.settle()


def test_a_consumer_that_subscribes_too_often_has_to_wait() -> None:
    world = World()
    limit(world, SubscribeRate(2, 30))
    subscribe(world)
    subscribe(world)
    with pytest.raises(
        SubscribeLimited, match=r"'c' from 10\.0\.0\.1 may subscribe 2 times in 30 s, again in 15000 ms"
    ):
        subscribe(world)
    world.advance(milliseconds=14_999)
    with pytest.raises(SubscribeLimited):
        subscribe(world)  # attempts that are refused do not count
    world.advance(milliseconds=1)
    subscribe(world)


def test_clients_retry_the_error() -> None:
    assert issubclass(SubscribeLimited, ServiceNotReady) and SubscribeLimited.wire_code == 6


def test_others_are_not_concerned() -> None:
    world = World()
    limit(world, SubscribeRate(1, 30))
    subscribe(world)
    subscribe(world, name="other")
    subscribe(world, consumer_id=2)
    subscribe(world, host="10.0.0.2")
    with pytest.raises(SubscribeLimited):
        subscribe(world, subscription="another")


def test_changes_and_removal_take_effect_at_once() -> None:
    world = World(subscribeThrottlingRatePerConsumer=1)
    subscribe(world)
    with pytest.raises(SubscribeLimited):
        subscribe(world)
    limit(world, SubscribeRate(10, 1))
    world.advance(milliseconds=100)
    subscribe(world)
    world.broker.set_dynamic_setting("subscribeThrottlingRatePerConsumer", "0")
    limit(world, None)
    for _ in range(100):
        subscribe(world)


def test_replication_is_exempt() -> None:
    world = World(subscribeThrottlingRatePerConsumer=1)
    world.topic().begin_replication("pulsar.repl.b", from_earliest=True)
    for _ in range(3):
        subscribe(world, subscription="pulsar.repl.b")


def test_bound_subscribe_rate_buckets() -> None:
    rate_limit, most = SubscribeLimit(SubscribeRate(1, 30)), SUBSCRIBE_RATE_BUCKETS.limit
    for index in range(most):
        rate_limit.admit(ConsumerIdentity("h", "c", index), START_MS)
    with pytest.raises(SubscribeLimited):
        rate_limit.admit(ConsumerIdentity("h", "c", 0), START_MS)  # remembered, and now the last one to be forgotten
    rate_limit.admit(ConsumerIdentity("h", "c", most), START_MS)
    assert rate_limit.consumers == most
    rate_limit.admit(ConsumerIdentity("h", "c", 1), START_MS)
    with pytest.raises(SubscribeLimited):
        rate_limit.admit(ConsumerIdentity("h", "c", 0), START_MS)

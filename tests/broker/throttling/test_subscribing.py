"""The subscribe rate, for each consumer by itself. The session, which waits, has its own tests."""

from __future__ import annotations

import msgspec
import pytest

from magnetar.bounds import SUBSCRIBE_RATE_BUCKETS
from magnetar.broker.catalog.rate_policy import SubscribeRate
from magnetar.broker.throttling.subscribing import ConsumerIdentity, SubscribeLimit
from magnetar.names import TopicName
from magnetar.replication.model import PIPELINE, ROUTE_FINGERPRINT
from tests.broker.world import START_MS, World

T = TopicName.parse("t")


def limit(world: World, rate: SubscribeRate | None) -> None:
    world.topic()
    overrides = msgspec.structs.replace(world.broker.catalog.overrides_of(T), subscribe_rate=rate)
    world.broker.catalog.set_overrides(T, overrides)


def wait_ms(world: World, name: str = "c", consumer_id: int = 1, host: str = "10.0.0.1") -> int:
    return world.topic().subscribe_wait_ms(f"{host}:5000", name, consumer_id, {})


def test_a_consumer_that_subscribes_too_often_has_to_wait() -> None:
    world = World()
    limit(world, SubscribeRate(2, 30))
    assert [wait_ms(world) for _ in range(4)] == [0, 0, 15_000, 15_000]  # what has to wait does not count
    world.advance(milliseconds=14_999)
    assert wait_ms(world) == 1
    world.advance(milliseconds=1)
    assert [wait_ms(world), wait_ms(world)] == [0, 15_000]


def test_others_are_not_concerned() -> None:
    world = World()
    limit(world, SubscribeRate(1, 30))
    assert wait_ms(world) == 0
    assert wait_ms(world, name="other") == wait_ms(world, consumer_id=2) == wait_ms(world, host="10.0.0.2") == 0
    assert wait_ms(world) == 30_000


def test_changes_and_removal_take_effect_at_once() -> None:
    world = World(subscribeThrottlingRatePerConsumer=1)
    assert [wait_ms(world), wait_ms(world)] == [0, 30_000]
    limit(world, SubscribeRate(10, 1))
    assert wait_ms(world) == 100
    world.broker.set_dynamic_setting("subscribeThrottlingRatePerConsumer", "0")
    limit(world, None)
    assert {wait_ms(world) for _ in range(100)} == {0}


@pytest.mark.parametrize("metadata", [{ROUTE_FINGERPRINT: "b/1"}, {PIPELINE: "p"}])
def test_replication_is_exempt(metadata: dict[str, str]) -> None:
    world = World(subscribeThrottlingRatePerConsumer=1)
    for _ in range(3):
        assert world.topic().subscribe_wait_ms("10.0.0.1:5000", "c", 1, metadata) == 0


def test_bound_subscribe_rate_buckets() -> None:
    rate_limit, most = SubscribeLimit(SubscribeRate(1, 30)), SUBSCRIBE_RATE_BUCKETS.limit

    def wait_ms(consumer_id: int) -> int:
        return rate_limit.wait_ms(ConsumerIdentity("h", "c", consumer_id), START_MS)

    assert {wait_ms(index) for index in range(most)} == {0}
    assert wait_ms(0) > 0  # remembered, and now the last one to be forgotten
    assert wait_ms(most) == 0 and rate_limit.consumers == most
    assert wait_ms(1) == 0 and wait_ms(0) > 0

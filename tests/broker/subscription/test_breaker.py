"""The circuit breaker."""

from __future__ import annotations

from magnetar.broker.catalog.failure_policy import BreakerPolicy
from tests.broker.dead_letters import (
    configure,
    fail,
    letters,
    with_policy,
)
from tests.broker.world import World


class TestBreaker:
    def test_too_large_a_share_of_dead_messages_pauses_the_subscription(self) -> None:
        world = World()
        world.publish(20)
        consumer = world.consumer()
        with_policy(world, 1)
        configure(world, breaker=BreakerPolicy(percent=50, window_s=60, minimum=4))
        for entry in range(4):
            world.subscription().ack(entry)
        fail(world, consumer)
        world.client.take()
        fail(world, consumer)
        assert world.subscription().record.paused == (
            "4 of 8 messages within 60 s are dead: one more would exceed the limit of 50 %"
        )
        # With 4 acknowledged, the fifth would be more than half.
        assert world.subscription().dead_letters.moved.total() == 4
        assert world.client.take() == []
        again = world.restart()
        again.consumer()
        assert again.client.take() == []
        again.subscription().resume()
        again.settle()
        assert len(again.client.take()) == 12

    def test_an_empty_window_never_trips(self) -> None:
        world = World()
        world.publish(3)
        consumer = world.consumer()
        with_policy(world, 1)
        configure(world, breaker=BreakerPolicy(percent=1, window_s=60, minimum=10))
        for _ in range(2):
            fail(world, consumer)
        assert len(letters(world)) == 3

"""Random walks under changing rates: nothing is lost, nothing is delivered twice, and nothing waits for good."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.rate_policy import DispatchRate, PublishRate
from magnetar.names import TopicName
from tests.broker.world import Client, SubscriptionType, World

T = TopicName.parse("t")
RATES = st.none() | st.builds(
    DispatchRate, st.integers(-1, 30), st.integers(-1, 2000), st.booleans(), st.integers(1, 3)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 30), st.integers(1, 5)),
        st.tuples(st.just("rates"), RATES, RATES),
        st.tuples(st.just("broker"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 3000), st.just(0)),
        st.tuples(st.just("ack"), st.integers(0, 1), st.just(0)),
    ),
    max_size=25,
)


def change(world: World, **rates: object) -> None:
    world.broker.catalog.set_overrides(T, msgspec.structs.replace(Overrides(), **rates))
    world.settle()


@settings(max_examples=150)
@given(st.sampled_from(list(SubscriptionType)), STEPS)
def test_everything_is_delivered_once_whatever_the_rates(
    type: SubscriptionType, steps: list[tuple[str, object, object]]
) -> None:
    world = World()
    world.topic()
    clients = [Client("10.0.0.1:1"), Client("10.0.0.2:1")]
    for index, client in enumerate(clients):
        world.consumer(f"s{index}", type=type, client=client, permits=100_000)
    published = 0
    for action, one, two in steps:
        if action == "publish":
            assert isinstance(one, int) and isinstance(two, int)
            world.publish(one, messages=two, keys=["a", "b", "c"], payload=bytes(20))
            published += one
        elif action == "rates":
            change(world, dispatch_rate=one, subscription_dispatch_rate=two)
        elif action == "broker":
            world.broker.set_dynamic_setting("dispatchThrottlingRateInMsg", str(one))
            world.settle()
        elif action == "wait":
            assert isinstance(one, int)
            world.advance(milliseconds=one)
        else:
            subscription = world.subscription(f"s{one}")
            for entry_id in {delivery[0] for _, delivery in clients[0 if one == 0 else 1].delivered}:
                subscription.ack(entry_id)
            world.settle()
        world.broker.invariants()
    for _ in range(20_000):  # rates of one message per second included
        if all(len(client.delivered) == published for client in clients):
            break
        world.advance(milliseconds=500)
    for client in clients:
        assert sorted(delivery[0] for _, delivery in client.delivered) == list(range(published))


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(-1, 50), st.integers(-1, 5000), st.integers(1, 2000)), max_size=12))
def test_no_connection_waits_for_good(changes: list[tuple[int, int, int]]) -> None:
    world = World()
    producer = world.producer()
    for messages, size, wait_ms in changes:
        change(world, publish_rate=PublishRate(messages, size))
        if not world.client.holds:
            world.publish(5, producer=producer, messages=3, payload=bytes(50))
        world.advance(milliseconds=wait_ms)
    for _ in range(10_000):
        if not world.client.holds:
            break
        world.advance(milliseconds=100)
    assert not world.client.holds

"""Choosing the active consumer of a Failover subscription: as Apache Pulsar, and without a walk over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.deliveries import Deliveries
from magnetar.broker.subscription.dispatch import SingleActive
from magnetar.names import TopicName
from magnetar.settings.settings import Settings
from tests.broker.work import is_linear
from tests.broker.world import Client, World

FAILOVER = SubscriptionType.Failover


def consumer(name: str, priority: int = 0, client: Client | None = None) -> Consumer:
    return Consumer(client or Client(), 1, name, FAILOVER, priority=priority)


def dispatcher(topic: str = "t", **settings: object) -> SingleActive:
    name = TopicName.parse(topic)
    return SingleActive(cast(Deliveries, None), Settings(**settings), FAILOVER, name, "s")  # type: ignore[arg-type]


def on_the_ring(topic: str, consumers: list[Consumer]) -> Consumer:
    """Apache Pulsar's rule, as it is written there: a ring of all points of all consumers of the best priority."""
    ordered = sorted(consumers, key=lambda one: (one.priority, one.name))
    candidates = [one for one in ordered if one.priority == ordered[0].priority]
    ring = {
        mmh3.hash(f"{one.name}{point}".encode(), signed=False) & 0x7FFFFFFF: one
        for one in candidates
        for point in range(100)
    }
    target = mmh3.hash(TopicName.parse(topic).full.encode(), signed=False) & 0x7FFFFFFF
    return ring[min((point for point in ring if point >= target), default=min(ring))]


@given(
    topic=st.sampled_from(["t", "a-partition-3", "b"]),
    joining=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-1, 1)), min_size=1, max_size=12),
    leaving=st.data(),
)
def test_the_active_consumer_is_that_of_the_ring(
    topic: str, joining: list[tuple[str, int]], leaving: st.DataObject
) -> None:
    chooser = dispatcher(topic, activeConsumerFailoverConsistentHashing=True)
    present: list[Consumer] = []
    for name, priority in joining:
        present.append(consumer(name, priority))
        chooser.add(present[-1])
        assert chooser.active is on_the_ring(topic, present)
    while present:
        one = present.pop(leaving.draw(st.integers(0, len(present) - 1)))
        chooser.remove(one)
        assert chooser.active is (on_the_ring(topic, present) if present else None)


@pytest.mark.parametrize("partition", range(4))
def test_partitions_count_to_their_consumer(partition: int) -> None:
    chooser = dispatcher(f"t-partition-{partition}")
    consumers = [consumer(name) for name in "cab"]
    for one in (*consumers, consumer("worse", 1)):
        chooser.add(one)
    assert chooser.active is not None and chooser.active.name == "abc"[partition % 3]


def test_only_those_whose_state_changes_are_notified() -> None:
    client = Client()
    chooser = dispatcher("t-partition-1")
    consumers = [consumer(name, client=client) for name in "cab"]
    for one in consumers:
        chooser.add(one)
    assert client.active == [("c", True), ("a", False), ("c", False), ("b", True)]
    client.active.clear()
    chooser.remove(consumers[0])
    assert client.active == []


@pytest.mark.parametrize("topic", ["t", "t-partition-7"])
def test_fault_many_failover_consumers_join_and_leave_in_linear_work(topic: str) -> None:
    def work(size: int) -> Callable[[], None]:
        consumers = [consumer(f"c{index}") for index in range(size)]

        def join_and_leave() -> None:
            chooser = dispatcher(topic)
            for one in consumers:
                chooser.add(one)
            for one in consumers:
                chooser.remove(one)

        return join_and_leave

    assert is_linear(work, 60)


def test_a_shared_turn_is_found_without_asking_everybody() -> None:
    world = World()
    asked = 0

    class Counted(Client):
        @property
        def writable(self) -> bool:  # type: ignore[override]
            nonlocal asked
            asked += 1
            return True

        @writable.setter
        def writable(self, value: bool) -> None: ...

    for index in range(50):
        world.consumer(name=f"c{index}", client=Counted())
    asked = 0
    world.publish(20)
    assert asked < 50

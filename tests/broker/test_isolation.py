"""One bad thing hurts only itself: a timer, a topic's round or a subscription that fails costs the others nothing."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.broker.host import FaultKind, ManualHost
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.deliveries import Deliveries
from magnetar.broker.subscription.dispatch import RoundRobin, SingleActive, StickyKey
from magnetar.broker.subscription.places import Places
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.subscription.suspects import Suspects
from magnetar.broker.timers import Timers
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.clock import ManualClock
from magnetar.names import TopicName

from .world import Client, World


class Collector(ManualHost):
    """A host that goes on after a fault, as the server does."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[tuple[FaultKind, str, Exception]] = []

    def fault(self, kind: FaultKind, error: Exception, where: str = "") -> None:
        self.faults.append((kind, where, error))


def world_with_faults(**settings: object) -> tuple[World, Collector]:
    host = Collector()
    return World(host=host, **settings), host


def breaks(*arguments: object) -> None:
    raise ValueError("planted")


# -- timers


def test_fault_timer_costs_no_other_timer_its_turn() -> None:
    host = Collector()
    clock = ManualClock(0)
    timers = Timers(host, clock.now_ms)
    ran: list[str] = []
    timers.at(10, lambda: ran.append("before"))
    timers.at(10, breaks)
    timers.at(10, lambda: ran.append("after"))
    timers.at(20, lambda: ran.append("later"))
    clock.advance_ms(15)
    timers.run_due()
    assert ran == ["before", "after"]
    assert [(kind, where, str(error)) for kind, where, error in host.faults] == [("timer", "breaks", "planted")]
    clock.advance_ms(5)
    timers.run_due()
    assert ran == ["before", "after", "later"]


def test_an_action_that_schedules_itself_and_fails_runs_again() -> None:
    world, host = world_with_faults()
    count = 0

    def failing() -> None:
        nonlocal count
        count += 1
        world.broker.wake_at(world.broker.now_ms() + 1000, failing)
        breaks()

    world.broker.wake_at(world.broker.now_ms() + 1000, failing)
    for _ in range(5):
        world.advance(seconds=1)
    assert count == len(host.faults) == 5


# -- rounds over all topics


@pytest.mark.parametrize(
    ("round_of", "interval_s"), [("trim", 120), ("expire", 300), ("forget_idle_producers", 600), ("update_rates", 60)]
)
def test_fault_maintenance_round_of_one_topic_costs_no_other_topic_its_round(
    monkeypatch: pytest.MonkeyPatch, round_of: str, interval_s: int
) -> None:
    world, host = world_with_faults()
    for name in "abc":
        world.topic(name)
    visited: list[str] = []

    def visit(topic: PersistentTopic, argument: float) -> None:
        visited.append(topic.name.local)
        if topic.name.local == "a":
            breaks()

    monkeypatch.setattr(PersistentTopic, round_of, visit)
    for _ in range(3):
        visited.clear()
        world.advance(seconds=interval_s)
        assert set(visited) == {"a", "b", "c"}, "the next round comes too"
    assert len(host.faults) == 1, "the log says it once"
    kind, where, _ = host.faults[0]
    assert (kind, where.endswith("of persistent://public/default/a")) == ("maintenance", True)


def test_a_topic_that_recovered_and_fails_again_is_logged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world, host = world_with_faults()
    world.topic("a")
    for times in (1, 2):
        with monkeypatch.context() as broken:
            broken.setattr(PersistentTopic, "trim", breaks)
            world.advance(seconds=120)
            world.advance(seconds=120)
        assert len(host.faults) == times
        world.advance(seconds=120)


def test_a_topic_that_cannot_be_opened_costs_no_other_topic_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = world_with_faults()
    for name in "abc":
        first.topic(name)
    first.settle()
    host = Collector()
    world = World(first.storage.crash(), host=host)
    load = type(world.broker)._load

    def failing(broker: object, name: TopicName) -> object:
        return breaks() if name.local == "a" else load(world.broker, name)

    monkeypatch.setattr(type(world.broker), "_load", failing)
    world.advance(seconds=120)
    assert {topic.name.local for topic in world.broker.topics.values()} == {"b", "c"}
    assert {kind for kind, _, _ in host.faults} == {"maintenance"}


def test_a_broker_without_persistent_topics_keeps_its_rounds() -> None:
    first, _ = world_with_faults()
    first.topic("a")
    first.settle()
    host = Collector()
    world = World(first.storage.crash(), host=host, enablePersistentTopics=False)
    for _ in range(3):
        world.advance(minutes=10)
    assert host.faults == []


def test_policies_reach_the_other_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    world, host = world_with_faults()
    topics = [world.topic(name) for name in "abc"]
    monkeypatch.setattr(topics[0], "apply_policies", breaks)
    world.broker.set_dynamic_setting("ttlDurationDefaultInSeconds", "77")
    assert [topic.policies.ttl_ms for topic in topics[1:]] == [77_000, 77_000]
    assert host.faults[0][1] == "policies of persistent://public/default/a"


# -- subscriptions of one topic


def test_delayed_messages_reach_the_other_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    world, host = world_with_faults()
    world.consumer("s1")
    world.consumer("s2")
    world.publish(3, deliver_at_ms=world.clock.now_ms() + 1000)
    assert world.client.take() == []
    first = world.topic()._subscriptions["s1"]
    wake = Subscription.wake
    monkeypatch.setattr(Subscription, "wake", lambda one, entry: breaks() if one is first else wake(one, entry))
    world.advance(seconds=2)
    assert world.client.take() == [0, 1, 2]
    assert host.faults[0][:2] == ("timer", "delayed messages of s1 of persistent://public/default/t")


def test_dispatch_of_one_subscription_costs_no_other_one_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world, host = world_with_faults()
    world.consumer("s1")
    world.consumer("s2")
    dispatcher = world.topic()._subscriptions["s1"].dispatcher
    assert dispatcher is not None
    pump = type(dispatcher).pump
    monkeypatch.setattr(type(dispatcher), "pump", lambda one: breaks() if one is dispatcher else pump(one))
    world.publish(2)
    assert world.client.take() == [0, 1]
    assert host.faults[0][:2] == ("dispatch", "subscription s1 of persistent://public/default/t")


# -- consumers that come and go


@pytest.mark.parametrize(
    ("part", "method"),
    [
        (Suspects, "vanished"),
        (Suspects, "released"),
        (Places, "release_all"),
        (Places, "make_pending"),
        (RoundRobin, "remove"),
        (Deliveries, "unblock"),
        (Subscription, "_settle"),
    ],
)
@pytest.mark.parametrize("others", [0, 1])
def test_fault_consumer_that_leaves_holds_nothing_whatever_fails(
    monkeypatch: pytest.MonkeyPatch, part: type, method: str, others: int
) -> None:
    world, host = world_with_faults()
    consumer = world.consumer(name="a", client=Client())
    world.publish(10)
    for number in range(others):
        world.consumer(name=f"b{number}", permits=0, client=Client())
    consumer.entries_max = 100  # as with a suspect among them
    with monkeypatch.context() as broken:
        broken.setattr(part, method, breaks)
        world.topic().remove_consumer(consumer, vanished=True)
    subscription = world.subscription()
    assert {kind for kind, _, _ in host.faults} <= {"disconnect"}
    assert consumer not in subscription.consumers
    assert (len(consumer.pending), consumer.unacked, subscription.places.unacked) == (0, 0, 0)
    assert not subscription.places.has_in_flight
    for other in list(subscription.consumers):
        world.topic().remove_consumer(other)
    world.settle()
    world.consumer(name="c")
    assert sorted(world.client.take()) == list(range(10))


def test_a_step_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    world, host = world_with_faults()
    consumer = world.consumer(durable=False)
    monkeypatch.setattr(Subscription, "_settle", breaks)
    world.topic().remove_consumer(consumer, vanished=True)
    assert host.faults[0][:2] == ("disconnect", "subscription s of persistent://public/default/t")
    assert "s" not in world.topic().subscriptions, "the subscription of a reader ends with it"


@pytest.mark.parametrize("type", list(SubscriptionType))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("others", [0, 1])
def test_a_consumer_that_cannot_be_added_is_not_half_added(
    monkeypatch: pytest.MonkeyPatch, type: SubscriptionType, when: str, others: int
) -> None:
    world, _ = world_with_faults()
    if others and type is SubscriptionType.Exclusive:
        return
    other = Client()
    for _ in range(others):
        world.consumer(name="other", type=type, client=other)
    world.publish(10)
    for dispatcher in (SingleActive, RoundRobin, StickyKey):
        add = dispatcher.add

        def failing(one: Any, consumer: Consumer, add: Any = add) -> None:
            if when == "after":
                add(one, consumer)
            breaks()

        monkeypatch.setattr(dispatcher, "add", failing)
    with pytest.raises(ValueError, match="planted"):
        world.consumer(name="broken", type=type)
    monkeypatch.undo()
    world.settle()
    assert world.client.take() == []
    assert world.subscription().consumers == []
    assert other.closed == ["other"] * others, "it comes back"
    world.consumer(name="next", type=type)
    assert world.client.take() == list(range(10))

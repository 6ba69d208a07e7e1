"""Suspects: crashes of consumers are attributed to the message that caused them (DL13)."""

from __future__ import annotations

import pytest

from magnetar.bounds import SUSPECTS_OF_CRASH
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.suspects import ALONE_PATIENCE_MS
from tests.broker.dead_letters import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    letters,
    origins,
    with_policy,
)
from tests.broker.world import World


class TestSuspects:
    def crash(
        self,
        world: World,
        consumer: Consumer,
        type: SubscriptionType = SubscriptionType.Shared,
        *,
        durable: bool = True,
    ) -> Consumer:
        world.topic().remove_consumer(consumer, vanished=True)
        world.settle()
        return world.consumer(name=f"{consumer.name}+", type=type, durable=durable)

    def test_dl13_a_message_that_kills_every_consumer_ends_in_the_dead_letter_topic(self) -> None:
        world = World()
        world.publish(100)
        consumer = world.consumer(permits=1000)
        with_policy(world, 2)
        poison, done, crashes = 37, set[int](), 0
        world.client.take()
        received = list(range(100))
        while received:
            for entry in received:
                if entry == poison:
                    world.client.delivered.clear()
                    consumer = self.crash(world, consumer)
                    crashes += 1
                    if crashes == 3:
                        world = world.restart()  # suspicions survive
                        consumer = world.consumer()
                    break
                world.subscription().ack(entry)
                done.add(entry)
            world.settle()
            assert all(count == 0 for _, (entry, count, _, _) in world.client.delivered if entry != poison)
            received = [entry for entry in world.client.take() if entry not in done]
            assert crashes < 20
        assert done == set(range(100)) - {poison}
        assert origins(world) == [f"{world.topic().ledger_id}:{poison}:-1"]
        assert letters(world)[0][1]["DEATH_REASON"] == "ConsumerCrash"
        assert world.subscription().backlog == 0

    @pytest.mark.parametrize("has_policy", [True, False])
    def test_dl13_others_wait_for_a_free_consumer_for_a_limited_time(self, has_policy: bool) -> None:
        world = World()
        world.publish(2)
        consumer = world.consumer(permits=2)
        if has_policy:
            with_policy(world, 1)
        for _ in range(3):
            consumer = self.crash(world, consumer)
        world.client.take()
        assert list(consumer.pending) == [0]  # alone
        world.subscription().ack(0)
        world.settle()
        assert list(consumer.pending) == [1]
        # A consumer that holds a suspect without acknowledging receives the others after a while.
        world = World()
        world.publish(1)
        consumer = world.consumer(permits=10)
        if has_policy:
            with_policy(world, 1)
        for _ in range(3):
            consumer = self.crash(world, consumer)
        world.topic().remove_consumer(consumer)
        world.publish(1)
        busy = world.consumer(name="busy", permits=0)
        world.subscription().flow(busy, 10)
        world.settle()
        assert list(busy.pending) == [0]
        world.advance(milliseconds=ALONE_PATIENCE_MS + 1)
        assert list(busy.pending) == [0, 1]

    @pytest.mark.parametrize("type", [SubscriptionType.Shared, KEY_SHARED])
    def test_dl13_without_a_policy_of_the_broker_a_crash_while_alone_counts_as_a_redelivery(
        self, type: SubscriptionType
    ) -> None:
        """The client's policy, which the broker does not know, uses the count."""
        world = World()
        world.publish(100, keys=["k"] if type is KEY_SHARED else [])
        consumer = world.consumer(type=type)
        poison, limit, done, counts = 37, 2, set[int](), list[int]()
        while world.subscription().backlog:
            delivered, world.client.delivered = world.client.delivered, []
            for _, (entry, count, _, _) in delivered:
                if entry == poison and count <= limit:
                    counts.append(count)
                    consumer = self.crash(world, consumer, type)
                    break
                if entry == poison:
                    counts.append(
                        count
                    )  # the client publishes the dead letter, without its application seeing the message
                else:
                    assert count == 0
                    done.add(entry)
                world.subscription().ack(entry)
            world.settle()
            assert len(counts) < 20
        assert done == set(range(100)) - {poison}
        assert counts == [0, 0, 0, 0, 1, 2, 3]
        assert letters(world) == []

    @pytest.mark.parametrize(
        ("type", "durable"), [(EXCLUSIVE, True), (FAILOVER, True), (SubscriptionType.Shared, False)]
    )
    def test_subscriptions_without_suspects(self, type: SubscriptionType, durable: bool) -> None:
        """Clients have no dead letter policy for ordered types, and a non-durable subscription keeps no state."""
        world = World()
        world.publish(3)
        consumer = world.consumer(type=type, durable=durable, name="c0")
        second = world.consumer(type=type, durable=durable, name="c1", permits=0) if not durable else None
        for _ in range(5):
            consumer = self.crash(world, consumer, type, durable=durable)
        assert len(consumer.pending) == 3
        assert not world.subscription().cursor.has_states
        assert second is None or not second.pending


def test_bound_suspects_of_crash() -> None:
    world = World(dispatcherMaxReadBatchSize=10_000)
    count = SUSPECTS_OF_CRASH.limit + 10
    for _ in range(10):
        world.publish(count // 10)
    consumer = world.consumer(type=SubscriptionType.Exclusive, permits=count)
    with_policy(world, 2)
    assert len(consumer.pending) == count
    world.topic().remove_consumer(consumer, vanished=True)
    suspects = world.subscription().cursor.suspects
    assert (len(suspects), suspects.max()) == (SUSPECTS_OF_CRASH.limit, SUSPECTS_OF_CRASH.limit - 1)

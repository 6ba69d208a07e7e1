"""Redelivery: counts (DL5, DL6), ordered types (DL11), and back-off."""

from __future__ import annotations

import pytest

from magnetar.broker.subscription.consumer import SubscriptionType
from magnetar.wire import schema_pb2 as pb
from tests.broker.dead_letters import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    configure,
    fail,
    letters,
    origins,
    publish,
    with_policy,
)
from tests.broker.world import World


class TestCounts:
    def test_dl6_counts_survive_restarts_and_the_last_consumer_leaving(self) -> None:
        world = World()
        world.publish(1)
        consumer = world.consumer()
        with_policy(world, 3)
        fail(world, consumer, 0)
        world.topic().remove_consumer(consumer)
        world.settle()
        again = world.restart()
        consumer = again.consumer()
        assert again.client.delivered[-1][1][:2] == (0, 1)
        for _ in range(3):
            fail(again, consumer, 0)
        assert len(letters(again)) == 1

    def test_dl5_closing_and_crashing_do_not_count(self) -> None:
        world = World()
        world.publish(2)
        consumer = world.consumer()
        with_policy(world, 1)
        for vanished in (False, True, False):
            world.topic().remove_consumer(consumer, vanished=vanished)
            consumer = world.consumer()
        assert {delivery[1] for _, delivery in world.client.delivered} == {0}

    def test_dl5_an_empty_list_means_everything(self) -> None:
        world = World()
        world.publish(3)
        consumer = world.consumer()
        with_policy(world, 1)
        fail(world, consumer)
        fail(world, consumer)
        assert len(letters(world)) == 3

    def test_dl5_a_batch_is_sent_with_its_highest_count(self) -> None:
        world = World()
        publish(world, pb.MessageMetadata(num_messages_in_batch=3), b"?", messages=3)
        consumer = world.consumer()
        fail(world, consumer, 0, indexes={0: 0b010})
        fail(world, consumer, 0, indexes={0: 0b010})
        fail(world, consumer, 0)
        assert world.client.delivered[-1][1][1] == 3
        world.subscription().ack(0, open_bits=0b101)
        fail(world, consumer, 0, indexes={0: 0b001})
        assert world.client.delivered[-1][1][1] == 2

    def test_bound_entry_states_beyond_are_read_from_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("magnetar.broker.subscription.cursor.STATES_KEPT", 4)
        world = World()
        world.publish(50)
        consumer = world.consumer()
        for _ in range(3):
            fail(world, consumer)
        assert len(world.subscription().cursor._states) <= 8
        world.client.delivered.clear()
        fail(world, consumer)
        assert [delivery[:2] for _, delivery in world.client.delivered] == [(n, 4) for n in range(50)]
        again = world.restart()
        again.consumer()
        assert [delivery[1] for _, delivery in again.client.delivered] == [4] * 50


class TestOrdered:
    @pytest.mark.parametrize("type", [EXCLUSIVE, FAILOVER])
    def test_dl11_the_first_is_dead_lettered_and_those_behind_it_arrive_in_order(self, type: SubscriptionType) -> None:
        world = World()
        world.publish(4)
        consumer = world.consumer(type=type)
        with_policy(world, 1)
        world.subscription().ack(0)
        fail(world, consumer)  # clients request everything again, because 1 failed
        fail(world, consumer)
        assert origins(world) == [f"{world.topic().ledger_id}:1:-1"]
        world.client.take()
        fail(world, consumer)
        assert world.client.take() == [2, 3]
        assert [world.subscription().cursor.state_of(n) for n in (3,)] == [None]

    def test_dl11_key_shared(self) -> None:
        world = World()
        world.publish(4, keys=["a", "b"])
        consumer = world.consumer(type=KEY_SHARED)
        with_policy(world, 1)
        fail(world, consumer, 0)
        fail(world, consumer, 0)
        assert origins(world) == [f"{world.topic().ledger_id}:0:-1"]
        for entry in (1, 2, 3):
            world.subscription().ack(entry)
        world.settle()
        assert world.subscription().backlog == 0


class TestBackoff:
    @pytest.mark.parametrize("type", [SubscriptionType.Shared, KEY_SHARED, EXCLUSIVE])
    def test_each_failure_backs_off_longer_and_no_redelivery_is_early(self, type: SubscriptionType) -> None:
        world = World()
        world.publish(1, keys=["a"])
        consumer = world.consumer(type=type)
        configure(world, backoff_ms=[1000, 10_000])
        for delay_ms in (1000, 10_000, 10_000):
            world.client.take()
            fail(world, consumer, 0)
            world.advance(milliseconds=delay_ms - 1)
            assert world.client.take() == []
            world.advance(milliseconds=60)
            assert world.client.take() == [0]

    @pytest.mark.parametrize("type", [SubscriptionType.Shared, EXCLUSIVE])
    def test_it_survives_a_restart_and_the_last_consumer_leaving(self, type: SubscriptionType) -> None:
        world = World()
        world.publish(2)
        consumer = world.consumer(type=type)
        configure(world, backoff_ms=[60_000])
        fail(world, consumer, 0)
        world.topic().remove_consumer(consumer)
        world.settle()
        again = world.restart()
        again.consumer(type=type)
        assert again.client.take() == ([1] if type is SubscriptionType.Shared else [])
        again.advance(seconds=61)
        assert again.client.take() == ([0] if type is SubscriptionType.Shared else [0, 1])

    def test_entries_that_back_off_can_be_acknowledged_skipped_and_sought(self) -> None:
        world = World()
        world.publish(4)
        consumer = world.consumer()
        configure(world, backoff_ms=[60_000])
        fail(world, consumer)
        world.subscription().ack(1)
        world.settle()
        world.subscription().advance(2)
        world.settle()
        assert world.subscription().backlog == 1
        world.subscription().seek(0)
        world.settle()
        assert world.subscription().backlog == 4

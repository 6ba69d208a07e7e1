"""Subscriptions in the core: positions after acks, nacks, losses, limits and restarts."""

from __future__ import annotations

import pytest

from magnetar.errors import ConsumerBusy, NotAllowed
from tests.broker.world import Client, SubscriptionType, World

SHARED, EXCLUSIVE = SubscriptionType.Shared, SubscriptionType.Exclusive
FAILOVER, KEY_SHARED = SubscriptionType.Failover, SubscriptionType.Key_Shared


def test_nothing_is_delivered_before_it_is_durable() -> None:
    world = World()
    world.consumer()
    producer = world.producer()
    world.topic().publish(producer, [(1, 1, 1, b"\x00\x00\x00\x00x", False, False)])
    world.broker.pump()
    assert world.client.delivered == []
    assert world.client.receipted == []
    world.settle()
    assert world.client.take() == [0]
    assert world.client.receipted == [(1, 1, 0)]


def test_permits_count_messages_not_entries() -> None:
    world = World()
    world.publish(5, messages=10)
    consumer = world.consumer(permits=15)
    assert world.client.take() == [0, 1]  # the second exceeds the limit, the third is not started
    assert consumer.permits == -5
    world.subscription().flow(consumer, 6)
    world.settle()
    assert world.client.take() == [2]


def test_a_nacked_message_is_redelivered_with_a_count_that_survives_a_restart() -> None:
    world = World()
    world.publish(3)
    consumer = world.consumer()
    world.subscription().redeliver(consumer, [1])
    world.settle()
    world.subscription().redeliver(consumer, [1])
    world.settle()
    assert [delivery[:2] for _, delivery in world.client.delivered[-2:]] == [(1, 1), (1, 2)]
    again = world.restart()
    again.consumer()
    assert [delivery[:2] for _, delivery in again.client.delivered] == [(0, 0), (1, 2), (2, 0)]


def test_redeliver_without_ids_means_everything() -> None:
    world = World()
    world.publish(3)
    consumer = world.consumer()
    world.subscription().ack(1)
    world.client.take()
    world.subscription().redeliver(consumer, None)
    world.settle()
    assert world.client.take() == [0, 2]


def test_closing_a_consumer_does_not_count_against_its_messages() -> None:
    world = World()
    world.publish(3)
    first = world.consumer(name="first")
    other = Client()
    world.consumer(name="other", client=other)
    world.topic().remove_consumer(first)
    world.settle()
    assert [delivery[:2] for _, delivery in other.delivered] == [(0, 0), (1, 0), (2, 0)]


def test_a_partly_acknowledged_batch_is_redelivered_with_its_open_messages() -> None:
    world = World()
    world.publish(1, messages=4)
    consumer = world.consumer()
    world.subscription().ack(0, open_bits=0b1010)
    assert consumer.unacked == 2
    world.subscription().redeliver(consumer, None)
    world.settle()
    assert world.client.delivered[-1][1][2] == 0b1010
    world.subscription().ack(0, open_bits=0b0101)  # the other two: now everything is acknowledged
    world.settle()
    assert (world.subscription().backlog, consumer.unacked) == (0, 0)


def test_batch_index_acks_can_be_disabled() -> None:
    world = World(acknowledgmentAtBatchIndexLevelEnabled=False)
    world.publish(1, messages=2)
    world.consumer()
    world.subscription().ack(0, open_bits=0b10)
    assert world.subscription().cursor.open_bits(0) is None
    world.subscription().ack(0, open_bits=0)
    assert world.subscription().backlog == 0


def test_cumulative_ack_within_a_batch() -> None:
    world = World()
    world.publish(3, messages=4)
    world.consumer(type=EXCLUSIVE)
    world.subscription().ack_cumulative(1, open_bits=0b1100)
    world.settle()
    assert world.subscription().cursor.mark_delete == 0
    assert world.subscription().cursor.open_bits(1) == 0b1100


def test_cumulative_acks_are_rejected_where_messages_are_spread() -> None:
    world = World()
    world.publish(1)
    world.consumer(type=SHARED)
    with pytest.raises(NotAllowed, match="cumulative acknowledgement is not allowed on a Shared subscription"):
        world.subscription().ack_cumulative(0)


def test_exclusive_rejects_a_second_consumer_and_other_types() -> None:
    world = World()
    world.consumer(type=EXCLUSIVE)
    with pytest.raises(ConsumerBusy, match="exclusive consumer is already connected"):
        world.consumer(type=EXCLUSIVE, name="second")
    with pytest.raises(ConsumerBusy, match="is of type Exclusive, consumer 'third' requests Shared"):
        world.consumer(type=SHARED, name="third")


def test_exclusive_redelivery_keeps_the_order() -> None:
    world = World()
    world.publish(4)
    consumer = world.consumer(type=EXCLUSIVE)
    world.subscription().ack(1)
    world.client.take()
    world.subscription().redeliver(consumer, [2])
    world.settle()
    assert world.client.take() == [0, 2, 3]


def test_failover_redelivers_unacknowledged_messages_to_the_next_consumer() -> None:
    world = World()
    world.publish(4)
    active = world.consumer(type=FAILOVER, name="active")
    standby = Client()
    world.consumer(type=FAILOVER, name="standby", client=standby, priority=1)
    assert standby.active == [("standby", False)]
    world.subscription().ack_cumulative(1)
    world.topic().remove_consumer(active)
    world.settle()
    assert standby.active[-1] == ("standby", True)
    assert standby.take() == [2, 3]


def test_a_better_consumer_takes_over_after_a_grace_period_for_acks() -> None:
    world = World(activeConsumerFailoverDelayTimeMillis=1000)
    world.publish(4)
    world.consumer(type=FAILOVER, name="former", priority=1)
    better = Client()
    world.consumer(type=FAILOVER, name="better", client=better, priority=0)
    assert world.client.active[-1] == ("former", False)
    assert better.active == [("better", True)]
    world.advance(milliseconds=999)
    assert better.take() == []
    world.subscription().ack_cumulative(1)
    world.advance(milliseconds=1)
    assert better.take() == [2, 3]


def test_shared_distributes_over_consumers_of_the_best_priority() -> None:
    world = World(dispatcherMaxRoundRobinBatchSize=1)
    clients = [Client() for _ in range(3)]
    for index, client in enumerate(clients):
        world.consumer(name=f"c{index}", client=client, priority=0 if index < 2 else 1, permits=10)
    world.publish(25)
    assert [len(client.delivered) for client in clients] == [10, 10, 5]


def test_bound_unacked_per_consumer_waits_for_acks() -> None:
    world = World(maxUnackedMessagesPerConsumer=3)
    world.publish(5)
    consumer = world.consumer()
    assert world.client.take() == [0, 1, 2]
    assert consumer.is_blocked
    world.subscription().ack(0)
    world.settle()
    assert world.client.take() == [3]


def test_bound_unacked_per_subscription_waits_for_half_of_them() -> None:
    world = World(maxUnackedMessagesPerSubscription=4, dispatcherMaxRoundRobinBatchSize=1)
    clients = [Client(), Client()]
    for index, client in enumerate(clients):
        world.consumer(name=f"c{index}", client=client)
    world.publish(10)
    assert sum(len(client.take()) for client in clients) == 4
    world.subscription().ack(0)
    world.settle()
    assert sum(len(client.take()) for client in clients) == 0
    world.subscription().ack(1)
    world.settle()
    assert sum(len(client.take()) for client in clients) == 2


def test_a_full_transport_means_no_permits() -> None:
    world = World()
    world.publish(3)
    world.client.writable = False
    consumer = world.consumer()
    assert world.client.delivered == []
    world.client.writable = True
    world.subscription().flow(consumer, 0)
    world.settle()
    assert world.client.take() == [0, 1, 2]


def test_acks_survive_a_restart() -> None:
    world = World()
    world.publish(6)
    world.consumer()
    for entry in (0, 1, 3, 5):
        world.subscription().ack(entry)
    world.settle()
    again = world.restart()
    again.consumer()
    assert again.client.take() == [2, 4]


def test_delayed_messages_wait_for_their_time_across_a_restart() -> None:
    world = World()
    world.consumer()
    world.publish(1, deliver_at_ms=world.clock.now_ms() + 60_000)
    world.publish(1)
    assert world.client.take() == [1]
    assert world.subscription().places.delayed == 1
    again = world.restart()
    again.consumer()
    assert again.client.take() == [1]
    again.advance(milliseconds=59_999)
    assert again.client.take() == []
    again.advance(milliseconds=1)
    assert again.client.take() == [0]
    assert again.subscription().places.delayed == 0


def test_exclusive_consumers_do_not_wait_for_delayed_messages() -> None:
    world = World()
    world.consumer(type=EXCLUSIVE)
    world.publish(1, deliver_at_ms=world.clock.now_ms() + 60_000)
    assert world.client.take() == [0]


def test_many_delayed_messages_at_one_time() -> None:
    world = World()
    consumer = world.consumer(permits=10_000)
    world.publish(2500, deliver_at_ms=world.clock.now_ms() + 1000)
    assert world.client.take() == []
    world.advance(seconds=1)
    assert sorted(world.client.take()) == list(range(2500))
    world.subscription().redeliver(consumer, None)
    world.settle()
    assert sorted(world.client.take()) == list(range(2500))


def test_a_seek_goes_back_and_disconnects_consumers() -> None:
    world = World()
    world.publish(5)
    world.consumer()
    for entry in range(5):
        world.subscription().ack(entry)
    world.subscription().seek(2)
    assert world.client.closed == ["c"]
    world.client.take()
    world.consumer(name="again")
    assert world.client.take() == [2, 3, 4]


def test_a_reader_that_does_not_reconnect_after_its_seek_is_deleted() -> None:
    world = World()
    world.publish(2)
    world.consumer("reader", type=EXCLUSIVE, durable=False)
    world.subscription("reader").seek(0)
    world.settle()
    assert "reader" in world.topic().subscriptions
    world.advance(minutes=2)
    assert "reader" not in world.topic().subscriptions


def test_end_of_topic_is_sent_once_when_everything_is_acknowledged() -> None:
    world = World()
    world.publish(2)
    world.consumer()
    world.topic().terminate()
    world.settle()
    assert world.client.ended == []
    world.subscription().ack(0)
    world.subscription().ack(1)
    world.settle()
    assert world.client.ended == ["c"]


class TestKeyShared:
    def test_each_key_has_one_consumer(self) -> None:
        world = World()
        clients = [Client() for _ in range(3)]
        for index, client in enumerate(clients):
            world.consumer(name=f"c{index}", client=client, type=KEY_SHARED)
        keys = [f"key-{index}" for index in range(30)]
        world.publish(300, keys=keys)
        seen = [{delivery[0] % 30 for _, delivery in client.delivered} for client in clients]
        assert sum(len(keys_of_one) for keys_of_one in seen) == 30
        assert all(seen)

    @pytest.mark.parametrize("consistent", [True, False])
    def test_a_key_waits_for_its_former_owner(self, consistent: bool) -> None:
        world = World(subscriptionKeySharedUseConsistentHashing=consistent)
        old, new = Client(), Client()
        world.consumer(name="old", client=old, type=KEY_SHARED)
        keys = [f"key-{index}" for index in range(20)]
        world.publish(20, keys=keys)
        held = old.take()
        assert held == list(range(20))
        world.consumer(name="new", client=new, type=KEY_SHARED)
        world.publish(20, keys=keys)
        assert new.take() == []  # every key now owned by new still has a message with old
        kept = old.take()
        assert 0 < len(kept) < 20
        for entry in held:
            world.subscription().ack(entry)
        world.settle()
        assert sorted(kept + new.take()) == list(range(20, 40))

    def test_messages_of_a_lost_consumer_precede_later_ones_of_their_key(self) -> None:
        world = World()
        old, new = Client(), Client()
        consumer = world.consumer(name="old", client=old, type=KEY_SHARED, permits=5)
        world.publish(20, keys=["a", "b"])
        assert old.take() == [0, 1, 2, 3, 4]
        world.consumer(name="new", client=new, type=KEY_SHARED)
        world.topic().remove_consumer(consumer)
        world.settle()
        entries = new.take()
        assert [entry for entry in entries if entry % 2 == 0] == list(range(0, 20, 2))
        assert [entry for entry in entries if entry % 2 == 1] == list(range(1, 20, 2))

    def test_sticky_ranges(self) -> None:
        world = World()
        low, high = Client(), Client()
        world.consumer(name="low", client=low, type=KEY_SHARED, hash_ranges=[(0, 32767)])
        world.publish(40, keys=[f"key-{index}" for index in range(40)])
        mine = low.take()
        assert 0 < len(mine) < 40  # the rest waits for an owner
        world.consumer(name="high", client=high, type=KEY_SHARED, hash_ranges=[(32768, 65535)])
        assert sorted(mine + high.take()) == list(range(40))

    def test_sticky_ranges_must_not_overlap(self) -> None:
        world = World()
        world.consumer(name="low", type=KEY_SHARED, hash_ranges=[(0, 100)])
        with pytest.raises(Exception, match=r"hash range \[50, 60\] overlaps \[0, 100\] of consumer 'low'"):
            world.consumer(name="other", type=KEY_SHARED, hash_ranges=[(50, 60)])

    def test_a_rejected_first_consumer_leaves_nothing(self) -> None:
        world = World()
        world.publish(3)
        with pytest.raises(Exception, match=r"hash range \[5, 70000\] is not within \[0, 65535\]"):
            world.consumer(type=KEY_SHARED, hash_ranges=[(5, 70_000)])
        assert world.subscription().dispatcher is None
        world.consumer(type=SHARED)
        assert world.client.take() == [0, 1, 2]

    def test_bound_look_ahead_per_consumer_of_a_slow_key(self) -> None:
        world = World(keySharedLookAheadMsgInReplayThresholdPerConsumer=50)
        world.consumer(name="c", type=KEY_SHARED, permits=1)
        other = Client()
        world.consumer(name="d", client=other, type=KEY_SHARED, permits=10_000)
        world.publish(1000, keys=[f"key-{index}" for index in range(40)])
        assert len(world.subscription().places.pending) <= 50 * 2 + 20
        assert world.subscription().places.has_unread

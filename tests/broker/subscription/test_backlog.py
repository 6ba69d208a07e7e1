"""Administrative changes of a backlog, and their effects on connected consumers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.subscription.cursor import Cursor
from magnetar.errors import ServiceNotReady
from magnetar.names import TopicName
from tests.broker.world import Client, SubscriptionType, World

ALL_TYPES = list(SubscriptionType)


# -- cursor


@given(st.sets(st.integers(0, 200)), st.integers(-1, 50), st.integers(1, 100))
def test_the_nth_open_position_is_found_without_a_scan(acked: set[int], mark_delete: int, count: int) -> None:
    cursor = Cursor(None, 0, mark_delete)
    for entry in acked:
        cursor.ack(entry)
    still_open = [entry for entry in range(400) if not cursor.is_acked(entry)]
    assert cursor.nth_open(count) == still_open[count - 1]


@given(st.sets(st.integers(0, 60)), st.integers(0, 40))
def test_ranges_of_acknowledged_positions(acked: set[int], limit: int) -> None:
    cursor = Cursor(None, 0, -1)
    for entry in acked:
        cursor.ack(entry)
    ranges = cursor.acked_ranges(limit)
    everything = cursor.acked_ranges(1000)
    assert ranges == everything[:limit]
    covered = [entry for first, last in everything for entry in range(first, last + 1)]
    assert covered == list(cursor.acked.to_array())
    assert all(right[0] > left[1] + 1 for left, right in pairwise(everything))
    assert cursor.acked_range_count == len(everything)


# -- skip, expire, peek


@pytest.mark.parametrize("type", ALL_TYPES)
def test_a_connected_consumer_continues_after_skipped_messages(type: SubscriptionType) -> None:
    world = World()
    consumer = world.consumer(type=type, permits=2)
    world.publish(6)
    assert world.client.take() == [0, 1]
    world.subscription().skip(4)
    world.settle()
    assert world.subscription().backlog == 2 and world.client.take() == []
    world.subscription().flow(consumer, 10)
    world.settle()
    assert world.client.take() == [4, 5] and world.client.closed == []
    assert world.restart().subscription().backlog == 2


def test_skipping_counts_unacknowledged_messages() -> None:
    world = World()
    world.consumer()
    world.publish(6)
    world.subscription().ack(1)
    world.subscription().ack(2)
    world.subscription().skip(2)
    world.settle()
    assert world.subscription().cursor.mark_delete == 3 and world.subscription().backlog == 2
    world.subscription().skip(0)
    assert world.subscription().backlog == 2
    world.subscription().skip(1 << 31)
    world.settle()
    assert world.subscription().backlog == 0


def test_delayed_messages_are_skipped_too() -> None:
    world = World()
    world.consumer()
    world.publish(2, deliver_at_ms=world.clock.now_ms() + 5000)
    world.publish(1)
    assert world.client.take() == [2]
    world.subscription().skip(1)
    world.advance(seconds=6)
    assert world.client.take() == [1]


def test_peeking_moves_nothing() -> None:
    world = World()
    world.consumer(permits=0)
    world.publish(4)
    subscription = world.subscription()
    subscription.ack(1)
    entries = [subscription.peek(number) for number in range(5)]
    assert [entry and entry[0] for entry in entries] == [None, 0, 2, 3, None]
    assert subscription.backlog == 3


def test_expired_messages_are_counted() -> None:
    world = World()
    world.consumer(permits=0)
    world.publish(4)
    world.subscription().ack(1)
    world.subscription().expire(2)
    assert world.subscription().expired_messages == 2 and world.subscription().backlog == 1
    world.publish(1, messages=3)
    world.subscription().expire(4, 0b100)
    assert world.subscription().backlog == 2 and world.subscription().cursor.open_bits(4) == 0b100
    world.subscription().expire(4, 0)
    assert world.subscription().backlog == 1 and world.subscription().expired_messages == 3
    world.settle()


# -- truncate


def test_truncating_leaves_nothing_and_keeps_consumers_connected() -> None:
    world = World(defaultRetentionTimeInMinutes=60, defaultRetentionSizeInMB=100)
    world.consumer(permits=1)
    world.consumer("reader", durable=False, permits=0)
    world.publish(5)
    world.client.take()
    topic = world.topic()
    topic.truncate()
    topic.truncate()
    world.settle()
    assert topic.log.first == 5 and topic.log.read_one(4) is None
    assert [subscription.backlog for subscription in topic.cursors] == [0, 0]
    world.publish(1)
    again = world.restart()
    assert again.topic().log.first == 5 and again.subscription().backlog == 1
    assert world.client.closed == []


# -- properties


def test_properties_of_a_subscription_are_durable() -> None:
    world = World()
    world.consumer()
    world.subscription().set_properties({"k": "v"})
    world.subscription().set_replicated(True)
    world.settle()
    again = world.restart().subscription()
    assert again.properties == {"k": "v"} and again.record.replicated


# -- unload


def test_an_unloaded_topic_is_opened_again_with_everything() -> None:
    world = World()
    world.producer()
    world.consumer()
    world.consumer("reader", durable=False)
    world.publish(4)
    world.subscription().ack(1)
    old = world.topic()
    world.broker.unload(old.name)
    assert sorted(world.client.closed) == ["c", "c", "p"]
    world.settle()
    assert old.name.full not in world.broker.topics
    topic = world.topic()
    assert topic is not old and list(topic.subscriptions) == ["s"]
    assert topic.log.confirmed == 3 and world.subscription().backlog == 3
    client = Client()
    world.consumer(client=client)
    assert client.take() == [0, 2, 3]
    world.producer(name="q")


def test_a_topic_being_unloaded_is_not_opened_before_everything_is_on_disk() -> None:
    world = World()
    world.publish(1)
    name = world.topic().name
    world.topic().publish(world.topic().producers.by_name["p"], [(1, 1, 1, b"\0\0\0\0", False, False)])
    world.broker.unload(name)
    with pytest.raises(ServiceNotReady, match="is being unloaded"):
        world.broker.topic(name)
    world.broker.unload(name)
    world.settle()
    assert world.topic().log.confirmed == 1


def test_timers_of_an_unloaded_topic_do_nothing() -> None:
    """A timer of the object that is gone must not take delayed messages from the one that stands for it now."""
    world = World()
    world.consumer(name="before")
    world.publish(1, deliver_at_ms=world.clock.now_ms() + 5000)
    old = world.topic()
    world.broker.unload(old.name)
    world.settle()
    client = Client()
    world.consumer(name="after", client=client)
    assert client.take() == []
    world.clock.advance(seconds=6)
    old.wake_delayed()
    world.settle()
    world.advance(seconds=1)
    assert client.take() == [0]


def test_maintenance_skips_a_topic_that_is_being_unloaded() -> None:
    world = World(retentionCheckIntervalInSeconds=1)
    world.publish(1)
    world.broker.unload(world.topic().name)
    world.clock.advance(seconds=2)
    world.broker.tick()
    world.settle()
    assert world.topic().log.confirmed == 0


def test_a_partitioned_topic_is_deleted_completely_or_not_at_all() -> None:
    world = World()
    name = TopicName.parse("p")
    world.broker.catalog.create_partitioned(name, 2, {})
    world.settle()
    world.broker.unload(name.with_partition(1))
    with pytest.raises(ServiceNotReady):
        world.broker.delete_partitioned(name, force=True)
    assert len(world.broker.catalog.topics) == 2
    world.settle()
    world.broker.delete_partitioned(name, force=True)
    assert world.broker.catalog.topics == {}

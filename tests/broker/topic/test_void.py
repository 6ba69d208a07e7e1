"""Void entries: ids of entries that were lost. Every subscription passes them, and no id means another message."""

from __future__ import annotations

import pytest

from magnetar.broker import keys
from magnetar.broker.subscription.consumer import SubscriptionType
from magnetar.broker.topic import run
from magnetar.storage.api import Space
from tests.broker.world import START_MS, World


def make_void(world: World, first: int, last: int) -> None:
    """Replaces entries, each of which is a run."""
    topic, batch = world.topic(), world.storage.batch()
    prefix = keys.ID.pack(topic.record.id)
    batch.delete_range(Space.ENTRIES, prefix + keys.ID.pack(first), prefix + keys.ID.pack(last + 1))
    for start in range(first, last + 1, run.COUNT_MAX):
        end = min(last, start + run.COUNT_MAX - 1)
        batch.put_entry(prefix + keys.ID.pack(end), run.void(end - start + 1, START_MS, 0))
    world.storage.write(batch)
    world.storage.sync()


def published(count: int) -> World:
    world = World()
    world.topic()
    for _ in range(count):
        world.publish(1)
    return world


@pytest.mark.parametrize("type", list(SubscriptionType))
@pytest.mark.parametrize(("first", "last"), [(0, 0), (3, 3), (2, 5), (0, 8), (9, 9), (0, 9)])
def test_every_type_of_subscription_passes_void_entries(type: SubscriptionType, first: int, last: int) -> None:
    world = published(10)
    make_void(world, first, last)
    world = world.restart()
    world.consumer(type=type)
    whole = [entry for entry in range(10) if not first <= entry <= last]
    assert world.client.take() == whole
    subscription = world.subscription()
    for entry in whole:
        subscription.ack(entry)
    world.settle()
    assert (subscription.cursor.mark_delete, subscription.backlog) == (9, 0)
    world.publish(1)
    assert world.client.take() == [10]
    subscription.ack(10)
    world.settle()
    assert world.restart().subscription().cursor.mark_delete == 10


def test_a_gap_longer_than_a_read_is_passed() -> None:
    world = published(400)
    make_void(world, 10, 389)
    world = world.restart()
    world.consumer(permits=1000)
    assert world.client.take() == [*range(10), *range(390, 400)]


def test_time_and_size_are_found_across_void_entries() -> None:
    world = published(10)
    make_void(world, 4, 6)
    log = world.restart().topic().log
    assert log.first_received_after(START_MS - 1) == 0
    assert log.first_published_from(START_MS) == 0
    assert log.first_received_after(START_MS) == 10
    assert log.read_one(5) is None
    assert [entry[0] for entry in log.read(3, 5, 1 << 20)] == [3, 7]
    assert (log.stored_from(4), log.stored_from(7), log.stored_from(10)) == (7, 7, 10)


def test_void_entries_at_the_end_keep_their_ids() -> None:
    world = published(5)
    make_void(world, 3, 4)
    world = world.restart()
    assert world.topic().log.last == 4
    world.publish(1)
    assert world.topic().log.last == 5

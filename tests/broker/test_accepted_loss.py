"""A start that goes on although synced changes are missing: no id is given twice, and old ones mean what is left."""

from __future__ import annotations

import pytest

from magnetar.broker.accepted_loss import ID_GAP
from magnetar.storage.api import Space
from magnetar.storage.memory import MemoryStorage

from .world import World


def after_loss(storage: MemoryStorage) -> World:
    storage.lost_writes = 100
    return World(storage)


@pytest.fixture
def worlds() -> tuple[World, World]:
    """A world with ten entries, and the one that lost the last six of them, and a topic."""
    world = World()
    world.consumer(permits=0)
    world.publish(4)
    damaged = world.storage.crash()
    world.publish(6)
    world.publish(1, "lost")
    return world, after_loss(damaged)


def test_ids_of_lost_messages_and_topics_are_never_given_again(worlds: tuple[World, World]) -> None:
    before, after = worlds
    topic = after.topic()
    assert topic.log.last == 3
    assert topic.ledger_id > before.topic("lost").ledger_id + ID_GAP // 2
    assert after.topic("another").ledger_id > topic.ledger_id
    assert after.broker.life > ID_GAP


def test_ids_of_messages_that_are_left_stay_valid(worlds: tuple[World, World]) -> None:
    before, after = worlds
    former = before.topic().ledger_id
    topic = after.topic()
    after.publish(2)
    assert [topic.entry_after(former, entry_id) for entry_id in (-1, 0, 2, 3)] == [0, 1, 3, 4]
    # Lost ones mean the end of what is left: what is published now is not skipped, and not taken for them.
    assert [topic.entry_after(former, entry_id) for entry_id in (4, 9, 1000)] == [4, 4, 4]
    assert topic.entry_after(topic.ledger_id, 4) == 5
    assert topic.entry_after(former - 1, 7) == topic.log.first


def test_subscriptions_go_on_where_they_are(worlds: tuple[World, World]) -> None:
    _, after = worlds
    assert after.subscription().backlog == 4
    after.publish(2)
    assert after.subscription().backlog == 6
    world = after.restart()
    assert world.subscription().backlog == 6


def test_a_second_loss_below_the_first_one_limits_both(worlds: tuple[World, World]) -> None:
    before, after = worlds
    damaged = after.storage.crash()
    after.publish(3)
    again = after_loss(damaged)
    topic = again.topic()
    again.publish(1)
    former, second = before.topic().ledger_id, after.topic().ledger_id
    assert former < second < topic.ledger_id
    assert topic.record.former_ledgers == {former: 4, second: 4}
    assert topic.entry_after(second, 6) == topic.entry_after(former, 6) == 4


def test_lost_entries_before_others_are_void() -> None:
    world = World()
    world.consumer(permits=0)
    for _ in range(5):
        world.publish(100)
    log = world.topic().log
    runs = world.storage.scan(Space.ENTRIES, b"", b"\xff" * 9)
    assert len(runs) == 10  # of 64 and 36 entries
    batch = world.storage.batch()
    for key, _ in (runs[0], *runs[3:6]):
        batch.delete_range(Space.ENTRIES, key, key + b"\0")
    world.storage.write(batch)
    world.storage.sync()
    damaged = world.storage.crash()
    damaged.has_gaps = True
    after = after_loss(damaged)
    found = after.topic().log.read(0, 1000, 1 << 30)
    left = [*range(64, 164), *range(300, 500)]
    assert [entry[0] for entry in found] == left
    assert after.topic().log.last == log.last and after.topic().log.size == log.size
    consumer = after.consumer(permits=1000)
    assert after.client.take() == left
    assert consumer.subscription is not None
    after.broker.invariants()


def test_without_a_loss_the_ledger_is_the_id() -> None:
    world = World()
    world.publish(1)
    restarted = world.restart()
    assert restarted.topic().ledger_id == restarted.topic().record.id == world.topic().ledger_id

"""What a subscription reads at a time, and keeps in memory, has limits; everything arrives nevertheless."""

from __future__ import annotations

import pytest

from magnetar.broker.topic.log import Log, TailCache
from magnetar.broker.topic.run import Entry
from tests.broker.world import Client, SubscriptionType, World


def test_bound_read_entries_of_one_turn() -> None:
    world = World(dispatcherMaxReadBatchSize=3)
    consumer = world.consumer(permits=0)
    world.publish(10)
    world.subscription().flow(consumer, 1000)
    turns = []
    while world.broker.has_work:
        world.broker.pump()
        turns.append(len(world.client.take()))
    assert sum(turns) == 10 and max(turns) == 3


def test_bound_read_bytes_of_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(dispatcherMaxReadSizeBytes=500, managedLedgerCacheSizeMB=0)
    consumer = world.consumer(permits=0)
    for _ in range(10):
        world.publish(payload=b"x" * 200)
    sizes: list[int] = []
    read = Log.read

    def measured(log: Log, start: int, count: int, size_max: int) -> list[Entry]:
        entries = read(log, start, count, size_max)
        sizes.append(sum(len(entry[3]) for entry in entries))
        return entries

    monkeypatch.setattr(Log, "read", measured)
    world.subscription().flow(consumer, 1000)
    world.settle()
    assert world.client.take() == list(range(10))
    assert max(sizes) < 500 + 300  # of 2,200; it stops with the entry that passes the limit


def test_bound_round_robin_goes_to_the_next_consumer() -> None:
    world = World(dispatcherMaxRoundRobinBatchSize=4)
    clients = [Client(), Client()]
    for index, client in enumerate(clients):
        world.consumer(name=f"c{index}", client=client)
    world.publish(8)
    assert [client.take() for client in clients] in ([[0, 1, 2, 3], [4, 5, 6, 7]], [[4, 5, 6, 7], [0, 1, 2, 3]])


def test_bound_look_ahead_per_subscription_of_a_slow_key() -> None:
    world = World(
        keySharedLookAheadMsgInReplayThresholdPerConsumer=0, keySharedLookAheadMsgInReplayThresholdPerSubscription=30
    )
    world.consumer(name="c", type=SubscriptionType.Key_Shared, permits=1)
    world.consumer(name="d", client=Client(), type=SubscriptionType.Key_Shared, permits=10_000)
    world.publish(1000, keys=[f"key-{index}" for index in range(40)])
    assert len(world.subscription().places.pending) <= 30 + 20  # one read may exceed it
    assert world.subscription().places.has_unread


def test_bound_entry_cache_drops_the_oldest_of_all_topics() -> None:
    cache = TailCache(2000)
    tails: list[dict[int, Entry]] = [{}, {}]
    for entry_id in range(20):
        cache.add(tails[entry_id % 2], (entry_id, 1, 0, b"x" * 100))
        assert cache.size <= 2000
    assert sorted([*tails[0], *tails[1]]) == list(range(14, 20))


def test_bound_entry_cache_of_a_broker() -> None:
    world = World(managedLedgerCacheSizeMB=1)
    world.consumer(permits=0)
    for _ in range(30):
        world.publish(payload=b"x" * 100_000)
    assert 0 < world.broker.cache.size <= 1 << 20

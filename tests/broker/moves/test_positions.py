"""SP3: acknowledging a prefix at once is the same as acknowledging each of its positions, wherever they are."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from pyroaring import BitMap64

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.moves.positions import NamedPositions, acknowledge
from magnetar.broker.subscription.places import Places
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.wire.batch import build_batch
from magnetar.wire.schema_pb2 import SingleMessageMetadata
from tests.broker.world import START_MS, SubscriptionType, World

ENTRIES = 40
BATCH = build_batch([(SingleMessageMetadata(payload_size=0), b"x")] * 4)
SEVERAL = (SubscriptionType.Shared, SubscriptionType.Key_Shared)


def prepared(seed: int, type: SubscriptionType) -> World:
    """A subscription with positions in every place; the same world for the same seed."""
    random = Random(seed)
    world = World(acknowledgmentAtBatchIndexLevelEnabled=True)
    world.topic().create_subscription(SubscribeRequest("s", from_earliest=True))
    subscription = world.subscription()
    subscription.set_dead_letter_policy(DeadLetterPolicy(50), "test")  # batches that fail are delivered one by one
    subscription._save(backoff_ms=[random.choice((0, 60_000))])
    for number in range(ENTRIES):
        deliver_at_ms = START_MS + 3_600_000 if random.random() < 0.15 else 0
        messages = random.choice((1, 1, 1, 4))
        payload = BATCH if messages > 1 else b"x"
        key = f"k{number % 5}"
        world.publish(1, keys=[key], messages=messages, deliver_at_ms=deliver_at_ms, payload=payload)
    count = 3 if type in SEVERAL else 1
    consumers = [world.consumer(type=type, name=f"c{number}", permits=random.randint(5, 25)) for number in range(count)]
    for _ in range(random.randint(0, 20)):
        consumer = random.choice(consumers)
        held = sorted(consumer.pending)
        if not held:
            continue
        entry, chance = random.choice(held), random.random()
        if chance < 0.4 and type in SEVERAL:
            subscription.redeliver(consumer, [entry])
            subscription.flow(consumer, random.choice((0, 0, 8)))
        elif chance < 0.6:
            subscription.ack(entry, 0b0110, 4) if world.topic().log.header(entry)[0] == 4 else None  # type: ignore[index]
        elif chance < 0.9:
            subscription.ack(entry)
        world.settle()
    return world


def shown(world: World) -> dict[str, Any]:
    subscription = world.subscription()
    places, cursor = subscription.places, subscription.cursor
    keys = places.keys
    return {
        "mark": cursor.mark_delete,
        "acked": list(cursor.acked),
        "states": {entry: cursor.state_of(entry) for entry in range(ENTRIES) if not cursor.is_acked(entry)},
        "pending": list(places.pending),
        "backing off": list(places.backing_off),
        "in flight": {entry: consumer.name for entry, consumer in places.in_flight.items()},
        "read": places.read_id,
        "counts": (places.delayed, places.unacked, places.acked_messages, subscription.backlog),
        "consumers": {
            one.name: (dict(one.pending.items()), one.unacked, dict(one.singles)) for one in subscription.consumers
        },
        "keys": keys
        and (
            {number: list(waiting) for number, waiting in keys.waiting.items()},
            {number: (consumer.name, count) for number, (consumer, count) in keys.holders.items()},
            {entry: number for entry, number in keys._hash_of.items() if entry > cursor.mark_delete},
        ),
    }


def acknowledged(world: World, subscription: Subscription, entries: list[int]) -> dict[str, Any]:
    acknowledge([subscription], NamedPositions(BitMap64(entries), named=len(entries), open=len(entries)))
    found = shown(world)
    subscription.acked()
    world.settle()
    world.advance(hours=2)  # what backs off and what is delayed comes back, unless it is acknowledged
    after = world.restart()
    after.broker.invariants()
    return {**found, "later": shown(world), "stored": shown(after)}


@pytest.mark.parametrize("type", list(SubscriptionType))
@pytest.mark.parametrize("seed", range(15))
def test_sp3_a_prefix_at_once_is_the_same_as_each_of_its_positions(
    seed: int, type: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, calls = Random(-seed), Counter[str]()
    first = prepared(seed, type).subscription().cursor.mark_delete + 1
    end = random.randint(first + 1, ENTRIES)
    ack_up_to = Places.ack_up_to

    def counted(places: Places, entry: int) -> bool:
        calls["at once"] += 1
        return ack_up_to(places, entry)

    worlds = [prepared(seed, type) for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(Places, "ack_up_to", counted)
        at_once = acknowledged(worlds[0], worlds[0].subscription(), list(range(first, end)))
    assert calls["at once"] >= 1
    subscription = worlds[1].subscription()
    for entry in range(first, end):
        subscription.places.ack(entry)
    one_by_one = acknowledged(worlds[1], subscription, [])
    assert at_once == one_by_one


def test_sp3_the_worlds_have_positions_in_every_place() -> None:
    found: Counter[str] = Counter()
    for type in SEVERAL:
        for seed in range(15):
            world = prepared(seed, type)
            places = world.subscription().places
            found["pending"] += len(places.pending)
            found["backing off"] += len(places.backing_off)
            found["in flight"] += len(places.in_flight)
            found["delayed"] += places.delayed
            found["acked"] += len(places.cursor.acked)
            found["unread"] += ENTRIES - places.read_id
            found["singles"] += sum(len(one.singles) for one in world.subscription().consumers)
            found["in part"] += sum(places.cursor.open_bits(entry) is not None for entry in range(ENTRIES))
    names = ("pending", "backing off", "in flight", "delayed", "acked", "unread", "singles", "in part")
    assert min(found[name] for name in names) > 3, found


def test_sp3_positions_that_do_not_begin_a_backlog_are_acknowledged_one_by_one() -> None:
    world = prepared(0, SubscriptionType.Shared)
    subscription = world.subscription()
    first = subscription.cursor.mark_delete + 1
    found = {first, first + 2, ENTRIES - 1}
    was_open = [entry for entry in range(first, ENTRIES) if not subscription.cursor.is_acked(entry)]
    acknowledge([subscription], NamedPositions(BitMap64(found)))
    assert [entry for entry in range(first, ENTRIES) if not subscription.cursor.is_acked(entry)] == [
        entry for entry in was_open if entry not in found
    ]
    world.settle()

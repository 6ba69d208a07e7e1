"""SP2, SP3: random moves, repeated and torn by crashes at any write: every message is in exactly one place."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from magnetar.broker.bits import indexes_in
from magnetar.broker.moves.unacknowledged import page_after
from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.topic import Publish, SubscribeRequest
from magnetar.names import TopicName
from magnetar.wire.metadata import metadata_of
from magnetar.wire.moves import MOVED, NO_INDEX, parse_positions, positions_of
from tests.broker.moves.moving import entry, mover
from tests.broker.world import SubscriptionType, World

Message = tuple[int, int, int]
"""Ledger, entry and index in its batch, 0 without a batch."""

SOURCES = ("many-partition-0", "many-partition-1")
BATCH = 5
STEPS = 200


class Moving:
    """Movers that work on what they saw some time ago, as two runs of the same pipeline would."""

    def __init__(self, seed: int, subscription: str) -> None:
        self.random = Random(seed)
        self.subscription = subscription
        self.names = ["s", "other"] if subscription == "*" else ["s"]
        self.world = World()
        self.world.broker.catalog.create_partitioned(TopicName.parse("many"), len(SOURCES), {})
        self.world.settle()
        for source in SOURCES:
            for name in ("s", "other"):
                self.world.topic(source).create_subscription(SubscribeRequest(name, from_earliest=True))
        for name in ("a", "b"):
            self.world.topic("out").create_subscription(SubscribeRequest(name, from_earliest=True))
        self.world.settle()
        self.sent: list[str] = []
        self.seen: dict[str, list[tuple[int, int]]] = {}
        self.refused = self.duplicates = self.crashes = 0
        self._begin()

    def _begin(self) -> None:
        self.producers: dict[str, list[Producer]] = {
            only: [self._mover(only) for _ in range(2)] for only in ("", "a", "b")
        }
        self.consumers: list[Consumer] = []

    def _mover(self, only: str) -> Producer:
        return mover(self.world, "many", "out", self.subscription, only)

    # -- steps

    def step(self) -> None:
        self.random.choice([self.publish, self.move, self.move, self.repeat, self.consume, self.commit, self.crash])()
        self.world.broker.pump()
        self.world.broker.invariants()

    def publish(self) -> None:
        source = self.random.choice(SOURCES)
        topic, messages = self.world.topic(source), self.random.choice((1, BATCH))
        producer = topic.producers.by_name.get(source) or Producer(self.world.client, 1, source)
        if producer.name not in topic.producers.by_name:
            topic.add_producer(producer)
        number = topic.log.last + 1
        blob = entry(None, messages=messages)[3]
        topic.publish(producer, [(number, number, messages, blob, False, False)])

    def move(self) -> None:
        """Some of what is open, or was when another run saw it, in groups."""
        topic = self._topic(self.random.choice(SOURCES))
        cursors = [topic.subscriptions[name].cursor for name in self.names]  # type: ignore[attr-defined]
        ranges = page_after(topic, cursors, 0, -1, self.random.choice((3, 1000))).ranges
        found: list[tuple[int, int]] = []
        for part in ranges:
            for number in range(part.first, part.last + 1):
                header = topic.log.header(number)
                count = header[0] if header else 1
                if not part.is_whole:
                    found += [(number, index) for index in range(part.first_index, part.last_index + 1)]
                elif count > 1 and self.random.random() < 0.5:
                    found += [(number, index) for index in range(count)]
                else:
                    found.append((number, NO_INDEX))
        if topic.name.full in self.seen and self.random.random() < 0.2:
            found = self.seen[topic.name.full]
        else:
            self.seen[topic.name.full] = found
        taken = [one for one in found if self.random.random() < 0.4][: self.random.randint(1, 12)]
        publishes, size = [], self.random.randint(1, 4)
        for start in range(0, len(taken), size):
            text = positions_of(topic.ledger_id, taken[start : start + size]).text
            self.sent.append(text)
            publishes.append(entry(text))
        self._send(publishes)

    def repeat(self) -> None:
        """Any entries from before, also some of them twice: their receipts may have been lost."""
        count = min(len(self.sent), self.random.randint(1, 6))
        self._send([entry(self.random.choice(self.sent)) for _ in range(count)])

    def _send(self, publishes: list[Publish]) -> None:
        only = self.random.choice(("", "a", "b"))
        index = self.random.randrange(2)
        self.world.client.errors.clear()
        self.world.topic("out").publish(self.producers[only][index], publishes)
        if self.world.client.errors:
            self.refused += 1
            self.producers[only][index] = self._mover_later(only)

    def _mover_later(self, only: str) -> Producer:
        """Without a commit in between, unlike `World.producer`."""
        settle, self.world.settle = self.world.settle, lambda: None  # type: ignore[method-assign]
        try:
            return self._mover(only)
        finally:
            self.world.settle = settle  # type: ignore[method-assign]

    def consume(self) -> None:
        """Consumers hold what is moved, and fail: nothing else acknowledges."""
        topic = self._topic(self.random.choice(SOURCES))
        subscription = topic.subscription(self.random.choice(("s", "other")))
        assert subscription is not None
        for consumer in list(self.consumers):
            if consumer.subscription is subscription and self.random.random() < 0.5:
                if consumer.pending and self.random.random() < 0.7:
                    subscription.redeliver(consumer, [self.random.choice(list(consumer.pending))])
                else:
                    self.consumers.remove(consumer)
                    subscription.remove_consumer(consumer, vanished=self.random.random() < 0.5)
                return
        type = self.random.choice(list(SubscriptionType)) if not subscription.consumers else subscription.type
        if type is SubscriptionType.Exclusive and subscription.consumers:
            return
        consumer = Consumer(self.world.client, self.random.randrange(1 << 30), "c", type)
        topic.subscribe(consumer, SubscribeRequest(subscription.name))
        subscription.flow(consumer, self.random.choice((3, 100)))
        self.consumers.append(consumer)

    def commit(self) -> None:
        """One group."""
        group = self.world.broker.commits.take()
        if group is None:
            return
        self.world.storage.write(group.batch)
        self.world.storage.sync()
        self.world.client.receipted.clear()
        group.complete()
        self.duplicates += sum(entry_id < 0 for _, _, entry_id in self.world.client.receipted)

    def crash(self) -> None:
        """The process ends with some groups written and not synced; any number of the first of them survive."""
        if self.random.random() < 0.7:
            return
        groups = 0
        while self.random.random() < 0.6 and (group := self.world.broker.commits.take()) is not None:
            self.world.storage.write(group.batch)
            groups += 1
        world = World(self.world.storage.crash(keep_unsynced_writes=self.random.randint(0, groups)))
        self.world = world
        self.crashes += 1
        self._begin()
        self.check()

    # -- checks

    def _topic(self, name: str) -> PersistentTopic:
        return self.world.topic(name)

    def check(self) -> None:
        """Everything decided is durable."""
        moved = self._moved()
        twice = [message for message, count in moved.items() if count > 1]
        assert not twice, f"moved twice: {twice}"
        for source in SOURCES:
            topic = self._topic(source)
            for number in range(topic.log.confirmed + 1):
                header = topic.log.header(number)
                assert header is not None
                everything = (1 << header[0]) - 1
                for name in self.names:
                    cursor = topic.subscriptions[name].cursor  # type: ignore[attr-defined]
                    bits = cursor.open_bits(number)
                    is_open = 0 if cursor.is_acked(number) else everything if bits is None else bits
                    for index in indexes_in(everything):
                        in_target = (topic.ledger_id, number, index) in moved
                        assert in_target != bool(is_open >> index & 1), f"{source} {number}.{index} of {name}"
        if self.subscription == "s":
            others = [self.world.subscription("other", source).cursor for source in SOURCES]
            assert all(cursor.mark_delete == -1 and not cursor.acked for cursor in others)

    def _moved(self) -> Counter[Message]:
        """The messages that entries of the target replace."""
        found: Counter[Message] = Counter()
        for _, _, _, blob in self._topic("out").log.read(0, 100_000, 1 << 30):
            (text,) = [pair.value for pair in metadata_of(blob).properties if pair.key == MOVED]
            ledger_id, ranges = parse_positions(text)
            (source,) = [name for name in SOURCES if self._topic(name).ledger_id == ledger_id]
            for part in ranges:
                for number in range(part.first, part.last + 1):
                    header = self._topic(source).log.header(number)
                    assert header is not None
                    indexes = range(header[0]) if part.is_whole else range(part.first_index, part.last_index + 1)
                    found.update((ledger_id, number, index) for index in indexes)
        return found


@pytest.mark.parametrize("subscription", ["s", "*"])
@pytest.mark.parametrize("seed", range(25))
def test_sp2_sp3_every_message_is_in_exactly_one_place(seed: int, subscription: str) -> None:
    moving = Moving(seed, subscription)
    for _ in range(STEPS):
        moving.step()
    moving.world.settle()
    moving.check()
    moving.world = moving.world.restart()
    moving.check()


def test_sp2_sp3_random_moves_meet_what_they_are_for() -> None:
    found: Counter[str] = Counter()
    for seed in range(4):
        moving = Moving(seed, "s")
        for _ in range(STEPS):
            moving.step()
        found.update(refused=moving.refused, duplicates=moving.duplicates, crashes=moving.crashes)
        found.update(moved=len(moving._moved()))
    assert min(found.values()) > 5, found

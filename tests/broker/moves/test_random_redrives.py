"""SP3: random redrives, repeated and torn by crashes at any write: every letter is in exactly one place, in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

import pytest

from magnetar.broker.moves.redrive import BrokerRedrive, Destination
from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.deadletter.redriven import OriginKey
from magnetar.errors import ServiceNotReady
from magnetar.names import TopicName
from magnetar.wire.metadata import split_blob
from tests.broker.moves.redriving import letter, order_of
from tests.broker.world import SubscriptionType, World

SOURCE = "letters-DLQ"
HANDLED = ("handled", "inspection")  # subscriptions of the source
SUBSCRIPTIONS = ("a", "b")  # of each target
PLAIN = "persistent://public/default/plain"
MANY = "persistent://public/default/many"
GONE = "persistent://public/default/gone"
PARTITIONS = 3
TARGETS = ("plain", *(f"many-partition-{number}" for number in range(PARTITIONS)))
WAYS = {
    OriginKey(topic, None, name): Destination("" if topic == GONE else topic, name if topic != GONE else "")
    for topic in (PLAIN, MANY, GONE)
    for name in SUBSCRIPTIONS
}
STEPS = 150


class Redriving:
    """Requests that begin anywhere, as those of several processes might; or, in order, at the first letter or at the
    end of an earlier one, as those of a single process do."""

    def __init__(self, seed: int, in_order: bool) -> None:
        self.random = Random(seed)
        self.in_order = in_order
        self.world = World()
        self.world.broker.catalog.create_partitioned(TopicName.parse("many"), PARTITIONS, {})
        self.world.topic("plain")
        self.world.settle()
        for topic, names in [(SOURCE, HANDLED), *((target, SUBSCRIPTIONS) for target in TARGETS)]:
            for name in names:
                self.world.topic(topic).create_subscription(SubscribeRequest(name, from_earliest=True))
        self.world.settle()
        self.published = 0  # letters that are stored for good are numbered in order
        self.met: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        self.run: BrokerRedrive | None = None
        self.after = -1
        self.consumer: Consumer | None = None

    # -- steps

    def step(self) -> None:
        steps = [self.publish, self.turn, self.turn, self.turn, self.consume, self.unload, self.commit, self.crash]
        self.random.choice(steps)()
        self.world.broker.pump()
        self.world.broker.invariants()

    def publish(self) -> None:
        """Some letters of random origins and keys, now and then one that is not plain; durable before the next step,
        so that every number is there after a crash."""
        topic = self.world.topic(SOURCE)
        producer = topic.producers.by_name.get("p") or self.world.producer(SOURCE)
        for _ in range(self.random.randint(1, 40)):
            origin = self.random.choice([one for one in WAYS for _ in range(1 if one.topic == GONE else 5)])
            key, blob_fields = f"{self.random.randrange(4)}", {}
            if self.random.random() < 0.01:
                blob_fields["num_messages_in_batch"] = 1
                self.met["not plain"] += 1
            blob = letter(
                f"{self.published}".encode(),
                topic=origin.topic or "",
                subscription=origin.subscription or "",
                partition_key=key,
                **blob_fields,
            )
            topic.publish(producer, [(0, 0, 1, blob, False, False)])
            self.published += 1
        self.world.settle()

    def turn(self) -> None:
        """A transaction of the request that runs, or of a new one from the last end, the beginning, or any entry."""
        topic = self.world.topic(SOURCE)
        if self.run is None:
            after = self.random.choice((self.after, -1))
            if not self.in_order and self.random.random() < 0.3:
                after = self.random.randint(-1, max(0, topic.log.confirmed))
            known = dict(self.random.sample(sorted(WAYS.items(), key=str), self.random.randint(3, len(WAYS))))
            letters = self.random.choice((1, 7, 1000))
            order = order_of(self.world, SOURCE, after=after, letters=letters, targets=known)
            self.run = BrokerRedrive(topic, order, lambda name: True)
        try:
            if self.run.turn():
                return
        except ServiceNotReady:
            self.met["closed"] += 1
        found = self.run.found
        self.after = found.up_to + (not found.is_plain)
        self.met["sent"] += found.sent.total()
        self.met["kept"] += found.kept.total()
        self.met["unknown"] += bool(found.unknown)
        self.run = None

    def consume(self) -> None:
        """A consumer of the dead letter topic holds letters, fails some of them, and leaves."""
        subscription = self.world.subscription("handled", SOURCE)
        consumer = self.consumer
        if consumer is None or consumer not in subscription.consumers:
            type = self.random.choice(list(SubscriptionType))
            self.consumer = Consumer(self.world.client, self.random.randrange(1 << 30), "c", type)
            self.world.topic(SOURCE).subscribe(self.consumer, SubscribeRequest("handled"))
            subscription.flow(self.consumer, self.random.choice((3, 100)))
        elif consumer.pending and self.random.random() < 0.6:
            subscription.redeliver(consumer, [self.random.choice(list(consumer.pending))])
        else:
            subscription.remove_consumer(consumer, vanished=self.random.random() < 0.5)

    def unload(self) -> None:
        """The topic is closed and opened again, as for a request to unload it."""
        if self.random.random() < 0.3:
            self.world.broker.unload(TopicName.parse(SOURCE))
            self.world.settle()
            self.consumer = None

    def commit(self) -> None:
        """One group."""
        group = self.world.broker.commits.take()
        if group is not None:
            self.world.storage.write(group.batch)
            self.world.storage.sync()
            group.complete()

    def crash(self) -> None:
        """The process ends with some groups written and not synced; any number of the first of them survive."""
        if self.random.random() < 0.5:
            return
        groups = 0
        while self.random.random() < 0.6 and (group := self.world.broker.commits.take()) is not None:
            self.world.storage.write(group.batch)
            groups += 1
        self.world = World(self.world.storage.crash(keep_unsynced_writes=self.random.randint(0, groups)))
        self.met["crashes"] += 1
        self._begin()
        self.check()

    # -- checks

    def check(self) -> None:
        """Everything decided is durable."""
        found: Counter[int] = Counter()
        received: defaultdict[tuple[str, str | None], list[int]] = defaultdict(list)
        origins = self._origins()
        for target in TARGETS:
            topic = self.world.topic(target)
            for entry, _, _, blob in topic.log.read(0, 1 << 20, 1 << 40):
                number = int(split_blob(blob)[1])
                found[number] += 1
                origin = origins[number]
                assert topic.name.base.full == origin.topic, "in the wrong topic"
                received[target, origin.subscription].append(number)
                for name in SUBSCRIPTIONS:
                    cursor = self.world.subscription(name, target).cursor
                    assert cursor.is_acked(entry) == (name != origin.subscription), f"{target} {entry} of {name}"
        assert all(count == 1 for count in found.values()), "redriven twice"
        self.met["stored"] = len(found)
        if self.in_order:
            assert all(numbers == sorted(numbers) for numbers in received.values()), "out of order"
        for number in range(self.published):
            for name in HANDLED:
                is_acked = self.world.subscription(name, SOURCE).cursor.is_acked(number)
                assert is_acked == (number in found), f"letter {number} of {name}"

    def _origins(self) -> dict[int, OriginKey]:
        found = {}
        for entry, _, _, blob in self.world.topic(SOURCE).log.read(0, 1 << 20, 1 << 40):
            properties = {pair.key: pair.value for pair in split_blob(blob)[0].properties}
            found[entry] = OriginKey(properties["REAL_TOPIC"], None, properties["REAL_SUBSCRIPTION"])
        return found


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "from anywhere"])
@pytest.mark.parametrize("seed", range(20))
def test_sp3_every_letter_is_in_exactly_one_place(seed: int, in_order: bool) -> None:
    redriving = Redriving(seed, in_order)
    for _ in range(STEPS):
        redriving.step()
    redriving.world.settle()
    redriving.check()
    redriving.world = redriving.world.restart()
    redriving.check()


def test_sp3_random_redrives_meet_what_they_are_for() -> None:
    met: Counter[str] = Counter()
    for seed in range(4):
        redriving = Redriving(seed, in_order=True)
        for _ in range(STEPS):
            redriving.step()
        redriving.world.settle()
        redriving.check()
        met += redriving.met
    assert min(met[name] for name in ("not plain", "closed", "kept", "unknown", "crashes", "stored")) > 3, met
    assert met["sent"] > met["stored"], "no crash undid a transaction"

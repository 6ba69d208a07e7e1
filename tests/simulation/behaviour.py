"""Random steps of clients: open, send, acknowledge, nack, seek, close. Commands are only queued for the broker."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, TypeVar

from magnetar.broker.topic.persistent import PersistentTopic

from .client import KEYS, Received, SimClient, SimConsumer, SimProducer

if TYPE_CHECKING:
    from .world import World

T = TypeVar("T")
_EARLIEST, _LATEST = ((1 << 64) - 1, (1 << 64) - 1), ((1 << 63) - 1, (1 << 63) - 1)
_PRODUCERS_MAX, _CONSUMERS_MAX, _PENDING_MAX = 2, 3, 20


def one_of(rng: Random, choices: Iterable[T]) -> T | None:
    found = list(choices)
    return rng.choice(found) if found else None


class Behaviour:
    """Each method is a step: it returns a description, or None if no client could take it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self._has_large_batches = (
            world.dead_letter_setup is None or world.seed % 8 == 0
        )  # each may become 70 dead letters
        self._delay_share = (0, 0.1, 0.4)[world.seed % 3]

    # -- opening

    def open_something(self) -> str | None:
        client = one_of(self._rng, (c for c in self._world.clients if c.is_connected))
        if client is None:
            return None
        producers = [p for p in client.producers.values() if p.state == "closed"]
        consumers = [c for c in client.consumers.values() if c.state == "closed"]
        if not (producers or consumers) or self._rng.random() < 0.3:
            return self.open_one(client)
        closed: list[SimProducer | SimConsumer] = [*producers, *consumers]
        chosen = self._rng.choice(closed)
        if isinstance(chosen, SimProducer):
            client.open_producer(chosen)
        else:
            client.open_consumer(chosen)
        return f"{client.name} opens {chosen.name} again"

    def open_one(self, client: SimClient) -> str | None:
        return self._new_producer(client) if self._rng.random() < 0.4 else self._new_consumer(client)

    def _new_producer(self, client: SimClient) -> str | None:
        if len(client.producers) >= _PRODUCERS_MAX:
            return None
        mode = self._rng.choice((1, 2, 3)) if self._rng.random() < 0.15 else 0
        topic = self._rng.choice(self._world.topics)
        producer = client.add_producer(topic, is_named=self._rng.random() < 0.7, access_mode=mode)
        return f"{client.name} opens producer {producer.id} of {topic}, mode {mode}"

    def _new_consumer(self, client: SimClient) -> str | None:
        if len(client.consumers) >= _CONSUMERS_MAX:
            return None
        rng, world = self._rng, self._world
        topic, name = rng.choice(world.topics), rng.choice(world.subscriptions)
        # Mostly the subscription's current type, or most consumers would be rejected.
        type = (world.seed + world.subscriptions.index(name)) % 4 if rng.random() < 0.8 else rng.randint(0, 3)
        options: dict[str, object] = {
            "from_earliest": rng.random() < 0.7,
            "priority": rng.choice((0, 0, 0, 1)),
            "window": rng.choice((1, 2, 5, 50)),
        }
        if type == 3 and rng.random() < 0.15:
            middle = rng.randint(1, 65534)
            options["hash_ranges"] = [rng.choice([(0, middle), (middle + 1, 65535), (0, 65535)])]
        if rng.random() < 0.1:
            name = f"reader-{rng.randint(0, 2)}"
            options |= {"durable": False, "start": rng.choice((None, _EARLIEST, (3, 2)))}
        elif world.dead_letter_setup is not None and rng.random() < 0.5:
            options["properties"] = world.dead_letter_setup.properties(rng)
        consumer = client.add_consumer(topic, name, type, **options)
        return f"{client.name} opens consumer {consumer.id} of {topic}/{name}, type {type}, {options}"

    # -- producing

    def produce(self) -> str | None:
        producers = [(c, p) for c in self._world.clients for p in c.producers.values() if p.name and p.state != "dead"]
        chosen = one_of(self._rng, producers)
        if chosen is None or len(chosen[1].pending) > _PENDING_MAX:
            return None
        client, producer = chosen
        number = self._rng.randint(1, 4)
        for _ in range(number):
            messages = self._rng.choice((1, 1, 1, 2, 5, 70 if self._has_large_batches else 8))
            key = self._rng.choice((None, *KEYS))
            delay_ms = self._rng.choice((1, 1000, 60_000, 3_600_000)) if self._rng.random() < self._delay_share else 0
            client.send(producer, messages, key, self._world.clock.now_ms() + delay_ms if delay_ms else 0)
        return f"{client.name} sends {number} with {producer.name}, next is {producer.next_sequence}"

    def close_producer(self) -> str | None:
        producers = [(c, p) for c in self._world.clients for p in c.producers.values() if p.state == "ready"]
        chosen = one_of(self._rng, producers)
        if chosen is None:
            return None
        client, producer = chosen
        client.close_producer(producer)
        return f"{client.name} closes producer {producer.name}"

    # -- consuming

    def _ready_consumer(self, *, holding: bool = False) -> tuple[SimClient, SimConsumer] | None:
        return one_of(
            self._rng,
            (
                (client, consumer)
                for client in self._world.clients
                for consumer in client.consumers.values()
                if consumer.state == "ready" and (consumer.received or not holding)
            ),
        )

    def flow(self) -> str | None:
        chosen = self._ready_consumer()
        if chosen is None:
            return None
        client, consumer = chosen
        permits = self._rng.choice((1, 3, 20))
        client.flow(consumer, permits)
        return f"{client.name} grants {permits} more permits to {consumer.name}"

    def acknowledge(self) -> str | None:
        chosen = self._ready_consumer(holding=True)
        if chosen is None:
            return None
        client, consumer = chosen
        wants_reply = self._rng.random() < 0.5
        if consumer.done and self._rng.random() < 0.1:
            item = self._rng.choice(list(consumer.done))
            client.ack(consumer, [item], wants_reply=wants_reply)
            return f"{client.name} acknowledges {item} late or again"
        if consumer.type in (0, 2) and self._rng.random() < 0.2:
            return self._acknowledge_cumulatively(client, consumer, wants_reply)
        count = self._rng.randint(1, min(6, len(consumer.received)))
        items = [self._part_of(item) for item in self._rng.sample(list(consumer.received.values()), count)]
        for item in items:
            _is_acknowledged(consumer, item)
        client.ack(consumer, items, wants_reply=wants_reply)
        return f"{client.name} acknowledges {items} of {consumer.name}"

    def _acknowledge_cumulatively(self, client: SimClient, consumer: SimConsumer, wants_reply: bool) -> str:
        item = self._part_of(self._rng.choice(list(consumer.received.values())))
        for position, other in list(consumer.received.items()):
            if position < (item.ledger, item.entry):
                del consumer.received[position]
                consumer.done.append(other)
        _is_acknowledged(consumer, item)
        client.ack(consumer, [item], wants_reply=wants_reply, cumulative=True)
        return f"{client.name} acknowledges up to {item} of {consumer.name}"

    def _part_of(self, item: Received) -> Received:
        """The entry with all its messages acknowledged, or some of a batch."""
        open_bits = 0
        if item.messages > 1 and self._rng.random() < 0.4:
            open_bits = item.open_bits & self._rng.getrandbits(item.messages)
        return Received(item.ledger, item.entry, item.messages, open_bits)

    def nack(self) -> str | None:
        chosen = self._ready_consumer(holding=True)
        if chosen is None:
            return None
        client, consumer = chosen
        if self._rng.random() < 0.3:
            client.redeliver(consumer, None)
            items = list(consumer.received.values())
            done = f"{client.name} requests redelivery of everything of {consumer.name}"
        else:
            count = self._rng.randint(1, min(4, len(consumer.received)))
            items = self._rng.sample(list(consumer.received.values()), count)
            indexes = {item.entry: self._indexes_of(item) for item in items if self._rng.random() < 0.4}
            client.redeliver(consumer, items, indexes)
            done = f"{client.name} nacks {items}, of batches {indexes}"
        for item in items:
            del consumer.received[item.ledger, item.entry]
            consumer.done.append(Received(item.ledger, item.entry, item.messages, 0))
        return done

    def _indexes_of(self, item: Received) -> list[int]:
        """Some messages of a batch; occasionally one that does not exist or is acknowledged."""
        return self._rng.sample(range(item.messages + 1), self._rng.randint(1, min(3, item.messages)))

    def leave(self) -> str | None:
        """Closes, unsubscribes, seeks or queries."""
        chosen = self._ready_consumer()
        if chosen is None:
            return None
        client, consumer = chosen
        kind = self._rng.random()
        if kind < 0.3:
            client.close_consumer(consumer)
            if self._rng.random() < 0.5:
                del client.consumers[consumer.id]
            return f"{client.name} closes consumer {consumer.name}"
        if kind < 0.4:
            client.unsubscribe(consumer, force=self._rng.random() < 0.3)
            return f"{client.name} unsubscribes with {consumer.name}"
        if kind < 0.7:
            return self._seek(client, consumer)
        what = self._rng.choice(("last", "stats", "partitions", "lookup"))
        client.ask(consumer, what)
        return f"{client.name} requests {what}"

    def _seek(self, client: SimClient, consumer: SimConsumer) -> str:
        durable, topic = self._world.durable, self._world.broker.topics.get(consumer.topic)
        positions = [p for p in durable.entries if isinstance(topic, PersistentTopic) and p[0] == topic.ledger_id]
        kind = self._rng.random()
        if kind < 0.3:
            client.seek(consumer, self._rng.choice((_EARLIEST, _LATEST)), 0)
            return f"{client.name} seeks an end with {consumer.name}"
        if kind < 0.8 and positions:
            position = self._rng.choice(positions)
            messages = durable.entries[position].messages
            open_bits = self._rng.getrandbits(messages) if messages > 1 and self._rng.random() < 0.3 else 0
            client.seek(consumer, position, 0, open_bits)
            return f"{client.name} seeks {position} with {consumer.name}"
        publish_ms = self._world.clock.now_ms() - self._rng.choice((0, 100, 10_000, 3_600_000))
        client.seek(consumer, None, publish_ms)
        return f"{client.name} seeks time {publish_ms} with {consumer.name}"


def _is_acknowledged(consumer: SimConsumer, item: Received) -> None:
    if item.open_bits:
        consumer.received[item.ledger, item.entry].open_bits = item.open_bits
    else:
        del consumer.received[item.ledger, item.entry]
        consumer.done.append(item)

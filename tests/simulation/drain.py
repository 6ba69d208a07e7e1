"""The end of every run: no more faults, the broker becomes idle, and nothing is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.names import TopicName

from .client import Received, SimClient, SimProducer
from .failure import expect

if TYPE_CHECKING:
    from .world import World

_TURNS_MAX = 2000
_WAITS_MAX = 40
_FAILURES = 8
_ROUNDS_MAX = 10


class Drain:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng

    def run(self) -> None:
        """Delivers every sent message to the broker, and every stored one to its subscriptions."""
        world = self._world
        world.history.append("the end: drain")
        if world.has_failed:
            world.step(world.crash)
        for connection in list(world.connections):
            world.lose(connection)
        self._quiesce()
        self._send_the_rest()
        self._fail_some()
        self._consume_the_rest()
        self._quiesce()
        self._check()
        world.step(world.crash)

    def _quiesce(self) -> None:
        """Runs until nothing more can happen at the current time."""
        for _ in range(_TURNS_MAX):
            if not self._advance():
                return
        expect(False, "the broker never becomes idle")

    def _advance(self) -> bool:
        world = self._world
        advanced = False
        for client in world.clients:
            advanced |= self._exchange(client)
        if world.broker.has_work:
            world.pump_broker()
            world.settle()
            advanced = True
        if not world.steps.is_done:
            world.commit_all()
            advanced = True
        return advanced

    def _exchange(self, client: SimClient) -> bool:
        connection = client.connection
        if connection is None:
            return False
        if not connection.is_open:
            self._world.lose(connection)
            return True
        advanced = bool(connection.to_broker or connection.to_client)
        while connection.to_broker and connection.is_open:
            self._world.receive(connection)
            self._world.settle()
        while connection.to_client:
            client.deliver(*connection.to_client.popleft())
        return advanced

    # -- producers

    def _send_the_rest(self) -> None:
        """One producer at a time, so that none blocks another; consumers make room in the backlog quota."""
        for client in self._world.clients:
            client.consumers.clear()
            producers = client.producers
            for producer in producers.values():
                if producer.state != "dead" and producer.pending:
                    client.producers = {producer.id: producer}
                    self._send_all(client, producer)

    def _send_all(self, client: SimClient, producer: SimProducer) -> None:
        producer.access_mode = 0
        for _ in range(5):
            connection = self._world.connect(client)
            self._quiesce()
            pending = connection.session.pending_publishes
            expect(pending == 0, f"{pending} publishes are not durable although the disk is idle")
            self._world.lose(connection)
            if not producer.pending or producer.state == "dead":
                return
            self._consume_the_rest()  # a backlog quota blocks the producer
        expect(False, f"{producer.name} cannot send {list(producer.pending)}, its state is {producer.state}")

    # -- consumers

    def _fail_some(self) -> None:
        """On some subscriptions with a policy, nacks all messages until they are dead letters."""
        world = self._world
        for full in list(world.broker.catalog.topics):
            topic = world.broker.topic(TopicName.parse(full))
            assert isinstance(topic, PersistentTopic)
            for subscription in topic.cursors:
                if subscription.record.dead_letters is not None and self._rng.random() < 0.5:
                    self._fail(topic, subscription.name)

    def _fail(self, topic: PersistentTopic, name: str) -> None:
        world = self._world
        client = world.new_client("c91")
        world.clients.append(client)
        connection = world.connect(client)
        type = self._rng.randint(0, 3)
        world.history.append(f"everything of {topic.name.local}/{name} fails, type {type}")
        client.add_consumer(topic.name.full, name, type, window=self._rng.choice((3, 100)))
        for _ in range(_FAILURES):
            self._quiesce()
            for consumer in client.consumers.values():
                client.redeliver(consumer, list(consumer.received.values()) or None)
                consumer.received.clear()
            if self._rng.random() < 0.3:
                self._wait_for_something(topic)
        expect(connection.is_open, "a failing consumer was disconnected")
        world.lose(connection)
        world.clients.remove(client)
        world.settle()

    def _consume_the_rest(self) -> None:
        """Repeats, because time passes and expired messages may arrive in a topic that was empty before."""
        broker = self._world.broker
        for is_again in range(_ROUNDS_MAX):
            for full in list(broker.catalog.topics):
                topic = broker.topic(TopicName.parse(full))
                assert isinstance(topic, PersistentTopic)
                for subscription in topic.cursors:
                    if subscription.durable and (subscription.backlog or not is_again):
                        self._drain(topic, subscription.name)
            self._quiesce()
            if not self._has_backlog():
                return

    def _has_backlog(self) -> bool:
        topics = (self._world.broker.topic(TopicName.parse(full)) for full in list(self._world.broker.catalog.topics))
        return any(s.durable and s.backlog for t in topics if isinstance(t, PersistentTopic) for s in t.cursors)

    def _drain(self, topic: PersistentTopic, name: str) -> None:
        world = self._world
        client = world.new_client("c90")
        world.clients.append(client)
        connection = world.connect(client)
        type = self._rng.randint(0, 3)
        world.history.append(f"drain {topic.name.local}/{name} with consumers of type {type}")
        for _ in range(1 if type == 0 else self._rng.randint(1, 3)):
            client.add_consumer(topic.name.full, name, type, window=self._rng.choice((3, 100)))
        self._quiesce()
        self._change_hands(client, topic, name, type)
        waits = 0
        while topic.subscriptions[name].backlog and waits < _WAITS_MAX:  # type: ignore[attr-defined]
            self._quiesce()
            if not _acknowledge_everything(client):
                self._wait_for_something(topic)
                waits += 1
        left = topic.subscriptions[name].backlog  # type: ignore[attr-defined]
        expect(not left, f"{topic.name.local}/{name} never delivered {left} entries")  # to the connected consumers
        expect(connection.is_open, "a well-behaved consumer was disconnected")
        world.lose(connection)
        world.clients.remove(client)
        world.settle()

    def _change_hands(self, client: SimClient, topic: PersistentTopic, name: str, type: int) -> None:
        """Closes a consumer that holds messages, or adds one while others hold some."""
        if len(client.consumers) > 1 and self._rng.random() < 0.5:
            number, consumer = self._rng.choice(list(client.consumers.items()))
            client.close_consumer(consumer)
            del client.consumers[number]
        if type != 0 and self._rng.random() < 0.5:
            client.add_consumer(topic.name.full, name, type, window=100)

    def _wait_for_something(self, topic: PersistentTopic) -> None:
        due_ms = [topic.delayed.next_ms or 0]
        for subscription in topic.cursors:
            due_ms += [failed.due_ms for failed in self._world.oracle.models[subscription].failures.values()]
        self._world.pass_time(max(1000, max(due_ms) + 100 - self._world.clock.now_ms()))
        self._world.settle()

    def _check(self) -> None:
        world = self._world
        expect(not world.dead_letters.expected, f"missing dead letters: {world.dead_letters.expected}")
        for topic in world.broker.topics.values():
            if not isinstance(topic, PersistentTopic):
                continue
            last = world.durable.last_of.get(topic.ledger_id, -1)
            expect(topic.log.confirmed == last, f"{topic.name.full} shows {topic.log.confirmed} of {last} entries")
            for subscription in topic.cursors:
                if subscription.durable:
                    left = [e for e in range(last + 1) if not world.oracle.models[subscription].is_acked(e)]
                    expect(not left, f"{topic.name.local}/{subscription.name} never delivered {left}")


def _acknowledge_everything(client: SimClient) -> bool:
    acknowledged = False
    for consumer in client.consumers.values():
        if consumer.received:
            items = [Received(i.ledger, i.entry, i.messages, 0) for i in consumer.received.values()]
            client.ack(consumer, items, wants_reply=False)
            consumer.received.clear()
            acknowledged = True
    return acknowledged

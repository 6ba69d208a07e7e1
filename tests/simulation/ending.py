"""The end of every story: no more faults, everything comes to rest, and nothing is missing."""

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


class Ending:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng

    def come(self) -> None:
        """Every message that was sent arrives, and every one that is stored is delivered."""
        world = self._world
        world.history.append("the end: everything comes to rest")
        if world.has_failed:
            world.step(world.crash)
        for connection in list(world.connections):
            world.lose(connection)
        self._rest()
        self._send_the_rest()
        self._fail_some()
        self._consume_the_rest()
        self._rest()
        self._check()
        world.step(world.crash)

    def _rest(self) -> None:
        """Everything that can happen without time passing happens."""
        for _ in range(_TURNS_MAX):
            if not self._stir():
                return
        expect(False, "the broker never comes to rest")

    def _stir(self) -> bool:
        world = self._world
        stirred = False
        for client in world.clients:
            stirred |= self._talk(client)
        if world.broker.has_work:
            world.pump_broker()
            world.settle()
            stirred = True
        if not world.steps.is_done:
            world.commit_all()
            stirred = True
        return stirred

    def _talk(self, client: SimClient) -> bool:
        connection = client.connection
        if connection is None:
            return False
        if not connection.is_open:
            self._world.lose(connection)
            return True
        stirred = bool(connection.to_broker or connection.to_client)
        while connection.to_broker and connection.is_open:
            self._world.receive(connection)
            self._world.settle()
        while connection.to_client:
            client.hear(*connection.to_client.popleft())
        return stirred

    # -- producers

    def _send_the_rest(self) -> None:
        """One producer at a time, so that none is in the way of another; consumers make room for them."""
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
            self._rest()
            pending = connection.session.pending_publishes
            expect(pending == 0, f"{pending} publishes count as not durable while the disk is idle")
            self._world.lose(connection)
            if not producer.pending or producer.state == "dead":
                return
            self._consume_the_rest()  # a quota holds the producer
        expect(False, f"{producer.name} cannot send {list(producer.pending)}, it is {producer.state}")

    # -- consumers

    def _fail_some(self) -> None:
        """Of subscriptions with a policy, some give back what they get until all of it is dead."""
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
            self._rest()
            for consumer in client.consumers.values():
                client.redeliver(consumer, list(consumer.received.values()) or None)
                consumer.received.clear()
            if self._rng.random() < 0.3:
                self._wait_for_something(topic)
        expect(connection.is_open, "a consumer that fails was thrown out")
        world.lose(connection)
        world.clients.remove(client)
        world.settle()

    def _consume_the_rest(self) -> None:
        """Time passes, so that what expires meanwhile may come to a topic that was empty before."""
        broker = self._world.broker
        for is_again in range(_ROUNDS_MAX):
            for full in list(broker.catalog.topics):
                topic = broker.topic(TopicName.parse(full))
                assert isinstance(topic, PersistentTopic)
                for subscription in topic.cursors:
                    if subscription.durable and (subscription.backlog or not is_again):
                        self._drain(topic, subscription.name)
            self._rest()
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
        self._rest()
        self._change_hands(client, topic, name, type)
        waits = 0
        while topic.subscriptions[name].backlog and waits < _WAITS_MAX:  # type: ignore[attr-defined]
            self._rest()
            if not _acknowledge_everything(client):
                self._wait_for_something(topic)
                waits += 1
        left = topic.subscriptions[name].backlog  # type: ignore[attr-defined]
        expect(not left, f"{topic.name.local}/{name} never delivered {left} entries")  # to those who were there
        expect(connection.is_open, "a well-behaved consumer was thrown out")
        world.lose(connection)
        world.clients.remove(client)
        world.settle()

    def _change_hands(self, client: SimClient, topic: PersistentTopic, name: str, type: int) -> None:
        """A consumer leaves with what it holds, or another one comes while others hold something."""
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
        expect(not world.graveyard.expected, f"letters are missing: {world.graveyard.expected}")
        for topic in world.broker.topics.values():
            if not isinstance(topic, PersistentTopic):
                continue
            last = world.truth.last_of.get(topic.ledger_id, -1)
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

"""An in-memory broker with a manual clock, clients that are lists, and commits on request."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.broker import Broker
from magnetar.broker.host import ManualHost
from magnetar.broker.peer import Delivery, Receipt
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.throttling.rate_limit import RateLimit
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.producer import AccessMode, Producer
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.clock import ManualClock
from magnetar.errors import MagnetarError
from magnetar.log.events import Event
from magnetar.names import TopicName
from magnetar.settings.settings import Settings
from magnetar.storage.memory import MemoryStorage
from magnetar.wire.metadata import build_blob
from magnetar.wire.schema_pb2 import MessageMetadata

START_MS = 1_800_000_000_000


class Client:
    """A peer that records its notifications."""

    def __init__(self, address: str = "10.0.0.1:5000") -> None:
        self.writable = True
        self.address = address
        self.client_version = "test"
        self.is_limited = False
        self.receipted: list[Receipt] = []
        self.errors: list[MagnetarError] = []
        self.delivered: list[tuple[str, Delivery]] = []
        self.active: list[tuple[str, bool]] = []
        self.ended: list[str] = []
        self.closed: list[str] = []
        self.holds: set[RateLimit] = set()

    def receipts(self, producer: Producer, receipts: Sequence[Receipt]) -> None:
        self.receipted += receipts

    def send_error(self, producer: Producer, sequence_id: int, error: MagnetarError) -> None:
        self.errors.append(error)

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        self.delivered += [(consumer.name, delivery) for delivery in deliveries]

    def active_changed(self, consumer: Consumer, is_active: bool) -> None:
        self.active.append((consumer.name, is_active))

    def end_of_topic(self, consumer: Consumer) -> None:
        self.ended.append(consumer.name)

    def close_consumer(self, consumer: Consumer) -> None:
        self.closed.append(consumer.name)

    def close_producer(self, producer: Producer) -> None:
        self.closed.append(producer.name)

    def hold(self, limit: RateLimit) -> None:
        self.holds.add(limit)

    def release(self, limit: RateLimit) -> None:
        self.holds.discard(limit)

    def take(self) -> list[int]:
        """The entries delivered since the last call."""
        entries = [delivery[0] for _, delivery in self.delivered]
        self.delivered.clear()
        return entries


class World:
    def __init__(
        self, storage: MemoryStorage | None = None, *, host: ManualHost | None = None, **settings: object
    ) -> None:
        self.storage = storage or MemoryStorage()
        self.clock = ManualClock(START_MS)
        self.settings = Settings(**settings)  # type: ignore[arg-type]
        self.host = host or ManualHost()
        self.broker = Broker(self.settings, self.storage, self.clock, self.host)
        self.client = Client()
        self._ids = iter(range(1, 1_000_000))
        self.settle()

    def logged(self, event: Event) -> list[dict[str, object]]:
        """The values of an event, as often as it was logged."""
        return [values for known, values in self.host.events if known is event]

    def settle(self) -> None:
        """Commits and dispatches until there is no more work."""
        busy = True
        while busy:
            busy = self.broker.has_work
            self.broker.pump()
            while (group := self.broker.commits.take()) is not None:
                self.storage.write(group.batch)
                self.storage.sync()
                group.complete()
                busy = True
        self.broker.invariants()

    def restart(self, **settings: object) -> World:
        """A new process on the disk of this one, which was killed."""
        world = World(self.storage.crash(), **settings)
        world.clock.advance_ms(self.clock.now_ms() - START_MS)
        return world

    def advance(self, **duration: float) -> None:
        self.clock.advance(**duration)  # type: ignore[arg-type]
        self.broker.tick()
        self.settle()

    def topic(self, name: str = "t") -> PersistentTopic:
        topic = self.broker.topic(TopicName.parse(name), create=True)
        assert isinstance(topic, PersistentTopic)
        return topic

    def producer(self, topic: str = "t", name: str = "p", **options: object) -> Producer:
        producer = Producer(self.client, next(self._ids), name, **options)  # type: ignore[arg-type]
        self.topic(topic).add_producer(producer)
        self.settle()
        return producer

    def publish(
        self,
        count: int = 1,
        topic: str = "t",
        *,
        producer: Producer | None = None,
        messages: int = 1,
        keys: Sequence[str] = (),
        deliver_at_ms: int = 0,
        payload: bytes = b"x",
    ) -> None:
        if producer is None:
            producer = self.topic(topic).producers.by_name.get("p") or self.producer(topic)
        publishes = []
        for index in range(count):
            metadata = MessageMetadata(producer_name=producer.name, sequence_id=index, publish_time=self.clock.now_ms())
            if keys:
                metadata.partition_key = keys[index % len(keys)]
            if deliver_at_ms:
                metadata.deliver_at_time = deliver_at_ms
            if messages > 1:
                metadata.num_messages_in_batch = messages
            publishes.append((index, index, messages, build_blob(metadata, payload), bool(deliver_at_ms), False))
        self.topic(topic).publish(producer, publishes)
        self.settle()

    def consumer(
        self,
        subscription: str = "s",
        topic: str = "t",
        *,
        type: SubscriptionType = SubscriptionType.Shared,
        name: str = "c",
        permits: int = 1000,
        client: Client | None = None,
        earliest: bool = True,
        durable: bool = True,
        **options: object,
    ) -> Consumer:
        options.setdefault("unacked_max", self.settings.maxUnackedMessagesPerConsumer)
        consumer = Consumer(client or self.client, next(self._ids), name, type, **options)  # type: ignore[arg-type]
        request = SubscribeRequest(subscription, durable=durable, from_earliest=earliest)
        self.topic(topic).subscribe(consumer, request)
        self.subscription(subscription, topic).flow(consumer, permits)
        self.settle()
        return consumer

    def subscription(self, name: str = "s", topic: str = "t") -> Subscription:
        subscription = self.topic(topic).subscriptions[name]
        assert isinstance(subscription, Subscription)
        return subscription


__all__ = ["START_MS", "AccessMode", "Client", "SubscriptionType", "World"]

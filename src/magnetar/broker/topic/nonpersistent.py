"""A non-persistent topic: messages that no consumer can receive now are dropped. Nothing is stored or redelivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.key_owners import KeyOwners, key_owners
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.topic import Publish, SubscribeRequest, Topic, TopicSubscription
from magnetar.errors import ConsumerBusy
from magnetar.names import TopicName
from magnetar.wire.metadata import MetadataError, metadata_of, sticky_hash, sticky_key

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker


class NonPersistentSubscription:
    """Delivers each message to one consumer with permits, or drops it."""

    is_anonymous = False
    is_internal = False

    def __init__(self, topic: NonPersistentTopic, name: str, durable: bool, properties: dict[str, str]) -> None:
        self._topic = topic
        self.name = name
        self.durable = durable
        self.properties = properties
        self.type = SubscriptionType.Exclusive
        self.consumers: list[Consumer] = []
        self.dropped_messages = 0
        self._active: Consumer | None = None
        self._owners: KeyOwners | None = None
        self._turn = 0

    def add_consumer(self, consumer: Consumer) -> None:
        if self.consumers and (consumer.type is not self.type or self.type is SubscriptionType.Exclusive):
            raise ConsumerBusy(f"subscription {self.name!r} has a consumer of type {self.type.name} already")
        self._topic.check_subscription_consumers(self)
        if not self.consumers:
            self.type = consumer.type
            is_keyed = consumer.type is SubscriptionType.Key_Shared
            settings = self._topic.broker.settings
            self._owners = key_owners(settings, sticky=bool(consumer.hash_ranges)) if is_keyed else None
        if self._owners is not None:
            self._owners.add(consumer)
        self.consumers.append(consumer)
        consumer.subscription = self
        self._elect()

    def remove_consumer(self, consumer: Consumer, *, vanished: bool = False) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            if self._owners is not None:
                self._owners.remove(consumer)
            self._elect()

    def disconnect_consumers(self) -> None:
        for consumer in list(self.consumers):
            consumer.peer.close_consumer(consumer)
            self.remove_consumer(consumer)

    def _elect(self) -> None:
        active = min(self.consumers, key=lambda c: (c.priority, c.name), default=None)
        previous, self._active = self._active, active
        if active is not previous and self.type is SubscriptionType.Failover:
            if previous in self.consumers:
                previous.peer.active_changed(previous, False)
            if active is not None:
                active.peer.active_changed(active, True)

    def offer(self, messages: int, blob: bytes) -> None:
        consumer = self._choose(blob)
        if consumer is None or not consumer.can_receive:
            self.dropped_messages += messages
            return
        consumer.permits -= messages
        consumer.delivered_messages += messages
        consumer.delivered_bytes += len(blob)
        consumer.peer.deliver(consumer, [(0, 0, None, blob)])

    def _choose(self, blob: bytes) -> Consumer | None:
        if self._owners is not None:
            try:
                key = sticky_key(metadata_of(blob))
            except MetadataError:
                key = b""
            return self._owners.owner(sticky_hash(key))
        if self.type is not SubscriptionType.Shared:
            return self._active
        for _ in self.consumers:
            self._turn = (self._turn + 1) % len(self.consumers)
            if self.consumers[self._turn].can_receive:
                return self.consumers[self._turn]
        return None

    def set_properties(self, properties: dict[str, str]) -> None:
        self.properties = properties

    def update_rates(self, seconds: float) -> None:
        for consumer in self.consumers:
            consumer.update_rates(seconds)

    def flow(self, consumer: Consumer, permits: int) -> None:
        consumer.permits += permits

    def ack(self, entry_id: int, open_bits: int | None = None, batch_size: int = 0) -> None:
        """Nothing is stored, so there is nothing to acknowledge."""

    def ack_cumulative(self, entry_id: int, open_bits: int | None = None, batch_size: int = 0) -> None:
        """Nothing is stored, so there is nothing to acknowledge."""

    def redeliver(
        self,
        consumer: Consumer,
        entry_ids: Sequence[int] | None,
        epoch: int | None = None,
        indexes: Mapping[int, int] | None = None,
    ) -> None:
        """Nothing is stored, so there is nothing to redeliver."""


class NonPersistentTopic(Topic):
    """Subscriptions are kept in memory until they are deleted, or the topic is closed because it has no clients."""

    def __init__(self, broker: Broker, name: TopicName) -> None:
        super().__init__(broker, name)
        self._subscriptions: dict[str, NonPersistentSubscription] = {}
        self._was_deserted = False  # since the last check

    def is_deserted(self) -> bool:
        """Whether it has had no client since the last check."""
        before = self._was_deserted
        self._was_deserted = not self.producers.by_name and not any(
            subscription.consumers for subscription in self._subscriptions.values()
        )
        return before and self._was_deserted

    def add_producer(self, producer: Producer) -> bool:
        self._was_deserted = False
        return super().add_producer(producer)

    @property
    def subscriptions(self) -> dict[str, TopicSubscription]:
        return self._subscriptions  # type: ignore[return-value]  # invariance of dict: callers do not add to it

    def publish(self, producer: Producer, publishes: Sequence[Publish]) -> None:
        messages_before, bytes_before = self.messages_in, self.bytes_in
        for _, _, messages, blob, _, _ in publishes:
            self.messages_in += messages
            self.bytes_in += len(blob)
            producer.messages_in += messages
            producer.bytes_in += len(blob)
            for subscription in self._subscriptions.values():
                subscription.offer(messages, blob)
        producer.peer.receipts(producer, [(publish[0], publish[1], 0) for publish in publishes])
        limit = self.limits.publish
        if limit is not None:
            limit.take(producer.peer, self.messages_in - messages_before, self.bytes_in - bytes_before)

    def _find_or_create(self, request: SubscribeRequest) -> NonPersistentSubscription:
        self._was_deserted = False
        subscription = self._subscriptions.get(request.name)
        if subscription is None:
            self.check_subscription_limit()
            subscription = NonPersistentSubscription(self, request.name, request.durable, request.properties)
            self._subscriptions[request.name] = subscription
        return subscription

    def _drop(self, subscription: TopicSubscription) -> None:
        self._subscriptions.pop(subscription.name, None)

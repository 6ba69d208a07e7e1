"""Topics, persistent or not: producers, subscriptions, and the limits on both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.catalog.policies import Policies
from magnetar.broker.rates import Rates
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.throttling.limits import TopicLimits, is_of_replication
from magnetar.broker.throttling.subscribing import ConsumerIdentity
from magnetar.broker.topic.inbound import InboundBySource
from magnetar.broker.topic.producer import Producer, Producers
from magnetar.errors import (
    ConsumerBusy,
    MetadataInvalid,
    NotAllowed,
    ProducerBusy,
    ProducerFenced,
    SubscriptionNotFound,
    TopicBusy,
    TopicTerminated,
)
from magnetar.names import TopicName
from magnetar.replication.model import is_replication_subscription

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker

# sequence id, highest sequence id, messages, blob, may be delayed, is a chunk of a larger message
Publish = tuple[int, int, int, bytes, bool, bool]


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """A consumer's request for a subscription, used if it does not exist yet."""

    name: str
    durable: bool = True
    from_earliest: bool = False
    start: tuple[int, int] | None = None  # ledger and entry after which a reader starts
    rollback_ms: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    replicated: bool = False


class TopicSubscription(Protocol):
    """A subscription as the session sees it, of either kind of topic."""

    name: str
    durable: bool
    is_internal: bool  # the broker's own, for replication
    is_anonymous: bool  # the place of a reader that waits for messages: it has no backlog that anyone works off
    consumers: list[Consumer]
    type: SubscriptionType

    @property
    def properties(self) -> dict[str, str]: ...

    def set_properties(self, properties: dict[str, str]) -> None: ...

    def add_consumer(self, consumer: Consumer) -> None: ...

    def remove_consumer(self, consumer: Consumer, *, vanished: bool = False) -> None: ...

    def disconnect_consumers(self) -> None: ...

    def flow(self, consumer: Consumer, permits: int) -> None: ...

    def ack(self, entry_id: int, open_bits: int | None = None, batch_size: int = 0) -> None: ...

    def ack_cumulative(self, entry_id: int, open_bits: int | None = None, batch_size: int = 0) -> None: ...

    def redeliver(
        self,
        consumer: Consumer,
        entry_ids: Sequence[int] | None,
        epoch: int | None = None,
        indexes: Mapping[int, int] | None = None,
    ) -> None: ...

    def update_rates(self, seconds: float) -> None: ...


class Topic(ABC):
    """An open topic. `ledger_id` is the first part of its message ids."""

    ledger_id = 0
    is_terminated = False

    def __init__(self, broker: Broker, name: TopicName) -> None:
        self.broker = broker
        self.name = name
        self.policies = broker.catalog.policies_of_topic(name)
        self.producers = Producers(
            name.full, self._claim_epoch, lambda error: broker.fault("disconnect", error, name.full)
        )
        self.opened_at_ms = broker.now_ms()
        self.is_unloaded = False  # another object may have replaced this one: it must not change anything any more
        self.epoch = -1
        self.messages_in = 0
        self.bytes_in = 0
        self.rates_in = Rates(2)  # messages and bytes
        self.inbound = InboundBySource()
        self.limits = TopicLimits(broker.limits, self.rates_in)
        self.limits.apply(self.policies)

    # -- differs by kind

    @property
    @abstractmethod
    def subscriptions(self) -> dict[str, TopicSubscription]: ...

    @abstractmethod
    def publish(self, producer: Producer, publishes: Sequence[Publish]) -> None: ...

    @abstractmethod
    def _find_or_create(self, request: SubscribeRequest) -> TopicSubscription: ...

    @abstractmethod
    def _drop(self, subscription: TopicSubscription) -> None:
        """Deletes a subscription without consumers, on disk too."""

    def _save_epoch(self) -> None:  # noqa: B027  # only persistent topics store an epoch
        pass

    def check_quota(self) -> None:  # noqa: B027  # only persistent topics have a backlog
        """Raises if the backlog does not allow another producer."""

    def last_sequence_id(self, producer_name: str) -> int:
        return -1

    # -- producers

    def add_producer(self, producer: Producer) -> bool:
        """Adds a producer; false if it has to wait for exclusive access."""
        settings = self.broker.settings
        if self.is_terminated:
            raise TopicTerminated(f"topic {self.name.full} was terminated")
        self.check_quota()
        limit = self.policies.max_producers
        if 0 < limit <= len(self.producers) and not producer.is_replicator:
            producers = len(self.producers) - self.producers.replicators
            if limit <= producers:
                raise ProducerBusy(f"topic {self.name.full} has {producers} producers, maxProducersPerTopic is {limit}")
        limit = settings.maxSameAddressProducersPerTopic
        if limit > 0 and not producer.is_replicator:
            host = _host(producer.peer.address)
            same = sum(_host(other.peer.address) == host for other in self.producers.by_name.values())
            if same >= limit:
                raise ProducerBusy(
                    f"topic {self.name.full} has {same} producers from {host},"
                    f" maxSameAddressProducersPerTopic is {limit}"
                )
        is_ready = self.producers.add(producer)
        if self.limits.publish is not None:
            self.limits.publish.admit(producer.peer)
        return is_ready

    def _claim_epoch(self, producer: Producer) -> None:
        """An exclusive producer starts a new epoch; one that reconnects must not have been replaced meanwhile."""
        claimed = producer.topic_epoch
        if claimed is not None and claimed < self.epoch:
            raise ProducerFenced(f"topic {self.name.full} is at epoch {self.epoch}, the producer was at {claimed}")
        self.epoch = self.epoch + 1 if claimed is None else claimed
        producer.topic_epoch = self.epoch
        self._save_epoch()

    # -- consumers

    def subscribe_wait_ms(self, address: str, name: str, consumer_id: int, metadata: Mapping[str, str]) -> int:
        """How long a consumer has to wait before it may subscribe; 0 if it may now, which is counted."""
        if self.limits.subscribe is None or is_of_replication(metadata):
            return 0
        identity = ConsumerIdentity(_host(address), name, consumer_id)
        return self.limits.subscribe.wait_ms(identity, self.broker.clock.monotonic_ms())

    def subscribe(self, consumer: Consumer, request: SubscribeRequest) -> TopicSubscription:
        self._check_consumer_limits(consumer, request.name)
        created = request.name not in self.subscriptions
        subscription = self._find_or_create(request)
        try:
            subscription.add_consumer(consumer)
        except Exception:
            if created and not request.durable:
                self._drop(subscription)
            raise
        return subscription

    def remove_consumer(self, consumer: Consumer, *, vanished: bool = False) -> None:
        """`vanished`: its connection was lost without CLOSE_CONSUMER."""
        subscription = consumer.subscription
        if subscription is None:
            return
        subscription.remove_consumer(consumer, vanished=vanished)
        if not subscription.durable and not subscription.consumers:
            self._drop(subscription)

    def unsubscribe(self, consumer: Consumer) -> None:
        """Deletes the consumer's subscription; only its last consumer may do that."""
        subscription = consumer.subscription
        if subscription is None or subscription.consumers != [consumer]:
            raise MetadataInvalid("only the single connected consumer of a subscription can unsubscribe")
        self.check_not_internal(subscription)
        subscription.remove_consumer(consumer)
        self._drop(subscription)

    def delete_subscription(self, name: str, *, force: bool = False) -> None:
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFound(f"subscription {name!r} not found on topic {self.name.full}")
        self.check_not_internal(subscription)
        if subscription.consumers and not force:
            raise NotAllowed(f"subscription {name!r} has {len(subscription.consumers)} connected consumers")
        subscription.disconnect_consumers()
        self._drop(subscription)

    def check_not_internal(self, subscription: TopicSubscription) -> None:
        """Raises for a subscription of replication, which is deleted when its topic is no longer replicated."""
        if subscription.is_internal:
            raise NotAllowed(
                f"subscription {subscription.name!r} of topic {self.name.full} belongs to replication:"
                " remove the cluster from the replication clusters instead"
            )

    @property
    def consumer_count(self) -> int:
        """Without those of replication."""
        return sum(len(subscription.consumers) for subscription in self.client_subscriptions)

    @property
    def user_count(self) -> int:
        """Consumers without any of replication: also without those by which it reads."""
        consumers = (consumer for subscription in self.client_subscriptions for consumer in subscription.consumers)
        return sum(not is_of_replication(one.metadata) for one in consumers)

    @property
    def client_subscriptions(self) -> list[TopicSubscription]:
        """Without those of replication."""
        return [one for one in self.subscriptions.values() if not one.is_internal]

    def _check_consumer_limits(self, consumer: Consumer, subscription_name: str) -> None:
        settings = self.broker.settings
        if is_replication_subscription(subscription_name):
            return
        limit = self.policies.max_consumers
        if 0 < limit <= self.consumer_count:
            raise ConsumerBusy(
                f"topic {self.name.full} has {self.consumer_count} consumers, maxConsumersPerTopic is {limit}"
            )
        limit = settings.maxSameAddressConsumersPerTopic
        if limit > 0:
            host = _host(consumer.peer.address)
            same = sum(
                _host(other.peer.address) == host
                for subscription in self.subscriptions.values()
                for other in subscription.consumers
            )
            if same >= limit:
                raise ConsumerBusy(
                    f"topic {self.name.full} has {same} consumers from {host},"
                    f" maxSameAddressConsumersPerTopic is {limit}"
                )

    def check_subscription_consumers(self, subscription: TopicSubscription) -> None:
        """Raises if the subscription may not have another consumer."""
        limit, consumers = self.policies.max_consumers_per_subscription, len(subscription.consumers)
        if 0 < limit <= consumers:
            raise ConsumerBusy(
                f"subscription {subscription.name!r} has {consumers} consumers, maxConsumersPerSubscription is {limit}"
            )

    def check_subscription_limit(self) -> None:
        """Raises if the topic may not have another subscription."""
        limit = self.policies.max_subscriptions
        if 0 < limit <= len(self.subscriptions) and limit <= len(self.client_subscriptions):
            raise NotAllowed(
                f"topic {self.name.full} has {len(self.client_subscriptions)} subscriptions,"
                f" maxSubscriptionsPerTopic is {limit}"
            )

    def apply_policies(self, policies: Policies) -> None:
        """The effective policies changed."""
        self.policies = policies
        self.apply_rates()
        for subscription in self.subscriptions.values():
            for consumer in subscription.consumers:
                consumer.limit_unacked(policies.max_unacked_per_consumer)
                subscription.flow(consumer, 0)  # a higher limit may allow more messages

    def apply_rates(self) -> None:
        """The limits changed, or the rate of publishing that some of them are relative to."""
        self.limits.apply(self.policies)

    def update_rates(self, seconds: float) -> None:
        self.rates_in.update(seconds, self.messages_in, self.bytes_in)
        if self.policies.has_relative_rates:
            self.apply_rates()
        for inbound in self.inbound.values():
            inbound.update_rates(seconds)
        for producer in self.producers.by_name.values():
            producer.rates.update(seconds, producer.messages_in, producer.bytes_in)
        for subscription in self.subscriptions.values():
            subscription.update_rates(seconds)

    def check_unused(self) -> None:
        """Raises if clients are connected."""
        consumers = self.user_count
        clients = len(self.producers) + consumers
        replicators = self.producers.replicators
        if clients:
            noun = "client" if clients == 1 else "clients"
            raise TopicBusy(
                f"Topic has {clients} {noun} connected Including {consumers} consumers,"
                f" {clients - consumers - replicators} producers, and {replicators} replicators."
            )

    def check_replicated(self) -> None:  # noqa: B027  # only persistent topics are replicated
        """Raises if messages are not replicated to every remote cluster yet."""

    def disconnect_all(self) -> None:
        self.limits.lift()
        self.producers.close_all()
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect_consumers()
            if not subscription.durable:
                self._drop(subscription)


def _host(address: str) -> str:
    return address.rsplit(":", 1)[0]

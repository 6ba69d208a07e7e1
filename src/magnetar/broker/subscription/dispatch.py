"""Dispatchers: which consumer gets which entry, with one dispatcher per subscription type.

A dispatcher only chooses. Calls go down to the deliveries, which read entries and put them in flight, and never up to
the subscription: a method returns what has to happen next, a hand-over or another turn.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Protocol

import mmh3

from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.key_index import KeyIndex, hash_of
from magnetar.broker.subscription.key_owners import KeyOwners, key_owners
from magnetar.errors import ConsumerAssignFailed, ConsumerBusy

if TYPE_CHECKING:
    from magnetar.broker.subscription.deliveries import Deliveries
    from magnetar.broker.topic.run import Entry
    from magnetar.names import TopicName
    from magnetar.settings.settings import Settings


class Dispatcher(Protocol):
    """Three methods for every subscription type."""

    def add(self, consumer: Consumer) -> int | None:
        """Returns, if another consumer is active now, the ms that the former one has for its last acks."""

    def remove(self, consumer: Consumer) -> int | None:
        """Returns the same as `add`."""

    def pump(self) -> bool:
        """Hands out a bounded number of entries; true if there may be more."""


class _Rank:
    """The place of a consumer on Apache Pulsar's ring, so that both brokers choose the same one.

    It has a hundred points there, and active is the consumer with the first point from that of the topic on: of each
    only the nearest matters. Where two are equally near, the one with the greater name is ahead, then the later one.
    """

    __slots__ = ("_distance", "_name", "_order", "_priority")

    def __init__(self, consumer: Consumer, order: int, target: int) -> None:
        points = (_point(f"{consumer.name}{number}") for number in range(100))
        self._priority = consumer.priority
        self._distance = min((point - target) % _RING_SIZE for point in points)
        self._name = consumer.name
        self._order = order

    def __lt__(self, other: _Rank) -> bool:
        if (self._priority, self._distance) != (other._priority, other._distance):
            return (self._priority, self._distance) < (other._priority, other._distance)
        return (self._name, self._order) > (other._name, other._order)


_RING_SIZE = 1 << 31


def _point(text: str) -> int:
    return mmh3.hash(text.encode(), signed=False) % _RING_SIZE


class SingleActive:
    """Exclusive and Failover: one consumer gets everything, in order; in Failover others stand by.

    The consumers are kept in the order in which they would be chosen: joining and leaving costs no walk over the
    others. On a partition each partition counts to its own; elsewhere, and by setting, it is a ring.
    """

    def __init__(
        self, deliveries: Deliveries, settings: Settings, type: SubscriptionType, topic: TopicName, subscription: str
    ) -> None:
        self._deliveries = deliveries
        self._settings = settings
        self._type = type
        self._topic = topic
        self._subscription = subscription
        is_counted = topic.partition >= 0 and not settings.activeConsumerFailoverConsistentHashing
        self._is_ring = type is SubscriptionType.Failover and not is_counted
        self._target = _point(topic.full)
        self._order = count()
        self._by_name: list[tuple[int, str, int, Consumer]] = []  # priority, name, order of joining
        self._by_rank: list[tuple[_Rank, Consumer]] = []
        self._orders: dict[Consumer, int] = {}
        self.active: Consumer | None = None

    def add(self, consumer: Consumer) -> int | None:
        if self._type is SubscriptionType.Exclusive and self._orders:
            raise ConsumerBusy(f"exclusive consumer is already connected to subscription {self._subscription!r}")
        self._orders[consumer] = next(self._order)
        if self._is_ring:
            insort(self._by_rank, self._ranked(consumer))
        else:
            insort(self._by_name, self._named(consumer))
        delay_ms = self._elect()
        if self._type is SubscriptionType.Failover and consumer is not self.active:
            consumer.peer.active_changed(consumer, False)
        return delay_ms

    def remove(self, consumer: Consumer) -> int | None:
        if self._is_ring:
            del self._by_rank[bisect_left(self._by_rank, self._ranked(consumer))]
        else:
            del self._by_name[bisect_left(self._by_name, self._named(consumer))]
        del self._orders[consumer]
        if not self._orders:
            self.active = None
            return None
        return self._elect()

    def _named(self, consumer: Consumer) -> tuple[int, str, int, Consumer]:
        return consumer.priority, consumer.name, self._orders[consumer], consumer

    def _ranked(self, consumer: Consumer) -> tuple[_Rank, Consumer]:
        return _Rank(consumer, self._orders[consumer], self._target), consumer

    def pump(self) -> bool:
        consumer, deliveries = self.active, self._deliveries
        if consumer is None or not consumer.can_receive:
            return False
        if deliveries.throttle is not None and not deliveries.begin_turn():
            return False
        limit = deliveries.entries_for(consumer.permits)
        left_over = deliveries.give(consumer, deliveries.read_new(limit))
        if left_over:
            deliveries.places.read_id = left_over[0][0]
            return False
        return consumer.permits > 0 and deliveries.places.has_unread

    def _elect(self) -> int | None:
        """Picks the active consumer, and notifies it and the one before it."""
        if self._is_ring:
            chosen = self._by_rank[0][1]
        else:
            candidates = bisect_left(self._by_name, (self._by_name[0][0] + 1,))  # of the best priority
            chosen = self._by_name[self._topic.partition % candidates][3]
        if chosen is self.active:
            return None
        previous, self.active = self.active, chosen
        stays = previous is not None and previous in self._orders
        if self._type is SubscriptionType.Failover:
            if previous is not None and stays:
                previous.peer.active_changed(previous, False)
            chosen.peer.active_changed(chosen, True)
        return self._settings.activeConsumerFailoverDelayTimeMillis if stays else 0


class RoundRobin:
    """Shared: consumers of the best priority that can receive take turns, a few entries each."""

    def __init__(self, deliveries: Deliveries, settings: Settings) -> None:
        self._deliveries = deliveries
        self._suspects = deliveries.suspects
        self._settings = settings
        self._consumers: list[Consumer] = []
        self._turn = 0

    def add(self, consumer: Consumer) -> None:
        self._consumers.append(consumer)
        self._consumers.sort(key=lambda c: c.priority)

    def remove(self, consumer: Consumer) -> None:
        self._consumers.remove(consumer)

    def pump(self) -> bool:
        deliveries = self._deliveries
        if deliveries.throttle is not None and not deliveries.begin_turn():
            return False
        budget = self._settings.dispatcherMaxReadBatchSize
        share = self._settings.dispatcherMaxRoundRobinBatchSize if len(self._consumers) > 1 else budget
        while budget > 0:
            consumer = self._next()
            if consumer is None or deliveries.is_stopped:
                return False
            limit = min(budget, share, deliveries.entries_for(consumer.permits))
            entries: Sequence[Entry] = deliveries.take_pending(limit) or deliveries.read_new(limit)
            if not entries and not deliveries.places.has_unread:
                return False
            if entries and not self._suspects.has_room(consumer, entries[0][0]):
                roomy = self._with_room_for(entries[0][0])
                if roomy is None:
                    deliveries.put_back(entries)
                    self._suspects.hold_back()
                    return False
                consumer = roomy
            if entries:
                self._turn = self._consumers.index(consumer) + 1
            left_over = deliveries.give(consumer, entries)
            if left_over:
                deliveries.put_back(left_over)
            budget -= max(len(entries), 1)
        return True

    def _with_room_for(self, entry_id: int) -> Consumer | None:
        ready = (consumer for consumer in self._consumers if consumer.can_receive)
        return next((consumer for consumer in ready if self._suspects.has_room(consumer, entry_id)), None)

    def _next(self) -> Consumer | None:
        """The consumer whose turn it is; a turn ends only when it delivered something."""
        ready, best = None, self._consumers[0].priority
        for offset in range(len(self._consumers)):
            consumer = self._consumers[(self._turn + offset) % len(self._consumers)]
            if consumer.can_receive and (ready is None or consumer.priority < ready.priority):
                ready = consumer
                if ready.priority == best:
                    break
        return ready


class StickyKey:
    """Key_Shared: every key has one owner at a time, and its messages stay in order when the owner changes.

    An entry of a key is delivered only if no earlier entry of that key is pending, and only its owner holds any
    unacknowledged. That one rule keeps the order when consumers come and go.
    """

    def __init__(self, deliveries: Deliveries, settings: Settings, keys: KeyIndex) -> None:
        self._deliveries = deliveries
        self._suspects = deliveries.suspects
        self._settings = settings
        self._keys = keys
        self._consumers: list[Consumer] = []
        self._owners: KeyOwners | None = None
        self._is_sticky = False
        self._out_of_order = False

    def add(self, consumer: Consumer) -> None:
        sticky = bool(consumer.hash_ranges)
        if not self._consumers:
            self._is_sticky, self._out_of_order = sticky, consumer.allow_out_of_order
            self._owners = key_owners(self._settings, sticky=sticky)
        elif sticky != self._is_sticky:
            raise ConsumerAssignFailed("consumers with and without fixed hash ranges cannot share a subscription")
        assert self._owners is not None
        self._owners.add(consumer)
        self._consumers.append(consumer)

    def remove(self, consumer: Consumer) -> None:
        assert self._owners is not None
        self._owners.remove(consumer)
        self._consumers.remove(consumer)

    def pump(self) -> bool:
        deliveries, places = self._deliveries, self._deliveries.places
        if not any(consumer.can_receive for consumer in self._consumers):
            return False
        if (deliveries.throttle is not None and not deliveries.begin_turn()) or deliveries.is_stopped:
            return False
        budget = self._settings.dispatcherMaxReadBatchSize
        budget -= self._pump_waiting(budget)
        look_ahead = self._look_ahead()
        while budget > 0 and places.has_unread and len(places.pending) < look_ahead:
            if not any(consumer.can_receive for consumer in self._consumers) or deliveries.is_stopped:
                return False
            entries = deliveries.read_new(min(budget, 20))
            for entry in entries:
                self._offer(entry, hash_of(entry))
            budget -= max(len(entries), 1)
        return budget <= 0

    def _look_ahead(self) -> float:
        """Pending entries above which no new ones are read; either of the two limits may be 0, for none."""
        settings = self._settings
        per_consumer = settings.keySharedLookAheadMsgInReplayThresholdPerConsumer * len(self._consumers)
        return min(per_consumer or inf, settings.keySharedLookAheadMsgInReplayThresholdPerSubscription or inf)

    def _pump_waiting(self, budget: int) -> int:
        given, waiting = 0, self._keys.waiting
        for key_hash in list(waiting):
            while given < budget and key_hash in waiting:
                consumer = self._receiver(key_hash)
                if consumer is None:
                    break
                entry_id = waiting[key_hash].min()
                if not self._suspects.has_room(consumer, entry_id):
                    self._suspects.hold_back()
                    break
                self._keys.stop_waiting(entry_id)
                entry = self._deliveries.take_one(entry_id)
                if entry is not None:
                    self._keys.hold(entry_id, key_hash, consumer)
                    self._deliveries.give(consumer, [entry])
                given += 1
        return given

    def _offer(self, entry: Entry, key_hash: int) -> None:
        """Gives the entry to the owner of its key, or makes it pending behind those that are."""
        consumer = None if key_hash in self._keys.waiting and not self._out_of_order else self._receiver(key_hash)
        if consumer is not None and not self._suspects.has_room(consumer, entry[0]):
            self._suspects.hold_back()
            consumer = None
        if consumer is None:
            self._keys.remember(entry[0], key_hash)
            self._deliveries.put_back([entry])
        else:
            self._keys.hold(entry[0], key_hash, consumer)
            self._deliveries.give(consumer, [entry])

    def _receiver(self, key_hash: int) -> Consumer | None:
        assert self._owners is not None
        owner = self._owners.owner(key_hash)
        if owner is None or not owner.can_receive or self._deliveries.is_stopped:
            return None
        holder = self._keys.holders.get(key_hash)
        if holder is not None and holder[0] is not owner and not self._out_of_order:
            return None
        return owner


def dispatcher_for(
    type: SubscriptionType, deliveries: Deliveries, settings: Settings, topic: TopicName, subscription: str
) -> Dispatcher:
    if type is SubscriptionType.Shared:
        return RoundRobin(deliveries, settings)
    if type is SubscriptionType.Key_Shared:
        assert deliveries.places.keys is not None
        return StickyKey(deliveries, settings, deliveries.places.keys)
    return SingleActive(deliveries, settings, type, topic, subscription)

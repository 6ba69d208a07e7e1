"""Who gets which entry: one dispatcher per subscription type, all with the same five methods.

A dispatcher chooses; the subscription it serves does the book-keeping (`take_redelivered`, `read_new`, `give`,
`put_back`). `pump` hands out a bounded number of entries and asks for another turn when there may be more.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

import mmh3
from pyroaring import BitMap64

from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.key_owners import KeyOwners, key_owners
from magnetar.errors import ConsumerAssignFailed, ConsumerBusy
from magnetar.wire.metadata import MetadataError, metadata_of, sticky_hash, sticky_key

if TYPE_CHECKING:
    from magnetar.broker.subscription.subscription import Subscription
    from magnetar.broker.topic.run import Entry
    from magnetar.settings.settings import Settings


class Dispatcher(Protocol):
    """`ordered` dispatchers redeliver by reading again from the mark-delete position, never entry by entry."""

    ordered: bool

    def add(self, consumer: Consumer) -> None: ...

    def remove(self, consumer: Consumer) -> None: ...

    def pump(self) -> None: ...

    def is_waiting(self, entry_id: int) -> None:
        """An entry that was in flight, or delayed, waits for delivery again."""

    def is_backing_off(self, entry_id: int) -> None:
        """An entry that waited rests now, and will wait again later."""

    def has_left(self, entry_id: int) -> None:
        """An entry is not in flight any more, whatever the reason."""

    def is_done(self, entry_id: int) -> None:
        """An entry is acknowledged."""


class Keyless:
    """What dispatchers share to which one entry is like any other."""

    def is_waiting(self, entry_id: int) -> None:
        pass

    def is_backing_off(self, entry_id: int) -> None:
        pass

    def has_left(self, entry_id: int) -> None:
        pass

    def is_done(self, entry_id: int) -> None:
        pass


class SingleActive(Keyless):
    """Exclusive and Failover: one consumer gets everything, in order; in Failover others stand by."""

    ordered = True

    def __init__(self, subscription: Subscription, settings: Settings, type: SubscriptionType) -> None:
        self._subscription = subscription
        self._settings = settings
        self._type = type
        self._consumers: list[Consumer] = []
        self.active: Consumer | None = None

    def add(self, consumer: Consumer) -> None:
        if self._type is SubscriptionType.Exclusive and self._consumers:
            raise ConsumerBusy(f"exclusive consumer is already connected to subscription {self._subscription.name!r}")
        self._consumers.append(consumer)
        self._consumers.sort(key=lambda c: (c.priority, c.name))
        if not self._elect() and self._type is SubscriptionType.Failover:
            consumer.peer.active_changed(consumer, consumer is self.active)

    def remove(self, consumer: Consumer) -> None:
        self._consumers.remove(consumer)
        if not self._consumers:
            self.active = None
        else:
            self._elect()

    def pump(self) -> None:
        consumer = self.active
        subscription = self._subscription
        if consumer is None or not consumer.can_receive:
            return
        limit = subscription.entries_for(consumer.permits)
        left_over = subscription.give(consumer, subscription.read_new(limit))
        if left_over:
            subscription.read_id = left_over[0][0]
        elif consumer.permits > 0 and subscription.has_unread:
            subscription.schedule_pump()

    def _elect(self) -> bool:
        """Picks the active consumer; true when it changed."""
        best = self._consumers[0].priority
        candidates = [consumer for consumer in self._consumers if consumer.priority == best]
        partition = self._subscription.partition
        if partition >= 0 and not self._settings.activeConsumerFailoverConsistentHashing:
            chosen = candidates[partition % len(candidates)]
        else:
            chosen = candidates[self._ring_index(candidates)]
        if chosen is self.active:
            return False
        previous, self.active = self.active, chosen
        if self._type is SubscriptionType.Failover:
            for consumer in self._consumers:
                consumer.peer.active_changed(consumer, consumer is chosen)
        # The former one, if it is still there, gets a moment to acknowledge what it has in hand.
        delay_ms = self._settings.activeConsumerFailoverDelayTimeMillis if previous in self._consumers else 0
        self._subscription.hand_over(delay_ms)
        return True

    def _ring_index(self, candidates: list[Consumer]) -> int:
        """Apache Pulsar's ring, point by point, so that the same consumer is chosen there and here."""
        ring = {
            mmh3.hash(f"{consumer.name}{point}".encode(), signed=False) & 0x7FFFFFFF: index
            for index, consumer in enumerate(candidates)
            for point in range(100)
        }
        target = mmh3.hash(self._subscription.topic_name.encode(), signed=False) & 0x7FFFFFFF
        return ring[min((point for point in ring if point >= target), default=min(ring))]


class RoundRobin(Keyless):
    """Shared: consumers of the best priority that can receive take turns, a few entries each."""

    ordered = False

    def __init__(self, subscription: Subscription, settings: Settings) -> None:
        self._subscription = subscription
        self._settings = settings
        self._consumers: list[Consumer] = []
        self._turn = 0

    def add(self, consumer: Consumer) -> None:
        self._consumers.append(consumer)
        self._consumers.sort(key=lambda c: c.priority)

    def remove(self, consumer: Consumer) -> None:
        self._consumers.remove(consumer)

    def pump(self) -> None:
        subscription = self._subscription
        budget = self._settings.dispatcherMaxReadBatchSize
        share = self._settings.dispatcherMaxRoundRobinBatchSize if len(self._consumers) > 1 else budget
        while budget > 0:
            consumer = self._next()
            if consumer is None or subscription.is_blocked:
                return
            limit = min(budget, share, subscription.entries_for(consumer.permits))
            entries = subscription.take_redelivered(limit) or subscription.read_new(limit)
            if not entries and not subscription.has_unread:
                return
            if entries and not subscription.has_room(consumer, entries[0][0]):
                roomy = self._with_room_for(entries[0][0])
                if roomy is None:
                    subscription.put_back(entries)
                    subscription.failed.hold_back()
                    return
                consumer = roomy
            if entries:
                self._turn = self._consumers.index(consumer) + 1
            subscription.put_back(subscription.give(consumer, entries))
            budget -= max(len(entries), 1)
        subscription.schedule_pump()

    def _with_room_for(self, entry_id: int) -> Consumer | None:
        ready = (consumer for consumer in self._consumers if consumer.can_receive)
        return next((consumer for consumer in ready if self._subscription.has_room(consumer, entry_id)), None)

    def _next(self) -> Consumer | None:
        """Whose turn it is; the turn is over only when it brought something."""
        ready = None
        for offset in range(len(self._consumers)):
            index = (self._turn + offset) % len(self._consumers)
            consumer = self._consumers[index]
            if consumer.can_receive and (ready is None or consumer.priority < self._consumers[ready].priority):
                ready = index
        return None if ready is None else self._consumers[ready]


class StickyKey:
    """Key_Shared: every key has one owner at a time, and its messages stay in order when the owner changes.

    An entry of a key goes out only if no earlier entry of that key waits, and nobody but the owner holds one
    unacknowledged. That one rule keeps the order when consumers come and go.
    """

    ordered = False

    def __init__(self, subscription: Subscription, settings: Settings) -> None:
        self._subscription = subscription
        self._settings = settings
        self._consumers: list[Consumer] = []
        self._owners: KeyOwners | None = None
        self._is_sticky = False
        self._out_of_order = False
        self._hash_of: dict[int, int] = {}  # of every entry that is in flight or waits
        self._waiting: dict[int, BitMap64] = {}  # hash -> entries, none of them in flight
        self._held: dict[int, tuple[Consumer, int]] = {}  # hash -> who holds how many unacknowledged

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

    def is_waiting(self, entry_id: int) -> None:
        key_hash = self._hash_of.get(entry_id)
        if key_hash is None:
            entry = self._subscription.entry(entry_id)
            if entry is None:
                return
            key_hash = self._hash(entry)
        self._park(entry_id, key_hash)

    def is_backing_off(self, entry_id: int) -> None:
        """Those of its key behind it go on: order per key ends where a message fails, as with any redelivery."""
        self._unpark(entry_id, self._hash_of[entry_id])

    def has_left(self, entry_id: int) -> None:
        key_hash = self._hash_of[entry_id]
        holder, count = self._held[key_hash]
        if count > 1:
            self._held[key_hash] = (holder, count - 1)
        else:
            del self._held[key_hash]

    def is_done(self, entry_id: int) -> None:
        key_hash = self._hash_of.pop(entry_id, None)
        if key_hash is None or key_hash not in self._waiting:
            return
        self._unpark(entry_id, key_hash)

    def pump(self) -> None:
        if not any(consumer.can_receive for consumer in self._consumers) or self._subscription.is_blocked:
            return
        budget = self._settings.dispatcherMaxReadBatchSize
        budget -= self._pump_waiting(budget)
        look_ahead = self._look_ahead()
        while budget > 0 and self._subscription.has_unread and len(self._subscription.pending) < look_ahead:
            if not any(consumer.can_receive for consumer in self._consumers) or self._subscription.is_blocked:
                return
            entries = self._subscription.read_new(min(budget, 20))
            for entry in entries:
                self._offer(entry, self._hash(entry))
            budget -= max(len(entries), 1)
        if budget <= 0:
            self._subscription.schedule_pump()

    def _look_ahead(self) -> float:
        """How many entries may wait before no new ones are read; either of the two limits may be 0, for none."""
        settings = self._settings
        per_consumer = settings.keySharedLookAheadMsgInReplayThresholdPerConsumer * len(self._consumers)
        return min(per_consumer or inf, settings.keySharedLookAheadMsgInReplayThresholdPerSubscription or inf)

    def _pump_waiting(self, budget: int) -> int:
        given = 0
        for key_hash in list(self._waiting):
            while given < budget and key_hash in self._waiting:
                consumer = self._receiver(key_hash)
                if consumer is None:
                    break
                entry_id = self._waiting[key_hash].min()
                if not self._subscription.has_room(consumer, entry_id):
                    self._subscription.failed.hold_back()
                    break
                self._unpark(entry_id, key_hash)
                entry = self._subscription.take_one(entry_id)
                if entry is not None:
                    self._give(consumer, entry, key_hash)
                given += 1
        return given

    def _offer(self, entry: Entry, key_hash: int) -> None:
        """Gives the entry to the owner of its key, or lets it wait behind what waits already."""
        consumer = None if key_hash in self._waiting and not self._out_of_order else self._receiver(key_hash)
        if consumer is not None and not self._subscription.has_room(consumer, entry[0]):
            self._subscription.failed.hold_back()
            consumer = None
        if consumer is None:
            self._hash_of[entry[0]] = key_hash
            self._subscription.put_back([entry])
        else:
            self._give(consumer, entry, key_hash)

    def _give(self, consumer: Consumer, entry: Entry, key_hash: int) -> None:
        self._hash_of[entry[0]] = key_hash
        holder = self._held.get(key_hash)
        self._held[key_hash] = (consumer, holder[1] + 1 if holder else 1)
        self._subscription.give(consumer, [entry])

    def _receiver(self, key_hash: int) -> Consumer | None:
        assert self._owners is not None
        owner = self._owners.owner(key_hash)
        if owner is None or not owner.can_receive or self._subscription.is_blocked:
            return None
        holder = self._held.get(key_hash)
        if holder is not None and holder[0] is not owner and not self._out_of_order:
            return None
        return owner

    def _park(self, entry_id: int, key_hash: int) -> None:
        self._hash_of[entry_id] = key_hash
        waiting = self._waiting.get(key_hash)
        if waiting is None:
            waiting = self._waiting[key_hash] = BitMap64()
        waiting.add(entry_id)

    def _unpark(self, entry_id: int, key_hash: int) -> None:
        waiting = self._waiting[key_hash]
        waiting.discard(entry_id)
        if not waiting:
            del self._waiting[key_hash]

    @staticmethod
    def _hash(entry: Entry) -> int:
        try:
            return sticky_hash(sticky_key(metadata_of(entry[3])))
        except MetadataError:
            return 1  # nobody can tell its key, and it must not hold up those behind it


def dispatcher_for(type: SubscriptionType, subscription: Subscription, settings: Settings) -> Dispatcher:
    if type is SubscriptionType.Shared:
        return RoundRobin(subscription, settings)
    if type is SubscriptionType.Key_Shared:
        return StickyKey(subscription, settings)
    return SingleActive(subscription, settings, type)

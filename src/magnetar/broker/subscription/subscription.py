"""A subscription of a persistent topic: what consumers and operators request, and what follows from it.

Calls go one way. The subscription calls the parts below it; each part calls only parts further down:

    dispatch       chooses consumers                deliveries     reads entries, puts them in flight
    dead_letter    moves dead messages, unless the breaker decides that too many are dead
    redelivery     counts failures, backs off       suspects       limits what may crash consumers
    places         where each position is           cursor         what is acknowledged, what is stored

No part calls the subscription. Parts return what has to happen, or request a turn at a time (`pump_at`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from magnetar.broker.catalog.failure_policy import COUNT_MAX, DeadLetterPolicy
from magnetar.broker.catalog.record import SubscriptionRecord
from magnetar.broker.rates import Rates
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.cursor import Cursor
from magnetar.broker.subscription.dead_letter import DeadLetterMove
from magnetar.broker.subscription.deliveries import Deliveries
from magnetar.broker.subscription.dispatch import Dispatcher, dispatcher_for
from magnetar.broker.subscription.key_index import KeyIndex
from magnetar.broker.subscription.places import Places
from magnetar.broker.subscription.redelivery import Redelivery
from magnetar.broker.subscription.suspects import Suspects
from magnetar.broker.topic.run import Entry
from magnetar.deadletter.properties import Reason
from magnetar.errors import ConsumerBusy, MagnetarError, NotAllowed
from magnetar.names import is_anonymous
from magnetar.replication.model import is_replication_subscription

if TYPE_CHECKING:
    from magnetar.broker.topic.persistent import PersistentTopic

_RETURN_MS = 61_000  # after the last full second: for a reader that was disconnected by its own seek to return
_ACK_DELAY_MS = 150  # clients group acks for 100 ms, also while they nack other messages
_NO_LIMIT = DeadLetterPolicy(COUNT_MAX)
_SEVERAL = (SubscriptionType.Shared, SubscriptionType.Key_Shared)

_Ids: TypeAlias = Sequence[int] | None
_Indexes: TypeAlias = Mapping[int, int] | None


class Subscription:
    """`durable` subscriptions outlive their consumers and the process; the others end with their last consumer.

    `is_internal`: it is the position of a replication to another cluster. Its entries never become dead letters.
    """

    __slots__ = (
        "_monotonic_ms",
        "_nacked_all",
        "_resume_at_ms",
        "_settings",
        "_topic",
        "consumers",
        "cursor",
        "dead_letters",
        "deliveries",
        "dispatcher",
        "durable",
        "expired_messages",
        "is_anonymous",
        "is_internal",
        "nacked_batches",
        "name",
        "places",
        "rates",
        "record",
        "redelivered_messages",
        "redelivery",
        "suspects",
        "type",
        "where",
    )

    def __init__(self, topic: PersistentTopic, name: str, record: SubscriptionRecord, cursor: Cursor, durable: bool):
        broker = topic.broker
        self._topic = topic
        self._settings = broker.settings
        self._monotonic_ms = broker.clock.monotonic_ms
        self.name = name
        self.where = (topic.name.full, name)
        self.record = record
        self.cursor = cursor
        self.durable = durable
        self.is_internal = durable and is_replication_subscription(name)
        self.is_anonymous = not durable and is_anonymous(name)
        self.type = SubscriptionType.Exclusive
        self.consumers: list[Consumer] = []
        self.dispatcher: Dispatcher | None = None
        self.suspects = Suspects(cursor, self.consumers, broker.clock, self._pump_at)
        self.places: Places = Places(topic.log, cursor, self.suspects)
        self.redelivery = Redelivery(self.places, broker.clock, self._pump_at)
        self.deliveries = Deliveries(topic, self.places, self.redelivery, self.suspects, self._is_split)
        self.dead_letters = DeadLetterMove(topic, name, self.places)
        self._resume_at_ms = 0  # when the newly active consumer starts
        self._nacked_all: tuple[Consumer, int] | None = None  # the consumer that nacked everything, and when it counts
        self.redelivered_messages = self.expired_messages = self.nacked_batches = 0  # batches nacked as a whole
        self.rates = Rates(3)  # messages and bytes out, messages expired

    # -- consumers

    def add_consumer(self, consumer: Consumer) -> None:
        if self.consumers and consumer.type is not self.type:
            raise ConsumerBusy(
                f"subscription {self.name!r} is of type {self.type.name}, consumer {consumer.name!r}"
                f" requests {consumer.type.name}"
            )
        self._topic.check_subscription_consumers(self)
        if not self.consumers:
            self._begin(consumer.type)
        assert self.dispatcher is not None
        try:
            self._hand_over(self.dispatcher.add(consumer))
        except Exception as error:
            if not self.consumers or not isinstance(error, MagnetarError):  # it may be half added
                self._start_over(consumer)
            raise
        self.consumers.append(consumer)
        consumer.subscription = self
        self.schedule_pump()

    def _begin(self, type: SubscriptionType) -> None:
        self.type = type
        self._rewind()
        self.places.ordered = type not in _SEVERAL
        self.places.keys = KeyIndex(self._topic.log) if type is SubscriptionType.Key_Shared else None
        self.dispatcher = dispatcher_for(type, self.deliveries, self._settings, self._topic.name, self.name)

    def _end(self) -> None:
        self.dispatcher = None
        self.places.keys = None
        self.deliveries.is_blocked = self.deliveries.is_stopped = False
        self._resume_at_ms = 0

    def remove_consumer(self, consumer: Consumer, *, vanished: bool = False) -> None:
        """Takes back the entries that the consumer held, uncounted: most were only in its queue.

        If its connection broke (`vanished`), one of them may have crashed it (DL13). Whatever fails, it is gone.
        """
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        attempt = partial(self._topic.broker.attempt, "disconnect", f"subscription {self.name} of {self.where[0]}")
        blamed: list[int] = []
        if vanished:
            attempt(lambda: blamed.extend(self._blame(consumer)))
        if not attempt(lambda: self._take_back(consumer)):
            self._start_over(consumer)
        attempt(lambda: self._settle(blamed, Reason.ConsumerCrash))

    def _take_back(self, consumer: Consumer) -> None:
        assert self.dispatcher is not None
        had_any, held = bool(consumer.pending), self.places.release_all(consumer)
        if not self.consumers:
            self._end()
            self._rewind()
            return
        if not self.places.ordered:
            self.places.make_pending(held)
        elif had_any:
            self._rewind()  # it may be the formerly active one, whose successor still waits
        self._hand_over(self.dispatcher.remove(consumer))
        self.deliveries.unblock()
        self.schedule_pump()

    def _start_over(self, consumer: Consumer) -> None:
        """After an error that left an unknown state: all other consumers are disconnected and come back."""
        others, self.consumers[:] = list(self.consumers), []
        self.places.abandon([consumer, *others])
        self._end()
        self._rewind()
        for other in others:
            other.peer.close_consumer(other)

    def _blame(self, consumer: Consumer) -> list[int]:
        """Counts the entry that crashed a consumer if it was delivered alone; otherwise all it held become suspects.

        On Shared and Key_Shared subscriptions clients may have their own policy, which goes by the redelivery count.
        """
        if not self.durable or self.is_internal or (self.places.ordered and self.dead_letter_policy is None):
            return []
        blamed = self.suspects.vanished(consumer)
        if blamed is None:
            return []
        self.redelivery.count(blamed, consumer)
        self._topic.crash_attributed(self.name, consumer, blamed)
        return [blamed]

    def disconnect_consumers(self) -> None:
        for consumer in list(self.consumers):
            consumer.peer.close_consumer(consumer)
            self.remove_consumer(consumer)

    def _hand_over(self, delay_ms: int | None) -> None:
        """If another consumer is active now, it starts with what the former one has not acknowledged by then."""
        if delay_ms is None:
            return
        if delay_ms and self.places.has_in_flight:
            self._resume_at_ms = self._monotonic_ms() + delay_ms
            self._pump_at(self._resume_at_ms)
        else:
            self._rewind()

    # -- commands of consumers

    def flow(self, consumer: Consumer, permits: int) -> None:
        consumer.permits += permits
        self.schedule_pump()

    def ack(self, entry_id: int, open_bits: int | None = None, batch_size: int = 0) -> None:
        """Acknowledges an entry, or with `open_bits` those messages of a batch whose bit is not set."""
        if entry_id > self._topic.log.confirmed:
            raise NotAllowed(f"entry {entry_id} cannot be acknowledged: the last one is {self._topic.log.confirmed}")
        if open_bits is None:
            is_changed = self.places.ack(entry_id)
        else:
            # Negative bits, all but one, are of a message that was delivered alone.
            takes_parts = self._settings.acknowledgmentAtBatchIndexLevelEnabled or open_bits <= 0
            is_changed = takes_parts and self.places.ack_part(entry_id, open_bits, batch_size)
            if self.places.is_nacked(entry_id):
                self.settle_singles([entry_id])
        if is_changed:
            self.acked()

    def ack_cumulative(self, entry_id: int, open_bits: int | None = None, batch_size: int = 0) -> None:
        if self.type in _SEVERAL:
            raise NotAllowed(f"cumulative acknowledgement is not allowed on a {self.type.name} subscription")
        if entry_id > self._topic.log.confirmed:
            raise NotAllowed(f"entry {entry_id} cannot be acknowledged: the last one is {self._topic.log.confirmed}")
        self.advance(entry_id if open_bits is None else entry_id - 1)
        if open_bits is not None:
            self.ack(entry_id, open_bits, batch_size)

    def acked(self) -> None:
        """Entries, or parts of them, were acknowledged."""
        self.redelivery.blocked_until_ms = 0  # it may have been the blocking entry; if not, that is found again
        if self.deliveries.is_blocked:
            self.deliveries.unblock()
        self.deliveries.end_of_topic(self.consumers)
        if self.dispatcher is not None and (self.places.pending or self.places.has_unread):
            self._topic.broker.pump_later(self)

    def redeliver(
        self, consumer: Consumer, entry_ids: _Ids, epoch: int | None = None, indexes: _Indexes = None
    ) -> None:
        """Counts and redelivers the entries that the consumer nacks (None: everything it holds).

        `indexes` are the bits of the messages of a batch that failed, if the client names them.
        """
        assert self.dispatcher is not None
        if epoch is not None:
            consumer.epoch = epoch
        if entry_ids is None and self.places.ordered and self.dead_letter_policy is not None:
            # The first unacknowledged entry failed. Wait for acks in transit to find out which one that is.
            if self._nacked_all is None:
                self._nacked_all = (consumer, self._monotonic_ms() + _ACK_DELAY_MS)
                self._pump_at(self._nacked_all[1])
            return
        self._redeliver(consumer, entry_ids, indexes)

    def _redeliver_all(self, consumer: Consumer, at_ms: int) -> bool:
        """Redelivers everything that a consumer nacked, if it is time; false if it is too early."""
        if self._monotonic_ms() < at_ms:
            return False
        self._nacked_all = None
        if consumer in self.consumers:
            self._redeliver(consumer, None, None)
        return True

    def _redeliver(self, consumer: Consumer, entry_ids: _Ids, indexes: _Indexes) -> None:
        places = self.places
        pending, is_rewound = consumer.pending, places.ordered and entry_ids is None
        named = pending if entry_ids is None else {i for i in entry_ids if i in pending}
        returned = list(islice(pending, 1)) if is_rewound else sorted(named)  # those behind the first one only waited
        if consumer.singles:
            singles, indexes = self.redelivery.count_singles(consumer, returned, indexes, is_all=entry_ids is None)
            returned = [entry_id for entry_id in returned if entry_ids is None or entry_id not in consumer.singles]
            self.settle_singles(singles)
        messages = consumer.unacked if is_rewound else sum([pending[entry_id] for entry_id in returned])
        consumer.redelivered_messages += messages
        self.redelivered_messages += messages
        self.nacked_batches += sum(pending[i] > 1 and not (indexes and i in indexes) for i in returned)
        if not places.ordered:
            for entry_id in returned:
                places.release(entry_id)
            places.make_pending(returned)
        if not self.is_internal:  # a pipeline nacks when it or the other cluster was killed: the entry did not fail
            for entry_id in returned:
                self.redelivery.count(entry_id, consumer, indexes.get(entry_id) if indexes else None)
            self._settle(returned)
        if places.ordered:
            self._rewind()  # order would be lost if only the nacked entries came again
        self.deliveries.unblock()
        self.schedule_pump()

    def settle_singles(self, entry_ids: Sequence[int]) -> None:
        """Messages of batches were nacked one by one, or the last one that was not is acknowledged."""
        self.redelivered_messages += self.redelivery.take_back(entry_ids)
        self._settle(entry_ids)
        self.deliveries.unblock()
        self.schedule_pump()

    # -- dead letters

    def _is_split(self) -> bool:
        """Clients of ordered types compare ids, so their batches stay whole."""
        return not self.places.ordered and self.dead_letter_policy is not None

    @property
    def dead_letter_policy(self) -> DeadLetterPolicy | None:
        """The policy in force: that of the subscription or else of the namespace."""
        if not self.durable or self.is_internal:
            return None
        return self.record.dead_letters or self._topic.policies.dead_letters

    def _settle(self, entry_ids: Sequence[int], reason: Reason = Reason.MaxRedeliveries) -> None:
        """Dead-letters those of the counted entries that have exhausted their redeliveries; the others back off."""
        policy, state_of = self.dead_letter_policy, self.cursor.state_of
        exhausted: list[int] = []
        for entry_id in entry_ids:
            if (state := state_of(entry_id)) is None:
                continue
            if policy is not None and self.dead_letters.is_exhausted(state, policy):
                exhausted.append(entry_id)
            else:
                self.redelivery.back_off(entry_id, state.highest_count, self.record.backoff_ms)
        if policy is not None and exhausted:
            for entry_id in self._dead_letter(exhausted, reason, policy):
                state = state_of(entry_id)
                self.redelivery.back_off(entry_id, state.highest_count if state else 0, self.record.backoff_ms)

    def _dead_letter(
        self, entry_ids: Sequence[int], reason: Reason, policy: DeadLetterPolicy, text: str = ""
    ) -> Sequence[int]:
        """Moves entries to the dead letter topic. Returns those that stay; `dead_letters.problem` is the reason."""
        if self.record.paused:
            return entry_ids
        staying, pause_reason = self.dead_letters.move(entry_ids, reason, policy, self.record.breaker, text)
        if pause_reason:
            self.pause(pause_reason)
        if len(staying) < len(entry_ids):
            self.acked()
        return staying

    def dead_letter_first(self, reason: Reason, text: str) -> bool:
        """Dead-letters the first entry of the backlog because its time or room is over; false if it stays."""
        policy = self.dead_letter_policy or _NO_LIMIT
        is_moved = not self._dead_letter([self.cursor.mark_delete + 1], reason, policy, text)
        self.expired_messages += is_moved
        return is_moved

    # -- settings

    def set_dead_letter_policy(self, policy: DeadLetterPolicy | None, source: str) -> None:
        """The last one set wins, whether a consumer or an operator set it."""
        if self.is_internal and policy is not None:
            raise NotAllowed(f"subscription {self.name!r} has no dead letters: it is the position of a replication")
        if (policy, source) != (self.record.dead_letters, self.record.dead_letters_from):
            self._save(dead_letters=policy, dead_letters_from=source)

    def pause(self, reason: str) -> None:
        """Stops deliveries until `resume`."""
        self._save(paused=reason)

    def resume(self) -> None:
        self._save(paused="")
        self.dead_letters.begin_breaker_window()
        self.schedule_pump()

    @property
    def properties(self) -> dict[str, str]:
        return self.record.properties

    def set_properties(self, properties: dict[str, str]) -> None:
        self._save(properties=properties)

    def set_replicated(self, replicated: bool) -> None:
        self._save(replicated=replicated)

    def _save(self, **changes: object) -> None:
        self._topic.save_subscription(self, msgspec.structs.replace(self.record, **changes))

    def limits_changed(self) -> None:
        self.deliveries.limits_changed()
        self.schedule_pump()

    # -- dispatching

    def schedule_pump(self) -> None:
        self._topic.broker.pump_later(self)

    def _pump_at(self, time_ms: int) -> None:
        """At a monotonic time."""
        self._topic.broker.intervals.at(time_ms, self.schedule_pump)

    def pump(self) -> None:
        """Delivers entries that are due to consumers that can take them; a bounded number per turn."""
        self.redelivery.wake()
        self.suspects.check_patience()
        if self.dispatcher is None or self.record.paused:
            return
        if self._nacked_all is not None and not self._redeliver_all(*self._nacked_all):
            return
        if max(self.redelivery.blocked_until_ms, self._resume_at_ms) > self._monotonic_ms():
            return
        if self._resume_at_ms:
            self._resume_at_ms = 0
            self._rewind()
        self._topic.wake_delayed()
        if self.dispatcher.pump():
            self.schedule_pump()
        self.deliveries.end_of_topic(self.consumers)

    def wake(self, entry_id: int) -> None:
        """The deliver-at time of an entry has come."""
        if self.places.wake(entry_id) and not self.redelivery.back_off_if_early(entry_id):
            self.places.make_pending([entry_id])

    # -- positions

    def _rewind(self) -> None:
        """Makes everything unacknowledged unread again."""
        self.places.rewind()
        self.redelivery.rewind()
        self._nacked_all = None

    def advance(self, entry_id: int) -> None:
        """Acknowledges everything up to `entry_id`, wherever it is: cumulative ack, expiry, skip, trim."""
        if self.places.ack_up_to(entry_id):
            self.acked()

    def skip(self, count: int) -> None:
        """Acknowledges the first `count` entries of the backlog, or all if there are fewer."""
        if count >= self.backlog:
            self.advance(self._topic.log.confirmed)
        elif count > 0:
            self.advance(self.cursor.nth_open(count))

    def expire(self, entry_id: int, open_bits: int | None = None) -> None:
        """Acknowledges what is too old: all up to `entry_id`, or those messages in it that are not in `open_bits`."""
        before = self.backlog
        if self.places.ack_up_to(entry_id) if open_bits is None else self.places.ack_part(entry_id, open_bits):
            self.acked()
        self.expired_messages += before - self.backlog

    def peek(self, number: int) -> Entry | None:
        """The `number`-th entry of the backlog, counted from 1, without consuming it."""
        return self._topic.log.read_one(self.cursor.nth_open(number)) if 0 < number <= self.backlog else None

    def seek(self, entry_id: int, open_bits: int | None = None) -> None:
        """Moves to the message at `entry_id`, or to the first of its batch that is open in `open_bits`.

        Consumers are disconnected and come back, as clients expect after a seek.
        """
        self.disconnect_consumers()
        log = self._topic.log
        start = min(max(entry_id, log.first), log.confirmed + 1)
        self.cursor.reset(start - 1)
        if start < self.record.begins:
            self._save(begins=start)
        if open_bits and log.first <= entry_id <= log.confirmed:
            self.cursor.ack_part(entry_id, open_bits, self.places.messages_in(entry_id))
        self._rewind()
        if not self.durable:
            seconds = self._monotonic_ms() // 1000
            self._topic.broker.intervals.at(seconds * 1000 + _RETURN_MS, self._end_if_deserted)

    def _end_if_deserted(self) -> None:
        self._topic.drop_if_deserted(self)

    # -- statistics

    @property
    def backlog(self) -> int:
        """Entries that are not acknowledged."""
        return self.cursor.holes(self._topic.log.confirmed)

    def backlog_size(self) -> int:
        return self._topic.log.size_from(self.cursor.mark_delete + 1)

    def update_rates(self, seconds: float) -> None:
        if self.record.breaker is not None:
            self.dead_letters.roll_breaker_window(self.record.breaker)
        self.rates.update(seconds, self.deliveries.messages, self.deliveries.bytes, self.expired_messages)
        for consumer in self.consumers:
            consumer.update_rates(seconds)

    def invariants(self) -> None:
        """Raises AssertionError unless every position is in exactly one place."""
        self.places.invariants(self.consumers)

"""A subscription of a persistent topic: where every position stands, and what happens when consumers say something.

Every position of the topic above the mark-delete position is in exactly one place:

    acknowledged   in `cursor.acked`
    in flight      in `in_flight`, and in `pending` of the consumer that holds it
    pending        in `pending`: to be delivered again, or read and not taken by anybody
    backing_off        in `failed.backing_off`: it failed, and its back-off is not over
    delayed        below `read_id` and in none of the above; its time has not come (the topic's index wakes it)
    unread         from `read_id` on

`invariants()` checks just that. Who gets what is the dispatcher's choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec
from pyroaring import BitMap64

from magnetar.broker.catalog.record import SubscriptionRecord
from magnetar.broker.peer import Delivery
from magnetar.broker.rates import Rates
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.cursor import Cursor
from magnetar.broker.subscription.dispatch import Dispatcher, dispatcher_for
from magnetar.broker.subscription.failure_policy import DeadLetterPolicy
from magnetar.broker.subscription.failures import FailedMessages
from magnetar.broker.topic.run import Entry
from magnetar.deadletter.properties import Reason
from magnetar.errors import ConsumerBusy, MagnetarError, NotAllowed
from magnetar.replication.model import is_replication_subscription

if TYPE_CHECKING:
    from magnetar.broker.topic.persistent import PersistentTopic

_RETURN_MS = 60_000  # how long a reader that was sent away by its seek may take to come back
_BATCH_SIZE_TRUSTED = 10_000
_ACK_DELAY_MS = 150  # clients keep acks to themselves for 100 ms, also when they give messages back in between
_SEVERAL = (SubscriptionType.Shared, SubscriptionType.Key_Shared)


class Subscription:
    """`durable` subscriptions outlive their consumers and the process; the others end with their last consumer.

    `is_internal`: it is the position up to which another cluster has the topic. Nothing of it ever becomes a dead
    letter, however often it is given back.
    """

    __slots__ = (
        "_average_messages",
        "_backs_off_until_ms",
        "_given_back",
        "_resume_at_ms",
        "_settings",
        "_topic",
        "acked_messages",
        "consumers",
        "cursor",
        "delayed",
        "delivered_bytes",
        "delivered_messages",
        "dispatcher",
        "durable",
        "expired_messages",
        "failed",
        "in_flight",
        "is_blocked",
        "is_internal",
        "name",
        "pending",
        "rates",
        "read_id",
        "record",
        "redelivered_messages",
        "type",
        "unacked",
    )

    def __init__(self, topic: PersistentTopic, name: str, record: SubscriptionRecord, cursor: Cursor, durable: bool):
        self._topic = topic
        self._settings = topic.broker.settings
        self.name = name
        self.record = record
        self.cursor = cursor
        self.durable = durable
        self.is_internal = durable and is_replication_subscription(name)
        self.type = SubscriptionType.Exclusive
        self.consumers: list[Consumer] = []
        self.dispatcher: Dispatcher | None = None
        self.in_flight: dict[int, Consumer] = {}
        self.pending = BitMap64()
        self.failed = FailedMessages(topic, self)
        self.read_id = cursor.mark_delete + 1
        self.delayed = 0
        self.unacked = 0
        self.is_blocked = False  # too many unacknowledged messages: nothing goes out until half are acknowledged
        self._average_messages = 1.0
        self._resume_at_ms = 0
        self._given_back: tuple[Consumer, int] | None = None  # who gave everything back, and when it is looked at
        self._backs_off_until_ms = 0  # where order counts, the end of the back-off of what comes next
        self.delivered_messages = 0
        self.delivered_bytes = 0
        self.redelivered_messages = 0
        self.acked_messages = 0
        self.expired_messages = 0
        self.rates = Rates(3)  # messages and bytes out, messages expired

    # -- consumers

    def add_consumer(self, consumer: Consumer) -> None:
        if self.consumers and consumer.type is not self.type:
            raise ConsumerBusy(
                f"subscription {self.name!r} is of type {self.type.name}, consumer {consumer.name!r}"
                f" asks for {consumer.type.name}"
            )
        limit = self._topic.policies.max_consumers_per_subscription
        if 0 < limit <= len(self.consumers):
            raise ConsumerBusy(
                f"subscription {self.name!r} has {len(self.consumers)} consumers,"
                f" maxConsumersPerSubscription is {limit}"
            )
        if not self.consumers:
            self.type = consumer.type
            self.dispatcher = dispatcher_for(consumer.type, self, self._settings)
            self.rewind()
        assert self.dispatcher is not None
        try:
            self.dispatcher.add(consumer)
        except MagnetarError:
            if not self.consumers:
                self.dispatcher = None
            raise
        self.consumers.append(consumer)
        consumer.subscription = self
        self.schedule_pump()

    def remove_consumer(self, consumer: Consumer, *, vanished: bool = False) -> None:
        """Takes back what it held, uncounted: messages that only sat in its queue did not fail.

        If it `vanished` without a word, what it held may be the reason (DL13).
        """
        if consumer not in self.consumers:
            return
        assert self.dispatcher is not None
        self.consumers.remove(consumer)
        blamed = self.failed.vanished(consumer) if vanished else []
        held = sorted(consumer.pending)
        for entry_id in held:
            self._release(entry_id)
        if not self.consumers:
            self.dispatcher = None
            self.is_blocked = False
            self._resume_at_ms = 0
            self.rewind()
        else:
            if not self.dispatcher.ordered:
                self.wait_again(held)
            elif held:
                self.rewind()  # it may be the former active one, whose successor still waits
            self.dispatcher.remove(consumer)
            self._unblock()
            self.schedule_pump()
        self.failed.settle(blamed, Reason.ConsumerCrash)

    def disconnect_consumers(self) -> None:
        for consumer in list(self.consumers):
            consumer.peer.close_consumer(consumer)
            self.remove_consumer(consumer)

    # -- what consumers say

    def flow(self, consumer: Consumer, permits: int) -> None:
        consumer.permits += permits
        self.schedule_pump()

    def ack(self, entry_id: int, open_bits: int | None = None, batch_size: int = 0) -> None:
        """Acknowledges one entry, or with `open_bits` those messages of a batch whose bit is not set."""
        if entry_id > self._topic.log.confirmed:
            raise NotAllowed(f"entry {entry_id} cannot be acknowledged: the last one is {self._topic.log.confirmed}")
        if open_bits is None:
            self._ack_whole(entry_id)
        elif self._settings.acknowledgmentAtBatchIndexLevelEnabled or not open_bits:
            self._ack_part(entry_id, open_bits, batch_size)

    def ack_cumulative(self, entry_id: int, open_bits: int | None = None, batch_size: int = 0) -> None:
        if self.type in _SEVERAL:
            raise NotAllowed(f"cumulative acknowledgement is not allowed on a {self.type.name} subscription")
        if entry_id > self._topic.log.confirmed:
            raise NotAllowed(f"entry {entry_id} cannot be acknowledged: the last one is {self._topic.log.confirmed}")
        whole = entry_id if open_bits is None else entry_id - 1
        self.advance(whole)
        if open_bits is not None:
            self.ack(entry_id, open_bits, batch_size)

    def _ack_whole(self, entry_id: int) -> None:
        if not self.cursor.ack(entry_id):
            return
        if entry_id in self.in_flight:
            self.acked_messages += self._release(entry_id)
        elif entry_id in self.pending:
            self.pending.remove(entry_id)
        elif entry_id in self.failed.backing_off:
            self.failed.backing_off.remove(entry_id)
        elif entry_id < self.read_id:
            self.delayed -= 1
        self.read_id = max(self.read_id, self.cursor.mark_delete + 1)  # given back, unread again, and acknowledged late
        if self.dispatcher is not None:
            self.dispatcher.is_done(entry_id)
        self._acked()

    def _ack_part(self, entry_id: int, open_bits: int, batch_size: int) -> None:
        # The client's word saves a look into the log, unless it is large enough to cost us more than that.
        messages = batch_size if 0 < batch_size <= _BATCH_SIZE_TRUSTED else self._messages_in(entry_id)
        before = self.cursor.open_bits(entry_id)
        if open_bits & ((1 << messages) - 1) & (-1 if before is None else before) == 0:
            self._ack_whole(entry_id)
            return
        still_open = self.cursor.ack_part(entry_id, open_bits, messages).bit_count()
        consumer = self.in_flight.get(entry_id)
        if consumer is not None and still_open:
            fewer = consumer.pending[entry_id] - still_open
            consumer.pending[entry_id] = still_open
            consumer.unacked -= fewer
            self.unacked -= fewer
            self.acked_messages += fewer
            self._acked()

    def _acked(self) -> None:
        self._backs_off_until_ms = 0  # it may have been the one; if not, that is found again
        self._unblock()
        if self._topic.is_ended:
            self._send_end_of_topic()
        if self.dispatcher is not None and (self.pending or self.has_unread):
            self.schedule_pump()

    def redeliver(
        self,
        consumer: Consumer,
        entry_ids: Sequence[int] | None,
        epoch: int | None = None,
        indexes: Mapping[int, int] | None = None,
    ) -> None:
        """Delivers again what the consumer gives back (None: everything it holds), and counts it.

        `indexes` are bits of the messages of a batch that failed, where a client names them.
        """
        assert self.dispatcher is not None
        if epoch is not None:
            consumer.epoch = epoch
        if entry_ids is None and self.dispatcher.ordered and self.failed.policy is not None:
            # What failed is the first that is not acknowledged. Which one that is shows when all acks have come.
            if self._given_back is None:
                self._given_back = (consumer, self._topic.broker.now_ms() + _ACK_DELAY_MS)
                self._topic.broker.wake_at(self._given_back[1], self.schedule_pump)
            return
        self._redeliver(consumer, entry_ids, indexes)

    def _take_back(self, consumer: Consumer, at_ms: int) -> bool:
        """What a consumer gave back is looked at when it is time; false if it is too early."""
        if 0 < at_ms - self._topic.broker.now_ms() <= _ACK_DELAY_MS:
            return False  # a longer wait means that the clock was set back, and is over
        self._given_back = None
        if consumer in self.consumers:
            self._redeliver(consumer, None, None)
        return True

    def _redeliver(
        self, consumer: Consumer, entry_ids: Sequence[int] | None, indexes: Mapping[int, int] | None
    ) -> None:
        assert self.dispatcher is not None
        returned = sorted(consumer.pending if entry_ids is None else {i for i in entry_ids if i in consumer.pending})
        for entry_id in returned:
            messages = consumer.pending[entry_id]
            consumer.redelivered_messages += messages
            self.redelivered_messages += messages
        if self.dispatcher.ordered:
            # They are handled in order: those behind the first one only waited.
            blamed = returned[:1] if entry_ids is None else returned
        else:
            blamed = returned
            for entry_id in returned:
                self._release(entry_id)
            self.wait_again(returned)
        for entry_id in blamed:
            self.failed.count(entry_id, indexes.get(entry_id) if indexes else None)
        self.failed.settle(blamed)
        if self.dispatcher.ordered:
            # Order would be lost if only these came back: everything unacknowledged comes again.
            self.rewind()
        self._unblock()
        self.schedule_pump()

    def take_out(self, entry_id: int, left_open: int) -> None:
        """What is not left open of an entry has been moved elsewhere: here it counts as acknowledged."""
        acked = self.acked_messages
        if left_open:
            self._ack_part(entry_id, left_open, 0)
        else:
            self._ack_whole(entry_id)
        self.acked_messages = acked  # nobody did

    def back_off(self, entry_id: int, due_ms: int) -> None:
        """A failed entry that waits gets time until `due_ms`; where order counts, everything behind it waits too."""
        if self.dispatcher is None or self.dispatcher.ordered:
            return  # it is read again, and found to rest
        if entry_id in self.pending:
            self.pending.remove(entry_id)
            self.dispatcher.is_backing_off(entry_id)
            self.failed.back_off_until(entry_id, due_ms)

    def set_dead_letter_policy(self, policy: DeadLetterPolicy | None, source: str) -> None:
        """The last one set wins, whoever set it."""
        if self.is_internal and policy is not None:
            raise NotAllowed(f"subscription {self.name!r} has no dead letters: it is the position of a replication")
        if (policy, source) != (self.record.dead_letters, self.record.dead_letters_from):
            changed = msgspec.structs.replace(self.record, dead_letters=policy, dead_letters_from=source)
            self._topic.save_subscription(self, changed)

    def pause(self, reason: str) -> None:
        """Nothing is delivered until somebody resumes it."""
        self._topic.save_subscription(self, msgspec.structs.replace(self.record, paused=reason))

    def resume(self) -> None:
        self._topic.save_subscription(self, msgspec.structs.replace(self.record, paused=""))
        self.failed.resumed()
        self.schedule_pump()

    # -- what dispatchers ask for

    @property
    def partition(self) -> int:
        return self._topic.name.partition

    @property
    def topic_name(self) -> str:
        return self._topic.name.full

    @property
    def has_unread(self) -> bool:
        return self.read_id <= self._topic.log.confirmed

    def schedule_pump(self) -> None:
        self._topic.broker.pump_later(self)

    def pump(self) -> None:
        """Hands out what is due to whoever can take it; a bounded number of entries per turn."""
        if self.dispatcher is None or self.record.paused:
            return
        if self._given_back is not None and not self._take_back(*self._given_back):
            return
        if self._backs_off_until_ms > self._topic.broker.now_ms():
            return
        if self._resume_at_ms:
            wait_ms = self._resume_at_ms - self._topic.broker.now_ms()
            if 0 < wait_ms <= self._settings.activeConsumerFailoverDelayTimeMillis:
                return  # a longer wait means that the clock was set back, and is over
            self._resume_at_ms = 0
            self.rewind()
        self._topic.wake_delayed()
        self.dispatcher.pump()
        if self._topic.is_ended:
            self._send_end_of_topic()

    def entries_for(self, permits: int) -> int:
        """How many entries about as many messages are; never more than one read's worth."""
        return max(1, min(int(permits / self._average_messages), self._settings.dispatcherMaxReadBatchSize))

    def take_redelivered(self, limit: int) -> list[Entry]:
        """The first entries that wait, in order. What is no longer in the log counts as acknowledged."""
        entries: list[Entry] = []
        while self.pending and len(entries) < limit:
            start = self.pending.min()
            count = 1
            while count < limit - len(entries) and start + count in self.pending:
                count += 1
            found = self._read(start, count)
            if not found or found[0][0] != start:
                self._lost()  # while the others are still in their place: it counts them
            for entry_id in range(start, found[-1][0] + 1 if found else start + count):
                self.pending.discard(entry_id)
            entries += found
        return entries

    def take_one(self, entry_id: int) -> Entry | None:
        self.pending.remove(entry_id)
        entry = self._topic.log.read_one(entry_id)
        if entry is None:
            self._lost()
        return entry

    def read_new(self, limit: int) -> list[Entry]:
        """Entries not read before, less the acknowledged and, for types that spread messages, the delayed ones."""
        if self.read_id < self._topic.log.first:
            self._lost()
        start = self.cursor.next_open(self.read_id)
        entries = self._read(start, limit)
        if not entries:
            self.read_id = start
            return entries
        self.read_id = entries[-1][0] + 1
        if self.cursor.acked:
            entries = [entry for entry in entries if entry[0] not in self.cursor.acked]
        if self.type in _SEVERAL and self._topic.has_delayed:
            is_delayed = self._topic.delayed.holds
            due = [entry for entry in entries if not entry[2] or not is_delayed(entry[2], entry[0])]
            self.delayed += len(entries) - len(due)
            entries = due
        return self._rested(entries) if self.cursor.knows_any else entries

    def _rested(self, entries: list[Entry]) -> list[Entry]:
        """Those whose back-off is over. Where order counts, nothing behind one that rests."""
        if self.dispatcher is None or not self.dispatcher.ordered:
            return [entry for entry in entries if not self.failed.is_backing_off(entry[0])]
        for index, entry in enumerate(entries):
            due_ms = self.failed.due_ms(entry[0])
            if due_ms > self._topic.broker.now_ms():
                self.read_id = entry[0]
                self._backs_off_until_ms = due_ms
                self._topic.broker.wake_at(due_ms, self.schedule_pump)
                return entries[:index]
        return entries

    def has_room(self, consumer: Consumer, entry_id: int) -> bool:
        """Whether a consumer that can receive may get this very entry: a suspect has little company, or none."""
        limit = self.failed.company_of(entry_id) if consumer.pending else 0
        return not limit or len(consumer.pending) < limit

    def open_bits(self, entry_id: int) -> int:
        """The messages of an unacknowledged entry that are open."""
        found = self.cursor.open_bits(entry_id)
        return (1 << self._messages_in(entry_id)) - 1 if found is None else found

    def entry(self, entry_id: int) -> Entry | None:
        return self._topic.log.read_one(entry_id)

    def give(self, consumer: Consumer, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Puts entries in flight while the consumer has permits; returns those it had none for."""
        deliveries: list[Delivery] = []
        known = self.cursor.known if self.cursor.knows_any else None
        room, entries_max = self._room_of(consumer), consumer.entries_max
        total = size = taken = 0
        for entry_id, messages, _, blob in entries:
            if total >= room:
                break
            position = known(entry_id) if known is not None else None
            if entries_max or (position is not None and position.suspicions):
                entries_max = _lower(entries_max, self.failed.company_of(entry_id))
                if 0 < entries_max <= len(consumer.pending):
                    break
                consumer.entries_max = entries_max
            count, open_bits = (0, None) if position is None else (position.highest_count, position.open_bits)
            if open_bits is not None:
                messages = open_bits.bit_count()
            self.in_flight[entry_id] = consumer
            consumer.pending[entry_id] = messages
            deliveries.append((entry_id, count, open_bits, blob))
            total += messages
            size += len(blob)
            taken += 1
        if entries_max:
            self.failed.hold_back()
        if not taken:
            return entries
        consumer.permits -= total
        consumer.unacked += total
        consumer.delivered_messages += total
        consumer.delivered_bytes += size
        self.delivered_messages += total
        self.delivered_bytes += size
        self.unacked += total
        limit = self._topic.policies.max_unacked_per_subscription
        if 0 < limit <= self.unacked and self.type in _SEVERAL:
            self.is_blocked = True
        self._average_messages += (total / taken - self._average_messages) * 0.5
        consumer.peer.deliver(consumer, deliveries)
        return entries[taken:]

    def _room_of(self, consumer: Consumer) -> int:
        """How many messages the consumer may get now."""
        room = consumer.permits
        if consumer.unacked_max > 0:
            room = min(room, consumer.unacked_max - consumer.unacked)
        limit = self._topic.policies.max_unacked_per_subscription
        if limit > 0 and self.type in _SEVERAL:
            room = min(room, limit - self.unacked)
        return room

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Entries that were read and nobody could take."""
        self.wait_again([entry[0] for entry in entries])

    def hand_over(self, delay_ms: int) -> None:
        """Another consumer is active now: it starts with what the former one has not acknowledged."""
        if delay_ms and self.in_flight:
            self._resume_at_ms = self._topic.broker.now_ms() + delay_ms
            self._topic.broker.wake_at(self._resume_at_ms, self.schedule_pump)
        else:
            self.rewind()
        self.schedule_pump()

    # -- positions

    def rewind(self) -> None:
        """Everything unacknowledged is unread again."""
        for entry_id in list(self.in_flight):
            self._release(entry_id)
        self.pending.clear()
        self.failed.rewind()
        self._backs_off_until_ms = 0
        self._given_back = None
        self.delayed = 0
        self.read_id = self.cursor.mark_delete + 1

    def advance(self, entry_id: int) -> None:
        """Acknowledges everything up to `entry_id`, whoever holds it: cumulative ack, expiry, skip, trim."""
        if entry_id <= self.cursor.mark_delete:
            return
        self.cursor.ack_up_to(entry_id)
        for held in self._held_up_to(entry_id):
            self.acked_messages += self._release(held)
            if self.dispatcher is not None:
                self.dispatcher.is_done(held)
        while self.pending and self.pending.min() <= entry_id:
            passed = self.pending.min()
            self.pending.remove(passed)
            if self.dispatcher is not None:
                self.dispatcher.is_done(passed)
        if self.failed.backing_off:
            self.failed.backing_off.remove_range(0, entry_id + 1)
        if self.delayed:
            # Which of the passed ones were delayed is not kept anywhere: what is left is what is in no other place.
            self.delayed = self._unaccounted()
        self.read_id = max(self.read_id, self.cursor.mark_delete + 1)
        self._acked()

    def skip(self, count: int) -> None:
        """Acknowledges the first `count` entries of the backlog, or all if there are not as many."""
        if count >= self.backlog:
            self.advance(self._topic.log.confirmed)
        elif count > 0:
            self.advance(self.cursor.nth_open(count))

    def expire(self, entry_id: int) -> None:
        """Acknowledges everything up to `entry_id`, because its time is over."""
        before = self.backlog
        self.advance(entry_id)
        self.expired_messages += before - self.backlog

    def expire_part(self, entry_id: int, open_bits: int) -> None:
        """Of the batch at `entry_id`, what is not open in `open_bits`."""
        before = self.backlog
        self._ack_part(entry_id, open_bits, 0)
        self.expired_messages += before - self.backlog

    def peek(self, number: int) -> Entry | None:
        """The `number`-th entry of the backlog, from 1 on; it stays where it is."""
        return self.entry(self.cursor.nth_open(number)) if 0 < number <= self.backlog else None

    def seek(self, entry_id: int, open_bits: int | None = None) -> None:
        """The next message is the one at `entry_id`, or the first of its batch that is open in `open_bits`.

        Consumers are sent away and come back for it, as clients expect after a seek.
        """
        self.disconnect_consumers()
        log = self._topic.log
        self.cursor.reset(min(max(entry_id, log.first), log.confirmed + 1) - 1)
        if open_bits and log.first <= entry_id <= log.confirmed:
            self.cursor.ack_part(entry_id, open_bits, self._messages_in(entry_id))
        self.rewind()
        if not self.durable:
            self._topic.broker.wake_at(self._topic.broker.now_ms() + _RETURN_MS, self._drop_if_deserted)

    def _drop_if_deserted(self) -> None:
        self._topic.drop_if_deserted(self)

    def wake(self, entry_id: int) -> None:
        """The time of a delayed entry has come."""
        delayed_here = entry_id < self.read_id and not self.cursor.is_acked(entry_id)
        backing_off = self.failed.backing_off
        if delayed_here and not (entry_id in self.in_flight or entry_id in self.pending or entry_id in backing_off):
            self.delayed -= 1
            if not self.failed.is_backing_off(entry_id):
                self.wait_again([entry_id])

    @property
    def properties(self) -> dict[str, str]:
        return self.record.properties

    def set_properties(self, properties: dict[str, str]) -> None:
        self._topic.save_subscription(self, msgspec.structs.replace(self.record, properties=properties))

    def set_replicated(self, replicated: bool) -> None:
        self._topic.save_subscription(self, msgspec.structs.replace(self.record, replicated=replicated))

    @property
    def backlog(self) -> int:
        """Entries that are not acknowledged."""
        return self.cursor.holes(self._topic.log.confirmed)

    @property
    def backing_off(self) -> int:
        """Failed entries whose back-off is not over; where order counts only the next one can be."""
        return len(self.failed.backing_off) + (self._backs_off_until_ms > self._topic.broker.now_ms())

    def backlog_size(self) -> int:
        return self._topic.log.size_from(self.cursor.mark_delete + 1)

    def wait_again(self, entry_ids: Iterable[int]) -> None:
        for entry_id in entry_ids:
            if not self.cursor.is_acked(entry_id):
                self.pending.add(entry_id)
                if self.dispatcher is not None:
                    self.dispatcher.is_waiting(entry_id)

    def _release(self, entry_id: int) -> int:
        """An entry leaves the consumer that held it. Returns the messages that were open in it."""
        consumer = self.in_flight.pop(entry_id)
        messages = consumer.pending.pop(entry_id)
        consumer.unacked -= messages
        if consumer.entries_max:
            self.failed.progressed(consumer)
        self.unacked -= messages
        if self.dispatcher is not None:
            self.dispatcher.has_left(entry_id)
        return messages

    def _read(self, start: int, limit: int) -> list[Entry]:
        return self._topic.log.read(start, limit, self._settings.dispatcherMaxReadSizeBytes)

    def _lost(self) -> None:
        """The log was trimmed past this subscription (a reader's): what is gone cannot be delivered."""
        self.advance(self._topic.log.first - 1)

    def _held_up_to(self, entry_id: int) -> list[int]:
        if self.dispatcher is None or not self.dispatcher.ordered:
            return [held for held in self.in_flight if held <= entry_id]
        return list(takewhile(lambda held: held <= entry_id, self.in_flight))  # in flight in order: stop early

    def _unblock(self) -> None:
        if self.is_blocked and self.unacked <= self._topic.policies.max_unacked_per_subscription // 2:
            self.is_blocked = False
            self.schedule_pump()

    def limits_changed(self) -> None:
        """The topic has other policies than before."""
        limit = self._topic.policies.max_unacked_per_subscription
        self.is_blocked = self.type in _SEVERAL and 0 < limit <= self.unacked
        self.schedule_pump()

    def _messages_in(self, entry_id: int) -> int:
        header = self._topic.log.header(entry_id)
        return header[0] if header else 1

    def _send_end_of_topic(self) -> None:
        if self.backlog == 0:
            for consumer in self.consumers:
                if not consumer.end_of_topic_sent:
                    consumer.end_of_topic_sent = True
                    consumer.peer.end_of_topic(consumer)

    def _unaccounted(self) -> int:
        """Positions below `read_id` that are in no other place, that is: delayed."""
        read = self.read_id - 1 - self.cursor.mark_delete
        acked = self.cursor.acked.range_cardinality(0, max(self.read_id, 0))
        return max(0, read - acked - len(self.in_flight) - len(self.pending) - len(self.failed.backing_off))

    def update_rates(self, seconds: float) -> None:
        self.failed.roll_window()
        self.rates.update(seconds, self.delivered_messages, self.delivered_bytes, self.expired_messages)
        for consumer in self.consumers:
            consumer.update_rates(seconds)

    def invariants(self) -> None:
        """Raises AssertionError unless every position is in exactly one place."""
        cursor, log = self.cursor, self._topic.log
        assert cursor.mark_delete <= log.confirmed, "acknowledged past the end"
        assert cursor.mark_delete + 1 not in cursor.acked, "mark-delete lags behind"
        assert cursor.mark_delete < self.read_id <= log.confirmed + 1, "read position out of bounds"
        # Not by iterating: pyroaring 1.2 leaks at every iteration of an empty bitmap.
        acked, pending = set(cursor.acked.to_array()), set(self.pending.to_array())
        in_flight, backing_off = set(self.in_flight), set(self.failed.backing_off.to_array())
        assert not backing_off & (acked | pending | in_flight), "a position that rests in another place"
        assert not acked & pending and not acked & in_flight and not pending & in_flight, "a position in two places"
        assert all(cursor.mark_delete < entry < self.read_id for entry in pending | in_flight | backing_off), (
            "place out of bounds"
        )
        assert self.delayed == self._unaccounted(), f"{self.delayed} delayed, {self._unaccounted()} unaccounted for"
        assert self.unacked == sum(consumer.unacked for consumer in self.consumers), "unacked counts differ"
        for consumer in self.consumers:
            assert consumer.unacked == sum(consumer.pending.values()), "unacked count of a consumer"
            assert all(self.in_flight.get(entry) is consumer for entry in consumer.pending), "held by two"
        assert len(in_flight) == sum(len(consumer.pending) for consumer in self.consumers), "held by nobody"


def _lower(limit: int, other: int) -> int:
    """The lower of two limits, of which 0 is none."""
    return min(limit, other) if limit and other else limit or other

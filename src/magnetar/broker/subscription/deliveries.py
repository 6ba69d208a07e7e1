"""Deliveries of a subscription: reads entries that are due and puts them in flight while limits allow.

Dispatchers call it and choose the consumer. Calls go down to the places, the redelivery and the suspects; nothing here
calls a dispatcher or the subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from magnetar.broker.peer import Delivery
from magnetar.broker.subscription.single_messages import single_blobs, single_id
from magnetar.errors import EntriesDamaged

if TYPE_CHECKING:
    from magnetar.broker.subscription.consumer import Consumer
    from magnetar.broker.subscription.entry_state import EntryState
    from magnetar.broker.subscription.places import Places
    from magnetar.broker.subscription.redelivery import Redelivery
    from magnetar.broker.subscription.suspects import Suspects
    from magnetar.broker.throttling.dispatching import Throttle
    from magnetar.broker.topic.persistent import PersistentTopic
    from magnetar.broker.topic.run import Entry


# Behind by no more, a subscription has caught up: Apache Pulsar's managedLedgerCursorBackloggedThreshold.
_CAUGHT_UP_ENTRIES = 1000


class Deliveries:
    """`is_blocked`: too many messages are unacknowledged, nothing is delivered until half of them are acknowledged.

    `is_stopped`: nothing more may be delivered in this turn, because of that or because a rate limit is exhausted.
    `throttle` is None until there is a rate limit.
    """

    __slots__ = (
        "_average_messages",
        "_cursor",
        "_is_split",
        "_log",
        "_read_entries_max",
        "_read_size_max",
        "_redelivery",
        "_size_max",
        "_throttled_by",
        "_topic",
        "bytes",
        "is_blocked",
        "is_stopped",
        "messages",
        "places",
        "split_batches",
        "suspects",
        "throttle",
    )

    def __init__(
        self,
        topic: PersistentTopic,
        places: Places,
        redelivery: Redelivery,
        suspects: Suspects,
        is_split: Callable[[], bool],
    ) -> None:
        """`is_split`: whether failed batches are delivered as single messages."""
        settings = topic.broker.settings
        self._is_split = is_split
        self._topic = topic
        self._log = topic.log
        self._redelivery = redelivery
        self._cursor = places.cursor
        self._read_entries_max = settings.dispatcherMaxReadBatchSize
        self._read_size_max = settings.dispatcherMaxReadSizeBytes
        self._size_max = settings.maxMessageSize
        self._average_messages = 1.0  # per entry
        self.places = places
        self.suspects = suspects
        self.is_blocked = False
        self.is_stopped = False
        self.throttle: Throttle | None = None
        self._throttled_by: Throttle | None = None  # in this turn
        self.messages = 0  # delivered in total
        self.bytes = 0
        self.split_batches = 0

    def entries_for(self, permits: int) -> int:
        """About how many entries make up so many messages; at most one read's worth."""
        if self._throttled_by is not None:
            permits = min(permits, self._throttled_by.messages)
        return max(1, min(int(permits / self._average_messages), self._read_entries_max))

    def begin_turn(self) -> bool:
        """Before a turn of dispatch if there is a `throttle`: false if it has to wait for one of its rate limits."""
        throttle = self.throttle
        if throttle is not None and self._is_exempt():
            throttle = None
        self._throttled_by = throttle
        is_open = throttle is None or throttle.begin_turn()
        self.is_stopped = self.is_blocked or not is_open
        if throttle is not None and not is_open and (self.places.pending or self.places.has_unread):
            throttle.wait(is_served=False)
        return is_open

    def _is_exempt(self) -> bool:
        if self._topic.broker.settings.dispatchThrottlingOnNonBacklogConsumerEnabled:
            return False
        return self._log.confirmed - self.places.read_id + len(self.places.pending) < _CAUGHT_UP_ENTRIES

    # -- reading

    def take_pending(self, limit: int) -> list[Entry]:
        """The first pending entries, in order. Those that are no longer in the log count as acknowledged."""
        pending, size_max = self.places.pending, self._read_size_max
        if self._throttled_by is not None:
            size_max = min(size_max, max(self._throttled_by.bytes, 1))
        entries: list[Entry] = []
        while pending and len(entries) < limit:
            start = pending.min()
            count = 1
            while count < limit - len(entries) and start + count in pending:
                count += 1
            try:
                found = self._log.read(start, count, size_max)
            except EntriesDamaged:
                if entries:
                    break  # those are in no place any more: they are delivered first, and the damage is met again
                raise
            if not found or found[0][0] != start:
                self._skip_trimmed()  # while the others are still in their place: it counts them
            for entry_id in range(start, found[-1][0] + 1 if found else start + count):
                pending.discard(entry_id)
            entries += found
        return entries

    def take_one(self, entry_id: int) -> Entry | None:
        entry = self._log.read_one(entry_id)
        self.places.pending.remove(entry_id)
        if entry is None:
            self._skip_trimmed()
        return entry

    def read_new(self, limit: int) -> list[Entry]:
        """Unread entries, without acknowledged ones; unless order counts, also without delayed ones."""
        places, cursor, size_max = self.places, self._cursor, self._read_size_max
        if self._throttled_by is not None:
            size_max = min(size_max, max(self._throttled_by.bytes, 1))
        if places.read_id < self._log.first:
            self._skip_trimmed()
        start = cursor.next_open(places.read_id)
        entries = self._log.read(start, limit, size_max)
        if (entries[-1][0] if entries else self._log.confirmed) - start >= len(entries):
            entries = self._past_void(start, entries, limit, size_max)
        if not entries:
            places.read_id = cursor.next_open(start)
            return entries
        places.read_id = entries[-1][0] + 1
        if cursor.acked:
            entries = [entry for entry in entries if entry[0] not in cursor.acked]
        if self._topic.has_delayed and not places.ordered:
            is_delayed = self._topic.delayed.holds
            due = [entry for entry in entries if not entry[2] or not is_delayed(entry[2], entry[0])]
            places.delayed += len(entries) - len(due)
            entries = due
        return self._without_early(entries) if cursor.has_states else entries

    def _past_void(self, start: int, entries: list[Entry], limit: int, size_max: int) -> list[Entry]:
        """Acknowledges the void entries from `start` on, which were lost, and reads behind them."""
        stored = start
        if not entries:
            stored = self._log.stored_from(start)
            entries = self._log.read(stored, limit, size_max)
        found = {entry[0] for entry in entries}
        for entry_id in range(start, entries[-1][0] + 1 if entries else stored):
            if entry_id not in found:
                self.places.ack(entry_id)
        return entries

    def _without_early(self, entries: list[Entry]) -> list[Entry]:
        """Entries whose back-off is over. Where order counts, an early one blocks those behind it."""
        if not self.places.ordered:
            return [entry for entry in entries if not self._redelivery.back_off_if_early(entry[0])]
        for index, entry in enumerate(entries):
            if self._redelivery.block_if_early(entry[0]):
                self.places.read_id = entry[0]
                return entries[:index]
        return entries

    def _skip_trimmed(self) -> None:
        """The log was trimmed past this subscription, which a reader cannot prevent: those entries are gone."""
        if self.places.ack_up_to(self._log.first - 1):
            self.unblock()

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Makes entries pending that were read and could not be delivered."""
        self.places.make_pending([entry[0] for entry in entries])

    # -- delivering

    def give(self, consumer: Consumer, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Puts entries in flight while the consumer may have more; returns the others."""
        deliveries: list[Delivery] = []
        state_of = self._cursor.state_of if self._cursor.has_states else None
        places, in_flight, ordered = self.places, self.places.in_flight, self.places.ordered
        pending, held, counts = consumer.pending, len(consumer.pending), list[int]()
        limit = 0 if ordered else self._topic.policies.max_unacked_per_subscription
        room, entries_max = self._room_of(consumer, limit), consumer.entries_max
        total = size = taken = 0
        offered = entries if self._throttled_by is None else self._throttled_by.within_bytes(entries)
        for entry_id, messages, _, blob in offered:
            if total >= room:
                break
            state = state_of(entry_id) if state_of is not None else None
            if entries_max or (state is not None and state.suspicions):
                entries_max = _lower(entries_max, self.suspects.company_of(entry_id))
                if 0 < entries_max <= held + taken:
                    break
                consumer.entries_max = entries_max
            count, open_bits = (0, None) if state is None else (state.highest_count, state.open_bits)
            singles = (
                self._singles(entry_id, state, messages, blob) if state is not None and count and messages > 1 else None
            )
            if open_bits is not None:
                messages = open_bits.bit_count()
            if ordered:
                counts.append(messages)
            else:
                in_flight[entry_id] = consumer
                pending[entry_id] = messages  # type: ignore[index]
            if singles:
                consumer.singles[entry_id] = 0
                deliveries += singles
            else:
                deliveries.append((entry_id, count, open_bits, blob))
            total += messages
            size += len(blob)
            taken += 1
        if entries_max:
            self.suspects.hold_back()
        if not taken:
            return entries
        if ordered:
            places.hold(consumer, [entry[0] for entry in entries[:taken]], counts)
        consumer.permits -= total
        consumer.unacked += total
        consumer.delivered_messages += total
        consumer.delivered_bytes += size
        self.messages += total
        self.bytes += size
        places.unacked += total
        if 0 < limit <= places.unacked:
            self.is_blocked = self.is_stopped = True
        if self._throttled_by is not None and not self._throttled_by.take(total, size):
            self.is_stopped = True
            self._throttled_by.wait(is_served=True)
        self._average_messages += (total / taken - self._average_messages) * 0.5
        consumer.peer.deliver(consumer, deliveries)
        return entries[taken:]

    def _singles(self, entry_id: int, state: EntryState, messages: int, blob: bytes) -> list[Delivery]:
        """The open messages of a batch that failed before, each with its own id and count; empty if it stays whole."""
        if not self._is_split():
            return []
        blobs = single_blobs(entry_id, blob, messages, state.open_bits, self._size_max)
        self.split_batches += bool(blobs)
        return [(single_id(entry_id, index), state.count_of(index), None, single) for index, single in blobs]

    def _room_of(self, consumer: Consumer, limit: int) -> int:
        """How many messages the consumer may get now; `limit` is that of the subscription."""
        room = consumer.permits
        if consumer.unacked_max > 0:
            room = min(room, consumer.unacked_max - consumer.unacked)
        if self._throttled_by is not None:
            room = min(room, self._throttled_by.messages)
        return min(room, limit - self.places.unacked) if limit > 0 else room

    def end_of_topic(self, consumers: Sequence[Consumer]) -> None:
        """Notifies consumers that have everything of a terminated topic; called after acks and deliveries."""
        if self._topic.is_ended and self._cursor.holes(self._log.confirmed) == 0:
            for consumer in consumers:
                if not consumer.end_of_topic_sent:
                    consumer.end_of_topic_sent = True
                    consumer.peer.end_of_topic(consumer)

    def unblock(self) -> None:
        if self.is_blocked and self.places.unacked <= self._topic.policies.max_unacked_per_subscription // 2:
            self.is_blocked = self.is_stopped = False

    def limits_changed(self) -> None:
        limit = self._topic.policies.max_unacked_per_subscription
        self.is_blocked = self.is_stopped = not self.places.ordered and 0 < limit <= self.places.unacked


def _lower(limit: int, other: int) -> int:
    """The lower of two limits, of which 0 is none."""
    return min(limit, other) if limit and other else limit or other

"""Places of a subscription: where each position of the topic is.

Every position above the mark-delete position is in exactly one place:

    acknowledged   in `cursor.acked`
    in flight      in `pending` of the consumer that holds it: the `holder` of an ordered subscription, or else in
                   `in_flight` too
    pending        in `pending`: due for delivery, again or because no consumer could take it
    backing off    in `backing_off`: it failed, and its back-off is not over
    delayed        below `read_id` and in none of the above: its deliver-at time is in the future
    unread         from `read_id` on

`invariants()` checks exactly that. Calls go down to the cursor, the suspects and the key index. Knows no dispatcher and
no policy: other parts decide when a position moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyroaring import BitMap64

if TYPE_CHECKING:
    from magnetar.broker.subscription.consumer import Consumer
    from magnetar.broker.subscription.cursor import Cursor
    from magnetar.broker.subscription.key_index import KeyIndex
    from magnetar.broker.subscription.suspects import Suspects
    from magnetar.broker.topic.log import Log

_BATCH_SIZE_TRUSTED = 10_000


class Places:
    """`ordered`: a single consumer gets everything in order, so in-flight entries are sorted and none is pending.

    `keys` indexes pending and in-flight entries by key, on Key_Shared subscriptions only.
    """

    __slots__ = (
        "_log",
        "_suspects",
        "acked_messages",
        "backing_off",
        "cursor",
        "delayed",
        "holder",
        "in_flight",
        "keys",
        "ordered",
        "pending",
        "read_id",
        "unacked",
    )

    def __init__(self, log: Log, cursor: Cursor, suspects: Suspects) -> None:
        self._log = log
        self._suspects = suspects
        self.cursor = cursor
        self.in_flight: dict[int, Consumer] = {}  # empty on ordered subscriptions
        self.holder: Consumer | None = None  # on ordered ones, the consumer that holds everything in flight
        self.pending = BitMap64()
        self.backing_off = BitMap64()
        self.delayed = 0
        self.read_id = cursor.mark_delete + 1
        self.ordered = True
        self.keys: KeyIndex | None = None
        self.unacked = 0  # messages in flight
        self.acked_messages = 0  # acknowledged while in flight, in total

    @property
    def has_unread(self) -> bool:
        return self.read_id <= self._log.confirmed

    def messages_in(self, entry_id: int) -> int:
        header = self._log.header(entry_id)
        return header[0] if header else 1

    def open_bits(self, entry_id: int) -> int:
        """The open messages of an unacknowledged entry."""
        found = self.cursor.open_bits(entry_id)
        return (1 << self.messages_in(entry_id)) - 1 if found is None else found

    def is_open(self, entry_id: int, index: int = -1) -> bool:
        """Whether a stored entry, or with an index a message of a batch, is not acknowledged."""
        if not self._log.first <= entry_id <= self._log.confirmed or self.cursor.is_acked(entry_id):
            return False
        return index < 0 or (index < self.messages_in(entry_id) and bool(self.open_bits(entry_id) >> index & 1))

    @property
    def has_in_flight(self) -> bool:
        return bool(self.in_flight) or (self.holder is not None and bool(self.holder.pending))

    def holder_of(self, entry_id: int) -> Consumer | None:
        """The consumer that an entry is in flight to."""
        if self.holder is not None:
            return self.holder if entry_id in self.holder.pending else None
        return self.in_flight.get(entry_id)

    def is_nacked(self, entry_id: int) -> bool:
        """Whether all open messages of a batch that is in flight as single messages have been nacked."""
        consumer = self.in_flight.get(entry_id)
        nacked = 0 if consumer is None else consumer.singles.get(entry_id, 0)
        return bool(nacked) and not self.open_bits(entry_id) & ~nacked

    # -- acknowledging

    def ack(self, entry_id: int) -> bool:
        """Acknowledges a whole entry; false if it was acknowledged before."""
        if not self.cursor.ack(entry_id):
            return False
        holder = self.holder
        if holder is not None:
            messages = holder.pending.pop(entry_id, 0)
            holder.unacked -= messages
            self.unacked -= messages
            self.acked_messages += messages
            if messages and holder.entries_max:
                self._suspects.released(holder)
        elif entry_id in self.in_flight:
            self.acked_messages += self.release(entry_id)
        elif entry_id in self.pending:
            self.pending.remove(entry_id)
        elif entry_id in self.backing_off:
            self.backing_off.remove(entry_id)
        elif entry_id < self.read_id:
            self.delayed -= 1
        mark_delete = self.cursor.mark_delete
        if self.read_id <= mark_delete:
            self.read_id = mark_delete + 1  # nacked, unread again, and then acknowledged late
        if self.keys is not None:
            self.keys.acked(entry_id)
        return True

    def ack_part(self, entry_id: int, open_bits: int, batch_size: int = 0) -> bool:
        """Acknowledges those messages of a batch whose bit is not set; false if that frees nothing in flight."""
        # The client's batch size saves reading the log, unless it is large enough to cost more than that.
        messages = batch_size if 0 < batch_size <= _BATCH_SIZE_TRUSTED else self.messages_in(entry_id)
        before = self.cursor.open_bits(entry_id)
        if open_bits & ((1 << messages) - 1) & (-1 if before is None else before) == 0:
            return self.ack(entry_id)
        still_open = self.cursor.ack_part(entry_id, open_bits, messages).bit_count()
        consumer = self.holder_of(entry_id)
        if consumer is None or not still_open:
            return False
        pending = consumer.pending
        fewer = pending[entry_id] - still_open
        if isinstance(pending, dict):
            pending[entry_id] = still_open
        else:
            pending.lower(entry_id, still_open)
        consumer.unacked -= fewer
        self.unacked -= fewer
        self.acked_messages += fewer
        return True

    def ack_up_to(self, entry_id: int) -> bool:
        """Acknowledges everything up to `entry_id`, in every place; false if it was acknowledged before."""
        if entry_id <= self.cursor.mark_delete:
            return False
        self.cursor.ack_up_to(entry_id)
        if self.holder is not None and not isinstance(self.holder.pending, dict):
            messages = self.holder.pending.pop_up_to(entry_id)
            self._released(self.holder, messages)
            self.acked_messages += messages
        for held in [held for held in self.in_flight if held <= entry_id]:
            self.acked_messages += self.release(held)
            if self.keys is not None:
                self.keys.acked(held)
        while self.pending and self.pending.min() <= entry_id:
            passed = self.pending.min()
            self.pending.remove(passed)
            if self.keys is not None:
                self.keys.acked(passed)
        if self.backing_off:
            self.backing_off.remove_range(0, entry_id + 1)
        if self.delayed:
            # Delayed entries are only counted: those that are left are in no other place.
            self.delayed = self._unaccounted()
        self.read_id = max(self.read_id, self.cursor.mark_delete + 1)
        return True

    def take_out(self, entry_id: int, left_open: int) -> None:
        """Acknowledges what is moved to another topic, all but `left_open`; no consumer did, so it is not counted."""
        acked = self.acked_messages
        if left_open:
            self.ack_part(entry_id, left_open)
        else:
            self.ack(entry_id)
        self.acked_messages = acked

    # -- moving

    def hold(self, consumer: Consumer, entry_ids: Sequence[int], messages: Sequence[int]) -> None:
        """Puts entries that were read in flight, with the open messages of each, where order counts."""
        if self.holder is not consumer:
            assert not self.has_in_flight, "an ordered subscription has one consumer with entries in flight"
            self.holder = consumer
        assert not isinstance(consumer.pending, dict)
        consumer.pending.extend(entry_ids, messages)

    def release(self, entry_id: int) -> int:
        """Takes an entry from the consumer that holds it. Returns the messages that were open in it."""
        consumer = self.in_flight.pop(entry_id)
        messages = consumer.pending.pop(entry_id, 0)
        if consumer.singles:
            consumer.singles.pop(entry_id, None)
        self._released(consumer, messages)
        if self.keys is not None:
            self.keys.released(entry_id)
        return messages

    def _released(self, consumer: Consumer, messages: int) -> None:
        consumer.unacked -= messages
        self.unacked -= messages
        if consumer.entries_max:
            self._suspects.released(consumer)

    def release_all(self, consumer: Consumer) -> list[int]:
        """Takes everything from a consumer. Returns the entries, unless order counts: then all of it is read again."""
        if consumer is self.holder:
            consumer.pending.clear()
            self._released(consumer, consumer.unacked)
            self.holder = None
            return []
        held = sorted(consumer.pending)
        for entry_id in held:
            self.release(entry_id)
        return held

    def make_pending(self, entry_ids: Iterable[int]) -> None:
        for entry_id in entry_ids:
            if not self.cursor.is_acked(entry_id):
                self.pending.add(entry_id)
                if self.keys is not None:
                    self.keys.wait(entry_id)

    def back_off(self, entry_id: int) -> bool:
        """Moves a pending entry to `backing_off`; false if it is not pending: ordered subscriptions read it again."""
        if entry_id not in self.pending:
            return False
        self.pending.remove(entry_id)
        self.backing_off.add(entry_id)
        if self.keys is not None:
            self.keys.stop_waiting(entry_id)
        return True

    def wake(self, entry_id: int) -> bool:
        """The deliver-at time of an entry has come. True if it was delayed: then the caller finds it another place."""
        is_read = entry_id < self.read_id and not self.cursor.is_acked(entry_id)
        if not is_read or self.ordered or self._is_placed(entry_id):
            return False
        self.delayed -= 1
        return True

    def _is_placed(self, entry_id: int) -> bool:
        return entry_id in self.in_flight or entry_id in self.pending or entry_id in self.backing_off

    def rewind(self) -> None:
        """Makes everything unacknowledged unread again."""
        if self.holder is not None:
            self.release_all(self.holder)
        for entry_id in list(self.in_flight):
            self.release(entry_id)
        self.pending.clear()
        self.backing_off.clear()
        self.delayed = self.unacked = 0
        self.read_id = self.cursor.mark_delete + 1

    def abandon(self, consumers: Iterable[Consumer]) -> None:
        """Takes everything from these and all other consumers, whatever state an error left them in."""
        for consumer in {*consumers, *self.in_flight.values(), *([self.holder] if self.holder else [])}:
            consumer.pending.clear()
            consumer.singles.clear()
            consumer.unacked = consumer.entries_max = 0
        self.in_flight.clear()
        self.holder = self.keys = None
        self.unacked = 0

    # -- checks

    def _unaccounted(self) -> int:
        """Positions below `read_id` that are in no other place, which means delayed."""
        read = self.read_id - 1 - self.cursor.mark_delete
        acked = self.cursor.acked.range_cardinality(0, max(self.read_id, 0))
        in_flight = len(self.in_flight) + (len(self.holder.pending) if self.holder is not None else 0)
        return max(0, read - acked - in_flight - len(self.pending) - len(self.backing_off))

    def is_consistent(self, consumers: Sequence[Consumer]) -> bool:
        """The counts of `invariants`, which an error between two changes leaves wrong."""
        return (
            self.delayed == self._unaccounted()
            and self.unacked == sum(consumer.unacked for consumer in consumers)
            and all(consumer.unacked == sum(consumer.pending.values()) for consumer in consumers)
        )

    def invariants(self, consumers: Iterable[Consumer]) -> None:
        """Raises AssertionError unless every position is in exactly one place."""
        cursor, log = self.cursor, self._log
        assert cursor.mark_delete <= log.confirmed, "acknowledged past the end"
        assert cursor.mark_delete + 1 not in cursor.acked, "mark-delete lags behind"
        assert cursor.mark_delete < self.read_id <= log.confirmed + 1, "read position out of bounds"
        # Not by iterating: pyroaring 1.2 leaks at every iteration of an empty bitmap.
        acked, pending = set(cursor.acked.to_array()), set(self.pending.to_array())
        in_flight, backing_off = set(self.in_flight), set(self.backing_off.to_array())
        if self.holder is not None:
            assert self.ordered and not in_flight, "an ordered subscription has one holder"
            in_flight = set(self.holder.pending)
        assert not backing_off & (acked | pending | in_flight), "a position that backs off is in another place too"
        assert not acked & pending and not acked & in_flight and not pending & in_flight, "a position in two places"
        assert all(cursor.mark_delete < entry < self.read_id for entry in pending | in_flight | backing_off), (
            "place out of bounds"
        )
        assert self.delayed == self._unaccounted(), f"{self.delayed} delayed, {self._unaccounted()} unaccounted for"
        assert self.unacked == sum(consumer.unacked for consumer in consumers), "unacked counts differ"
        for consumer in consumers:
            assert consumer.unacked == sum(consumer.pending.values()), "unacked count of a consumer"
            assert all(self.holder_of(entry) is consumer for entry in consumer.pending), "held by two consumers"
            for entry, nacked in consumer.singles.items():
                assert entry in consumer.pending, "single messages of an entry that is not in flight"
                assert self.open_bits(entry) & ~nacked, "a batch whose messages are all nacked is in flight"
        assert len(in_flight) == sum(len(consumer.pending) for consumer in consumers), "held by no consumer"

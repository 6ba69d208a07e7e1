"""Redelivery: counts the failures of entries, and delays their next delivery by a back-off.

Owns the times at which backing-off entries are due: by the clock where they are stored, for a restart takes any time,
and monotonic in memory, so that a back-off takes as long as it should when the clock is set. Calls go down to the
places and the cursor. Knows nothing of dead letters: the subscription compares the counts with its policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from pyroaring import BitMap64

if TYPE_CHECKING:
    from magnetar.broker.subscription.consumer import Consumer
    from magnetar.broker.subscription.places import Places
    from magnetar.clock import Clock

# Entries due at about the same time wake together, later by 50 ms or 0.2 % of their delay: a million need few timers.
_BUCKET_MS, _FINE_MS = 50, 60_000


class Redelivery:
    """`blocked_until_ms`: on ordered subscriptions, the end of the back-off of the next entry, for which all wait.

    This time and that of `pump_at` are monotonic.
    """

    __slots__ = ("_buckets", "_clock", "_cursor", "_due", "_places", "_pump_at", "blocked_until_ms")

    def __init__(self, places: Places, clock: Clock, pump_at: Callable[[int], None]) -> None:
        self._places = places
        self._cursor = places.cursor
        self._clock = clock
        self._pump_at = pump_at
        self._buckets: dict[int, BitMap64] = {}
        self._due: list[int] = []  # a heap of the times of the buckets
        self.blocked_until_ms = 0

    def count(self, entry_id: int, consumer: Consumer, indexes: int | None = None) -> None:
        """Counts a failure of the entry, or of those of its open messages whose bits are set in `indexes`."""
        if indexes is not None:
            indexes &= self._places.open_bits(entry_id)
            if not indexes:
                return  # a client names messages that are acknowledged, or never existed
        self._cursor.count_redelivery(entry_id, self._clock.now_ms(), indexes, consumer.identity)

    def count_singles(
        self, consumer: Consumer, entry_ids: Sequence[int], indexes: Mapping[int, int] | None, *, is_all: bool
    ) -> tuple[list[int], dict[int, int]]:
        """Counts nacked single messages of batches. Returns their entries, and the bits of `indexes` left to count.

        With `is_all` the whole entry comes back, and each message counts once. Otherwise a nack that names the entry as
        a whole is about an earlier delivery, and is ignored.
        """
        left, counted = dict(indexes or {}), []
        for entry_id in entry_ids:
            nacked = consumer.singles.get(entry_id)
            if nacked is None:
                continue
            bits = self._places.open_bits(entry_id) & ~nacked
            if is_all:
                left[entry_id] = bits
            elif bits := bits & left.pop(entry_id, 0):
                consumer.singles[entry_id] = nacked | bits
                self.count(entry_id, consumer, bits)
                counted.append(entry_id)
        return counted, left

    def take_back(self, entry_ids: Sequence[int]) -> int:
        """Makes batches pending whose open messages have all been nacked; returns how many messages those are.

        Until then the others are still with the consumer, and would be handled twice.
        """
        messages = 0
        for entry_id in entry_ids:
            if self._places.is_nacked(entry_id):
                consumer = self._places.in_flight[entry_id]
                released = self._places.release(entry_id)
                consumer.redelivered_messages += released
                messages += released
                self._places.make_pending([entry_id])
        return messages

    def back_off(self, entry_id: int, count: int, steps_ms: Sequence[int]) -> None:
        """Delays an entry that failed `count` times by the step for that count, if there is one."""
        consumer = self._places.holder_of(entry_id)
        if consumer is not None and entry_id in consumer.singles:
            return  # when it comes back
        delay_ms = steps_ms[min(count, len(steps_ms)) - 1] if steps_ms and count else 0
        if delay_ms:
            due_ms = self._clock.now_ms() + delay_ms
            self._cursor.change(entry_id, lambda state: state.back_off(due_ms))
            if self._places.back_off(entry_id):
                self._wake_after(entry_id, delay_ms)

    def _wait_ms(self, entry_id: int) -> int:
        """How long an entry that was read must wait. If it failed later than now, the clock was set back: no longer."""
        state = self._cursor.state_of(entry_id)
        if state is None or not state.due_ms:
            return 0
        now_ms = self._clock.now_ms()
        return 0 if now_ms < state.last_ms else max(0, state.due_ms - now_ms)

    def back_off_if_early(self, entry_id: int) -> bool:
        """Whether an entry that was read is due later: then it backs off until that time."""
        wait_ms = self._wait_ms(entry_id)
        if not wait_ms:
            return False
        self._places.backing_off.add(entry_id)
        self._wake_after(entry_id, wait_ms)
        return True

    def block_if_early(self, entry_id: int) -> bool:
        """The same on an ordered subscription: the entry stays unread, and everything behind it waits too."""
        wait_ms = self._wait_ms(entry_id)
        if not wait_ms:
            return False
        self.blocked_until_ms = self._clock.monotonic_ms() + wait_ms
        self._pump_at(self.blocked_until_ms)
        return True

    def _wake_after(self, entry_id: int, delay_ms: int) -> None:
        due_ms = self._clock.monotonic_ms() + delay_ms
        width_ms = _BUCKET_MS << (delay_ms // _FINE_MS).bit_length()
        bucket_ms = -(-due_ms // width_ms) * width_ms  # never early
        bucket = self._buckets.get(bucket_ms)
        if bucket is None:
            bucket = self._buckets[bucket_ms] = BitMap64()
            heappush(self._due, bucket_ms)
            self._pump_at(bucket_ms)
        bucket.add(entry_id)

    def wake(self) -> None:
        """Makes the entries pending whose back-off is over."""
        now_ms = self._clock.monotonic_ms()
        while self._due and self._due[0] <= now_ms:
            backing_off = self._places.backing_off
            due = (self._buckets.pop(heappop(self._due)) & backing_off).to_array()
            for entry_id in due:
                backing_off.remove(entry_id)
            self._places.make_pending(due)

    def rewind(self) -> None:
        """Everything unacknowledged is unread again; its due time is checked when it is read."""
        self._buckets.clear()
        self._due.clear()
        self.blocked_until_ms = 0

    @property
    def backing_off(self) -> int:
        """Failed entries whose back-off is not over; on ordered subscriptions at most the next one."""
        return len(self._places.backing_off) + (self.blocked_until_ms > self._clock.monotonic_ms())

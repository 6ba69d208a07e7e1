"""Suspects: messages that may have crashed their consumers (DL13).

A message that kills the process that handles it is never nacked, and those prefetched with it are innocent. When a
connection breaks, everything its consumer held becomes suspect. After two crashes a suspect is delivered with few
others, after three alone; a crash then counts as a redelivery of that entry.

Calls go down to the cursor, which stores the suspicions, and to the limits of consumers. Knows no places, no policy and
no dead letters: the subscription counts the entry that `vanished` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from magnetar.bounds import SUSPECTS_OF_CRASH
from magnetar.broker.subscription.entry_state import EntryState

if TYPE_CHECKING:
    from magnetar.broker.subscription.consumer import Consumer
    from magnetar.broker.subscription.cursor import Cursor
    from magnetar.clock import Clock

SUSPICIONS_UNTIL_FEW, SUSPICIONS_UNTIL_ALONE = 2, 3
"""Crashes after which a suspect is delivered with few other entries, and alone.

Clients acknowledge about ten times a second, so a thousand suspects one by one would take minutes. In groups of `FEW`,
and then one by one only those of the group that crashed its consumer, they take seconds.
"""

FEW = 32

ALONE_PATIENCE_MS = 10_000
"""Time for which other entries are held back for a suspect, and for which they are not when that did not help: a
consumer may need many messages before it acknowledges any, or never acknowledge."""


class Suspects:
    """All times are monotonic. `consumers` is the subscription's own list. `pump_at` requests a turn of the
    subscription at a time."""

    __slots__ = ("_check_at_ms", "_clock", "_consumers", "_cursor", "_held_back_ms", "_pump_at", "free_until_ms")

    def __init__(
        self, cursor: Cursor, consumers: Sequence[Consumer], clock: Clock, pump_at: Callable[[int], None]
    ) -> None:
        self._cursor = cursor
        self._consumers = consumers
        self._clock = clock
        self._pump_at = pump_at
        self._held_back_ms = 0  # since when other entries are held back
        self._check_at_ms = 0
        self.free_until_ms = 0  # nothing is held back until then

    def vanished(self, consumer: Consumer) -> int | None:
        """A connection broke. Returns the entry that was delivered alone, if any; otherwise all become suspects."""
        if consumer.entries_max == len(consumer.pending) == 1:
            return next(iter(consumer.pending))
        for entry_id in list(islice(consumer.pending, SUSPECTS_OF_CRASH.limit)):
            self._cursor.change(entry_id, EntryState.suspect)
        return None

    def company_of(self, entry_id: int) -> int:
        """How many entries a consumer may hold when this is one of them; 0 for any number."""
        if not self._cursor.has_states or self._clock.monotonic_ms() < self.free_until_ms:
            return 0
        state = self._cursor.state_of(entry_id)
        if state is None or state.suspicions < SUSPICIONS_UNTIL_FEW:
            return 0
        return FEW if state.suspicions < SUSPICIONS_UNTIL_ALONE else 1

    def has_room(self, consumer: Consumer, entry_id: int) -> bool:
        """Whether a consumer that can receive may get this entry beside those that it holds."""
        if not consumer.pending or not self._cursor.has_states:
            return True
        limit = self.company_of(entry_id)
        return not limit or len(consumer.pending) < limit

    def hold_back(self) -> None:
        """Other entries are held back for a suspect from now on, for a limited time."""
        self._held_back_ms = self._held_back_ms or self._clock.monotonic_ms()
        if not self._check_at_ms:
            self._check_at_ms = self._held_back_ms + ALONE_PATIENCE_MS
            self._pump_at(self._check_at_ms)

    def released(self, consumer: Consumer) -> None:
        """A consumer whose entries are limited holds one less."""
        self._held_back_ms = 0
        if len(consumer.pending) <= FEW:
            limits = [limit for entry_id in consumer.pending if (limit := self.company_of(entry_id))]
            consumer.entries_max = min(limits, default=0)
        if consumer.entries_max:
            self.hold_back()

    def check_patience(self) -> None:
        """Lifts the limits of all consumers when other entries have been held back for too long."""
        now_ms = self._clock.monotonic_ms()
        if not 0 < self._check_at_ms <= now_ms:
            return
        self._check_at_ms = 0
        if not self._held_back_ms or not self._consumers:
            self._held_back_ms = 0
        elif now_ms - self._held_back_ms < ALONE_PATIENCE_MS:
            self.hold_back()
        else:
            self._held_back_ms = 0
            self.free_until_ms = now_ms + ALONE_PATIENCE_MS
            for consumer in self._consumers:
                consumer.entries_max = 0

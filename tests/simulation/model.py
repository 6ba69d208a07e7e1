"""The expected state of one subscription: acknowledged, failed and in-flight entries.

Knows the rules of failing, backing off and suspecting. The caller decides which entries fail, and handles the outcome.
"""

from __future__ import annotations

from math import inf

from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.subscription.suspects import FEW, SUSPICIONS_UNTIL_ALONE, SUSPICIONS_UNTIL_FEW

from .snapshot import Failed, SubscriptionState


class Model:
    """The expected state of one subscription."""

    def __init__(self, state: SubscriptionState) -> None:
        self.id = state.id
        self.mark = state.mark
        self.acked = set(state.acked)
        self.partial = dict(state.partial)
        self.failures = dict(state.failures)
        self.rules = state.rules
        self.redelivery_for: Consumer | None = None  # has requested redelivery of everything, not handled yet
        self.watched: set[int] = set()  # suspects in flight that limit their consumer
        self.suspected_since_ms: float = inf
        self.free_until_ms = 0
        self.in_flight: dict[int, Consumer] = {}
        self.delivered: set[int] = set()  # since the last check
        self.singles: dict[int, int] = {}  # entries in flight as single messages, with the bits of those nacked
        self.unsent: dict[int, int] = {}  # of entries delivered as single messages since the last check
        self.end_announced = False

    def is_acked(self, entry: int) -> bool:
        return entry <= self.mark or entry in self.acked

    def ack(self, entry: int) -> None:
        if not self.is_acked(entry):
            self.acked.add(entry)
            self.partial.pop(entry, None)
            self.failures.pop(entry, None)
            self._normalize()

    def ack_part(self, entry: int, open_bits: int, messages: int) -> None:
        everything = (1 << messages) - 1
        still_open = self.partial.get(entry, everything) & open_bits & everything
        if not still_open:
            self.ack(entry)
        elif still_open != everything and not self.is_acked(entry):
            self.partial[entry] = still_open

    def ack_up_to(self, entry: int) -> None:
        if entry > self.mark:
            self.mark = entry
            self.acked = {e for e in self.acked if e > entry}
            self.partial = {e: bits for e, bits in self.partial.items() if e > entry}
            self.failures = {e: failed for e, failed in self.failures.items() if e > entry}
            self._normalize()

    def reset(self, mark: int) -> None:
        self.mark = mark
        self.end_announced = False
        self.acked.clear()
        self.partial.clear()
        self.failures.clear()

    def _normalize(self) -> None:
        while self.mark + 1 in self.acked:
            self.mark += 1
            self.acked.remove(self.mark)

    def first_open(self) -> int:
        """The first entry that is neither acknowledged nor in flight."""
        entry = self.mark + 1
        while entry in self.acked or entry in self.in_flight:
            entry += 1
        return entry

    def state(self) -> SubscriptionState:
        return SubscriptionState(self.id, self.mark, frozenset(self.acked), self.partial, self.failures, self.rules)

    def open_bits(self, entry: int, messages: int) -> int:
        return self.partial.get(entry, (1 << messages) - 1)

    def count(self, entry: int, messages: int) -> int:
        """The redelivery count in a frame: the highest of the open messages."""
        failed = self.failures.get(entry, Failed())
        return max(failed.count_of(index) for index in indexes_of(self.open_bits(entry, messages)))

    def fail(self, entry: int, messages: int, now_ms: int, named: int | None = None) -> None:
        """Fails the whole entry, or its open messages whose bits are set in `named`."""
        failed = self.failures.get(entry, Failed())
        if named is None:
            count, indexes = failed.count + 1, {index: count + 1 for index, count in failed.indexes.items()}
        else:
            named &= self.open_bits(entry, messages)
            if not named:
                return
            count, indexes = failed.count, dict(failed.indexes)
            indexes |= {index: failed.count_of(index) + 1 for index in indexes_of(named)}
        self.failures[entry] = failed._replace(
            count=count, indexes=indexes, first_ms=failed.first_ms or now_ms, last_ms=now_ms
        )

    def suspect(self, entry: int) -> None:
        failed = self.failures.get(entry, Failed())
        self.failures[entry] = failed._replace(suspicions=failed.suspicions + 1)

    def back_off(self, entry: int, messages: int, now_ms: int) -> None:
        steps, count = self.rules.backoff_ms, self.count(entry, messages)
        delay_ms = steps[min(count, len(steps)) - 1] if steps and count else 0
        if delay_ms:
            self.failures[entry] = self.failures.get(entry, Failed())._replace(due_ms=now_ms + delay_ms)

    def is_nacked(self, entry: int, messages: int) -> bool:
        """Whether all open messages of an entry that is in flight as single messages are nacked."""
        nacked = self.singles.get(entry, 0)
        return bool(nacked) and not self.open_bits(entry, messages) & ~nacked

    def take_back(self, entry: int) -> None:
        self.singles.pop(entry, None)
        self.in_flight.pop(entry, None)

    def consumer_limit(self, entry: int) -> float:
        """Number of entries that a consumer may hold together with this one; few or one for a suspect."""
        suspicions = self.failures.get(entry, Failed()).suspicions
        if suspicions >= SUSPICIONS_UNTIL_ALONE:
            return 1
        return FEW if suspicions >= SUSPICIONS_UNTIL_FEW else inf


def indexes_of(bits: int) -> list[int]:
    return [index for index in range(bits.bit_length()) if bits >> index & 1]

"""What was sent, acknowledged by the broker, and received: nothing that has a receipt may be missing."""

from __future__ import annotations

from bisect import bisect_left

# Upper bounds of the latency classes in milliseconds, about a tenth apart.
_CLASSES_MS = [0.1 * 1.1**step for step in range(160)]


class Latencies:
    """A histogram; percentiles are upper bounds of their class."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_CLASSES_MS) + 1)
        self.largest_ms = 0.0
        self.count = 0

    def add(self, ms: float) -> None:
        self._counts[bisect_left(_CLASSES_MS, ms)] += 1
        self.count += 1
        self.largest_ms = max(self.largest_ms, ms)

    def percentile_ms(self, share: float) -> float:
        left = self.count * share
        for bound, count in zip(_CLASSES_MS, self._counts, strict=False):
            left -= count
            if left <= 0:
                return min(bound, self.largest_ms)
        return self.largest_ms


class Tally:
    """Entries by topic and number. `sent[topic]` is the number of the next one."""

    def __init__(self, topics: int) -> None:
        self.sent = [0] * topics
        self._confirmed = [bytearray() for _ in range(topics)]
        self._received = [bytearray() for _ in range(topics)]
        self.receipts = 0
        self.deliveries = 0
        self.distinct = 0
        self.latencies = Latencies()

    def next(self, topic: int) -> int:
        number = self.sent[topic]
        self.sent[topic] += 1
        self._confirmed[topic].append(0)
        self._received[topic].append(0)
        return number

    def confirmed(self, topic: int, number: int) -> None:
        if not self._confirmed[topic][number]:
            self._confirmed[topic][number] = 1
            self.receipts += 1

    def received(self, topic: int, number: int) -> bool:
        """Whether it is the first time."""
        if number >= len(self._received[topic]):
            raise ValueError(f"entry {number} of topic {topic} arrived and was not sent")
        self.deliveries += 1
        is_first = not self._received[topic][number]
        self._received[topic][number] = 1
        self.distinct += is_first
        return is_first

    @property
    def total(self) -> int:
        return sum(self.sent)

    @property
    def is_complete(self) -> bool:
        return self.receipts == self.distinct == self.total

    def lost(self) -> list[tuple[int, int]]:
        """Entries with a receipt that did not arrive, as (topic, number)."""
        return [
            (topic, number)
            for topic, marks in enumerate(self._confirmed)
            for number, is_confirmed in enumerate(marks)
            if is_confirmed and not self._received[topic][number]
        ]

"""A task of a round, and its result: the part of one partition that a worker processes.

Owns the words between driver and workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from magnetar.client.message import MessageId, Position
from magnetar.pipelines.processing.call.outcome import Failure
from magnetar.spark.source.entry_range import EntryRange

_GAP_MAX = 50
"""Unwanted entries that are read rather than starting to read again."""


@dataclass(frozen=True)
class RoundTask:
    """Messages of `span` that are not acknowledged; with `chosen`, only those of these entries.

    `checks`: some of them may be acknowledged. With `condemned` the function is not called, and all fail for this
    reason. `offset_ms` is the driver's clock less the system's.
    """

    span: EntryRange
    is_retry: bool
    offset_ms: int = 0
    checks: bool = True
    chosen: tuple[Position, ...] | None = None
    condemned: Failure | None = None

    def spans(self) -> Iterator[EntryRange]:
        """What is read: everything, or the chosen entries together with small gaps between them."""
        if self.chosen is None:
            yield self.span
            return
        first = last = self.chosen[0]
        for position in self.chosen[1:]:
            if position.ledger_id != last.ledger_id or position.entry_id - last.entry_id > _GAP_MAX:
                yield self._between(first, last)
                first = position
            last = position
        yield self._between(first, last)

    def _between(self, first: Position, last: Position) -> EntryRange:
        partition = self.span.start.partition
        return EntryRange(
            self.span.topic,
            MessageId(first.ledger_id, first.entry_id - 1, partition),
            MessageId(*last, partition),
        )


@dataclass
class TaskResult:
    """What became of the messages of a task; `error` is why it did not finish, and `is_final` that it never would."""

    read: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    error: str = ""
    is_final: bool = False

    def count(self, name: str, number: int) -> None:
        if number:
            self.counts[name] = self.counts.get(name, 0) + number

    def add(self, other: TaskResult) -> None:
        self.read += other.read
        for name, number in other.counts.items():
            self.count(name, number)

"""What one task reads: a range of one partition. Owns how a long one is cut, so that several tasks share it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from magnetar.client.message import MessageId

ENTRIES_MIN = 500
"""A range is not cut into smaller ones: beginning to read costs as much as reading some hundred entries."""


@dataclass(frozen=True)
class EntryRange(InputPartition):
    """After `start`, up to and with `end`; published between the times, both included, where given."""

    topic: str
    start: MessageId
    end: MessageId
    start_time_ms: int | None = None
    end_time_ms: int | None = None

    @property
    def entries(self) -> int | None:
        """How many there are at most; None where they are in several ledgers."""
        if self.start.ledger_id != self.end.ledger_id:
            return None
        return self.end.entry_id - self.start.entry_id


def split_ranges(ranges: Sequence[EntryRange], tasks: int) -> list[EntryRange]:
    """The ranges, long ones in pieces, so that there are about as many as `tasks`."""
    if not ranges:
        return []
    each = max(1, tasks // len(ranges))
    return [piece for whole in ranges for piece in _pieces(whole, each)]


def _pieces(whole: EntryRange, pieces_max: int) -> Iterator[EntryRange]:
    entries = whole.entries
    pieces = 1 if entries is None else min(pieces_max, entries // ENTRIES_MIN)
    if entries is None or pieces <= 1:
        yield whole
        return
    start = whole.start
    for number in range(1, pieces):
        end = MessageId(start.ledger_id, whole.start.entry_id + entries * number // pieces, start.partition)
        yield replace(whole, start=start, end=end)
        start = end
    yield replace(whole, start=start)

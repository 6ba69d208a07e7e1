"""An entry range: the part of a partition that one task reads. Owns the splitting of long ranges over tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.datasource import InputPartition

from magnetar.client.message import MessageId

ENTRIES_MIN = 500
"""Ranges are not split below this: starting to read costs as much as reading some hundred entries."""


@dataclass(frozen=True)
class EntryRange(InputPartition):
    """Entries after `start` up to and including `end`."""

    topic: str
    start: MessageId
    end: MessageId

    @property
    def entries(self) -> int | None:
        """Maximum number of entries; None if the range spans ledgers."""
        if self.start.ledger_id != self.end.ledger_id:
            return None
        return self.end.entry_id - self.start.entry_id


def split_ranges(ranges: Sequence[EntryRange], tasks: int, entries_min: int = ENTRIES_MIN) -> list[EntryRange]:
    """The ranges, with long ones split so that there are about `tasks` of them, each of at least `entries_min`.

    The same ranges are split in the same way: a repeated micro-batch has the same tasks.
    """
    if not ranges:
        return []
    each = max(1, -(-tasks // len(ranges)) if entries_min == 1 else tasks // len(ranges))
    return [piece for whole in ranges for piece in _pieces(whole, each, entries_min)]


def _pieces(whole: EntryRange, pieces_max: int, entries_min: int) -> Iterator[EntryRange]:
    entries = whole.entries
    pieces = 1 if entries is None else min(pieces_max, entries // entries_min)
    if entries is None or pieces <= 1:
        yield whole
        return
    start = whole.start
    for number in range(1, pieces):
        end = MessageId(start.ledger_id, whole.start.entry_id + entries * number // pieces, start.partition)
        yield replace(whole, start=start, end=end)
        start = end
    yield replace(whole, start=start)

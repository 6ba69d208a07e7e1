"""Limits of a micro-batch: how far each partition may advance, in fair shares.

Entries are counted by their ids, which have no gaps within a ledger; a limited micro-batch does not cross into the
next ledger. Messages and bytes are estimated from the first few entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from magnetar.client.message import MessageId
from magnetar.spark.source.offsets import whole_entry

_UNBOUNDED = 1 << 62


class SizeLookup(Protocol):
    """The lookups that limits need."""

    def first_after(self, topic: str, position: MessageId) -> MessageId | None: ...

    def entry_sizes(self, topic: str, after: MessageId) -> list[EntrySize]: ...


class EntrySize(NamedTuple):
    messages: int
    bytes: int


@dataclass(frozen=True)
class Limits:
    entries_max: int | None
    bytes_max: int | None
    messages_max: int | None = None

    @property
    def are_set(self) -> bool:
        return not self.entries_max is self.bytes_max is self.messages_max is None


@dataclass(frozen=True)
class Backlog:
    """The entries of a partition after `start`, up to and including `end`."""

    topic: str
    start: MessageId
    end: MessageId

    @property
    def before(self) -> MessageId:
        """The last entry that was read completely; a partly read one is still to come."""
        start = self.start
        if start.batch_index < 0 or start.entry_id < 0:
            return start
        return MessageId(start.ledger_id, start.entry_id - 1, start.partition)

    @property
    def entries(self) -> int:
        """Number of entries; unbounded if `end` is in another ledger."""
        return self.end.entry_id - self.before.entry_id if self.end.ledger_id == self.before.ledger_id else _UNBOUNDED

    def after(self, entries: int) -> MessageId:
        if entries >= self.entries:
            return self.end
        return MessageId(self.before.ledger_id, self.before.entry_id + entries, self.end.partition)


def limited_ends(topics: SizeLookup, backlogs: Sequence[Backlog], limits: Limits, turn: int) -> dict[str, MessageId]:
    """How far each partition may advance. `turn` rotates which one comes first when the limit is too small for all."""
    first = turn % len(backlogs)
    ordered = [_in_its_ledger(topics, backlog) for backlog in (*backlogs[first:], *backlogs[:first])]
    shares = [backlog.entries for backlog in ordered]
    if limits.entries_max is not None:
        shares = _shares(limits.entries_max, shares, [1] * len(shares))
    if limits.bytes_max is not None or limits.messages_max is not None:
        sizes = [_entry_size(topics, backlog) for backlog in ordered]
        if limits.messages_max is not None:
            shares = _shares(limits.messages_max, shares, [size.messages for size in sizes])
        if limits.bytes_max is not None:
            shares = _shares(limits.bytes_max, shares, [size.bytes for size in sizes])
    return {
        backlog.topic: _stored(topics, backlog, backlog.after(share))
        for backlog, share in zip(ordered, shares, strict=True)
        if share > 0
    }


def _shares(budget: int, wants: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Entries per partition. The first always gets one, however large: every partition comes first in turn."""
    left = max(0, budget - sizes[0])
    in_bytes = fair_shares(left, [(want - (index == 0)) * sizes[index] for index, want in enumerate(wants)])
    return [part // sizes[index] + (index == 0) for index, part in enumerate(in_bytes)]


def fair_shares(budget: int, wants: Sequence[int]) -> list[int]:
    """Splits a budget: no share exceeds its want, and what one leaves goes to the others."""
    shares = [0] * len(wants)
    order = sorted(range(len(wants)), key=lambda index: wants[index])
    for rank, index in enumerate(order):
        # Rounded up for the first ones, so that a budget below one each is still used.
        shares[index] = min(wants[index], -(-budget // (len(wants) - rank)))
        budget -= shares[index]
    return shares


def _in_its_ledger(topics: SizeLookup, backlog: Backlog) -> Backlog:
    """The backlog, starting in the next ledger if that of its start is exhausted."""
    start = backlog.start
    if start.ledger_id == backlog.end.ledger_id or start.batch_index >= 0 or (start.entry_id < 0 <= start.ledger_id):
        return backlog
    return Backlog(backlog.topic, _at_next_ledger(topics, backlog.topic, start), backlog.end)


def _stored(topics: SizeLookup, backlog: Backlog, end: MessageId) -> MessageId:
    """Moves an end after a ledger's last entry to the next ledger: only stored entries may be acknowledged."""
    return end if end.ledger_id == backlog.end.ledger_id else _at_next_ledger(topics, backlog.topic, end)


def _at_next_ledger(topics: SizeLookup, topic: str, position: MessageId) -> MessageId:
    """The position, or the one before the next ledger's first entry if its own ledger has no more."""
    first = topics.first_after(topic, position)
    if first is None or first.ledger_id == position.ledger_id:
        return position
    return MessageId(first.ledger_id, first.entry_id - 1, first.partition)


def _entry_size(topics: SizeLookup, backlog: Backlog) -> EntrySize:
    """The average of the first entries, at least 1."""
    sizes = topics.entry_sizes(backlog.topic, whole_entry(backlog.before)) or [EntrySize(1, 1)]
    messages, size = (sum(column) // len(sizes) for column in zip(*sizes, strict=True))
    return EntrySize(max(1, messages), max(1, size))

"""The limits of a micro-batch: how much each partition may go on, so that all have their share.

Counts entries by their ids, which have no gaps inside of a ledger; where a partition goes on in another ledger, the
micro-batch ends with the one it is in, at the latest. Bytes are estimated from the size of a few entries at the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from magnetar.client.message import MessageId
from magnetar.spark.source.offsets import whole_entry

_MANY = 1 << 62


class SizeLookup(Protocol):
    """What is asked of topics."""

    def first_after(self, topic: str, position: MessageId) -> MessageId | None: ...

    def entry_sizes(self, topic: str, after: MessageId) -> list[int]: ...


@dataclass(frozen=True)
class Limits:
    entries_max: int | None
    bytes_max: int | None

    @property
    def are_set(self) -> bool:
        return self.entries_max is not None or self.bytes_max is not None


@dataclass(frozen=True)
class Backlog:
    """What a partition has after `start`, up to and with `end`."""

    topic: str
    start: MessageId
    end: MessageId

    @property
    def before(self) -> MessageId:
        """The last whole entry that is done: of one that is read in part the rest is still to come."""
        start = self.start
        if start.batch_index < 0 or start.entry_id < 0:
            return start
        return MessageId(start.ledger_id, start.entry_id - 1, start.partition)

    @property
    def entries(self) -> int:
        """How many there are; a lot, where the ledger's own end is not known."""
        return self.end.entry_id - self.before.entry_id if self.end.ledger_id == self.before.ledger_id else _MANY

    def after(self, entries: int) -> MessageId:
        if entries >= self.entries:
            return self.end
        return MessageId(self.before.ledger_id, self.before.entry_id + entries, self.end.partition)


def limited_ends(topics: SizeLookup, backlogs: Sequence[Backlog], limits: Limits, turn: int) -> dict[str, MessageId]:
    """How far each partition may go. `turn` goes up, so that each comes first once when there is not enough for all."""
    first = turn % len(backlogs)
    ordered = [_in_its_ledger(topics, backlog) for backlog in (*backlogs[first:], *backlogs[:first])]
    shares = [backlog.entries for backlog in ordered]
    if limits.entries_max is not None:
        shares = _shares(limits.entries_max, shares, [1] * len(shares))
    if limits.bytes_max is not None:
        shares = _shares(limits.bytes_max, shares, [_entry_size(topics, backlog) for backlog in ordered])
    return {
        backlog.topic: _stored(topics, backlog, backlog.after(share))
        for backlog, share in zip(ordered, shares, strict=True)
        if share > 0
    }


def _shares(budget: int, wants: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """How many entries each may have. The first gets one, however large: whoever waits is the first some time."""
    left = max(0, budget - sizes[0])
    in_bytes = fair_shares(left, [(want - (place == 0)) * sizes[place] for place, want in enumerate(wants)])
    return [part // sizes[place] + (place == 0) for place, part in enumerate(in_bytes)]


def fair_shares(budget: int, wants: Sequence[int]) -> list[int]:
    """Shares of a budget: nobody gets more than wanted, and what one leaves the others have. Sums up to the budget."""
    shares = [0] * len(wants)
    order = sorted(range(len(wants)), key=lambda index: wants[index])
    for place, index in enumerate(order):
        # Rounded up for the first ones, so that a budget below one each is used at all.
        shares[index] = min(wants[index], -(-budget // (len(wants) - place)))
        budget -= shares[index]
    return shares


def _in_its_ledger(topics: SizeLookup, backlog: Backlog) -> Backlog:
    """The backlog from where it really goes on: the ledger of its start may be read to its end."""
    start = backlog.start
    if start.ledger_id == backlog.end.ledger_id or start.batch_index >= 0 or (start.entry_id < 0 <= start.ledger_id):
        return backlog
    return Backlog(backlog.topic, _before_the_next(topics, backlog.topic, start), backlog.end)


def _stored(topics: SizeLookup, backlog: Backlog, end: MessageId) -> MessageId:
    """An end after the last entry of a ledger would be acknowledged as entries that never were: the next one begins."""
    return end if end.ledger_id == backlog.end.ledger_id else _before_the_next(topics, backlog.topic, end)


def _before_the_next(topics: SizeLookup, topic: str, position: MessageId) -> MessageId:
    """The same place, before the first entry of the ledger that comes next if its own has no more."""
    first = topics.first_after(topic, position)
    if first is None or first.ledger_id == position.ledger_id:
        return position
    return MessageId(first.ledger_id, first.entry_id - 1, first.partition)


def _entry_size(topics: SizeLookup, backlog: Backlog) -> int:
    sizes = topics.entry_sizes(backlog.topic, whole_entry(backlog.before))
    return max(1, sum(sizes) // len(sizes)) if sizes else 1

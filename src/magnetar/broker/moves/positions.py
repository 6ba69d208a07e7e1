"""Positions of a topic as its cursors see them: which of those that a move names are open, and acknowledging them.

Owns the arithmetic of ranges and bitmaps: a range costs what is open in it, never its length. Several subscriptions
count as one: a position is open while any of them has not acknowledged it. Knows no producers and no commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyroaring import BitMap64

from magnetar.broker.subscription.cursor import Cursor
from magnetar.broker.subscription.subscription import Subscription
from magnetar.errors import NotAllowed
from magnetar.pipeline_bounds import MOVED_MESSAGES
from magnetar.wire.moves import PositionRange


@dataclass(slots=True)
class NamedPositions:
    """`whole` are the open ones of the whole entries that were named, `parts` the named bits of others and the number
    of messages in each. `named` counts all of them, `open` those that are open."""

    whole: BitMap64 = field(default_factory=BitMap64)
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)
    named: int = 0
    open: int = 0

    def touches(self, entries: BitMap64) -> bool:
        """Whether any of its open entries is among these."""
        return bool(self.whole.intersection_cardinality(entries)) or any(entry in entries for entry in self.parts)

    def note_in(self, entries: BitMap64) -> None:
        entries |= self.whole
        for entry in self.parts:
            entries.add(entry)


def open_entries(cursors: Iterable[Cursor], first: int, last: int) -> BitMap64:
    """Entries from `first` to `last` that any of the cursors has not acknowledged."""
    found = BitMap64()
    for cursor in cursors:
        start = max(first, cursor.mark_delete + 1)
        if start <= last:
            span = BitMap64()
            span.add_range(start, last + 1)
            found |= span - cursor.acked
    return found


def open_bits(cursors: Iterable[Cursor], entry: int, everything: int) -> int:
    """The messages of a batch that any of the cursors has not acknowledged."""
    found = 0
    for cursor in cursors:
        if not cursor.is_acked(entry):
            bits = cursor.open_bits(entry)
            found |= everything if bits is None else bits & everything
    return found


def find(subscriptions: Sequence[Subscription], ranges: Iterable[PositionRange]) -> NamedPositions:
    """Raises NotAllowed for more than may be moved at once, and for whole entries of which a part is acknowledged."""
    cursors = [one.cursor for one in subscriptions]
    found = NamedPositions()
    bits: dict[int, int] = {}
    for part in ranges:
        if not part.is_whole:
            named = (1 << part.last_index + 1) - (1 << part.first_index)
            bits[part.first] = bits.get(part.first, 0) | named
        elif part.first == part.last:
            found.named += 1
            if not all(cursor.is_acked(part.first) for cursor in cursors):
                found.whole.add(part.first)
        else:
            found.named += part.last - part.first + 1
            found.whole |= open_entries(cursors, part.first, part.last)
    found.open = len(found.whole)
    check_count(found.open)
    _check_whole(subscriptions, found.whole)
    for entry, named in bits.items():
        _find_part(subscriptions, found, entry, named)
    return found


def check_count(entries: int) -> None:
    if entries > MOVED_MESSAGES.limit:
        raise NotAllowed(f"{entries} entries are acknowledged at once, the limit is {MOVED_MESSAGES.limit}")


def _check_whole(subscriptions: Sequence[Subscription], whole: BitMap64) -> None:
    cursors = [one.cursor for one in subscriptions]
    if not any(cursor.has_states for cursor in cursors):
        return
    for entry in whole.to_array():
        if all(cursor.is_acked(entry) or cursor.open_bits(entry) is not None for cursor in cursors):
            everything = (1 << subscriptions[0].places.messages_in(entry)) - 1
            if open_bits(cursors, entry, everything) != everything:
                raise NotAllowed(f"entry {entry} is acknowledged in part: name the messages of it that are moved")


def _find_part(subscriptions: Sequence[Subscription], found: NamedPositions, entry: int, named: int) -> None:
    cursors = [one.cursor for one in subscriptions]
    count = named.bit_count()
    found.named += count
    if all(cursor.is_acked(entry) for cursor in cursors):
        return
    messages = subscriptions[0].places.messages_in(entry)
    if named >> messages:
        raise NotAllowed(f"entry {entry} has {messages} messages, there is none with index {named.bit_length() - 1}")
    is_open = open_bits(cursors, entry, (1 << messages) - 1) & named
    found.open += is_open.bit_count()
    if is_open:
        found.parts[entry] = named, messages


def acknowledge(subscriptions: Iterable[Subscription], found: NamedPositions) -> None:
    """Acknowledges them, wherever they are. What follows from it may open another group of changes: see `settle`."""
    entries = found.whole.to_array()
    for subscription in subscriptions:
        places = subscription.places
        first = subscription.cursor.mark_delete + 1
        if entries and entries[0] == first and entries[-1] - first == len(entries) - 1:
            places.ack_up_to(entries[-1])
        else:
            for entry in entries:
                places.ack(entry)
        for entry, (bits, messages) in found.parts.items():
            places.ack_part(entry, ~bits, messages)


def settle(subscription: Subscription, parts: Iterable[int]) -> None:
    """What follows from an acknowledgement: blocked consumers go on; the rest of a batch in `parts` may have failed."""
    nacked = [entry for entry in parts if subscription.places.is_nacked(entry)]
    if nacked:
        subscription.settle_singles(nacked)
    subscription.acked()


class Acknowledgement(NamedTuple):
    """What a request acknowledges for one subscription: everything up to `advance`, the entries of `whole`, and the
    messages of `parts`, each with the number of messages in its entry."""

    subscription: Subscription
    advance: int
    whole: BitMap64
    parts: list[tuple[PositionRange, int]]

    @classmethod
    def of(cls, subscription: Subscription, ranges: Iterable[PositionRange]) -> Acknowledgement:
        """A range that continues the mark-delete position may have any number of entries. Raises NotAllowed if there
        are too many others."""
        cursor, places = subscription.cursor, subscription.places
        advance = cursor.mark_delete
        whole, parts = BitMap64(), []
        for part in ranges:
            if not part.is_whole:
                if not cursor.is_acked(part.first):
                    parts.append((part, places.messages_in(part.first)))
            elif part.first <= cursor.next_open(advance + 1):
                advance = max(advance, part.last)
            else:
                whole |= open_entries([cursor], part.first, part.last)
        check_count(len(whole))
        return cls(subscription, advance, whole, parts)

    def apply(self) -> None:
        places = self.subscription.places
        places.ack_up_to(self.advance)
        for entry in self.whole.to_array():
            places.ack(entry)
        for part, messages in self.parts:
            places.ack_part(part.first, ~((1 << part.last_index + 1) - (1 << part.first_index)), messages)

    def settle(self) -> None:
        """Once all of them are applied: see `settle`."""
        settle(self.subscription, dict.fromkeys(part.first for part, _ in self.parts))

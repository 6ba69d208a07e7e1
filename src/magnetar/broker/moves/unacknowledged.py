"""Unacknowledged positions of a topic, page by page, for one subscription or for all.

All of it comes from the cursors: no entry is read. A batch of which a part is acknowledged is listed by its open
messages. For all subscriptions, a position is listed while it waits, as `topic.waiting` defines it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyroaring import BitMap64

from magnetar.broker.bits import indexes_in
from magnetar.broker.moves.positions import open_entries
from magnetar.broker.subscription.cursor import Cursor, first_missing
from magnetar.wire.moves import PositionRange, positions_of

if TYPE_CHECKING:
    from magnetar.broker.topic.persistent import PersistentTopic


class PositionPage(NamedTuple):
    """`after_next` is the entry after which the next page begins, None for the last page."""

    ranges: list[PositionRange]
    after_next: int | None


def page_after(topic: PersistentTopic, cursors: Sequence[Cursor], unread: int, after: int, limit: int) -> PositionPage:
    """About `limit` ranges of entries above `after`: all those of an entry are in one page. Entries below `unread` wait
    whatever the cursors say. Looks at the states of at most `limit` single entries."""
    first, last = max(after + 1, topic.log.first), topic.log.confirmed
    opened = open_entries(cursors, first, last)
    if first < unread:
        opened.add_range(first, min(unread, last + 1))
    if not opened:
        return PositionPage([], None)
    stated = BitMap64()
    for cursor in cursors:
        if cursor.has_states:
            stated |= cursor.stated
    stated &= opened
    if stated:
        stated.remove_range(0, unread)
    ranges: list[PositionRange] = []
    for found, cost in _walk(opened, stated, cursors):
        _extend(ranges, found)
        limit -= cost
        if limit <= 0:
            break
    covered = ranges[-1].last
    return PositionPage(ranges, covered if covered < opened.max() else None)


def _walk(opened: BitMap64, stated: BitMap64, cursors: Sequence[Cursor]) -> Iterator[tuple[list[PositionRange], int]]:
    """What is open in order, and what it counts towards the limit."""
    plain, last = opened - stated, opened.max()
    entry = opened.min()
    while True:
        if entry in stated:
            found = _open_part(cursors, entry)
            yield found, len(found)
        else:
            end = first_missing(plain, entry) - 1
            yield [PositionRange(entry, end)], 1
            entry = end
        if entry >= last:
            return
        entry = opened.next_set_bit(entry + 1)


def _open_part(cursors: Sequence[Cursor], entry: int) -> list[PositionRange]:
    is_open = 0
    for cursor in cursors:
        if not cursor.is_acked(entry):
            bits = cursor.open_bits(entry)
            if bits is None:
                return [PositionRange(entry, entry)]
            is_open |= bits
    return list(positions_of(0, [(entry, index) for index in indexes_in(is_open)]).ranges)


def _extend(ranges: list[PositionRange], found: list[PositionRange]) -> None:
    """Whole entries in a row are one range."""
    before = ranges[-1] if ranges else None
    if before is not None and before.is_whole and found[0].is_whole and found[0].first == before.last + 1:
        ranges[-1] = PositionRange(before.first, found[0].last)
        found = found[1:]
    ranges += found

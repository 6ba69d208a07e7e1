"""Waiting entries of a dead letter topic: those that not every durable subscription has acknowledged.

Without a durable subscription all of them wait, and so do those from before the first one. The others are handled. All
of it comes from the cursors: nothing is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap64

if TYPE_CHECKING:
    from magnetar.broker.subscription.cursor import Cursor
    from magnetar.broker.topic.persistent import PersistentTopic


def count(topic: PersistentTopic) -> int:
    return _stored(topic) - handled(topic)


def handled(topic: PersistentTopic) -> int:
    """Entries that every durable subscription has acknowledged, and that are still stored."""
    cursors = sorted(_cursors(topic), key=lambda cursor: cursor.mark_delete)
    if not cursors:
        return 0
    slowest = cursors[0]
    up_to_mark = max(0, slowest.mark_delete + 1 - max(topic.log.first, topic.read_from))
    if not slowest.acked or len(cursors) == 1:
        return up_to_mark + len(slowest.acked)
    above = slowest.acked
    for cursor in cursors[1:]:
        above = _acked_by_both(above, cursor)
    return up_to_mark + len(above)


def next_waiting(topic: PersistentTopic, entry_id: int) -> int:
    """The first waiting entry from `entry_id` on; one past the last if there is none."""
    log = topic.log
    entry_id = max(entry_id, log.first)
    if entry_id < topic.read_from:
        return entry_id
    opened = min((cursor.next_open(entry_id) for cursor in _cursors(topic)), default=entry_id)
    return min(opened, log.confirmed + 1)


def is_waiting(topic: PersistentTopic, entry_id: int, batch_index: int = -1) -> bool:
    """Whether an entry waits, or one message of a batch."""
    if entry_id < topic.read_from:
        return True
    return any(_is_open(cursor, entry_id, batch_index) for cursor in _cursors(topic))


def _is_open(cursor: Cursor, entry_id: int, batch_index: int) -> bool:
    if cursor.is_acked(entry_id):
        return False
    bits = cursor.open_bits(entry_id) if batch_index >= 0 else None
    return bits is None or bool(bits >> batch_index & 1)


def _cursors(topic: PersistentTopic) -> list[Cursor]:
    return [one.cursor for one in topic.cursors if one.durable and not one.is_internal]


def _acked_by_both(acked: BitMap64, cursor: Cursor) -> BitMap64:
    below = acked.copy()
    if below:
        below.remove_range(cursor.mark_delete + 1, max(below.max(), cursor.mark_delete) + 1)
    return below | (acked & cursor.acked)


def _stored(topic: PersistentTopic) -> int:
    return topic.log.confirmed + 1 - topic.log.first

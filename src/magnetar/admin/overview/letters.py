"""Reasons and hours of the dead letters in a topic, read a few at a time as they arrive.

Owns which letters were read. Payloads are not opened; the newest twenty thousand of a topic are known at most, the
others are counted without a reason. What waits comes from the cursors, so a letter is read once.
"""

from __future__ import annotations

from pyroaring import BitMap64

from magnetar.broker.subscription.cursor import Cursor
from magnetar.broker.topic import waiting
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.run import Entry
from magnetar.deadletter.properties import UNKNOWN, read_reason
from magnetar.errors import EntriesDamaged
from magnetar.wire.entry import messages_of
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import MetadataError, split_blob, text_properties

HOUR_MS = 3_600_000
HOURS_KEPT = 24
_LETTERS_KEPT = 20_000
_SIZE_AT_A_TIME = 256 << 10
_REASONS_MAX = 50
_BATCH_SIZE_MAX = 1 << 20


class TopicLetters:
    """Of a dead letter topic or a partition. `hours` counts arrivals, handled or not."""

    __slots__ = ("_hour_of_last", "_newest", "_next_id", "by_reason", "hours", "topic")

    def __init__(self, topic: PersistentTopic) -> None:
        self.topic = topic
        self.by_reason: dict[str, BitMap64] = {}
        self.hours: dict[int, dict[str, int]] = {}
        self._newest = (-2, 0)  # the last entry, and when it arrived
        log, since_ms = topic.log, topic.broker.now_ms() - HOURS_KEPT * HOUR_MS
        wanted = min(waiting.next_waiting(topic, log.first), log.first_received_after(since_ms))
        self._next_id = max(wanted, log.confirmed + 1 - _LETTERS_KEPT)

    def read(self, limit: int) -> int:
        """Reads up to `limit` more; returns how many."""
        log = self.topic.log
        if self._next_id > log.confirmed:
            return 0
        try:
            entries = log.read(self._next_id, limit, _SIZE_AT_A_TIME)
        except EntriesDamaged:
            entries = []
        if not entries:  # what cannot be read stays without a reason
            self._next_id = log.confirmed + 1
            return 0
        for entry in entries:
            self._add(entry)
        self._next_id = entries[-1][0] + 1
        return len(entries)

    def _add(self, entry: Entry) -> None:
        reason, published_ms = _reason_and_time(entry)
        if reason not in self.by_reason and len(self.by_reason) >= _REASONS_MAX:
            reason = UNKNOWN
        self.by_reason.setdefault(reason, BitMap64()).add(entry[0])
        broker = self.topic.broker
        this_hour = broker.now_ms() // HOUR_MS
        hour = min(broker.clock.from_client_ms(published_ms) // HOUR_MS, this_hour)
        if hour > this_hour - HOURS_KEPT:
            counts = self.hours.setdefault(hour * HOUR_MS, {})
            counts[reason] = counts.get(reason, 0) + 1

    def forget_old(self, now_ms: int) -> None:
        """Hours that are over, and entries that were trimmed."""
        oldest = (now_ms // HOUR_MS - HOURS_KEPT + 1) * HOUR_MS
        for hour in [hour for hour in self.hours if hour < oldest]:
            del self.hours[hour]
        first = max(self.topic.log.first, self._next_id - _LETTERS_KEPT)
        for reason, ids in list(self.by_reason.items()):
            ids.remove_range(0, first)
            if not ids:
                del self.by_reason[reason]

    def waiting_by_reason(self) -> dict[str, int]:
        cursors = [one.cursor for one in self.topic.cursors if one.durable and not one.is_internal]
        read_from = self.topic.read_from
        counts = {reason: _open_count(ids, cursors, read_from) for reason, ids in self.by_reason.items()}
        return {reason: count for reason, count in counts.items() if count}

    def last_hour(self, now_ms: int) -> int:
        """Arrivals within the last hour; searched only where the newest one is so young."""
        log = self.topic.log
        if self._newest[0] != log.confirmed:
            header = log.known_header(log.confirmed)
            self._newest = (log.confirmed, header[1] if header is not None else 0)
        if self._newest[1] <= now_ms - HOUR_MS:
            return 0
        return log.confirmed + 1 - log.first_received_after(now_ms - HOUR_MS)


def _open_count(ids: BitMap64, cursors: list[Cursor], read_from: int) -> int:
    """Without a durable subscription all wait, and so do those from before the first one."""
    if not cursors:
        return len(ids)
    handled = ids.copy()
    handled.remove_range(0, read_from)
    for cursor in cursors:
        above = handled & cursor.acked
        if handled:
            handled.remove_range(cursor.mark_delete + 1, max(handled.max(), cursor.mark_delete) + 1)
        handled |= above
    return len(ids) - len(handled)


def _reason_and_time(entry: Entry) -> tuple[str, int]:
    """Of a batch, the reason of its first message."""
    published_ms = 0
    try:
        metadata, payload = split_blob(entry[3])
        published_ms = metadata.publish_time
        properties = metadata.properties
        if metadata.HasField("num_messages_in_batch"):
            single, _ = next(iter(messages_of(metadata, payload, _BATCH_SIZE_MAX)))
            properties = metadata.properties if single is None else single.properties
        return read_reason(text_properties(properties)), published_ms
    except (MetadataError, EntryError, StopIteration):
        return UNKNOWN, published_ms

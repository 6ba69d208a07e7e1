"""`predefinedSubscription`: a durable subscription that follows a stream, so that the broker's backlog is true.

Owns where it is and what is acknowledged: only what is part of a finished micro-batch, and never a message of which
that is not known. Reads nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from magnetar.client.errors import NotFound
from magnetar.client.message import EARLIEST, LATEST, MessageId
from magnetar.spark.source.offsets import Offsets, sort_key

log = logging.getLogger(__name__)


class SubscriptionCursor(Protocol):
    """The position of a subscription on one partition."""

    def position(self) -> MessageId: ...

    def acknowledge_up_to(self, position: MessageId) -> None: ...

    def close(self) -> None: ...


OpenCursor = Callable[[str, MessageId], SubscriptionCursor]
"""Topic, and where the subscription begins if it is created: EARLIEST or LATEST."""


class StreamSubscription:
    """`_done` is what is acknowledged for sure."""

    def __init__(self, open_cursor: OpenCursor) -> None:
        self._open_cursor = open_cursor
        self._cursors: dict[str, SubscriptionCursor] = {}
        self._done: dict[str, MessageId] = {}

    def positions(self, partitions: Iterable[str]) -> Offsets:
        """Where it is, for a stream that begins there; where it is new, that is after the last message."""
        return Offsets({topic: self._cursor(topic, LATEST).position() for topic in partitions})

    def acknowledge(self, offsets: Offsets) -> None:
        """Everything up to these offsets is done. Where the subscription is new, it begins with the first message."""
        for topic, offset in offsets.items():
            entry = _last_whole(offset)
            done = self._done.get(topic)
            if done is not None and sort_key(entry) <= sort_key(done):
                continue
            try:
                cursor = self._cursor(topic, EARLIEST)
                if entry.entry_id >= 0 or done is not None:
                    cursor.acknowledge_up_to(entry)
                    self._done[topic] = entry
                else:
                    self._done[topic] = cursor.position()
            except NotFound:  # which planning finds as well, and says what becomes of it
                self._forget(topic)

    def hold(self, partitions: Iterable[str]) -> None:
        """Sees to it that partitions which are read from their first message on keep it until it is acknowledged."""
        for topic in partitions:
            if topic not in self._cursors:
                self.acknowledge(Offsets({topic: EARLIEST}))

    def _cursor(self, topic: str, initial: MessageId) -> SubscriptionCursor:
        cursor = self._cursors.get(topic)
        if cursor is None:
            cursor = self._cursors[topic] = self._open_cursor(topic, initial)
        return cursor

    def _forget(self, topic: str) -> None:
        log.warning("%s does not exist: nothing is acknowledged there", topic)
        self._done.pop(topic, None)
        self._cursors.pop(topic).close()


def _last_whole(offset: MessageId) -> MessageId:
    """The last entry that is done with all its messages; entry -1 is before the first of a ledger."""
    entry_id = offset.entry_id - 1 if offset.batch_index >= 0 else offset.entry_id
    return MessageId(offset.ledger_id, entry_id, offset.partition)

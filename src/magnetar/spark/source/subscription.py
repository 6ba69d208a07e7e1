"""Stream subscription (`predefinedSubscription`): a durable cursor that follows a stream, so that backlog is accurate.

Owns its position and acknowledgements: only entries of finished micro-batches are acknowledged. Reads nothing.
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
    """The cursor of a subscription on one partition."""

    def position(self) -> MessageId: ...

    def acknowledge_up_to(self, position: MessageId) -> None: ...

    def close(self) -> None: ...


OpenCursor = Callable[[str, MessageId], SubscriptionCursor]
"""Topic, and the initial position if the subscription is created: EARLIEST or LATEST."""


class StreamSubscription:
    """`_acknowledged` are positions confirmed by the broker."""

    def __init__(self, open_cursor: OpenCursor) -> None:
        self._open_cursor = open_cursor
        self._cursors: dict[str, SubscriptionCursor] = {}
        self._acknowledged: dict[str, MessageId] = {}

    def positions(self, partitions: Iterable[str]) -> Offsets:
        """Positions to start a stream at; a new subscription starts after the last message."""
        return Offsets({topic: self._cursor(topic, LATEST).position() for topic in partitions})

    def acknowledge(self, offsets: Offsets) -> None:
        """Acknowledges everything up to these offsets. A new subscription is created at the first message."""
        for topic, offset in offsets.items():
            entry = _last_whole(offset)
            done = self._acknowledged.get(topic)
            if done is not None and sort_key(entry) <= sort_key(done):
                continue
            try:
                cursor = self._cursor(topic, EARLIEST)
                if entry.entry_id >= 0 or done is not None:
                    cursor.acknowledge_up_to(entry)
                    self._acknowledged[topic] = entry
                else:
                    self._acknowledged[topic] = cursor.position()
            except NotFound:  # reported by the planner
                self._forget(topic)

    def hold(self, partitions: Iterable[str]) -> None:
        """Creates the subscription on new partitions, so that they keep their messages until acknowledged."""
        for topic in partitions:
            if topic not in self._cursors:
                self.acknowledge(Offsets({topic: EARLIEST}))

    def _cursor(self, topic: str, initial: MessageId) -> SubscriptionCursor:
        cursor = self._cursors.get(topic)
        if cursor is None:
            cursor = self._cursors[topic] = self._open_cursor(topic, initial)
        return cursor

    def _forget(self, topic: str) -> None:
        log.warning("topic %s does not exist: its messages are not acknowledged", topic)
        self._acknowledged.pop(topic, None)
        self._cursors.pop(topic).close()


def _last_whole(offset: MessageId) -> MessageId:
    """The last entry that was read completely; entry -1 is before the first of a ledger."""
    entry_id = offset.entry_id - 1 if offset.batch_index >= 0 else offset.entry_id
    return MessageId(offset.ledger_id, entry_id, offset.partition)

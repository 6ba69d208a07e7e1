"""Subscriptions of a topic whose record or cursor cannot be read: listed and refused, deletable, or started over.

Owns their keys. What is read of a damaged subscription is its name and, if possible, its id. Until it is deleted or
started over, the topic keeps every message: the position of the subscription is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker import keys
from magnetar.broker.catalog import record
from magnetar.broker.catalog.record import SubscriptionRecord
from magnetar.broker.damage_list import UNREADABLE, id_in
from magnetar.broker.subscription.cursor import Cursor
from magnetar.errors import SubscriptionDamaged
from magnetar.storage.api import Batch, Space

if TYPE_CHECKING:
    from magnetar.broker.topic.persistent import PersistentTopic


class DamagedSubscriptions:
    def __init__(self, topic: PersistentTopic) -> None:
        self._topic = topic
        self._found: dict[str, tuple[bytes, int | None, str]] = {}  # name -> key, id, reason

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def reasons(self) -> dict[str, str]:
        return {name: reason for name, (_, _, reason) in self._found.items()}

    def load(self) -> list[tuple[str, SubscriptionRecord, Cursor]]:
        """The subscriptions of the topic that can be read; the others are kept here."""
        broker, readable = self._topic.broker, []
        start = keys.under(keys.SUBSCRIPTION, self._topic.record.id)
        for key, value in broker.storage.scan(Space.STATE, start, keys.after(start)):
            try:
                name, found = key[9:].decode(), record.decode_subscription(value)
                readable.append((name, found, Cursor.load(broker.storage, broker.commits, found.id)))
            except UNREADABLE as error:
                name = key[9:].decode(errors="backslashreplace")
                reason = broker.damage.note("subscription", self._topic.name.full, error, name)
                self._found[name] = key, id_in(value), reason
        return readable

    def check(self, name: str) -> None:
        """Raises for a damaged subscription."""
        if name in self._found:
            raise SubscriptionDamaged(
                f"subscription {name!r} of topic {self._topic.name.full} is damaged: {self._found[name][2]};"
                " it can be deleted by force, or started over by skipping what is damaged"
            )

    def erase(self, name: str, batch: Batch) -> None:
        """Deletes what is known of it. Without its id, a few small keys of its cursor stay behind."""
        key, cursor_id, _ = self._found.pop(name)
        batch.delete(key)
        if cursor_id is not None:
            erase_cursor(batch, cursor_id)
        self._topic.broker.damage.clear("subscription", self._topic.name.full, name)

    def erase_all(self, batch: Batch) -> None:
        for name in list(self._found):
            self.erase(name, batch)


def erase_cursor(batch: Batch, cursor_id: int) -> None:
    batch.delete(keys.under(keys.CURSOR, cursor_id))
    start = keys.under(keys.POSITION, cursor_id)
    batch.delete_range(Space.STATE, start, keys.after(start))

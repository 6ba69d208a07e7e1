"""Erasing a topic that cannot be opened: everything stored under its id, without reading more than keys.

Knows the kinds of keys that belong to a topic, not what is in them.
"""

from __future__ import annotations

from magnetar.broker import keys
from magnetar.broker.damage.subscriptions import erase_cursor
from magnetar.broker.damage_list import id_in
from magnetar.broker.topic.deduplication import delete_all
from magnetar.storage.api import Batch, Space, Storage, StorageError

_KINDS = (keys.SUBSCRIPTION, keys.DELAYED, keys.DEDUPLICATION, keys.REPLICATED, keys.PULSAR_REPLICATED)


def erase_topic(storage: Storage, batch: Batch, topic_id: int) -> None:
    for cursor_id in _cursors_of(storage, topic_id):
        erase_cursor(batch, cursor_id)
    for kind in _KINDS:
        delete_all(batch, kind, topic_id)
    batch.delete(keys.under(keys.FIRST, topic_id))
    prefix = keys.ID.pack(topic_id)
    batch.delete_range(Space.ENTRIES, prefix, keys.after(prefix))


def _cursors_of(storage: Storage, topic_id: int) -> list[int]:
    """Ids of the subscriptions whose records can be read so far; cursors of the others stay, a few small keys each."""
    start = keys.under(keys.SUBSCRIPTION, topic_id)
    try:
        rows = storage.scan(Space.STATE, start, keys.after(start))
    except StorageError:
        return []
    return [found for _, value in rows if (found := id_in(value)) is not None]

"""A start that goes on although synced changes are missing: no id that may have been given before is given again.

What a lost change contained is unknown. So ids of topics and subscriptions continue far above, and the message ids of
each topic continue in a new ledger. Ids from before stay valid for the messages that are left; those of lost messages
mean the end of what is left, never another message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker import keys
from magnetar.broker.catalog import record
from magnetar.broker.topic.log import Log
from magnetar.storage.api import Batch, StorageError

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker

ID_GAP = 1 << 32
"""Ids that are left out: more than a broker gives within the second that the record of what is synced may be old."""


def renumber_topics(broker: Broker, batch: Batch) -> None:
    """Continues the message ids of every topic in a new ledger, in the transaction of `batch`."""
    for full, topic in broker.catalog.topics.items():
        log = Log(broker.storage, broker.cache, topic.id)
        try:
            log.load()
        except StorageError:
            log.last = -1  # it cannot be read: ids from before mean its first message that can
        left = log.last + 1
        topic.former_ledgers = {ledger: min(kept, left) for ledger, kept in topic.former_ledgers.items()}
        topic.former_ledgers[topic.ledger_id] = left
        topic.ledger = broker.next_id(batch)
        batch.put(keys.named(keys.TOPIC, full), record.encode(topic))

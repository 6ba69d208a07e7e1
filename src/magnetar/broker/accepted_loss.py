"""A start that goes on although synced changes are missing: no id that may have been given before is given again.

What a lost change contained is unknown. So ids of topics and subscriptions continue far above, and the message ids of
each topic continue in a new ledger. Ids from before stay valid for the messages that are left; those of lost messages
mean the end of what is left, never another message. Lost entries before others that are left are void: the log of a
topic has no gaps.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from magnetar.broker import keys
from magnetar.broker.catalog import record
from magnetar.broker.topic import run
from magnetar.broker.topic.log import Log
from magnetar.storage.api import Batch, Space, StorageError

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker

_RUNS_PER_READ = 1000
_READ_SIZE = 8 << 20

ID_GAP = 1 << 32
"""Ids that are left out: more than a broker gives within the second that the record of what is synced may be old."""


def renumber_topics(broker: Broker, batch: Batch) -> None:
    """Continues the message ids of every topic in a new ledger, in the transaction of `batch`."""
    for full, topic in broker.catalog.topics.items():
        log = Log(broker.storage, broker.cache, topic.id)
        try:
            log.load()
            if broker.storage.has_gaps:
                _fill_gaps(broker, batch, topic.id, log.first)
        except (StorageError, struct.error):
            log.last = -1  # it cannot be read: ids from before mean its first message that can
        left = log.last + 1
        topic.former_ledgers = {ledger: min(kept, left) for ledger, kept in topic.former_ledgers.items()}
        topic.former_ledgers[topic.ledger_id] = left
        topic.ledger = broker.next_id(batch)
        batch.put(keys.named(keys.TOPIC, full), record.encode(topic))


def _fill_gaps(broker: Broker, batch: Batch, topic_id: int, first: int) -> None:
    prefix, position, size = keys.ID.pack(topic_id), first, 0
    start, end = prefix + keys.ID.pack(first), keys.after(prefix)
    while rows := broker.storage.scan(Space.ENTRIES, start, end, limit=_RUNS_PER_READ, size_max=_READ_SIZE):
        for key, value in rows:
            last: int = keys.ID.unpack_from(key, 8)[0]
            run_first = last - run.count_of(value) + 1
            if run_first > position:
                _fill(batch, prefix, range(position, run_first), broker.now_ms(), size)
            position, size = last + 1, run.bytes_after(value)
        start = rows[-1][0] + b"\0"


def _fill(batch: Batch, prefix: bytes, lost: range, now_ms: int, size: int) -> None:
    for start in lost[:: run.COUNT_MAX]:
        last = min(start + run.COUNT_MAX, lost.stop) - 1
        batch.put_entry(prefix + keys.ID.pack(last), run.void(last - start + 1, now_ms, size))

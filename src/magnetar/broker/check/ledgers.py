"""New ledgers for topics whose last entries may be lost: an id that was given before never means another message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from magnetar.broker import keys
from magnetar.broker.catalog import record
from magnetar.broker.check.finding import Change, put
from magnetar.broker.check.inventory import Inventory


def new_ledgers(inventory: Inventory, lost: Iterable[tuple[int, int]]) -> Iterator[Change]:
    """For every topic within a range of ids, both ends included."""
    ranges = list(lost)
    for topic_id, topic in inventory.topics.items():
        if any(first <= topic_id <= last for first, last in ranges):
            left, found = topic.last + 1, topic.record
            former = {ledger: min(kept, left) for ledger, kept in found.former_ledgers.items()}
            former[found.ledger_id] = left
            fresh = msgspec.structs.replace(found, ledger=inventory.new_id(), former_ledgers=former)
            yield put(keys.named(keys.TOPIC, topic.name), record.encode(fresh))
    yield put(keys.LAST_ID, keys.ID.pack(inventory.highest_id))

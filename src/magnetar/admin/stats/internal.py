"""Internal statistics of a topic, in Pulsar's terms: ledgers and cursors. A topic is one ledger for its whole life.

Positions are `ledger:entry`. Cursors are stored with the topic, not in ledgers.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from magnetar.admin.iso_time import iso_time
from magnetar.admin.stats.topic import PartitionedMetadataStats, storage_size
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import Topic

_RANGES_SHOWN_MAX = 1000


class LedgerStats(msgspec.Struct, rename="camel", kw_only=True):
    ledger_id: int
    entries: int
    size: int
    offloaded: bool = False
    under_replicated: bool = False


class CursorStats(msgspec.Struct, rename="camel", kw_only=True):
    """A non-persistent topic has no positions."""

    mark_delete_position: str | UnsetType = UNSET
    read_position: str | UnsetType = UNSET
    waiting_read_op: bool = False
    pending_read_ops: int = 0
    messages_consumed_counter: int = 0
    cursor_ledger: int = -1
    cursor_ledger_last_entry: int = -1
    individually_deleted_messages: str | UnsetType = UNSET
    number_of_entries_since_first_not_acked_message: int = 0
    total_non_contiguous_deleted_messages_range: int = 0
    subscription_have_pending_read: bool = False
    subscription_have_pending_replay_read: bool = False
    state: str | UnsetType = UNSET
    active: bool = False
    properties: dict[str, int] | UnsetType = UNSET


class InternalStats(msgspec.Struct, rename="camel", kw_only=True):
    entries_added_counter: int = 0
    number_of_entries: int = 0
    total_size: int = 0
    current_ledger_entries: int = 0
    current_ledger_size: int = 0
    waiting_cursors_count: int = 0
    pending_add_entries_count: int = 0
    last_confirmed_entry: str | UnsetType = UNSET
    state: str | UnsetType = UNSET
    last_ledger_created_timestamp: str | UnsetType = UNSET
    ledgers: list[LedgerStats] | UnsetType = UNSET
    cursors: dict[str, CursorStats] = {}
    schema_ledgers: list[LedgerStats] | UnsetType = UNSET
    compacted_ledger: LedgerStats | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET


class PartitionedInternalStats(msgspec.Struct, kw_only=True):
    metadata: PartitionedMetadataStats
    partitions: dict[str, InternalStats]


class StoredPosition(msgspec.Struct, rename="camel"):
    ledger_id: int
    entry_id: int


class StoredRange(msgspec.Struct, rename={"after": "from", "to": "to"}):
    """Excludes its first position and includes its last."""

    after: StoredPosition
    to: StoredPosition


class StoredLedger(msgspec.Struct, rename="camel", kw_only=True):
    ledger_id: int
    entries: int
    size: int
    timestamp: int = 0
    is_offloaded: bool = False


class StoredCursor(msgspec.Struct, rename="camel", kw_only=True):
    version: int = 0
    cursors_ledger_id: int = -1
    mark_delete: StoredPosition
    individual_deleted_messages: list[StoredRange] = []
    properties: dict[str, int] = {}


class LedgerRecord(msgspec.Struct, rename="camel", kw_only=True):
    version: int
    creation_date: str | UnsetType = UNSET
    ledgers: list[StoredLedger]
    terminated_position: StoredPosition | UnsetType = UNSET
    cursors: dict[str, StoredCursor]
    properties: dict[str, str]


class PartitionedLedgerRecord(msgspec.Struct):
    partitions: dict[str, LedgerRecord]
    version: int = 0


class LedgerDetails(msgspec.Struct, rename="camel"):
    entries: int
    timestamp: int
    size: int
    ledger_id: int


class CursorDetails(msgspec.Struct, rename="camel"):
    cursor_backlog: int
    cursor_ledger_id: int = -1


class StoredBacklog(msgspec.Struct, rename="camel", kw_only=True):
    """Pulsar estimates it for a topic that is not open; here it is always exact."""

    storage_size: int
    total_messages: int
    message_backlog: int
    broker_name: str
    topic_name: str
    data_ledger_details: list[LedgerDetails]
    cursor_details: dict[str, CursorDetails]
    stat_generated_at: int


# -- of an open topic


def internal_stats(topic: Topic) -> InternalStats:
    if not isinstance(topic, PersistentTopic):
        return InternalStats(
            entries_added_counter=topic.messages_in, cursors={name: CursorStats() for name in topic.subscriptions}
        )
    log, size = topic.log, storage_size(topic)
    entries = log.confirmed + 1 - log.first
    return InternalStats(
        entries_added_counter=log.last + 1,
        number_of_entries=entries,
        total_size=size,
        current_ledger_entries=entries,
        current_ledger_size=size,
        waiting_cursors_count=sum(_waits(one) for one in topic.cursors),
        pending_add_entries_count=log.last - log.confirmed,
        last_confirmed_entry=f"{topic.ledger_id}:{log.confirmed}",
        state="Terminated" if topic.is_terminated else "LedgerOpened",
        last_ledger_created_timestamp=iso_time(topic.record.created_ms or topic.opened_at_ms),
        ledgers=[LedgerStats(ledger_id=topic.ledger_id, entries=entries, size=size)],
        cursors={one.name: _cursor_stats(topic, one) for one in topic.cursors},
        schema_ledgers=[],
        compacted_ledger=LedgerStats(ledger_id=-1, entries=-1, size=-1),
        properties=topic.record.properties,
    )


def _cursor_stats(topic: PersistentTopic, subscription: Subscription) -> CursorStats:
    cursor, confirmed, waits = subscription.cursor, topic.log.confirmed, _waits(subscription)
    return CursorStats(
        mark_delete_position=f"{topic.ledger_id}:{cursor.mark_delete}",
        read_position=f"{topic.ledger_id}:{subscription.places.read_id}",
        waiting_read_op=waits,
        messages_consumed_counter=confirmed + 1 - subscription.backlog,
        individually_deleted_messages=_ranges_text(topic, subscription),
        number_of_entries_since_first_not_acked_message=confirmed - cursor.mark_delete,
        total_non_contiguous_deleted_messages_range=cursor.acked_range_count,
        subscription_have_pending_read=waits,
        state="Open",
        active=bool(subscription.consumers),
        properties={},
    )


def _ranges_text(topic: PersistentTopic, subscription: Subscription) -> str:
    """Pulsar's notation: a range excludes its first position and includes its last. Long lists are truncated."""
    ranges = subscription.cursor.acked_ranges(_RANGES_SHOWN_MAX)
    texts = [f"({topic.ledger_id}:{first - 1}..{topic.ledger_id}:{last}]" for first, last in ranges]
    if len(ranges) < subscription.cursor.acked_range_count:
        texts.append("...")
    return f"[{','.join(texts)}]"


def _waits(subscription: Subscription) -> bool:
    """Whether it has consumers and has read all entries."""
    return bool(subscription.consumers) and not subscription.places.has_unread


# -- storage


def ledger_record(topic: PersistentTopic) -> LedgerRecord:
    log, ledger_id, created_ms = topic.log, topic.ledger_id, topic.record.created_ms
    return LedgerRecord(
        version=0,
        creation_date=iso_time(created_ms) if created_ms else UNSET,
        ledgers=[StoredLedger(ledger_id=ledger_id, entries=log.confirmed + 1 - log.first, size=storage_size(topic))],
        terminated_position=StoredPosition(ledger_id, log.last) if topic.is_terminated else UNSET,
        cursors={one.name: _stored_cursor(topic, one) for one in topic.cursors if one.durable},
        properties=topic.record.properties,
    )


def _stored_cursor(topic: PersistentTopic, subscription: Subscription) -> StoredCursor:
    ledger_id = topic.ledger_id
    ranges = subscription.cursor.acked_ranges(_RANGES_SHOWN_MAX)
    return StoredCursor(
        mark_delete=StoredPosition(ledger_id, subscription.cursor.mark_delete),
        individual_deleted_messages=[
            StoredRange(StoredPosition(ledger_id, first - 1), StoredPosition(ledger_id, last)) for first, last in ranges
        ],
    )


def stored_backlog(topic: PersistentTopic, *, owner: str) -> StoredBacklog:
    name, log, size = topic.name, topic.log, storage_size(topic)
    entries = log.confirmed + 1 - log.first
    durable = {one.name: CursorDetails(one.backlog) for one in topic.cursors if one.durable}
    return StoredBacklog(
        storage_size=size,
        total_messages=entries,
        message_backlog=sum(details.cursor_backlog for details in durable.values()),
        broker_name=owner,
        topic_name=f"{name.namespace_full}/{name.domain}/{name.local}",
        data_ledger_details=[LedgerDetails(entries, topic.record.created_ms, size, topic.ledger_id)],
        cursor_details=durable,
        stat_generated_at=topic.broker.now_ms(),
    )

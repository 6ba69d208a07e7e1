"""Retention of a persistent topic: the first entry that is kept, by subscriptions, time and size.

Decides only; the topic deletes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.topic.persistent import PersistentTopic


def first_kept(topic: PersistentTopic, now_ms: int) -> int:
    """Entries before it are acknowledged by every durable subscription, and retention does not keep them."""
    policies, log = topic.policies, topic.log
    if (policies.retention_ms < 0 and policies.retention_bytes < 0) or topic.damaged:
        return log.first
    if policies.keeps_unhandled and log.first < topic.read_from:
        return log.first  # no subscription has read them (DL10)
    keep_from = min((one.cursor.mark_delete + 1 for one in topic.cursors if one.durable), default=log.confirmed + 1)
    if keep_from <= log.first:
        return log.first
    # The newest entries stay for readers and later subscriptions, as in Apache Pulsar's open ledger.
    open_from = log.first_received_after(now_ms - policies.open_ms)
    if log.size_from(log.first) > policies.open_bytes:
        open_from = max(open_from, log.first_within(policies.open_bytes))
    return min(keep_from, open_from, _retained_from(topic, now_ms))


def _retained_from(topic: PersistentTopic, now_ms: int) -> int:
    """The first entry that retention keeps: an entry is dropped only beyond both the time and the size."""
    policies, log = topic.policies, topic.log
    if policies.retention_ms == 0 or policies.retention_bytes == 0:
        return log.confirmed + 1
    by_time = log.first if policies.retention_ms < 0 else log.first_received_after(now_ms - policies.retention_ms)
    by_size = log.first if policies.retention_bytes < 0 else log.first_within(policies.retention_bytes)
    return max(by_time, by_size)

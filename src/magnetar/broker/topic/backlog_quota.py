"""Backlog quotas of a persistent topic, by size and by age: checked for new producers, enforced at an interval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from magnetar.broker.catalog.policies import QuotaPolicy
from magnetar.broker.topic.expiry import dead_letter_up_to
from magnetar.deadletter.properties import Reason
from magnetar.errors import QuotaExceeded, QuotaHold

if TYPE_CHECKING:
    from magnetar.broker.topic.persistent import PersistentTopic


def check(topic: PersistentTopic) -> None:
    """Raises if the backlog exceeds a quota that holds or rejects producers."""
    for limit, policy, first_within in _quotas(topic, topic.broker.steady.now_ms()):
        if _is_exceeded(topic, first_within):
            text = f"topic {topic.name.full} is over its backlog quota ({limit}), policy {policy}"
            if policy is QuotaPolicy.producer_request_hold:
                raise QuotaHold(text)
            if policy is QuotaPolicy.producer_exception:
                raise QuotaExceeded(text)


def enforce(topic: PersistentTopic, now_ms: int) -> None:
    """Disconnects producers, or evicts the oldest messages of a backlog that exceeds its quota."""
    for limit, policy, first_within in _quotas(topic, now_ms):
        if not _is_exceeded(topic, first_within):
            continue
        if policy is not QuotaPolicy.consumer_backlog_eviction:
            topic.producers.close_all()  # they reconnect, and are rejected or held until the backlog is smaller
            continue
        for subscription in topic.cursors:
            if subscription.durable and topic.policies.dead_letter_evicted and not subscription.is_internal:
                text = f"The backlog was over its quota of {limit}."
                dead_letter_up_to(topic, subscription, first_within - 1, Reason.BacklogEvicted, text)
            elif subscription.durable:
                subscription.advance(first_within - 1)


def _quotas(topic: PersistentTopic, now_ms: int) -> Iterator[tuple[str, QuotaPolicy, int]]:
    """Every effective quota: the limit in words, its policy, and the first entry of a backlog within it."""
    policies, log = topic.policies, topic.log
    if policies.quota_bytes:
        first_within = log.first_within(policies.quota_bytes)
        yield f"{policies.quota_bytes} bytes", policies.quota_bytes_policy, first_within
    if policies.quota_ms:
        first_within = log.first_received_after(now_ms - policies.quota_ms)
        yield f"{policies.quota_ms // 1000} s", policies.quota_ms_policy, first_within


def _is_exceeded(topic: PersistentTopic, first_within: int) -> bool:
    """Whether the backlog of a durable subscription begins before this entry."""
    return any(one.cursor.mark_delete + 1 < first_within for one in topic.cursors if one.durable and one.backlog)

"""Lines of the log for changed records: what an operator wants to know of the difference between before and after."""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.record import SubscriptionRecord
from magnetar.log.events import DEAD_LETTER_POLICY, SUBSCRIPTION_PAUSED, SUBSCRIPTION_RESUMED, Event

ALL = "*"


class EventReport(Protocol):
    def __call__(self, event: Event, **values: object) -> None: ...


def report_subscription(
    report: EventReport, topic: str, subscription: str, before: SubscriptionRecord, after: SubscriptionRecord
) -> None:
    if before.paused != after.paused:
        event, reason = (SUBSCRIPTION_PAUSED, after.paused) if after.paused else (SUBSCRIPTION_RESUMED, before.paused)
        report(event, topic=topic, subscription=subscription, reason=reason)
    if before.dead_letters != after.dead_letters:
        source = after.dead_letters_from or "removal of its own"
        policy = _shown(after.dead_letters, "that of its topic, namespace or consumers")
        report(DEAD_LETTER_POLICY, topic=topic, subscription=subscription, policy=policy, source=source)


def report_overrides(report: EventReport, scope: str, before: Overrides, after: Overrides, source: str) -> None:
    """Of a topic, or of all topics of a namespace."""
    if before.dead_letters != after.dead_letters:
        policy = _shown(after.dead_letters, "not set")
        report(DEAD_LETTER_POLICY, topic=scope, subscription=ALL, policy=policy, source=source)


def _shown(policy: DeadLetterPolicy | None, otherwise: str) -> str:
    if policy is None:
        return otherwise
    count = policy.max_redeliver_count
    return f"to {policy.topic or 'the default topic'} after {count} {'redelivery' if count == 1 else 'redeliveries'}"

"""The retry ladder: where a failed message goes, when it comes back, and what it says of its failure.

Owns the properties of messages in a retry topic, which are those of Java's client, and of dead letters. Publishes
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from magnetar.deadletter.properties import (
    DELAY_TIME,
    ORIGIN_MESSAGE_ID,
    REAL_TOPIC,
    RECONSUMETIMES,
    FailureRecord,
    read_history,
    read_origin,
)
from magnetar.deadletter.stamp import stamped
from magnetar.pipelines.processing.call.outcome import Failure
from magnetar.pipelines.processing.plan import ProcessPlan

_COUNT = re.compile(r"\d{1,6}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A failed message on its way: `deliver_at_ms` is None for a dead letter."""

    topic: str
    properties: dict[str, str]
    deliver_at_ms: int | None


def attempt_of(properties: Mapping[str, str]) -> int:
    """How often a message of a retry topic was sent there."""
    text = properties.get(RECONSUMETIMES, "")
    return int(text) if _COUNT.fullmatch(text) else 0


class RetryLadder:
    """`is_retry`: the messages come from the retry topic, so they have an origin and an attempt."""

    def __init__(self, plan: ProcessPlan, *, is_retry: bool) -> None:
        self._plan = plan
        self._is_retry = is_retry

    def next(self, failure: Failure, properties: Mapping[str, str], message_id: str, now_ms: int) -> FailedMessage:
        """`message_id` is where the message was read."""
        attempt = attempt_of(properties) if self._is_retry else 0
        stamped_properties = self._stamped(failure, properties, message_id, attempt, now_ms)
        delay_ms = self._delay_ms(failure, attempt)
        if delay_ms is None:
            topic = self._plan.dead_letter_topic_of(failure.classes)
            return FailedMessage(topic, {**stamped_properties, RECONSUMETIMES: str(attempt)}, None)
        retried = {RECONSUMETIMES: str(attempt + 1), DELAY_TIME: str(delay_ms)}
        return FailedMessage(self._plan.retry_topic, stamped_properties | retried, now_ms + delay_ms)

    def _delay_ms(self, failure: Failure, attempt: int) -> int | None:
        if failure.is_final or not self._plan.no_retry.isdisjoint(failure.classes):
            return None
        return self._plan.retry_ms[attempt] if attempt < len(self._plan.retry_ms) else None

    def _stamped(
        self, failure: Failure, properties: Mapping[str, str], message_id: str, attempt: int, now_ms: int
    ) -> dict[str, str]:
        plan, before = self._plan, properties
        topic, history = plan.topic, []
        if self._is_retry:
            origin = read_origin(properties)
            topic = properties.get(REAL_TOPIC) or topic
            message_id = properties[ORIGIN_MESSAGE_ID] if origin and ORIGIN_MESSAGE_ID in properties else message_id
            history = read_history(properties)[-attempt:] if attempt else []
        else:  # those of an earlier life
            before = {key: text for key, text in properties.items() if key not in (RECONSUMETIMES, DELAY_TIME)}
        record = FailureRecord(
            topic=topic,
            subscription=plan.subscription,
            reason=failure.reason.value,
            count=attempt + 1,
            first=history[0].first if history else now_ms,
            last=now_ms,
        )
        return stamped(before, record, message_id, failure.description, failure.raised)

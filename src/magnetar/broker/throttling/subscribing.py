"""The limit on subscribing to one topic, for each consumer by itself. It says how long to wait; the session waits."""

from __future__ import annotations

from typing import NamedTuple

from magnetar.bounds import SUBSCRIBE_RATE_BUCKETS
from magnetar.broker.catalog.rate_policy import SubscribeRate
from magnetar.broker.throttling.token_bucket import TokenBucket


class ConsumerIdentity(NamedTuple):
    """A consumer as Apache Pulsar tells it from others: it keeps all three when it reconnects."""

    host: str
    name: str
    consumer_id: int


class SubscribeLimit:
    """A bucket for each consumer that subscribed lately; the one that did so longest ago is forgotten first."""

    __slots__ = ("_buckets", "_rate")

    def __init__(self, rate: SubscribeRate) -> None:
        self._rate = rate
        self._buckets: dict[ConsumerIdentity, TokenBucket] = {}

    def set(self, rate: SubscribeRate, now_ms: int) -> None:
        self._rate = rate
        for bucket in self._buckets.values():
            bucket.change(rate.per_consumer, rate.period_s * 1000, now_ms)

    def wait_ms(self, consumer: ConsumerIdentity, now_ms: int) -> int:
        """How long the consumer has to wait; 0 if it may subscribe now, which is counted."""
        rate = self._rate
        bucket = self._buckets.pop(consumer, None) or TokenBucket(rate.per_consumer, rate.period_s * 1000, now_ms)
        self._buckets[consumer] = bucket
        if len(self._buckets) > SUBSCRIBE_RATE_BUCKETS.limit:
            del self._buckets[next(iter(self._buckets))]
        wait_ms = bucket.wait_ms(now_ms)
        if not wait_ms:
            bucket.take(1, now_ms)
        return wait_ms

    @property
    def consumers(self) -> int:
        return len(self._buckets)

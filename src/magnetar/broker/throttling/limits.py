"""The rate limits of the broker and of a topic, made from settings and policies.

Without a rate there is no limit object at all: publishing, dispatch and subscribing check for None and go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.catalog.rate_policy import DispatchRate
from magnetar.broker.throttling.dispatching import LimitLevel, Throttle
from magnetar.broker.throttling.publishing import PublishLimit
from magnetar.broker.throttling.rate_limit import RateLimit, Resume
from magnetar.broker.throttling.subscribing import SubscribeLimit
from magnetar.replication.model import PIPELINE, ROUTE_FINGERPRINT, remote_of

if TYPE_CHECKING:
    from magnetar.broker.catalog.policies import Policies
    from magnetar.broker.rates import Rates
    from magnetar.settings.settings import Settings


class Throttled(Protocol):
    throttle: Throttle | None


class ThrottledConsumer(Protocol):
    @property
    def metadata(self) -> Mapping[str, str]: ...


class ThrottledSubscription(Protocol):
    """What is throttled; `is_internal` is the position of a replication."""

    name: str
    is_internal: bool

    @property
    def consumers(self) -> Sequence[ThrottledConsumer]: ...

    @property
    def deliveries(self) -> Throttled: ...

    def schedule_pump(self) -> None: ...


WakeAt = Callable[[int, Resume], None]


class BrokerLimits:
    """Limits over all topics together; None where there is none."""

    def __init__(self, now_ms: Callable[[], int], wake_at: WakeAt, settings: Settings) -> None:
        self.now_ms = now_ms
        self.wake_at = wake_at
        self.publish: RateLimit | None = None
        self.dispatch: RateLimit | None = None
        self.apply(settings)

    def apply(self, settings: Settings) -> None:
        self.publish = self.limited(
            self.publish,
            settings.brokerPublisherThrottlingMaxMessageRate,
            settings.brokerPublisherThrottlingMaxByteRate,
            one_by_one=True,
        )
        self.dispatch = self.limited(
            self.dispatch, settings.dispatchThrottlingRateInMsg, settings.dispatchThrottlingRateInByte
        )

    def limited(
        self, limit: RateLimit | None, messages: int, size: int, period_ms: int = 1000, *, one_by_one: bool = False
    ) -> RateLimit | None:
        """The limit with another rate, or a new one, or none: then those that wait for it go on."""
        if messages <= 0 and size <= 0:
            if limit is not None:
                limit.lift()
            return None
        limit = limit or RateLimit(self.now_ms, self.wake_at, one_by_one=one_by_one)
        limit.set(messages, size, period_ms)
        return limit


class TopicLimits:
    """The limits of one topic. `rates_in` are the messages and bytes that are published per second."""

    __slots__ = (
        "_broker",
        "_dispatch",
        "_publish",
        "_publish_limited_times",
        "_rates_in",
        "_replicators",
        "publish",
        "subscribe",
    )

    def __init__(self, broker: BrokerLimits, rates_in: Rates) -> None:
        self._broker = broker
        self._rates_in = rates_in
        self._publish: RateLimit | None = None
        self._dispatch: RateLimit | None = None
        self._replicators: dict[str, RateLimit] = {}  # by remote cluster
        self.publish: PublishLimit | None = None
        self.subscribe: SubscribeLimit | None = None
        self._publish_limited_times = 0

    @property
    def publish_limited_times(self) -> int:
        """How often a connection had to wait, in total."""
        return self._publish_limited_times if self.publish is None else self.publish.times

    def apply(self, policies: Policies) -> None:
        broker, rate = self._broker, policies.publish_rate
        self._publish_limited_times = self.publish_limited_times
        self._publish = broker.limited(self._publish, rate.messages, rate.bytes, one_by_one=True)
        limits = tuple(limit for limit in (broker.publish, self._publish) if limit is not None)
        self.publish = PublishLimit(limits, self._publish_limited_times) if limits else None
        self._dispatch = self._dispatch_limit(self._dispatch, policies.dispatch_rate)
        if not policies.subscribe_rate.is_limited:
            self.subscribe = None
        elif self.subscribe is None:
            self.subscribe = SubscribeLimit(policies.subscribe_rate)
        else:
            self.subscribe.set(policies.subscribe_rate, broker.now_ms())

    def throttle(self, subscription: ThrottledSubscription, policies: Policies) -> None:
        """Applies the limits to a subscription. Those of replication have no other limit than the replicator's."""
        throttle = subscription.deliveries.throttle
        remote = _remote_of(subscription)
        levels: dict[LimitLevel, RateLimit | None] = {}
        if remote is None:
            before = None if throttle is None else throttle.limits.get(LimitLevel.SUBSCRIPTION)
            own = self._dispatch_limit(before, policies.dispatch_rate_of(subscription.name))
            levels = {LimitLevel.BROKER: self._broker.dispatch, LimitLevel.TOPIC: self._dispatch}
            levels[LimitLevel.SUBSCRIPTION] = own
        elif remote:
            levels[LimitLevel.SUBSCRIPTION] = self._replicator_limit(remote, policies.replicator_dispatch_rate)
        limits = {level: limit for level, limit in levels.items() if limit is not None}
        if throttle is None and limits:
            throttle = subscription.deliveries.throttle = Throttle(subscription, subscription.schedule_pump)
        if throttle is not None and limits != throttle.limits:
            throttle.forget()
            throttle.limits = limits
            subscription.schedule_pump()

    def _replicator_limit(self, remote: str, rate: DispatchRate) -> RateLimit | None:
        """One for all that reads for a remote cluster: it reads for some seconds at a time, each time anew."""
        limit = self._dispatch_limit(self._replicators.pop(remote, None), rate)
        if limit is not None:
            self._replicators[remote] = limit
        return limit

    def _dispatch_limit(self, limit: RateLimit | None, rate: DispatchRate) -> RateLimit | None:
        messages, size, period_s = rate.messages, rate.bytes, max(rate.period_s, 1)
        if rate.relative:
            messages += int(self._rates_in[0] * period_s) if messages > 0 else 0
            size += int(self._rates_in[1] * period_s) if size > 0 else 0
        return self._broker.limited(limit, messages, size, period_s * 1000)

    def lift(self) -> None:
        """The topic is closed: connections that wait for it go on."""
        if self._publish is not None:
            self._publish.lift()


def _remote_of(subscription: ThrottledSubscription) -> str | None:
    """The cluster that a subscription is read for, None for one of a client, empty for a pipeline that only watches."""
    if subscription.is_internal:
        return remote_of(subscription.name)
    for consumer in subscription.consumers:
        if ROUTE_FINGERPRINT in consumer.metadata:
            return consumer.metadata[ROUTE_FINGERPRINT].partition("/")[0]
        if PIPELINE in consumer.metadata:
            return ""
    return None


def is_of_replication(metadata: Mapping[str, str]) -> bool:
    """Whether a pipeline reads by the consumer with these properties."""
    return PIPELINE in metadata or ROUTE_FINGERPRINT in metadata

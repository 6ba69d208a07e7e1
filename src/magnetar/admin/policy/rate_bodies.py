"""The JSON bodies of rates, with Pulsar's field names. 0 and -1 are no limit."""

from __future__ import annotations

import msgspec

from magnetar.admin.policy.bodies import Int32, Int64
from magnetar.broker.catalog.rate_policy import DispatchRate, PublishRate, SubscribeRate
from magnetar.errors import NotAllowed


class PublishRateBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    publish_throttling_rate_in_msg: Int32 = -1
    publish_throttling_rate_in_byte: Int64 = -1

    def kept(self) -> PublishRate:
        _check_rate("publishThrottlingRateInMsg", self.publish_throttling_rate_in_msg)
        _check_rate("publishThrottlingRateInByte", self.publish_throttling_rate_in_byte)
        return PublishRate(self.publish_throttling_rate_in_msg, self.publish_throttling_rate_in_byte)

    @classmethod
    def of(cls, rate: PublishRate) -> PublishRateBody:
        return cls(rate.messages, rate.bytes)


class DispatchRateBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    dispatch_throttling_rate_in_msg: Int32 = -1
    dispatch_throttling_rate_in_byte: Int64 = -1
    relative_to_publish_rate: bool = False
    rate_period_in_second: Int32 = 1

    def kept(self) -> DispatchRate:
        _check_rate("dispatchThrottlingRateInMsg", self.dispatch_throttling_rate_in_msg)
        _check_rate("dispatchThrottlingRateInByte", self.dispatch_throttling_rate_in_byte)
        _check_period(self.rate_period_in_second)
        return DispatchRate(
            self.dispatch_throttling_rate_in_msg,
            self.dispatch_throttling_rate_in_byte,
            self.relative_to_publish_rate,
            self.rate_period_in_second,
        )

    @classmethod
    def of(cls, rate: DispatchRate) -> DispatchRateBody:
        return cls(rate.messages, rate.bytes, rate.relative, rate.period_s)


class SubscribeRateBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    subscribe_throttling_rate_per_consumer: Int32 = -1
    rate_period_in_second: Int32 = 30

    def kept(self) -> SubscribeRate:
        _check_rate("subscribeThrottlingRatePerConsumer", self.subscribe_throttling_rate_per_consumer)
        _check_period(self.rate_period_in_second)
        return SubscribeRate(self.subscribe_throttling_rate_per_consumer, self.rate_period_in_second)

    @classmethod
    def of(cls, rate: SubscribeRate) -> SubscribeRateBody:
        return cls(rate.per_consumer, rate.period_s)


def _check_rate(name: str, value: int) -> None:
    if value < -1:
        raise NotAllowed(f"{name} {value} must be above 0, or -1 for no limit")


def _check_period(value: int) -> None:
    if value < 1:
        raise NotAllowed(f"ratePeriodInSecond {value} must be 1 or more")


class SubscriptionPolicies(msgspec.Struct, rename="camel"):
    """What is set for one subscription, in Pulsar's object of all policies of a topic."""

    dispatch_rate: DispatchRateBody


def shown_dispatch_rates(rates: dict[str, DispatchRate]) -> dict[str, SubscriptionPolicies]:
    return {name: SubscriptionPolicies(DispatchRateBody.of(rate)) for name, rate in rates.items()}

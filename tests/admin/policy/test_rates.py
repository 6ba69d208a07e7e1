"""Rates over REST: what Pulsar's clients send, values that would have no meaning, and rates of single subscriptions."""

from __future__ import annotations

import pytest

from magnetar.bounds import SUBSCRIPTION_DISPATCH_RATES
from tests.admin.driver import Admin

DEFAULT = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/t"

RATE = {
    "dispatchThrottlingRateInMsg": 10,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
NO_RATE = {
    "dispatchThrottlingRateInMsg": 0,
    "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}


@pytest.fixture
def admin() -> Admin:
    admin = Admin()
    admin.done("PUT", TOPIC)
    return admin


@pytest.mark.parametrize("level", [DEFAULT, TOPIC])
@pytest.mark.parametrize(
    ("part", "body", "reason"),
    [
        (
            "publishRate",
            {"publishThrottlingRateInMsg": -2},
            "publishThrottlingRateInMsg -2 must be above 0, or -1 for no limit",
        ),
        (
            "dispatchRate",
            {"dispatchThrottlingRateInByte": -9},
            "dispatchThrottlingRateInByte -9 must be above 0, or -1 for no limit",
        ),
        ("subscriptionDispatchRate", {"ratePeriodInSecond": 0}, "ratePeriodInSecond 0 must be 1 or more"),
        ("subscribeRate", {"ratePeriodInSecond": -1}, "ratePeriodInSecond -1 must be 1 or more"),
    ],
)
def test_numbers_without_a_meaning_are_refused(
    admin: Admin, level: str, part: str, body: dict[str, int], reason: str
) -> None:
    assert admin.reason(412, "POST", f"{level}/{part}", json=body) == reason


def test_fields_that_are_left_out_have_pulsars_defaults(admin: Admin) -> None:
    admin.done("POST", f"{TOPIC}/dispatchRate", json={"dispatchThrottlingRateInMsg": 10})
    assert admin.get(f"{TOPIC}/dispatchRate") == RATE
    admin.done("POST", f"{TOPIC}/subscribeRate", json={"subscribeThrottlingRatePerConsumer": 2})
    assert admin.get(f"{TOPIC}/subscribeRate")["ratePeriodInSecond"] == 30


def test_a_rate_without_limits_leaves_the_one_above_in_force(admin: Admin) -> None:
    admin.done("POST", f"{DEFAULT}/dispatchRate", json=RATE)
    unlimited = {**RATE, "dispatchThrottlingRateInMsg": -1}
    admin.done("POST", f"{TOPIC}/dispatchRate", json=unlimited)
    assert admin.get(f"{TOPIC}/dispatchRate") == unlimited
    assert admin.get(f"{TOPIC}/dispatchRate?applied=true") == RATE
    assert admin.broker.topics["persistent://public/default/t"].policies.dispatch_rate.messages == 10


def test_the_rate_of_one_subscription(admin: Admin) -> None:
    path = f"{TOPIC}/s/dispatchRate"
    assert admin("GET", path).content == b"" and admin.get(f"{path}?applied=true") == NO_RATE
    admin.done("POST", f"{DEFAULT}/subscriptionDispatchRate", json=RATE)
    assert admin.get(f"{path}?applied=true") == RATE
    own = {**RATE, "dispatchThrottlingRateInMsg": 77}
    admin.done("POST", path, json=own)  # the subscription does not exist yet, as in Pulsar
    for one in (admin, admin.after_crash()):
        assert one.get(path) == one.get(f"{path}?applied=true") == own
        assert one.get(f"{TOPIC}/policies")["subscriptionPolicies"] == {"s": {"dispatchRate": own}}
    admin.done("DELETE", path)
    assert admin("GET", path).content == b"" and admin.get(f"{path}?applied=true") == RATE
    admin.done("DELETE", path)
    admin.reason(400, "POST", path, content=b"")
    admin.reason(404, "POST", f"{TOPIC}x/s/dispatchRate", json=own)


def test_bound_subscription_dispatch_rates(admin: Admin) -> None:
    for index in range(SUBSCRIPTION_DISPATCH_RATES.limit):
        admin.done("POST", f"{TOPIC}/s{index}/dispatchRate", json=RATE)
    reason = admin.reason(412, "POST", f"{TOPIC}/one/dispatchRate", json=RATE)
    assert reason == (
        "topic persistent://public/default/t has 1000 subscriptions with a dispatch rate of their own,"
        " the limit is 1000"
    )
    admin.done("POST", f"{TOPIC}/s5/dispatchRate", json=NO_RATE)
    admin.done("DELETE", f"{TOPIC}/s5/dispatchRate")
    admin.done("POST", f"{TOPIC}/one/dispatchRate", json=RATE)


def test_what_had_to_wait_is_in_stats_and_metrics(admin: Admin) -> None:
    name = "persistent://public/default/t"
    path = f"{TOPIC}/stats"
    admin.done("POST", f"{TOPIC}/publishRate", json={"publishThrottlingRateInMsg": 2})
    admin.done("POST", f"{TOPIC}/dispatchRate", json={"dispatchThrottlingRateInMsg": 1})
    admin.done("POST", f"{TOPIC}/subscriptionDispatchRate", json={"dispatchThrottlingRateInByte": 1})
    admin.publish("t", b"a", b"b", b"c")
    admin.subscribe("t", "s", permits=10)
    admin.broker.pump()
    stats = admin.get(path)
    assert stats["publishRateLimitedTimes"] > 0
    events = {key: value for key, value in stats["subscriptions"]["s"].items() if key.startswith("dispatchThrottled")}
    assert events == {
        "dispatchThrottledMsgEventsBySubscriptionLimit": 0,
        "dispatchThrottledMsgEventsByTopicLimit": 1,
        "dispatchThrottledMsgEventsByBrokerLimit": 0,
        "dispatchThrottledBytesEventsBySubscriptionLimit": 0,
        "dispatchThrottledBytesEventsByTopicLimit": 0,
        "dispatchThrottledBytesEventsByBrokerLimit": 0,
    }
    lines = admin("GET", "/metrics/").text.splitlines()
    labels = f'cluster="standalone",namespace="public/default",topic="{name}"'
    assert f"pulsar_publish_rate_limit_times{{{labels}}} {stats['publishRateLimitedTimes']}" in lines
    for kind, reason, count in (("msg", "topic", 1), ("msg", "broker", 0), ("bytes", "subscription", 0)):
        of = f'{labels},subscription="s",reason="{reason}"'
        assert f"pulsar_subscription_dispatch_throttled_{kind}_events{{{of}}} {count}" in lines
    admin.done("DELETE", f"{TOPIC}/publishRate")
    assert admin.get(path)["publishRateLimitedTimes"] == stats["publishRateLimitedTimes"]  # a total

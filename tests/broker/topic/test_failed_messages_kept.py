"""DL10: no policy of a namespace or of the broker loses a failed message; those of the topic itself apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.catalog.policies import (
    BacklogQuota,
    DelayedDelivery,
    Overrides,
    Policies,
    QuotaKind,
    QuotaPolicy,
    Retention,
)
from magnetar.broker.subscription.consumer import SubscriptionType
from magnetar.names import TopicName
from magnetar.settings.settings import Settings
from tests.broker.catalog.test_policies import at_namespace, at_topic
from tests.broker.dead_letters import DLQ, fail, letters, with_policy
from tests.broker.world import World

RETRY = "t-s-RETRY"
INSPECTION = "inspection"
HASTY = {
    "retentionCheckIntervalInSeconds": 5,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerMaxSizePerLedgerMbytes": 1,
}


def quota(limit: int, policy: QuotaPolicy, kind: QuotaKind = QuotaKind.destination_storage) -> dict[str, Any]:
    return {"backlog_quotas": {kind: BacklogQuota(limit, policy)}}


def dead(world: World, count: int = 10, topic: str = "", subscription: str = INSPECTION) -> str:
    """Messages of t that the broker moves to a dead letter topic, which has a durable subscription."""
    world.publish(count)
    consumer = world.consumer()
    options = {"topic": topic} if topic else {}
    with_policy(world, 1, **options, **({"initial_subscription": subscription} if subscription else {}))
    for _ in range(2):
        fail(world, consumer, *range(count))
    return topic or DLQ


WAYS: dict[str, Callable[[World], None]] = {
    "time to live": lambda world: at_namespace(world, message_ttl_s=30),
    "size quota": lambda world: at_namespace(world, **quota(10, QuotaPolicy.consumer_backlog_eviction)),
    "age quota": lambda world: at_namespace(
        world, **quota(30, QuotaPolicy.consumer_backlog_eviction, QuotaKind.message_age)
    ),
    "retention": lambda world: at_namespace(world, retention=Retention(0, 0)),
    "short retention": lambda world: at_namespace(world, retention=Retention(1, 1)),
}


@pytest.mark.parametrize("topic", ["", "graveyard"])
@pytest.mark.parametrize("way", WAYS)
def test_dl10_no_policy_of_a_namespace_loses_a_dead_letter(way: str, topic: str) -> None:
    world = World(**HASTY)
    name = dead(world, topic=topic)
    WAYS[way](world)
    world.advance(days=400)
    assert (len(letters(world, name)), world.subscription(INSPECTION, name).backlog) == (10, 10)
    again = world.restart(**HASTY)
    again.advance(days=400)
    assert (len(letters(again, name)), again.subscription(INSPECTION, name).backlog) == (10, 10)


@pytest.mark.parametrize(
    "settings",
    [
        {"ttlDurationDefaultInSeconds": 30},
        {"backlogQuotaDefaultLimitBytes": 10, "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction"},
        {"backlogQuotaDefaultLimitSecond": 30, "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction"},
        {"defaultRetentionTimeInMinutes": 1, "defaultRetentionSizeInMB": 1},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_dl10_no_setting_of_the_broker_loses_a_dead_letter(settings: dict[str, Any]) -> None:
    world = World(**HASTY, **settings)
    dead(world)
    world.advance(days=400)
    assert (len(letters(world)), world.subscription(INSPECTION, DLQ).backlog) == (10, 10)


@pytest.mark.parametrize("way", list(WAYS)[:3])
def test_dl10_a_policy_of_the_dead_letter_topic_itself_applies(way: str) -> None:
    world = World(**HASTY)
    dead(world)
    own = {"time to live": {"message_ttl_s": 30}, "size quota": quota(10, QuotaPolicy.consumer_backlog_eviction)}
    aged = quota(30, QuotaPolicy.consumer_backlog_eviction, QuotaKind.message_age)
    at_namespace(world, dead_letter_expired=True, dead_letter_evicted=True)  # dead letters have no dead letters
    at_topic(world, DLQ, **own.get(way, aged))
    world.advance(minutes=10)
    assert world.subscription(INSPECTION, DLQ).backlog == 0


def test_dl10_retention_of_the_dead_letter_topic_itself_applies_without_a_subscription() -> None:
    world = World(**HASTY)
    dead(world, subscription="")
    at_namespace(world, retention=Retention(1, 1))
    world.advance(days=1)
    assert len(letters(world)) == 10
    at_topic(world, DLQ, retention=Retention(1, -1))
    world.advance(days=1)
    assert letters(world) == []


def test_dl10_letters_from_before_the_first_subscription_are_kept() -> None:
    """A subscription begins at the end unless the client says otherwise: no consumer has seen what is before it."""
    world = World(**HASTY)
    dead(world, subscription="")
    world.consumer("late", DLQ, earliest=False)
    assert world.subscription("late", DLQ).backlog == 0
    world.advance(days=1)
    assert len(letters(world)) == 10
    again = world.restart(**HASTY)
    again.advance(days=1)
    assert len(letters(again)) == 10
    again.subscription("late", DLQ).seek(0)
    again.settle()
    assert again.subscription("late", DLQ).backlog == 10
    again.subscription("late", DLQ).advance(9)
    again.advance(days=1)
    assert letters(again) == []


def test_dl10_handled_letters_are_deleted_as_the_namespace_says() -> None:
    world = World(**HASTY)
    dead(world)
    world.subscription(INSPECTION, DLQ).advance(4)
    world.advance(days=1)
    assert len(letters(world)) == 5
    at_namespace(world, retention=Retention(-1, -1))
    world.subscription(INSPECTION, DLQ).advance(9)
    world.advance(days=1)
    assert len(letters(world)) == 5


def test_dl10_a_quota_of_the_namespace_holds_no_producer_of_dead_letters() -> None:
    world = World()
    for policy in (QuotaPolicy.producer_request_hold, QuotaPolicy.producer_exception):
        for topic in (DLQ, RETRY):
            world.publish(10, topic)
            world.consumer("w", topic)
            at_namespace(world, **quota(10, policy))
            world.advance(minutes=5)
            assert world.client.closed == []
            world.producer(topic, name=f"second {policy}")


@pytest.mark.parametrize("policy", [DelayedDelivery(False), DelayedDelivery(True, max_ms=1000)])
def test_dl7_retry_topics_keep_their_delays_whatever_the_namespace_says(policy: DelayedDelivery) -> None:
    world = World(delayedDeliveryEnabled=policy.active)
    at_namespace(world, delayed_delivery=policy, message_ttl_s=30)
    world.consumer("s", RETRY, type=SubscriptionType.Shared)
    world.publish(1, RETRY, deliver_at_ms=world.clock.now_ms() + 3_600_000)
    world.advance(minutes=59)
    assert (world.client.errors, world.client.take()) == ([], [])
    world.advance(minutes=2)
    assert world.client.take() == [0]


def test_dl10_a_retry_topic_without_a_subscription_is_not_trimmed() -> None:
    world = World(**HASTY)
    world.publish(3, RETRY)
    world.advance(days=1)
    assert world.topic(RETRY).log.first == 0


def test_dl10_all_partitions_of_a_custom_dead_letter_topic_are_kept() -> None:
    world = World(**HASTY)
    world.broker.catalog.create_partitioned(TopicName.parse("graveyard"), 3, {})
    dead(world, 1, topic="graveyard")
    for one in (world, world.restart(**HASTY)):
        at_namespace(one, message_ttl_s=30)
        for index in range(3):
            assert one.topic(f"graveyard-partition-{index}").policies.ttl_ms == 0
        assert one.broker.catalog.policies_of_topic(TopicName.parse("graveyard")).ttl_ms == 0


def test_dl10_the_policies_of_other_topics_are_those_of_the_namespace() -> None:
    world = World(**HASTY)
    at_namespace(world, message_ttl_s=30, delayed_delivery=DelayedDelivery(False))
    assert world.topic("t").policies.ttl_ms == 30_000
    assert world.topic("t-DLQ-x").policies.ttl_ms == 30_000
    assert not world.topic("t").policies.delayed_delivery.active


def test_dl10_nothing_that_loses_messages_is_left_in_the_policies() -> None:
    namespace = Policies.of(Settings()).with_overrides(
        Overrides(
            message_ttl_s=1,
            delayed_delivery=DelayedDelivery(False, 5),
            dead_letter_expired=True,
            dead_letter_evicted=True,
            **quota(1, QuotaPolicy.consumer_backlog_eviction),
        )
    )
    kept = namespace.for_failed_messages()
    changed = {name for name in Policies.__struct_fields__ if getattr(kept, name) != getattr(namespace, name)}
    assert changed == {
        "ttl_ms",
        "quota_bytes",
        "delayed_delivery",
        "dead_letter_expired",
        "dead_letter_evicted",
        "keeps_unhandled",
    }

"""A subscription's handling of failed messages, set over REST (DL3), and its statistics and metrics."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.broker.catalog.failure_policy import BACKOFF_MS_MAX, BACKOFF_STEPS_MAX, DeadLetterPolicy
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.topic.topic import SubscribeRequest
from tests.admin.driver import Admin, Listener
from tests.admin.failed_messages import (
    BACKOFF,
    BREAKER,
    DLQ,
    FULL,
    NAMESPACE,
    PATH,
    POLICY,
    SUBSCRIPTION,
    fail,
    kill,
    settle,
    subscription_of,
    topic_of,
)


@pytest.fixture
def idle(admin: Admin) -> Admin:
    """A broker with an unused subscription."""
    admin.unsubscribe_idle(admin.subscribe("t", "s"))
    return admin


# -- the policy


def test_dl3_a_policy_is_set_shown_stored_and_removed(idle: Admin) -> None:
    response = idle("GET", POLICY)
    assert (response.status_code, response.content) == (200, b"")
    idle.done("POST", POLICY, json={"maxRedeliverCount": 3})
    shown = {"maxRedeliverCount": 3, "deadLetterTopic": f"{FULL}/t-s-DLQ", "source": "subscription: REST"}
    assert idle.get(POLICY) == shown
    assert idle.after_crash().get(POLICY) == shown
    body = {"maxRedeliverCount": 1, "deadLetterTopic": "dead", "initialSubscriptionName": "inspection"}
    idle.done("POST", POLICY, json=body)
    assert idle.get(POLICY) == {**body, "deadLetterTopic": f"{FULL}/dead", "source": "subscription: REST"}
    idle.done("DELETE", POLICY)
    assert idle("GET", POLICY).content == b""
    assert idle.after_crash()("GET", POLICY).content == b""


def test_dl3_the_latest_policy_wins_whatever_its_source(idle: Admin) -> None:
    idle.done("POST", POLICY, json={"maxRedeliverCount": 3})
    subscription_of(idle).set_dead_letter_policy(DeadLetterPolicy(5), "consumer c1")
    assert idle.get(POLICY)["maxRedeliverCount"] == 5
    assert idle.get(POLICY)["source"] == "subscription: consumer c1"
    idle.done("POST", POLICY, json={"maxRedeliverCount": 7})
    assert (idle.get(POLICY)["maxRedeliverCount"], idle.get(POLICY)["source"]) == (7, "subscription: REST")


def test_dl3_the_default_of_the_namespace(idle: Admin) -> None:
    idle.done("POST", f"{NAMESPACE}/deadLetterPolicy", json={"maxRedeliverCount": 9})
    assert idle.get(f"{NAMESPACE}/deadLetterPolicy") == {"maxRedeliverCount": 9}
    assert idle.get(POLICY) == {
        "maxRedeliverCount": 9,
        "deadLetterTopic": f"{FULL}/t-s-DLQ",
        "source": "namespace",
    }
    idle.done("POST", POLICY, json={"maxRedeliverCount": 3})
    assert idle.get(POLICY)["maxRedeliverCount"] == 3
    idle.done("DELETE", POLICY)
    assert idle.get(POLICY)["source"] == "namespace"
    idle.done("DELETE", f"{NAMESPACE}/deadLetterPolicy")
    assert idle("GET", POLICY).content == b""


def test_dl3_a_dead_letter_topic_begins_with_no_subscription_of_a_route(idle: Admin) -> None:
    body = {"maxRedeliverCount": 1, "initialSubscriptionName": "pulsar.repl.west"}
    paths = ("/admin/v2/namespaces/public/default/deadLetterPolicy", POLICY)
    reasons = {idle.reason(412, "POST", path, json=body) for path in paths}
    reasons.add(idle.reason(412, "PUT", "/admin/v2/namespaces/public/new", json={"deadLetterPolicy": body}))
    assert reasons == {"initialSubscriptionName 'pulsar.repl.west' is reserved for replication"}
    assert [idle("GET", path).content for path in paths] == [b"", b""]


def test_dl3_a_policy_set_over_rest_is_applied(admin: Admin) -> None:
    kill(admin, b"one")
    assert [one["reason"] for one in admin.get(DLQ)["deadLetters"]] == ["MaxRedeliveries"]
    assert subscription_of(admin).backlog == 0


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, ("empty", "maxRedeliverCount")),
        (b"{}", 400, ("maxRedeliverCount",)),
        (b'{"maxRedeliverCount": 0}', 400, ("maxRedeliverCount", ">= 1")),
        (b'{"maxRedeliverCount": 2147483648}', 400, ("maxRedeliverCount", "2147483647")),
        (b'{"maxRedeliverCount": "three"}', 400, ("maxRedeliverCount",)),
        (b'{"maxRedeliverCount": 3, "retryLetterTopic": "x"}', 400, ("retryLetterTopic",)),
        (b'{"maxRedeliverCount": 3, "source": "x"}', 400, ("source",)),
        (b'{"maxRedeliverCount": 3, "deadLetterTopic": "a/b"}', 412, ("deadLetterTopic", "a/b")),
        (b'{"maxRedeliverCount": 3, "deadLetterTopic": [3]}', 400, ("deadLetterTopic",)),
        (b'{"maxRedeliverCount": 3, "deadLetterTopic": "non-persistent://public/default/x"}', 412, ("not persistent",)),
        (b'{"maxRedeliverCount": 3, "deadLetterTopic": "public/default/t"}', 412, ("itself", "default/t")),
        (b'{"maxRedeliverCount": 3, "deadLetterTopic": "public/nowhere/x"}', 412, ("nowhere",)),
        (b'{"maxRedeliverCount": 3, "deadLetterTopic": "x-partition-3"}', 412, ("x-partition-3",)),
        (b'{"maxRedeliverCount": 3, "initialSubscriptionName": "%s"}' % (b"x" * 1025), 412, ("1025", "1024")),
    ],
)
def test_dl3_an_invalid_policy_is_rejected_by_name(
    idle: Admin, body: bytes, status: int, words: tuple[str, ...]
) -> None:
    reason = idle.reason(status, "POST", POLICY, content=body)
    for word in words:
        assert word in reason
    assert idle("GET", POLICY).content == b""


def test_dl3_no_dead_letters_of_an_auto_created_dead_letter_topic(admin: Admin) -> None:
    admin.unsubscribe_idle(admin.subscribe("t", "s"))
    admin.unsubscribe_idle(admin.subscribe("t-s-DLQ", "s"))
    path = f"{PATH}/t-s-DLQ/subscription/s/deadLetterPolicy"
    assert "t-s-DLQ-s-DLQ" in admin.reason(412, "POST", path, json={"maxRedeliverCount": 1})
    admin.done("POST", path, json={"maxRedeliverCount": 1, "deadLetterTopic": "graveyard"})


def test_dl3_a_policy_applies_to_all_partitions(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/many/partitions", json=2)
    path = f"{PATH}/many/subscription/s"
    admin.subscribe(f"{FULL}/many-partition-0", "s")
    admin.reason(404, "POST", f"{path}/deadLetterPolicy", json={"maxRedeliverCount": 3})
    assert subscription_of(admin, "many-partition-0").record.dead_letters is None
    admin.done("PUT", path)
    admin.done("POST", f"{path}/deadLetterPolicy", json={"maxRedeliverCount": 3})
    assert admin.get(f"{path}/deadLetterPolicy") == {
        "maxRedeliverCount": 3,
        "deadLetterTopic": f"{FULL}/many-s-DLQ",
        "source": "subscription: REST",
    }
    for index in range(2):
        one = f"{PATH}/many-partition-{index}/subscription/s/deadLetterPolicy"
        assert admin.get(one)["deadLetterTopic"] == f"{FULL}/many-s-DLQ"
    admin.done("DELETE", f"{PATH}/many-partition-1/subscription/s/deadLetterPolicy")
    assert admin.get(f"{path}/deadLetterPolicy")["differs"] == [f"{FULL}/many-partition-1"]
    admin.reason(412, "POST", f"{path}/deadLetterPolicy", json={"maxRedeliverCount": 3, "deadLetterTopic": "many"})


def test_new_partitions_inherit_the_handling_of_failures(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/many/partitions", json=1)
    path = f"{PATH}/many/subscription/s"
    admin.done("PUT", path, json={"properties": {"k": "v"}})
    admin.done("POST", f"{path}/deadLetterPolicy", json={"maxRedeliverCount": 3})
    admin.done("POST", f"{path}/redeliveryBackoff", json=[5])
    admin.done("POST", f"{path}/circuitBreaker", json={"percent": 50})
    admin.done("POST", f"{PATH}/many/partitions", json=3)
    again = admin.after_crash()
    first, *others = (subscription_of(again, f"many-partition-{index}").record for index in range(3))
    for other in others:
        assert other.id != first.id
        assert (other.dead_letters, other.dead_letters_from) == (first.dead_letters, "REST")
        assert (other.backoff_ms, other.breaker, other.properties) == ([5], first.breaker, {"k": "v"})


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("deadLetterPolicy", {"maxRedeliverCount": 3}),
        ("redeliveryBackoff", [1]),
        ("circuitBreaker", {"percent": 50}),
        ("pause", None),
        ("resume", None),
    ],
)
def test_only_durable_subscriptions_of_persistent_topics(admin: Admin, name: str, body: Any) -> None:
    admin.subscribe("t", "s", durable=False)
    assert "durable" in admin.reason(412, "POST", f"{SUBSCRIPTION}/{name}", json=body)
    admin.subscribe("non-persistent://public/default/v", "s")
    path = f"/admin/v2/non-persistent/public/default/v/subscription/s/{name}"
    assert "persistent topic" in admin.reason(405, "POST", path, json=body)
    assert "missing" in admin.reason(404, "POST", f"{PATH}/t/subscription/missing/{name}", json=body)
    assert "gone" in admin.reason(404, "POST", f"{PATH}/gone/subscription/s/{name}", json=body)


# -- back-off, breaker, pausing


def test_a_backoff_is_set_stored_applied_and_removed(admin: Admin) -> None:
    consumer = admin.subscribe("t", "s", permits=10)
    admin.publish("t", b"a")
    settle(admin)
    assert admin("GET", BACKOFF).content == b""
    admin.done("POST", BACKOFF, json=[1000, 60_000])
    assert admin.get(BACKOFF) == admin.after_crash().get(BACKOFF) == [1000, 60_000]
    fail(admin, consumer, 0)
    assert admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]["backingOff"] == 1
    admin.done("DELETE", BACKOFF)
    assert admin("GET", BACKOFF).content == b""


def test_in_ordered_types_the_next_message_backs_off(admin: Admin) -> None:
    consumer = Consumer(Listener(), 3, "c", SubscriptionType.Exclusive)
    topic_of(admin).subscribe(consumer, SubscribeRequest("s", from_earliest=True))
    admin.done("POST", BACKOFF, json=[1000])
    admin.publish("t", b"a", b"b")
    subscription_of(admin).flow(consumer, 10)
    settle(admin)
    fail(admin, consumer, 0)
    assert admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]["backingOff"] == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "length >= 1"),
        ([-1], "$[0]"),
        ([BACKOFF_MS_MAX + 1], str(BACKOFF_MS_MAX)),
        (["1s"], "int"),
        ({"delays": [1]}, "array"),
        (None, "empty"),
    ],
)
def test_an_invalid_backoff_is_rejected(idle: Admin, body: Any, words: str) -> None:
    assert words in idle.reason(400, "POST", BACKOFF, json=body)
    assert idle("GET", BACKOFF).content == b""


def test_bound_backoff_steps(idle: Admin) -> None:
    assert str(BACKOFF_STEPS_MAX) in idle.reason(400, "POST", BACKOFF, json=[1] * (BACKOFF_STEPS_MAX + 1))
    idle.done("POST", BACKOFF, json=[1] * BACKOFF_STEPS_MAX)


def test_a_breaker_is_set_stored_and_removed(idle: Admin) -> None:
    assert idle("GET", BREAKER).content == b""
    idle.done("POST", BREAKER, json={"percent": 50})
    assert idle.get(BREAKER) == {"percent": 50, "windowSeconds": 60, "minimum": 10}
    idle.done("POST", BREAKER, json={"percent": 0, "windowSeconds": 5, "minimum": 1})
    assert idle.after_crash().get(BREAKER) == {"percent": 0, "windowSeconds": 5, "minimum": 1}
    idle.done("DELETE", BREAKER)
    assert idle("GET", BREAKER).content == b""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"percent": 100}, "$.percent"),
        ({"percent": -1}, "$.percent"),
        ({}, "percent"),
        ({"percent": 1, "windowSeconds": 0}, "$.windowSeconds"),
        ({"percent": 1, "windowSeconds": 86_401}, "86400"),
        ({"percent": 1, "minimum": 0}, "$.minimum"),
        ({"percent": 1, "seconds": 3}, "seconds"),
    ],
)
def test_an_invalid_breaker_is_rejected_by_name(idle: Admin, body: Any, words: str) -> None:
    assert words in idle.reason(400, "POST", BREAKER, json=body)


def test_a_breaker_pauses_with_a_reason_and_one_command_resumes(admin: Admin) -> None:
    consumer = admin.subscribe("t", "s", permits=100)
    admin.publish("t", *[b"x"] * 4)
    settle(admin)
    admin.done("POST", POLICY, json={"maxRedeliverCount": 1})
    admin.done("POST", BREAKER, json={"percent": 50, "minimum": 2})
    fail(admin, consumer, 0, 1)
    fail(admin, consumer, 0, 1)
    stats = admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]
    assert stats["pausedReason"] == "1 of 1 messages within 60 s are dead: one more would exceed the limit of 50 %"
    assert stats["deadLettered"] == {"MaxRedeliveries": 1}
    admin.done("POST", f"{SUBSCRIPTION}/resume")
    settle(admin)
    assert "pausedReason" not in admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]
    fail(admin, consumer, 1)
    assert len(admin.get(DLQ)["deadLetters"]) == 2


def test_pause_and_resume(admin: Admin) -> None:
    consumer = admin.subscribe("t", "s", permits=100)
    admin.done("POST", f"{SUBSCRIPTION}/pause", json={"reason": "until the new release"})
    admin.publish("t", b"a")
    settle(admin)
    assert consumer.peer.delivered == []  # type: ignore[attr-defined]  # the driver's listener
    again = admin.after_crash()
    assert again.get(f"{PATH}/t/stats")["subscriptions"]["s"]["pausedReason"] == "until the new release"
    admin.done("POST", f"{SUBSCRIPTION}/pause")
    assert "administrator" in admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]["pausedReason"]
    for _ in range(2):  # the second call has no effect
        admin.done("POST", f"{SUBSCRIPTION}/resume")
        settle(admin)
    assert consumer.peer.delivered == [0]  # type: ignore[attr-defined]
    assert "reason" in admin.reason(400, "POST", f"{SUBSCRIPTION}/pause", json={"reason": ""})
    assert "why" in admin.reason(400, "POST", f"{SUBSCRIPTION}/pause", json={"why": "x"})
    assert "1000" in admin.reason(400, "POST", f"{SUBSCRIPTION}/pause", json={"reason": "x" * 1001})


def test_pausing_a_partitioned_topic_pauses_all_partitions(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/many/partitions", json=2)
    admin.done("PUT", f"{PATH}/many/subscription/s")
    admin.done("POST", f"{PATH}/many/subscription/s/pause", json={"reason": "why"})
    assert [subscription_of(admin, f"many-partition-{index}").record.paused for index in range(2)] == ["why"] * 2
    stats = admin.get(f"{PATH}/many/partitioned-stats")["subscriptions"]["s"]
    assert stats["pausedReason"] == "why"
    admin.done("POST", f"{PATH}/many/subscription/s/resume")
    assert "pausedReason" not in admin.get(f"{PATH}/many/partitioned-stats")["subscriptions"]["s"]


# -- numbers


def test_subscription_stats_show_failures(admin: Admin) -> None:
    kill(admin, b"a", b"b")
    stats = admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]
    assert stats["deadLetterPolicy"] == admin.get(POLICY)
    assert stats["deadLettered"] == {"MaxRedeliveries": 2}
    assert stats["msgRedeliverCounter"] == 4
    assert (stats["suspects"], stats["backingOff"]) == (0, 0)
    assert "deadLetterProblem" not in stats and "pausedReason" not in stats


def test_stats_show_why_a_dead_letter_cannot_be_written(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t-s-DLQ")
    assert admin("POST", f"{PATH}/t-s-DLQ/terminate").status_code == 200
    kill(admin, b"a")
    stats = admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]
    assert "terminated" in stats["deadLetterProblem"] and stats["msgBacklog"] == 1


def test_dl13_current_suspects_are_counted(admin: Admin) -> None:
    consumer = admin.subscribe("t", "s", permits=3)
    admin.done("POST", POLICY, json={"maxRedeliverCount": 1})
    admin.publish("t", *[b"x"] * 5)
    settle(admin)
    subscription = subscription_of(admin)
    subscription.remove_consumer(consumer, vanished=True)
    settle(admin)

    def suspects(admin: Admin) -> int:
        count: int = admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]["suspects"]
        return count

    assert suspects(admin) == suspects(admin.after_crash()) == 3
    subscription.ack(2)
    assert suspects(admin) == 2
    subscription.ack(0)
    assert suspects(admin) == 1
    admin.done("POST", f"{SUBSCRIPTION}/resetcursor/0")
    assert suspects(admin) == suspects(admin.after_crash()) == 0


def test_partitions_are_summed(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/many/partitions", json=2)
    for index in range(2):
        name = f"{FULL}/many-partition-{index}"
        consumer = admin.subscribe(name, "s", permits=10)
        admin.publish(name, b"a")
        settle(admin)
        admin.done(
            "POST", f"{PATH}/many-partition-{index}/subscription/s/deadLetterPolicy", json={"maxRedeliverCount": 1}
        )
        fail(admin, consumer, 0)
        fail(admin, consumer, 0)
    answer = admin.get(f"{PATH}/many/partitioned-stats")
    assert answer["subscriptions"]["s"]["deadLettered"] == {"MaxRedeliveries": 2}
    assert answer["subscriptions"]["s"]["msgRedeliverCounter"] == 4
    assert answer["subscriptions"]["s"]["deadLetterPolicy"]["maxRedeliverCount"] == 1
    partitions = answer["partitions"].values()
    assert [one["subscriptions"]["s"]["deadLettered"] for one in partitions] == [{"MaxRedeliveries": 1}] * 2
    assert admin.get(f"{PATH}/many-s-DLQ/deadLetters/stats")["deadLetters"] == 2


def test_metrics_of_failures(admin: Admin) -> None:
    kill(admin, b"a", b"b")
    admin.done("POST", f"{SUBSCRIPTION}/pause")
    lines = admin("GET", "/metrics/").text.splitlines()
    labels = f'cluster="standalone",namespace="public/default",topic="{FULL}/t",subscription="s"'
    for line in (
        f"magnetar_subscription_redelivered_total{{{labels}}} 4",
        f'magnetar_subscription_dead_lettered_total{{{labels},reason="MaxRedeliveries"}} 2',
        f"magnetar_subscription_suspects{{{labels}}} 0",
        f"magnetar_subscription_backing_off{{{labels}}} 0",
        f"magnetar_subscription_paused{{{labels}}} 1",
        "# TYPE magnetar_subscription_dead_lettered_total counter",
        "# TYPE magnetar_subscription_suspects gauge",
    ):
        assert line in lines


def test_namespace_metrics_are_the_sum() -> None:
    admin = Admin(exposeTopicLevelMetricsInPrometheus=False)
    kill(admin, b"a", b"b")
    lines = admin("GET", "/metrics/").text.splitlines()
    labels = 'cluster="standalone",namespace="public/default"'
    assert f"magnetar_subscription_dead_lettered_total{{{labels}}} 2" in lines

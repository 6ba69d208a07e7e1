"""Policies of namespaces and topics: the exact requests, and the round trip through the broker."""

from __future__ import annotations

import shlex

import pytest

from magnetar.cli.policies.table import POLICIES
from tests.cli.conftest import CommandLine, Recorder, Request

NAMESPACE = "/admin/v2/namespaces/acme/shop"
TOPIC = "/admin/v2/persistent/acme/shop/orders"

# (options of set, path of a namespace, path of a topic, body)
CASES: list[tuple[str, str, str | None, str | None, object]] = [
    ("retention", "-t 3h -s 10M", "retention", "retention", {"retentionTimeInMinutes": 180, "retentionSizeInMB": 10}),
    ("retention", "-t -1 --size=-1", "retention", "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}),
    ("message-ttl", "-t 5m", "messageTTL", "messageTTL", 300),
    ("message-ttl", "-ttl 90", "messageTTL", "messageTTL", 90),
    (
        "auto-topic-creation",
        "-e --type partitioned -n 4",
        "autoTopicCreation",
        None,
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4},
    ),
    (
        "auto-topic-creation",
        "--enable",
        "autoTopicCreation",
        None,
        {"allowAutoTopicCreation": True, "topicType": "non-partitioned"},
    ),
    ("auto-topic-creation", "-d", "autoTopicCreation", None, {"allowAutoTopicCreation": False}),
    (
        "auto-subscription-creation",
        "--disable",
        "autoSubscriptionCreation",
        "autoSubscriptionCreation",
        {"allowAutoSubscriptionCreation": False},
    ),
    ("deduplication", "--enable", "deduplication", "deduplicationEnabled", True),
    (
        "schema-compatibility-strategy",
        "-c full_transitive",
        "schemaCompatibilityStrategy",
        "schemaCompatibilityStrategy",
        "FULL_TRANSITIVE",
    ),
    ("schema-validation-enforce", "-e", "schemaValidationEnforced", "schemaValidationEnforced", True),
    ("is-allow-auto-update-schema", "-d", "isAllowAutoUpdateSchema", None, False),
    (
        "delayed-delivery",
        "-e -t 2s -md 1h",
        "delayedDelivery",
        "delayedDelivery",
        {"active": True, "tickTime": 2000, "maxDeliveryDelayInMillis": 3_600_000},
    ),
    (
        "inactive-topic-policies",
        "-e -t 1d -m delete_when_no_subscriptions",
        "inactiveTopicPolicies",
        "inactiveTopicPolicies",
        {
            "deleteWhileInactive": True,
            "maxInactiveDurationSeconds": 86_400,
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        },
    ),
    ("subscription-expiration-time", "-t 2h", "subscriptionExpirationTime", "subscriptionExpirationTime", 120),
    (
        "subscription-types-enabled",
        "-t Shared,key_shared",
        "subscriptionTypesEnabled",
        "subscriptionTypesEnabled",
        ["Shared", "Key_Shared"],
    ),
    ("subscription-auth-mode", "-m Prefix", "subscriptionAuthMode", None, "Prefix"),
    ("clusters", "-c here,there", "replication", None, ["here", "there"]),
    ("allowed-clusters", "-c here,there", "allowedClusters", None, ["here", "there"]),
    ("replication-clusters", "-c here", None, "replication", ["here"]),
    ("max-producers-per-topic", "-p 3", "maxProducersPerTopic", None, 3),
    ("max-producers", "-p 3", None, "maxProducers", 3),
    ("max-consumers-per-topic", "-c 3", "maxConsumersPerTopic", None, 3),
    ("max-consumers", "-c 3", None, "maxConsumers", 3),
    ("max-consumers-per-subscription", "-c 3", "maxConsumersPerSubscription", "maxConsumersPerSubscription", 3),
    ("max-subscriptions-per-topic", "-m 3", "maxSubscriptionsPerTopic", None, 3),
    ("max-subscriptions", "-m 3", None, "maxSubscriptionsPerTopic", 3),
    ("max-unacked-messages-per-consumer", "-c 3", "maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer", 3),
    (
        "max-unacked-messages-per-subscription",
        "-c 3",
        "maxUnackedMessagesPerSubscription",
        "maxUnackedMessagesOnSubscription",
        3,
    ),
    ("max-topics-per-namespace", "-t 3", "maxTopicsPerNamespace", None, 3),
    ("max-message-size", "-m 1M", None, "maxMessageSize", 1 << 20),
    (
        "publish-rate",
        "--msg-publish-rate 100",
        "publishRate",
        "publishRate",
        {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": -1},
    ),
    (
        "dispatch-rate",
        "-b 1M --period 10s",
        "dispatchRate",
        "dispatchRate",
        {
            "dispatchThrottlingRateInMsg": -1,
            "dispatchThrottlingRateInByte": 1 << 20,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 10,
        },
    ),
    (
        "subscription-dispatch-rate",
        "-md 5 -rp",
        "subscriptionDispatchRate",
        "subscriptionDispatchRate",
        {
            "dispatchThrottlingRateInMsg": 5,
            "dispatchThrottlingRateInByte": -1,
            "relativeToPublishRate": True,
            "ratePeriodInSecond": 1,
        },
    ),
    (
        "replicator-dispatch-rate",
        "--msg-dispatch-rate 5 --byte-dispatch-rate 1K --dispatch-rate-period 2",
        "replicatorDispatchRate",
        "replicatorDispatchRate",
        {
            "dispatchThrottlingRateInMsg": 5,
            "dispatchThrottlingRateInByte": 1024,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 2,
        },
    ),
    (
        "subscribe-rate",
        "-r 5",
        "subscribeRate",
        "subscribeRate",
        {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30},
    ),
    ("dead-letter-policy", "-m 3", "deadLetterPolicy", None, {"maxRedeliverCount": 3}),
    (
        "dead-letter-policy",
        "-m 3 -t public/default/dead -i inspection",
        "deadLetterPolicy",
        None,
        {
            "maxRedeliverCount": 3,
            "deadLetterTopic": "persistent://public/default/dead",
            "initialSubscriptionName": "inspection",
        },
    ),
    ("dead-letter-expired", "--enable", "deadLetterExpired", None, True),
    ("dead-letter-evicted", "--disable", "deadLetterEvicted", None, False),
]

PUT_POLICIES = {"schema-compatibility-strategy"}
IN_THE_QUERY_OF_A_TOPIC = {"message-ttl", "subscription-expiration-time"}


def test_every_policy_has_a_case() -> None:
    tested = {name for name, *_ in CASES}
    of_both = [policy for policy in POLICIES if policy.subscription is None]  # the others are in test_deadletters
    names = {name for policy in of_both for name in (policy.name, policy.topic_name) if name}
    assert names - tested == {"backlog-quota"}  # which has its own tests


@pytest.mark.parametrize(("name", "options", "namespace", "topic", "body"), CASES)
def test_set_sends_the_request_that_pulsar_expects(
    recorder: Recorder,
    recorded: CommandLine,
    name: str,
    options: str,
    namespace: str | None,
    topic: str | None,
    body: object,
) -> None:
    method = "PUT" if name in PUT_POLICIES else "POST"
    if namespace is not None:
        out = recorded.ok("namespaces", f"set-{name}", "acme/shop", *shlex.split(options))
        assert out == f"set {name} of acme/shop\n"
        assert recorder.requests.pop() == Request(method, f"{NAMESPACE}/{namespace}", {}, body, "application/json")
    if topic is not None:
        recorded.ok("topics", f"set-{name}", "acme/shop/orders", *shlex.split(options))
        query = {topic: str(body)} if name in IN_THE_QUERY_OF_A_TOPIC else {}
        sent = None if query else body
        assert recorder.requests.pop() == Request(method, f"{TOPIC}/{topic}", query, sent, "application/json")


def test_get_and_remove(recorder: Recorder, recorded: CommandLine) -> None:
    recorder.will_answer("GET", f"{NAMESPACE}/messageTTL", 300)
    assert recorded.ok("namespaces", "get-message-ttl", "acme/shop") == "300\n"
    assert recorded.json("namespaces", "get-message-ttl", "acme/shop") == 300
    code, out, err = recorded("topics", "get-message-ttl", "acme/shop/orders", "--applied")
    assert (code, out, err) == (0, "", "message-ttl of persistent://acme/shop/orders is not set\n")
    assert recorder.requests.pop().query == {"applied": "true"}
    assert recorded("topics", "get-message-ttl", "acme/shop/orders", "--json").out == "null\n"
    assert recorded.ok("topics", "remove-message-ttl", "acme/shop/orders")
    assert recorder.requests.pop()[:3] == ("DELETE", f"{TOPIC}/messageTTL", {})


def test_one_subscription_has_a_dispatch_rate_of_its_own(recorder: Recorder, recorded: CommandLine) -> None:
    recorded.ok("subscriptions", "set-dispatch-rate", "acme/shop/orders", "billing", "-m", "5")
    sent = recorder.requests.pop()
    assert sent[:2] == ("POST", f"{TOPIC}/billing/dispatchRate")
    assert isinstance(sent.body, dict) and sent.body["dispatchThrottlingRateInMsg"] == 5
    recorded("subscriptions", "get-dispatch-rate", "acme/shop/orders", "billing")
    assert recorder.requests.pop()[:2] == ("GET", f"{TOPIC}/billing/dispatchRate")
    recorded.ok("subscriptions", "remove-dispatch-rate", "acme/shop/orders", "billing")
    assert recorder.requests.pop()[:2] == ("DELETE", f"{TOPIC}/billing/dispatchRate")


def test_a_backlog_quota_has_one_of_two_limits(recorder: Recorder, recorded: CommandLine) -> None:
    recorded.ok("namespaces", "set-backlog-quota", "acme/shop", "-l", "10G", "-p", "producer_exception")
    assert recorder.requests.pop()[:4] == (
        "POST",
        f"{NAMESPACE}/backlogQuota",
        {"backlogQuotaType": "destination_storage"},
        {"policy": "producer_exception", "limitSize": 10 << 30},
    )
    recorded.ok(
        *("topics", "set-backlog-quota", "acme/shop/orders", "-lt", "1d"),
        *("-t", "message_age", "-p", "producer_request_hold"),
    )
    assert recorder.requests.pop()[:4] == (
        "POST",
        f"{TOPIC}/backlogQuota",
        {"backlogQuotaType": "message_age"},
        {"policy": "producer_request_hold", "limitTime": 86_400},
    )
    recorded("namespaces", "get-backlog-quotas", "acme/shop")
    assert recorder.requests.pop()[:2] == ("GET", f"{NAMESPACE}/backlogQuotaMap")
    recorded.ok("namespaces", "remove-backlog-quota", "acme/shop", "-t", "message_age")
    assert recorder.requests.pop()[:3] == (
        "DELETE",
        f"{NAMESPACE}/backlogQuota",
        {"backlogQuotaType": "message_age"},
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("set-backlog-quota acme/shop -p producer_exception", "type destination_storage needs --limit"),
        ("set-backlog-quota acme/shop -p producer_exception -t message_age -l 1G", "message_age needs --limitTime"),
        ("set-backlog-quota acme/shop -p producer_exception -l 1G -lt 1d", "destination_storage has no --limitTime"),
        ("set-backlog-quota acme/shop -p perhaps -l 1G", "'perhaps' is not one of"),
        (
            "set-retention acme/shop -t 30s -s 10M",
            "--time must be a whole number of minutes: 30 seconds are 0.5 minutes",
        ),
        ("set-retention acme/shop -t 1h -s 100K", "--size must be a whole number of MB"),
        ("set-retention acme/shop -t 99999999w -s 10M", "exceeds the limit of 2147483647"),
        ("set-retention acme/shop -t 1h", "Missing option '--size'"),
        ("set-message-ttl acme/shop -t soon", "'soon' is not a duration such as"),
        ("set-subscription-expiration-time acme/shop -t 60", "'60' needs a unit"),
        ("set-max-producers-per-topic acme/shop -p -1", "'-1' is not an integer from 0 to 2147483647"),
        ("set-max-producers-per-topic acme/shop -p x", "'x' is not an integer"),
        ("set-auto-topic-creation acme/shop -e -n 3", "--num-partitions and --type partitioned must be given together"),
        (
            "set-auto-topic-creation acme/shop -e -t partitioned",
            "--num-partitions and --type partitioned must be given together",
        ),
        ("set-auto-topic-creation acme/shop", "Missing option '--enable'"),
        ("set-schema-compatibility-strategy acme/shop -c SIDEWAYS", "SIDEWAYS"),
    ],
)
def test_invalid_values_send_nothing(recorder: Recorder, recorded: CommandLine, command: str, message: str) -> None:
    assert message in recorded.fails("namespaces", *command.split(), code=2)
    assert recorder.requests == []


@pytest.mark.parametrize(("name", "options", "namespace", "topic", "body"), CASES)
def test_the_broker_accepts_it_or_reports_it_as_unsupported(
    cli: CommandLine, name: str, options: str, namespace: str | None, topic: str | None, body: object
) -> None:
    """A set policy can be read back; an unsupported one is rejected with 501."""
    if "policies" not in cli.json("tenants", "list"):
        cli.ok("tenants", "create", "policies")
        cli.ok("namespaces", "create", "policies/shop")
        cli.ok("topics", "create", "policies/shop/orders")
    words = ["-c", "standalone"] if name.endswith("clusters") else shlex.split(options)
    wanted = ["standalone"] if name.endswith("clusters") else body
    for noun, path, target in (("namespaces", namespace, "policies/shop"), ("topics", topic, "policies/shop/orders")):
        if path is None:
            continue
        code, _, err = cli(noun, f"set-{name}", target, *words)
        if code:
            assert "is not supported" in err
            assert "(HTTP 501)" in err
            continue
        found = cli.json(noun, f"get-{name}", target)
        if isinstance(wanted, dict):
            assert wanted.items() <= found.items()
        else:
            assert found == (sorted(wanted) if isinstance(wanted, list) else wanted)
        if any(policy.removable for policy in POLICIES if name in (policy.name, policy.topic_name)):
            cli.ok(noun, f"remove-{name}", target)

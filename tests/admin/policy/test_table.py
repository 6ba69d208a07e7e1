"""Policies of namespaces and topics: set, shown, applied and removed as in Pulsar, and stored on disk."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.admin.policy.policy import Policy
from magnetar.admin.policy.scope import NAMESPACE, TOPIC, PolicyLevel
from magnetar.admin.policy.table import POLICIES
from magnetar.broker.catalog.policies import Overrides
from tests.admin.driver import Admin

NAMESPACES = "/admin/v2/namespaces"
DEFAULT = f"{NAMESPACES}/public/default"
TOPICS = "/admin/v2/persistent/public/default"

QUOTA = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}

DISPATCH_RATES = [
    {
        "dispatchThrottlingRateInMsg": 10,
        "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 1,
    },
    {
        "dispatchThrottlingRateInMsg": 0,
        "dispatchThrottlingRateInByte": 2**63 - 1,
        "relativeToPublishRate": True,
        "ratePeriodInSecond": 2**31 - 1,
    },
]

# For each policy: valid values, and invalid ones with the status of the rejection.
VALUES: dict[str, list[Any]] = {
    "retention": [
        {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20},
        {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
        {"retentionTimeInMinutes": 2**31 - 1, "retentionSizeInMB": 2**63 - 1},
    ],
    "message_ttl_s": [0, 1, 2**31 - 1],
    "deduplication": [True, False],
    "auto_topic_creation": [
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
        {"allowAutoTopicCreation": True, "topicType": "non-partitioned"},
        {"allowAutoTopicCreation": False, "topicType": "non-partitioned"},
    ],
    "auto_subscription_creation": [
        {"allowAutoSubscriptionCreation": True},
        {"allowAutoSubscriptionCreation": False},
    ],
    "max_producers": [0, 5, 2**31 - 1],
    "max_consumers": [0, 5],
    "max_consumers_per_subscription": [0, 5],
    "max_unacked_per_consumer": [0, 5],
    "max_unacked_per_subscription": [0, 5],
    "max_subscriptions": [0, 5],
    "max_topics": [7, 1000],
    "max_message_size": [0, 1, 5242880],
    "delayed_delivery": [
        {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 0},
        {"tickTime": 1, "active": False, "maxDeliveryDelayInMillis": 2**63 - 1},
    ],
    "subscription_types": [["Shared"], ["Exclusive", "Failover", "Key_Shared", "Shared"]],
    "subscription_auth_mode": ["Prefix", "None"],
    "schema_compatibility": ["ALWAYS_INCOMPATIBLE", "BACKWARD", "FULL_TRANSITIVE"],
    "schema_auto_update": ["AutoUpdateDisabled", "Full", "BackwardTransitive"],
    "schema_validation_enforced": [True],
    "allow_auto_update_schema": [True, False],
    "replication_clusters": [["standalone"]],
    "allowed_clusters": [["standalone"]],
    "publish_rate": [
        {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1},
        {"publishThrottlingRateInMsg": 2**31 - 1, "publishThrottlingRateInByte": 2**63 - 1},
    ],
    "dispatch_rate": DISPATCH_RATES,
    "subscription_dispatch_rate": DISPATCH_RATES,
    "replicator_dispatch_rate": DISPATCH_RATES,
    "subscribe_rate": [
        {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 30},
        {"subscribeThrottlingRatePerConsumer": 2**31 - 1, "ratePeriodInSecond": 2**31 - 1},
    ],
    "dead_letters": [
        {"maxRedeliverCount": 1},
        {"maxRedeliverCount": 2**31 - 1, "deadLetterTopic": "persistent://public/default/dead"},
        {"maxRedeliverCount": 3, "initialSubscriptionName": "inspection"},
    ],
    "dead_letter_expired": [True, False],
    "dead_letter_evicted": [True, False],
}

ROWS = [
    pytest.param(level, policy, id=f"{level.name}-{policy.field}")
    for level in (NAMESPACE, TOPIC)
    for policy in POLICIES
    if policy.path_at(level) and policy.can_be_set
]


def path_of(policy: Policy, level: PolicyLevel) -> str:
    names = {"{tenant}": "public", "{namespace}": "default", "{domain}": "persistent", "{topic}": "t"}
    path = policy.path_at(level)
    for placeholder, name in names.items():
        path = path.replace(placeholder, name)
    return path


def put(admin: Admin, policy: Policy, level: PolicyLevel, value: Any) -> None:
    path = path_of(policy, level)
    if level is TOPIC and policy.topic_parameter:
        response = admin(policy.verb, f"{path}?{policy.topic_parameter}={value}")
    else:
        response = admin(policy.verb, path, json=value)
    expected = 200 if (level.name, policy.field) == ("namespace", "replication_clusters") else 204
    assert (response.status_code, response.content) == (expected, b"")


def answer(admin: Admin, path: str) -> Any:
    """The JSON, or None for an empty response."""
    response = admin("GET", path)
    assert response.status_code in (200, 204), response.text
    return response.json() if response.content else None


@pytest.fixture
def admin() -> Admin:
    admin = Admin()
    admin.done("PUT", f"{TOPICS}/t")
    return admin


@pytest.mark.parametrize(("level", "policy"), ROWS)
def test_a_policy_is_set_shown_stored_and_applied(admin: Admin, level: PolicyLevel, policy: Policy) -> None:
    path = path_of(policy, level)
    for value in VALUES[policy.field]:
        put(admin, policy, level, value)
        assert answer(admin, path) == value
        assert answer(admin.after_crash(), path) == value
        if policy.field not in ("schema_auto_update", "max_message_size", "allowed_clusters", "subscription_auth_mode"):
            assert answer(admin, f"{path}?applied=true") == value
    for value in VALUES[policy.field][:1]:
        if policy.in_object and level is NAMESPACE:
            put(admin, policy, level, value)
            assert admin.get(DEFAULT)[policy.in_object] == ({"standalone": value} if policy.by_cluster else value)


@pytest.mark.parametrize(("level", "policy"), ROWS)
def test_a_removed_policy_is_unset(admin: Admin, level: PolicyLevel, policy: Policy) -> None:
    path = path_of(policy, level)
    before, applied = answer(admin, path), answer(admin, f"{path}?applied=true")
    put(admin, policy, level, VALUES[policy.field][0])
    if level is NAMESPACE and not policy.can_be_removed:
        admin.reason(501, "DELETE", path)  # Pulsar has no such request
        return
    admin.done("DELETE", path)
    assert answer(admin, path) == before
    assert answer(admin, f"{path}?applied=true") == applied
    assert answer(admin.after_crash(), path) == before
    admin.done("DELETE", path)  # removing an unset policy is no error


@pytest.mark.parametrize(("level", "policy"), ROWS)
def test_unset_policies_are_returned_as_by_pulsar(admin: Admin, level: PolicyLevel, policy: Policy) -> None:
    shown = {
        ("namespace", "max_topics"): 0,
        ("namespace", "subscription_types"): [],
        ("namespace", "schema_compatibility"): "UNDEFINED",
        ("namespace", "schema_validation_enforced"): False,
        ("topic", "schema_validation_enforced"): False,
        ("namespace", "allow_auto_update_schema"): True,
        ("namespace", "replication_clusters"): ["standalone"],
        ("namespace", "allowed_clusters"): [],
        ("namespace", "subscription_auth_mode"): "None",
    }
    without_content = {
        ("namespace", "schema_auto_update"),
        ("topic", "max_subscriptions"),
        ("topic", "max_consumers_per_subscription"),
        ("topic", "max_message_size"),
        ("topic", "subscription_types"),
        ("topic", "publish_rate"),
    }
    key = (level.name, policy.field)
    response = admin("GET", path_of(policy, level))
    assert response.status_code == (204 if key in without_content else 200)
    assert (response.json() if response.content else None) == shown.get(key)


def test_every_policy_is_in_the_table_once() -> None:
    fields = [policy.field for policy in POLICIES]
    assert sorted(fields) == sorted(Overrides.__struct_fields__)
    assert {field for field in fields if field not in ("backlog_quotas", "dispatch_rates")} == VALUES.keys()


@pytest.mark.parametrize(("level", "policy"), ROWS)
def test_a_missing_namespace_or_topic_has_no_policies(admin: Admin, level: PolicyLevel, policy: Policy) -> None:
    value = VALUES[policy.field][0]
    path = path_of(policy, level)
    query = f"?{policy.topic_parameter}={value}" if level is TOPIC and policy.topic_parameter else ""
    for method in ("GET", policy.verb):
        if level is NAMESPACE:
            missing, reason = path.replace("/public/default/", "/public/none/"), "Namespace does not exist"
            missing_tenant, tenant_reason = path.replace("/public/default/", "/none/default/"), "Tenant does not exist"
        else:
            missing, reason = path.replace("/t/", "/none/"), "Topic persistent://public/default/none not found"
            missing_tenant, tenant_reason = path.replace("/public/", "/none/"), "Namespace not found"
        assert admin.reason(404, method, missing + query, json=value) == reason
        assert admin.reason(404, method, missing_tenant + query, json=value) == tenant_reason
    assert admin.existing() == (["persistent://public/default/t"], {})


BODIES = [b"", b"null", b"{", b'"?"', b'{"unknown": 1}', b"1e400", b"[" * 5000, b"\xff", b"[[]]"]


@pytest.mark.parametrize(("level", "policy"), ROWS)
def test_an_invalid_body(admin: Admin, level: PolicyLevel, policy: Policy) -> None:
    path = path_of(policy, level)
    before = answer(admin, path)
    for body in BODIES:
        if level is TOPIC and policy.topic_parameter:
            name = policy.topic_parameter
            assert name in admin.reason(400, policy.verb, path)
            assert name in admin.reason(400, policy.verb, path, params={name: body})
        else:
            assert policy.part_at(level) in admin.reason(400, policy.verb, path, content=body)
    assert answer(admin, path) == before


NUMBERS = [row for row in ROWS if row.values[1].shape in (POLICIES[1].shape,)]


@pytest.mark.parametrize(("level", "policy"), NUMBERS)
def test_numbers_have_pulsars_bounds(admin: Admin, level: PolicyLevel, policy: Policy) -> None:
    path = path_of(policy, level)

    def reason(status: int, text: str) -> str:
        if level is TOPIC and policy.topic_parameter:
            return admin.reason(status, policy.verb, f"{path}?{policy.topic_parameter}={text}")
        return admin.reason(status, policy.verb, path, content=text.encode())

    expected = {
        ("namespace", "message_ttl_s"): "Invalid value for message TTL, message TTL must >= 0",
        ("topic", "message_ttl_s"): "Invalid value for message TTL",
        ("topic", "max_producers"): "maxProducers must be 0 or more",
        ("topic", "max_consumers"): "maxConsumers must be 0 or more",
        ("topic", "max_consumers_per_subscription"): "Invalid value for maxConsumersPerSubscription",
        ("topic", "max_unacked_per_consumer"): "maxUnackedNum must be 0 or more",
        ("topic", "max_unacked_per_subscription"): "maxUnackedNum must be 0 or more",
        ("topic", "max_message_size"): (
            "topic-level maxMessageSize must be greater than or equal to 0"
            " and must be smaller than that in the broker-level"
        ),
    }
    negative = expected.get((level.name, policy.field), f"{path.rpartition('/')[2]} must be 0 or more")
    assert reason(412, "-1") == negative
    assert reason(412, str(-(2**31))) == negative
    assert "2147483647" in reason(400, str(2**31))
    reason(400, str(-(2**31) - 1))
    reason(400, "9" * 400)
    reason(400, '"1.5"')
    reason(400, "true")


# -- topics


def test_a_partitioned_topic_has_one_set_of_policies(admin: Admin) -> None:
    admin.done("PUT", f"{TOPICS}/p/partitions", json=2)
    admin.done("POST", f"{TOPICS}/p/maxProducers", json=3)
    for full in ("persistent://public/default/p-partition-0", "persistent://public/default/p-partition-1"):
        assert admin.broker.topics[full].policies.max_producers == 3
    for method in ("GET", "POST", "DELETE"):
        reason = admin.reason(412, method, f"{TOPICS}/p-partition-0/maxProducers", json=1)
        assert reason == "Not allowed to set/get topic policy for a partition"
    admin.done("POST", f"{TOPICS}/p/partitions", json=3)
    assert admin.broker.topics["persistent://public/default/p-partition-2"].policies.max_producers == 3
    again = admin.after_crash()
    assert again.get(f"{TOPICS}/p/maxProducers") == 3
    again.done("DELETE", f"{TOPICS}/p/maxProducers")
    assert answer(again, f"{TOPICS}/p/maxProducers") is None


def test_a_recreated_topic_has_no_policies(admin: Admin) -> None:
    admin.done("POST", f"{TOPICS}/t/maxProducers", json=3)
    admin.done("DELETE", f"{TOPICS}/t")
    admin.done("PUT", f"{TOPICS}/t")
    assert answer(admin, f"{TOPICS}/t/maxProducers") is None


def test_all_policies_of_a_topic_are_shown_together(admin: Admin) -> None:
    assert admin.get(f"{TOPICS}/t/policies") == {}
    admin.done("POST", f"{TOPICS}/t/maxProducers", json=3)
    admin.done("POST", f"{TOPICS}/t/retention", json={"retentionTimeInMinutes": 5, "retentionSizeInMB": 6})
    retention = {"retentionTimeInMinutes": 5, "retentionSizeInMB": 6}
    assert admin.get(f"{TOPICS}/t/policies") == {"maxProducers": 3, "retention": retention}
    admin.reason(404, "GET", f"{TOPICS}/none/policies")


def test_all_policies_of_a_topic_are_deleted_together(admin: Admin) -> None:
    admin.done("POST", f"{TOPICS}/t/maxProducers", json=3)
    admin.done("POST", f"{TOPICS}/t/messageTTL?messageTTL=5")
    admin.done("DELETE", f"{TOPICS}/t/policies")
    assert answer(admin, f"{TOPICS}/t/maxProducers") is None and answer(admin, f"{TOPICS}/t/messageTTL") is None
    admin.reason(404, "DELETE", f"{TOPICS}/none/policies")


def test_topic_policies_override_namespace_policies_override_the_broker() -> None:
    admin = Admin(maxProducersPerTopic=1)
    admin.done("PUT", f"{TOPICS}/t")
    applied = f"{TOPICS}/t/maxProducers?applied=true"
    assert admin.get(applied) == 1
    admin.done("POST", f"{DEFAULT}/maxProducersPerTopic", json=2)
    assert admin.get(applied) == 2
    admin.done("POST", f"{TOPICS}/t/maxProducers", json=0)
    assert admin.get(applied) == 0
    admin.done("DELETE", f"{TOPICS}/t/maxProducers")
    admin.done("DELETE", f"{DEFAULT}/maxProducersPerTopic")
    assert admin.get(applied) == 1


def test_unsupported_topic_policies_are_rejected(admin: Admin) -> None:
    admin.done("PUT", "/admin/v2/non-persistent/public/default/n")
    assert "non-persistent" in admin.reason(501, "GET", "/admin/v2/non-persistent/public/default/n/maxProducers")
    assert "isGlobal" in admin.reason(501, "POST", f"{TOPICS}/t/maxProducers?isGlobal=true", json=1)
    assert admin.reason(501, "GET", f"{TOPICS}/t/compactionThreshold").startswith("GET ")
    admin.reason(400, "GET", f"{TOPICS}/t/maxProducers?applied=perhaps")


# -- schemas


def test_the_older_name_of_a_schema_strategy_is_the_fallback(admin: Admin) -> None:
    applied = f"{TOPICS}/t/schemaCompatibilityStrategy?applied=true"
    assert admin.get(applied) == "FULL"
    admin.done("PUT", f"{DEFAULT}/schemaAutoUpdateCompatibilityStrategy", json="Forward")
    assert admin.get(applied) == "FORWARD"
    assert admin.get(f"{DEFAULT}/schemaCompatibilityStrategy") == "UNDEFINED"
    admin.done("PUT", f"{DEFAULT}/schemaCompatibilityStrategy", json="BACKWARD")
    assert admin.get(applied) == "BACKWARD"
    admin.done("PUT", f"{DEFAULT}/schemaCompatibilityStrategy", json="UNDEFINED")
    assert admin.get(applied) == "FORWARD"
    admin.done("PUT", f"{TOPICS}/t/schemaCompatibilityStrategy", json="FULL_TRANSITIVE")
    assert admin.get(applied) == "FULL_TRANSITIVE"
    admin.done("PUT", f"{TOPICS}/t/schemaCompatibilityStrategy", json="UNDEFINED")
    assert answer(admin, f"{TOPICS}/t/schemaCompatibilityStrategy") is None


def test_a_namespace_cannot_disable_the_brokers_schema_validation() -> None:
    admin = Admin(isSchemaValidationEnforced=True)
    admin.done("PUT", f"{TOPICS}/t")
    admin.done("POST", f"{DEFAULT}/schemaValidationEnforced", json=False)
    assert admin.get(f"{DEFAULT}/schemaValidationEnforced") is False
    assert admin.get(f"{DEFAULT}/schemaValidationEnforced?applied=true") is True
    assert admin.get(f"{TOPICS}/t/schemaValidationEnforced?applied=true") is True
    admin.done("POST", f"{TOPICS}/t/schemaValidationEnforced", json=False)
    assert admin.get(f"{TOPICS}/t/schemaValidationEnforced?applied=true") is False


# -- random input


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from([policy.in_object for policy in POLICIES if policy.in_object] + ["bundles", "properties", "x"])


@settings(max_examples=60, deadline=None)
@given(row=st.sampled_from(ROWS), value=JSON)
def test_any_json_gets_a_response_with_a_reason(row: Any, value: Any) -> None:
    level, policy = row.values
    admin = Admin()
    admin.done("PUT", f"{TOPICS}/t")
    path = path_of(policy, level)
    response = admin(policy.verb, path, content=msgspec.json.encode(value), params={"messageTTL": str(value)[:50]})
    assert response.status_code in (200, 204, 400, 403, 406, 412), response.text
    assert (response.status_code < 300) == (not response.content)
    assert admin("GET", path).status_code in (200, 204)


@settings(max_examples=60, deadline=None)
@given(fields=st.dictionaries(FIELDS, JSON, max_size=3))
def test_any_object_creates_a_namespace_or_is_rejected(fields: dict[str, Any]) -> None:
    admin = Admin()
    response = admin("PUT", f"{NAMESPACES}/public/a", content=msgspec.json.encode(fields))
    assert response.status_code in (204, 400, 403, 406, 412, 501), response.text
    assert ("public/a" in admin.get(f"{NAMESPACES}/public")) == (response.status_code == 204)
    if response.status_code == 204:
        admin.get(f"{NAMESPACES}/public/a")


def test_dl10_the_applied_policies_of_a_dead_letter_topic_are_those_in_force(admin: Admin) -> None:
    admin.done("POST", f"{DEFAULT}/messageTTL", json=30)
    quota = {"limitSize": 10, "policy": "consumer_backlog_eviction"}
    admin.done("POST", f"{DEFAULT}/backlogQuota", json=quota)
    for topic, ttl, limit in (("t", 30, 10), ("t-s-DLQ", 0, -1), ("t-s-RETRY", 0, -1)):
        admin.publish(topic, b"x")
        assert admin.get(f"{TOPICS}/{topic}/messageTTL?applied=true") == ttl
        applied = admin.get(f"{TOPICS}/{topic}/backlogQuotaMap?applied=true")
        assert applied["destination_storage"]["limitSize"] == limit
    admin.done("POST", f"{TOPICS}/t-s-DLQ/messageTTL?messageTTL=60")
    assert admin.get(f"{TOPICS}/t-s-DLQ/messageTTL?applied=true") == 60

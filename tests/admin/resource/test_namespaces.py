from __future__ import annotations

from typing import Any

import pytest

from tests.admin.driver import Admin

PATH = "/admin/v2/namespaces"


def test_create_get_delete(admin: Admin) -> None:
    assert admin.get(f"{PATH}/public") == ["public/default"]
    admin.done("PUT", f"{PATH}/public/a")
    assert admin.get(f"{PATH}/public") == ["public/a", "public/default"]
    assert admin.after_crash().get(f"{PATH}/public") == ["public/a", "public/default"]
    policies = admin.get(f"{PATH}/public/a")
    assert policies["replication_clusters"] == ["standalone"] and policies["deleted"] is False
    assert policies["bundles"] == {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
    assert admin.reason(409, "PUT", f"{PATH}/public/a") == "Namespace already exists"
    admin.done("DELETE", f"{PATH}/public/a")
    assert admin.after_crash().get(f"{PATH}/public") == ["public/default"]
    admin.reason(404, "GET", f"{PATH}/public/a")
    admin.reason(404, "DELETE", f"{PATH}/public/a")
    admin.reason(404, "GET", f"{PATH}/public/a/topics")


def test_only_the_namespaces_of_the_tenant_are_listed(admin: Admin) -> None:
    admin.done("PUT", "/admin/v2/tenants/pub", json={"allowedClusters": ["standalone"]})
    admin.done("PUT", f"{PATH}/pub/x")
    assert admin.get(f"{PATH}/pub") == ["pub/x"]
    assert admin.get(f"{PATH}/public") == ["public/default"]
    assert admin.reason(404, "GET", f"{PATH}/none") == "Tenant not found"
    admin.reason(404, "PUT", f"{PATH}/none/x")


@pytest.mark.parametrize(
    "policies",
    [
        {},
        {"bundles": {"numBundles": 4}},
        {"bundles": {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2}},
        {"replication_clusters": ["standalone"]},
        {
            "auth_policies": {"namespace_auth": {"anonymous": ["produce", "consume"]}},
            "replication_clusters": ["standalone"],
        },
        {"retention_policies": None, "backlog_quota_map": {}, "offload_threshold": -1, "encryption_required": False},
    ],
)
def test_policies_equal_to_the_defaults_are_accepted(admin: Admin, policies: dict[str, Any]) -> None:
    admin.done("PUT", f"{PATH}/public/a", json=policies)
    assert admin.get(f"{PATH}/public") == ["public/a", "public/default"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("offload_threshold", 0),
        ("persistence", {"bookkeeperEnsemble": 1}),
        ("compaction_threshold", 1),
        ("encryption_required", True),
        ("deleted", True),
        ("is_allow_auto_update_schema_with_replicator", False),
    ],
)
def test_an_unsupported_policy_is_rejected_by_name(admin: Admin, field: str, value: object) -> None:
    assert f" {field} " in admin.reason(501, "PUT", f"{PATH}/public/a", json={field: value})
    assert admin.get(f"{PATH}/public") == ["public/default"]


@pytest.mark.parametrize(
    ("status", "field", "value"),
    [
        (400, "no_such_policy", "x"),
        (400, "message_ttl_in_seconds", "x"),
        (400, "message_ttl_in_seconds", 2**31),
        (412, "message_ttl_in_seconds", -1),
        (400, "retention_policies", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 1}),
        (400, "retention_policies", {"days": 1}),
        (403, "replication_clusters", ["standalone", "elsewhere"]),
        (403, "allowed_clusters", ["standalone", "elsewhere"]),
        (400, "backlog_quota_map", {"round": {"limitSize": 1, "policy": "producer_exception"}}),
        (400, "subscription_types_enabled", ["Round"]),
        (400, "properties", {"a": []}),
        (400, "bundles", {"numBundles": "many"}),
        (400, "auth_policies", {"namespace_auth": {"r": ["fly"]}}),
        (400, "auth_policies", {"destination_auth": {"public/a/t": {"r": ["fly"]}}}),
        (412, "auth_policies", {"destination_auth": {"public/default/t": {"r": ["produce"]}}}),
        (400, "subscription_auth_mode", "Suffix"),
        (412, "max_producers_per_topic", -1),
    ],
)
def test_an_object_with_an_invalid_field_creates_nothing(admin: Admin, status: int, field: str, value: object) -> None:
    admin.reason(status, "PUT", f"{PATH}/public/a", json={field: value})
    assert admin.get(f"{PATH}/public") == ["public/default"]


def test_a_namespace_is_created_with_the_policies_of_its_body(admin: Admin) -> None:
    rate = {
        "dispatchThrottlingRateInMsg": 10,
        "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 1,
    }
    fields = {
        "auth_policies": {
            "namespace_auth": {"app": ["produce"]},
            "destination_auth": {"persistent://public/a/t": {"app": ["consume"]}},
            "subscription_auth_roles": {"s": ["app"]},
        },
        "subscription_auth_mode": "Prefix",
        "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False},
        "autoTopicCreationOverride": {
            "allowAutoTopicCreation": True,
            "topicType": "partitioned",
            "defaultNumPartitions": 2,
        },
        "backlog_quota_map": {
            "destination_storage": {"limit": 10, "limitSize": 10, "limitTime": -1, "policy": "producer_exception"}
        },
        "deduplicationEnabled": False,
        "delayed_delivery_policies": {"active": False, "maxDeliveryDelayInMillis": 5, "tickTime": 1000},
        "is_allow_auto_update_schema": False,
        "max_consumers_per_subscription": 1,
        "max_consumers_per_topic": 2,
        "max_producers_per_topic": 3,
        "max_subscriptions_per_topic": 4,
        "max_topics_per_namespace": 5,
        "max_unacked_messages_per_consumer": 6,
        "max_unacked_messages_per_subscription": 7,
        "message_ttl_in_seconds": 60,
        "properties": {"a": "1"},
        "replication_clusters": ["standalone"],
        "retention_policies": {"retentionSizeInMB": 10, "retentionTimeInMinutes": 10},
        "schema_auto_update_compatibility_strategy": "Full",
        "schema_compatibility_strategy": "FORWARD",
        "schema_validation_enforced": True,
        "subscription_types_enabled": ["Shared"],
        "publishMaxMessageRate": {"standalone": {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1}},
        "topicDispatchRate": {"standalone": rate},
        "clusterDispatchRate": {"standalone": rate},
        "clusterSubscribeRate": {"standalone": {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 30}},
    }
    admin.done("PUT", f"{PATH}/public/a", json=fields)
    shown = admin.after_crash().get(f"{PATH}/public/a")
    assert {field: shown[field] for field in fields} == fields
    admin.done("DELETE", f"{PATH}/public/a")
    admin.done("PUT", f"{PATH}/public/a", json=shown)  # the shown object can be sent back
    assert admin.get(f"{PATH}/public/a") == shown


def test_rates_of_the_object_are_of_this_cluster(admin: Admin) -> None:
    rate = {"publishThrottlingRateInMsg": 10}
    reason = admin.reason(412, "PUT", f"{PATH}/public/a", json={"publishMaxMessageRate": {"other": rate}})
    assert reason == "publishMaxMessageRate of cluster other has no effect: this is cluster standalone"
    admin.reason(400, "PUT", f"{PATH}/public/a", json={"publishMaxMessageRate": 3})
    admin.reason(400, "PUT", f"{PATH}/public/a", json={"publishMaxMessageRate": {"standalone": 3}})
    admin.done("PUT", f"{PATH}/public/a", json={"clusterDispatchRate": {"standalone": {"ratePeriodInSecond": 2}}})
    assert admin.get(f"{PATH}/public/a/dispatchRate")["ratePeriodInSecond"] == 2  # the older name alone


def test_the_object_of_a_namespace_without_policies_is_pulsars(admin: Admin) -> None:
    assert admin.get(f"{PATH}/public/default") == {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": ["standalone"],
        "allowed_clusters": [],
        "bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
        "backlog_quota_map": {},
        "clusterDispatchRate": {},
        "topicDispatchRate": {},
        "subscriptionDispatchRate": {},
        "replicatorDispatchRate": {},
        "clusterSubscribeRate": {},
        "publishMaxMessageRate": {},
        "latency_stats_sample_rate": {},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "is_allow_auto_update_schema": True,
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": {},
        "migrated": False,
    }


@pytest.mark.parametrize("body", [b"[]", b"3", b"{", b'{"a":', b'{"a":' * 5000])
def test_a_body_that_is_no_object(admin: Admin, body: bytes) -> None:
    admin.reason(400, "PUT", f"{PATH}/public/a", content=body)
    assert admin.get(f"{PATH}/public") == ["public/default"]


@pytest.mark.parametrize("namespace", ["public/a%2Fb", "public/a%20b", "a%2Fb/c", "public/%2E"])
def test_an_illegal_name_is_rejected(admin: Admin, namespace: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        admin.reason(412, method, f"{PATH}/{namespace}")


def test_a_namespace_with_topics_is_not_deleted(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/public/a")
    admin.done("PUT", "/admin/v2/non-persistent/public/a/n")
    assert admin.reason(409, "DELETE", f"{PATH}/public/a") == "Cannot delete non empty namespace"
    admin.reason(405, "DELETE", f"{PATH}/public/a?force=true")
    admin.done("DELETE", "/admin/v2/non-persistent/public/a/n")
    admin.done("PUT", "/admin/v2/persistent/public/a/t/partitions", json=1)
    admin.done("DELETE", "/admin/v2/persistent/public/a/t-partition-0")
    admin.reason(409, "DELETE", f"{PATH}/public/a")
    admin.done("DELETE", "/admin/v2/persistent/public/a/t/partitions")
    admin.done("DELETE", f"{PATH}/public/a")


def test_topics_by_mode(admin: Admin) -> None:
    admin.done("PUT", "/admin/v2/persistent/public/default/p/partitions", json=1)
    admin.done("PUT", "/admin/v2/non-persistent/public/default/n")
    persistent = ["persistent://public/default/p-partition-0"]
    other = ["non-persistent://public/default/n"]
    assert admin.get(f"{PATH}/public/default/topics") == persistent
    assert admin.get(f"{PATH}/public/default/topics?mode=PERSISTENT") == persistent
    assert admin.get(f"{PATH}/public/default/topics?mode=NON_PERSISTENT") == other
    assert admin.get(f"{PATH}/public/default/topics?mode=ALL") == other + persistent
    assert "mode" in admin.reason(400, "GET", f"{PATH}/public/default/topics?mode=SOME")


# -- forced deletion


def test_a_namespace_is_deleted_with_its_topics_where_allowed() -> None:
    admin = Admin(forceDeleteNamespaceAllowed=True)
    admin.done("PUT", f"{PATH}/public/a")
    admin.done("PUT", f"{PATH}/public/ab")
    admin.done("PUT", "/admin/v2/persistent/public/a/p/partitions", json=3)
    admin.done("PUT", "/admin/v2/non-persistent/public/a/n")
    admin.done("PUT", "/admin/v2/persistent/public/ab/t")
    consumer = admin.subscribe("persistent://public/a/t", "s")
    admin.reason(409, "DELETE", f"{PATH}/public/a")
    admin.done("DELETE", f"{PATH}/public/a?force=true")
    assert consumer.subscription is not None and consumer.subscription.consumers == []
    for where in (admin, admin.after_crash()):
        assert where.get(f"{PATH}/public") == ["public/ab", "public/default"]
        assert where.get(f"{PATH}/public/ab/topics") == ["persistent://public/ab/t"]
        assert where.broker.catalog.partitioned == {}
    admin.done("PUT", f"{PATH}/public/a")
    assert admin.get(f"{PATH}/public/a/topics") == []
    admin.reason(404, "DELETE", f"{PATH}/public/none?force=true")


@pytest.mark.parametrize("owner", ["namespaces/mine/a", "tenants/mine"])
def test_schemas_are_deleted_with_the_topics_of_a_namespace(owner: str) -> None:
    admin = Admin(forceDeleteNamespaceAllowed=True, forceDeleteTenantAllowed=True)
    tenant = {"allowedClusters": ["standalone"]}
    schema = "/admin/v2/schemas/mine/a/{}/schema"

    def make() -> None:
        admin("PUT", "/admin/v2/tenants/mine", json=tenant)
        admin.done("PUT", f"{PATH}/mine/a")
        admin.done("PUT", "/admin/v2/persistent/mine/a/p/partitions", json=2)
        admin.done("PUT", "/admin/v2/persistent/mine/a/t")

    make()
    for topic in ("p", "t"):
        admin("POST", schema.format(topic), json={"type": "STRING", "schema": "", "properties": {}})
        assert admin("GET", schema.format(topic)).status_code == 200
    admin.done("DELETE", f"/admin/v2/{owner}?force=true")
    make()
    for topic in ("p", "t"):
        admin.reason(404, "GET", schema.format(topic))


# -- properties


def test_properties_of_a_namespace(admin: Admin) -> None:
    base = f"{PATH}/public/default"
    assert admin.get(f"{base}/properties") == {}
    admin.done("PUT", f"{base}/properties", json={"a": "1", "b": "2"})
    admin.done("PUT", f"{base}/properties", json={"b": "3"})
    admin.done("PUT", f"{base}/property/c%2Fd/4%20%C3%A9")
    assert admin.after_crash().get(f"{base}/properties") == {"a": "1", "b": "3", "c/d": "4 é"}
    assert admin("GET", f"{base}/property/c%2Fd").text == "4 é"
    removed = admin("DELETE", f"{base}/property/a")
    assert (removed.status_code, removed.text) == (200, "1")
    for method in ("GET", "DELETE"):
        missing = admin(method, f"{base}/property/a")
        assert (missing.status_code, missing.content) == (200, b"")
    admin.done("DELETE", f"{base}/properties")
    assert admin.get(f"{base}/properties") == {}
    for body in (b"", b"[]", b'{"a": []}'):
        admin.reason(400, "PUT", f"{base}/properties", content=body)
    for method, path in (
        ("GET", "properties"),
        ("GET", "property/a"),
        ("PUT", "property/a/b"),
        ("DELETE", "properties"),
    ):
        admin.reason(404, method, f"{PATH}/public/none/{path}")


# -- operations on all topics


def test_unload_disconnects_the_clients_of_all_topics(admin: Admin) -> None:
    consumer = admin.subscribe("persistent://public/default/t", "s")
    producer = admin.publish("persistent://public/default/u", b"x")
    other = admin.broker.catalog
    admin.done("PUT", f"{PATH}/public/a")
    elsewhere = admin.subscribe("persistent://public/a/t", "s")
    admin.done("PUT", f"{PATH}/public/default/unload")
    assert consumer.peer.closed == 1 and producer.peer.closed == 1 and elsewhere.peer.closed == 0  # type: ignore[attr-defined]
    assert len(other.topics_of["public/default"]) == 2
    admin.done("PUT", f"{PATH}/public/default/0x00000000_0xffffffff/unload")
    assert "0x00000000_0xffffffff" in admin.reason(412, "PUT", f"{PATH}/public/default/0x0_0x1/unload")
    admin.reason(404, "PUT", f"{PATH}/public/none/unload")


def test_dl10_failed_messages_are_no_backlog_of_the_namespace(admin: Admin) -> None:
    for name in ("t", "t-s-DLQ", "t-s-RETRY"):
        admin.subscribe(name, "s")
        admin.publish(name, b"x")
    admin.done("POST", f"{PATH}/public/default/clearBacklog")
    admin.done("POST", f"{PATH}/public/default/clearBacklog/s")
    backlogs = {name: _backlog(admin, name) for name in ("t", "t-s-DLQ", "t-s-RETRY")}
    assert backlogs == {"t": 0, "t-s-DLQ": 1, "t-s-RETRY": 1}
    admin.done("POST", "/admin/v2/persistent/public/default/t-s-DLQ/subscription/s/skip_all")
    assert _backlog(admin, "t-s-DLQ") == 0


def _backlog(admin: Admin, topic: str) -> int:
    stats = admin.get(f"/admin/v2/persistent/public/default/{topic}/stats")
    return int(stats["subscriptions"]["s"]["msgBacklog"])


def test_backlogs_of_all_topics_are_cleared(admin: Admin) -> None:
    for topic in ("t", "u"):
        for name in ("s", "r"):
            admin.unsubscribe_idle(admin.subscribe(f"persistent://public/default/{topic}", name))
        admin.publish(f"persistent://public/default/{topic}", b"1", b"2")

    def backlogs(where: Admin) -> dict[str, int]:
        return {
            f"{topic}/{name}": numbers["msgBacklog"]
            for topic in ("t", "u")
            for name, numbers in where.get(f"/admin/v2/persistent/public/default/{topic}/stats")[
                "subscriptions"
            ].items()
        }

    assert backlogs(admin) == {"t/s": 2, "t/r": 2, "u/s": 2, "u/r": 2}
    admin.done("POST", f"{PATH}/public/default/clearBacklog/s")
    assert backlogs(admin) == {"t/s": 0, "t/r": 2, "u/s": 0, "u/r": 2}
    assert "none" in admin.reason(404, "POST", f"{PATH}/public/default/clearBacklog/none")
    admin.done("POST", f"{PATH}/public/default/0x00000000_0xffffffff/clearBacklog")
    assert backlogs(admin.after_crash()) == {"t/s": 0, "t/r": 0, "u/s": 0, "u/r": 0}
    admin.done("PUT", f"{PATH}/public/a")
    admin.done("POST", f"{PATH}/public/a/clearBacklog/none")  # as in Pulsar: nothing to clear


def test_a_subscription_is_deleted_from_all_topics(admin: Admin) -> None:
    admin.unsubscribe_idle(admin.subscribe("persistent://public/default/t", "s"))
    consumer = admin.subscribe("persistent://public/default/u", "s")
    reason = admin.reason(412, "POST", f"{PATH}/public/default/unsubscribe/s")
    assert reason == "Subscription has active connected consumers"
    assert admin.get("/admin/v2/persistent/public/default/t/subscriptions") == ["s"]
    admin.unsubscribe_idle(consumer)
    admin.done("POST", f"{PATH}/public/default/0x00000000_0xffffffff/unsubscribe/s")
    for topic in ("t", "u"):
        assert admin.after_crash().get(f"/admin/v2/persistent/public/default/{topic}/subscriptions") == []
    admin.done("POST", f"{PATH}/public/default/unsubscribe/s")


def test_there_is_one_bundle(admin: Admin) -> None:
    one = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
    assert admin.get(f"{PATH}/public/default/bundles") == one
    admin.reason(404, "GET", f"{PATH}/public/none/bundles")


def test_the_zero_values_sent_by_go_clients_are_accepted(admin: Admin) -> None:
    """The body that pulsarctl sends to create a namespace."""
    zeros = {
        "bundles": None, "persistence": None, "retention_policies": None, "schema_validation_enforced": False,
        "deduplicationEnabled": False, "deleted": False, "encryption_required": False, "message_ttl_in_seconds": 0,
        "max_producers_per_topic": 0, "max_consumers_per_topic": 0, "max_consumers_per_subscription": 0,
        "compaction_threshold": 0, "offload_threshold": -1, "offload_deletion_lag_ms": 0, "antiAffinityGroup": "",
        "replication_clusters": [], "latency_stats_sample_rate": {}, "backlog_quota_map": {}, "topicDispatchRate": {},
        "subscriptionDispatchRate": {}, "replicatorDispatchRate": {}, "clusterSubscribeRate": {},
        "schema_auto_update_compatibility_strategy": "Full", "subscription_auth_mode": "None",
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    }  # fmt: skip
    admin.done("PUT", "/admin/v2/namespaces/public/go", json=zeros)
    assert admin.get("/admin/v2/namespaces/public/go")["replication_clusters"] == ["standalone"]
    refused = zeros | {"compaction_threshold": 1}
    assert "compaction_threshold" in admin.reason(501, "PUT", "/admin/v2/namespaces/public/other", json=refused)


def test_auto_creation_as_sent_by_go_clients(admin: Admin) -> None:
    body = {"allowAutoTopicCreation": False, "topicType": "", "defaultNumPartitions": None}
    admin.done("POST", "/admin/v2/namespaces/public/default/autoTopicCreation", json=body)

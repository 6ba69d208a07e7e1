"""Policies that conflict with each other, with the broker's settings or with missing names."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.broker.catalog.record import TenantRecord
from tests.admin.driver import Admin

NAMESPACES = "/admin/v2/namespaces"
DEFAULT = "/admin/v2/namespaces/public/default"
TOPICS = "/admin/v2/persistent/public/default"
QUOTA = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}


@pytest.fixture
def admin() -> Admin:
    admin = Admin()
    admin.done("PUT", f"{TOPICS}/t")
    return admin


def answer(admin: Admin, path: str) -> Any:
    """The JSON, or None for an empty response."""
    response = admin("GET", path)
    assert response.status_code in (200, 204), response.text
    return response.json() if response.content else None


# -- retention and backlog quotas


@pytest.mark.parametrize(
    ("minutes", "mb", "reason"),
    [
        (-2, -1, "Invalid retention policy: time limit must be >= -1"),
        (-1, -2, "Invalid retention policy: size limit must be >= -1"),
        (0, 10, "Invalid retention policy: Setting a single time or size limit to 0 is invalid"),
        (10, 0, "Invalid retention policy: Setting a single time or size limit to 0 is invalid"),
    ],
)
def test_an_inconsistent_retention(admin: Admin, minutes: int, mb: int, reason: str) -> None:
    body = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": mb}
    for path in (f"{DEFAULT}/retention", f"{TOPICS}/t/retention"):
        assert admin.reason(400, "POST", path, json=body).startswith(reason)
    assert reason in admin.reason(400, "PUT", f"{NAMESPACES}/public/a", json={"retention_policies": body})


def shown_quota(size: int, seconds: int, policy: str) -> dict[str, Any]:
    return {"limit": size, "limitSize": size, "limitTime": seconds, "policy": policy}


@pytest.mark.parametrize("base", [DEFAULT, f"{TOPICS}/t"])
def test_backlog_quotas_of_both_kinds(admin: Admin, base: str) -> None:
    assert admin.get(f"{base}/backlogQuotaMap") == {}
    admin.done("POST", f"{base}/backlogQuota", json={"limitSize": 1000, "policy": "producer_exception"})
    age = {"limitTime": 60, "policy": "consumer_backlog_eviction"}
    admin.done("POST", f"{base}/backlogQuota?backlogQuotaType=message_age", json=age)
    both = {
        "destination_storage": shown_quota(1000, -1, "producer_exception"),
        "message_age": shown_quota(-1, 60, "consumer_backlog_eviction"),
    }
    assert admin.get(f"{base}/backlogQuotaMap") == both
    assert admin.after_crash().get(f"{base}/backlogQuotaMap") == both
    assert admin.get(f"{base}/backlogQuotaMap?applied=true") == both
    admin.done("DELETE", f"{base}/backlogQuota")  # of the size, if nothing else is said
    assert admin.get(f"{base}/backlogQuotaMap") == {"message_age": both["message_age"]}
    admin.done("DELETE", f"{base}/backlogQuota?backlogQuotaType=message_age")
    assert admin.get(f"{base}/backlogQuotaMap") == {}
    assert admin.get(f"{base}/backlogQuotaMap?applied=true") == {
        "destination_storage": shown_quota(-1, -1, "producer_request_hold"),
        "message_age": shown_quota(-1, -1, "producer_request_hold"),
    }


@pytest.mark.parametrize("base", [DEFAULT, f"{TOPICS}/t"])
@pytest.mark.parametrize(
    ("status", "kind", "body", "reason"),
    [
        (400, "destination_storage", {"limitSize": 1}, "the attribute policy cannot be null"),
        (400, "some", QUOTA, "backlogQuotaType"),
        (400, "destination_storage", {**QUOTA, "policy": "pray"}, "pray"),
        (400, "destination_storage", {**QUOTA, "limitSize": 2**63}, "limitSize"),
        (400, "destination_storage", {**QUOTA, "limitSize": "one"}, "limitSize"),
        (400, "message_age", {**QUOTA, "limitTime": 2**31}, "limitTime"),
        (400, "message_age", {**QUOTA, "more": 1}, "more"),
        (412, "destination_storage", {**QUOTA, "limitSize": 0}, "limitSize 0"),
        (412, "destination_storage", {"policy": "producer_exception"}, "limitSize 0"),
        (412, "destination_storage", {**QUOTA, "limitTime": 5}, "limitTime 5"),
        (412, "message_age", {**QUOTA, "limitTime": 5}, "limitSize 1000"),
    ],
)
def test_a_rejected_backlog_quota(
    admin: Admin, base: str, status: int, kind: str, body: dict[str, Any], reason: str
) -> None:
    assert reason in admin.reason(status, "POST", f"{base}/backlogQuota?backlogQuotaType={kind}", json=body)
    assert admin.get(f"{base}/backlogQuotaMap") == {}


def test_a_conflict_of_quota_and_retention(admin: Admin) -> None:
    megabyte = {"limitSize": 1 << 20, "policy": "producer_exception"}
    enough, too_small = (
        {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2},
        {
            "retentionTimeInMinutes": 1,
            "retentionSizeInMB": 1,
        },
    )
    admin.done("POST", f"{DEFAULT}/retention", json=too_small)
    assert admin.reason(412, "POST", f"{DEFAULT}/backlogQuota", json=megabyte) == (
        "Backlog Quota exceeds configured retention quota for namespace. Please increase retention quota and retry"
    )
    assert admin.reason(412, "POST", f"{TOPICS}/t/backlogQuota", json=megabyte) == (
        "Backlog Quota exceeds configured retention quota for topic. Please increase retention quota and retry"
    )
    admin.done("POST", f"{DEFAULT}/retention", json=enough)
    admin.done("POST", f"{DEFAULT}/backlogQuota", json=megabyte)
    assert admin.reason(412, "POST", f"{DEFAULT}/retention", json=too_small) == (
        "Retention Quota must exceed configured backlog quota for namespace."
    )
    assert admin.reason(412, "POST", f"{TOPICS}/t/retention", json=too_small) == (
        "Retention Quota must exceed configured backlog quota for topic. Please increase retention quota and retry"
    )
    assert admin.get(f"{DEFAULT}/retention") == enough
    admin.done("POST", f"{DEFAULT}/retention", json={"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    admin.done("POST", f"{DEFAULT}/retention", json={"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})


def test_times_conflict_on_a_topic_only(admin: Admin) -> None:
    """As in Pulsar, which compares ages for topics but not for namespaces."""
    minute = {"limitTime": 60, "policy": "producer_exception"}
    retention = {"retentionTimeInMinutes": 1, "retentionSizeInMB": -1}
    for base in (DEFAULT, f"{TOPICS}/t"):
        admin.done("POST", f"{base}/retention", json=retention)
    admin.done("POST", f"{DEFAULT}/backlogQuota?backlogQuotaType=message_age", json=minute)
    admin.reason(412, "POST", f"{TOPICS}/t/backlogQuota?backlogQuotaType=message_age", json=minute)
    admin.done("POST", f"{TOPICS}/t/backlogQuota?backlogQuotaType=message_age", json={**minute, "limitTime": 59})


# -- auto-creation


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"allowAutoTopicCreation": True}, "Unknown topic type [null]"),
        ({"allowAutoTopicCreation": True, "topicType": "round"}, "Unknown topic type [round]"),
        (
            {"allowAutoTopicCreation": True, "topicType": "partitioned"},
            "[defaultNumPartitions] cannot be null when the type is partitioned.",
        ),
        (
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": -1},
            "[defaultNumPartitions] cannot be less than 1 for partition type.",
        ),
        (
            {"allowAutoTopicCreation": True, "topicType": "non-partitioned", "defaultNumPartitions": 3},
            "[defaultNumPartitions] is not allowed to be set when the type is non-partition.",
        ),
    ],
)
def test_ac1_an_invalid_override_of_auto_creation(admin: Admin, body: dict[str, Any], detail: str) -> None:
    reason = f"Invalid configuration for autoTopicCreationOverride. the detail is {detail}"
    assert admin.reason(412, "POST", f"{DEFAULT}/autoTopicCreation", json=body) == reason
    fields = {"autoTopicCreationOverride": body}
    assert admin.reason(412, "PUT", f"{NAMESPACES}/public/a", json=fields) == reason
    assert answer(admin, f"{DEFAULT}/autoTopicCreation") is None


def test_ac1_more_partitions_than_a_topic_may_have() -> None:
    admin = Admin(maxNumPartitionsPerPartitionedTopic=3)
    body = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4}
    reason = admin.reason(406, "POST", f"{DEFAULT}/autoTopicCreation", json=body)
    assert reason == "Number of partitions should be less than or equal to 3"
    admin.done("POST", f"{DEFAULT}/autoTopicCreation", json={**body, "defaultNumPartitions": 3})
    unlimited = Admin()
    unlimited.reason(406, "POST", f"{DEFAULT}/autoTopicCreation", json={**body, "defaultNumPartitions": 2**31 - 1})


def test_ac1_auto_creation_can_be_disabled_without_further_fields(admin: Admin) -> None:
    admin.done("POST", f"{DEFAULT}/autoTopicCreation", json={"allowAutoTopicCreation": False})
    assert admin.get(f"{DEFAULT}/autoTopicCreation")["allowAutoTopicCreation"] is False
    admin.reason(404, "GET", f"{TOPICS}/new/partitions?checkAllowAutoCreation=true")
    admin.done("DELETE", f"{DEFAULT}/autoTopicCreation")
    assert admin.get(f"{TOPICS}/new/partitions?checkAllowAutoCreation=true")["partitions"] == 0


def test_ac1_a_namespace_that_creates_partitioned_topics(admin: Admin) -> None:
    body = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    admin.done("POST", f"{DEFAULT}/autoTopicCreation", json=body)
    assert admin.get(f"{TOPICS}/new/partitions?checkAllowAutoCreation=true")["partitions"] == 3
    assert admin.get(f"{TOPICS}/x-DLQ/partitions?checkAllowAutoCreation=true")["partitions"] == 0


# -- clusters


def test_replication_clusters_must_be_known_and_allowed(admin: Admin) -> None:
    paths = (f"{DEFAULT}/replication", f"{TOPICS}/t/replication")
    for path in paths:
        assert admin.reason(412, "POST", path, json=[]) == "ClusterIds should not be null or empty"
        assert admin.reason(403, "POST", path, json=["standalone", "east"]) == "Invalid cluster id: east"
    assert admin.reason(403, "POST", paths[0], json=["mars"]) == "Invalid cluster id: mars"
    assert admin("PUT", "/admin/v2/clusters/east", json={"serviceUrl": "http://east:8080"}).status_code == 200
    for path in paths:
        assert admin.reason(403, "POST", path, json=["standalone", "east"]) == (
            "Cluster [east] is not in the list of allowed clusters list for tenant [public]"
        )
    admin.done("POST", "/admin/v2/tenants/public", json={"allowedClusters": ["standalone", "east"]})
    assert "do not include standalone" in admin.reason(412, "POST", paths[0], json=["east"])
    assert admin.reason(412, "POST", paths[1], json=["east"]) == (
        "Can not remove local cluster from the local topic-level replication clusters policy"
    )
    for path in paths:
        assert admin("POST", path, json=["standalone", "east", "east"]).status_code in (200, 204)
        assert admin.get(path) == ["standalone", "east"]
    reason = admin.reason(412, "DELETE", DEFAULT)
    assert reason.startswith("Cannot delete the global namespace public/default.")


def test_b2_replication_to_a_cluster_is_stopped_whatever_is_wrong_with_another(admin: Admin) -> None:
    clusters = ["standalone", "east", "west"]
    for cluster in clusters[1:]:
        assert admin("PUT", f"/admin/v2/clusters/{cluster}", json={"serviceUrl": "http://e:8080"}).status_code == 200
    admin.done("POST", "/admin/v2/tenants/public", json={"allowedClusters": clusters})
    own = f"{TOPICS}/t/replication"
    admin.done("POST", own, json=clusters)
    admin.broker.catalog.save_tenant("public", TenantRecord([], ["standalone"]))
    admin.done("POST", own, json=["standalone", "west"])
    assert admin.get(own) == ["standalone", "west"]
    assert "[east] is not in the list" in admin.reason(403, "POST", own, json=clusters)


def test_a_cluster_that_the_tenant_no_longer_has_is_set_nowhere_else(admin: Admin) -> None:
    clusters, refusal = ["standalone", "east"], "[east] is not in the list of allowed clusters list for tenant [public]"
    assert admin("PUT", "/admin/v2/clusters/east", json={"serviceUrl": "http://e:8080"}).status_code == 200
    admin.done("POST", "/admin/v2/tenants/public", json={"allowedClusters": clusters})
    assert admin("POST", f"{DEFAULT}/replication", json=clusters).status_code == 200
    admin.broker.catalog.save_tenant("public", TenantRecord([], ["standalone"]))
    assert refusal in admin.reason(403, "POST", f"{TOPICS}/t/replication", json=clusters)
    admin.done("POST", f"{TOPICS}/t/replication", json=["standalone"])
    assert refusal in admin.reason(403, "POST", f"{TOPICS}/t/replication", json=clusters)
    assert admin("POST", f"{DEFAULT}/replication", json=["standalone"]).status_code == 200
    assert refusal in admin.reason(403, "POST", f"{DEFAULT}/replication", json=clusters)


def test_gr1_a_namespace_may_be_restricted_to_some_clusters(admin: Admin) -> None:
    allowed, replication = f"{DEFAULT}/allowedClusters", f"{DEFAULT}/replication"
    for cluster in ("east", "west"):
        assert admin("PUT", f"/admin/v2/clusters/{cluster}", json={"serviceUrl": "http://e:8080"}).status_code == 200
    assert "for tenant [public]" in admin.reason(403, "POST", allowed, json=["standalone", "east"])
    admin.done("POST", "/admin/v2/tenants/public", json={"allowedClusters": ["standalone", "east", "west"]})
    assert admin.reason(400, "POST", allowed, json=["east"]).startswith(
        "Allowed clusters do not contain the replication cluster"
    )
    admin.done("POST", allowed, json=["standalone", "east", "east"])
    assert admin.after_crash().get(allowed) == admin.get(DEFAULT)["allowed_clusters"] == ["standalone", "east"]
    assert admin.reason(400, "POST", replication, json=["standalone", "west"]) == (
        "Cluster [west] is not in the list of allowed clusters list for namespace [public/default]"
    )
    assert admin("POST", replication, json=["standalone", "east"]).status_code == 200
    admin.done("POST", allowed, json=[])
    assert admin.get(allowed) == []
    assert admin("POST", replication, json=["standalone", "west"]).status_code == 200

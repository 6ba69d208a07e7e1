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
def test_policies_that_say_nothing_new_are_accepted(admin: Admin, policies: dict[str, Any]) -> None:
    admin.done("PUT", f"{PATH}/public/a", json=policies)
    assert admin.get(f"{PATH}/public") == ["public/a", "public/default"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("retention_policies", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10}),
        ("replication_clusters", ["standalone", "elsewhere"]),
        ("message_ttl_in_seconds", 0),
        ("deduplicationEnabled", False),
        ("offload_threshold", 0),
        ("no_such_policy", "x"),
    ],
)
def test_a_policy_that_would_not_be_obeyed_is_refused_by_name(admin: Admin, field: str, value: object) -> None:
    assert f" {field} " in admin.reason(501, "PUT", f"{PATH}/public/a", json={field: value})
    assert admin.get(f"{PATH}/public") == ["public/default"]


@pytest.mark.parametrize("body", [b"[]", b"3", b"{", b'{"a":', b'{"a":' * 5000])
def test_a_body_that_is_no_object(admin: Admin, body: bytes) -> None:
    admin.reason(400, "PUT", f"{PATH}/public/a", content=body)
    assert admin.get(f"{PATH}/public") == ["public/default"]


@pytest.mark.parametrize("namespace", ["public/a%2Fb", "public/a%20b", "a%2Fb/c", "public/%2E"])
def test_an_illegal_name_is_refused(admin: Admin, namespace: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        admin.reason(412, method, f"{PATH}/{namespace}")


def test_a_namespace_with_topics_stays(admin: Admin) -> None:
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

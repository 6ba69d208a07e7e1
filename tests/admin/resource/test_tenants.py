from __future__ import annotations

import pytest

from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.record import ClusterRecord, NamespaceRecord
from tests.admin.driver import Admin

PATH = "/admin/v2/tenants"
INFO = {"adminRoles": ["ops"], "allowedClusters": ["standalone"]}


def test_a_new_broker_has_the_public_tenant(admin: Admin) -> None:
    assert admin.get(PATH) == ["public"]
    assert admin.get(f"{PATH}/public") == {"adminRoles": [], "allowedClusters": ["standalone"]}


def test_create_get_delete(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/acme", json=INFO)
    assert admin.get(PATH) == ["acme", "public"]
    assert admin.get(f"{PATH}/acme") == INFO
    assert admin.after_crash().get(f"{PATH}/acme") == INFO
    assert admin.reason(409, "PUT", f"{PATH}/acme", json=INFO) == "Tenant already exists"
    admin.done("DELETE", f"{PATH}/acme")
    assert admin.get(PATH) == ["public"]
    assert admin.after_crash().get(PATH) == ["public"]
    admin.reason(404, "GET", f"{PATH}/acme")
    admin.reason(404, "DELETE", f"{PATH}/acme")


def test_a_tenant_with_namespaces_is_not_deleted(admin: Admin) -> None:
    assert admin.reason(409, "DELETE", f"{PATH}/public") == "The tenant still has active namespaces"
    admin.reason(405, "DELETE", f"{PATH}/public?force=true")
    admin.done("PUT", f"{PATH}/pub", json=INFO)  # a prefix of another name is not that name
    admin.done("DELETE", f"{PATH}/pub")
    assert admin.get(PATH) == ["public"]


def test_update(admin: Admin) -> None:
    admin.broker.catalog.save_cluster("west", ClusterRecord("http://west"))
    admin.done("PUT", f"{PATH}/acme", json=INFO)
    changed = {"adminRoles": ["dev", "ops"], "allowedClusters": ["standalone", "west"]}
    admin.done("POST", f"{PATH}/acme", json=changed)
    assert admin.get(f"{PATH}/acme") == admin.after_crash().get(f"{PATH}/acme") == changed
    assert admin.reason(404, "POST", f"{PATH}/nobody", json=INFO) == "Tenant nobody not found"
    assert "elsewhere" in admin.reason(412, "POST", f"{PATH}/acme", json={"allowedClusters": ["elsewhere"]})
    assert admin.get(f"{PATH}/acme") == changed


def test_a_cluster_used_by_a_namespace_cannot_be_removed_from_its_tenant(admin: Admin) -> None:
    admin.broker.catalog.save_cluster("west", ClusterRecord("http://west"))
    admin.done("PUT", f"{PATH}/acme", json={"allowedClusters": ["standalone", "west"]})
    admin.done("PUT", "/admin/v2/namespaces/acme/n")
    reason = admin.reason(412, "POST", f"{PATH}/acme", json={"allowedClusters": ["west"]})
    assert reason == (
        "Cannot remove cluster standalone from tenant acme: namespace acme/n still has it as a replication cluster"
    )
    admin.done("POST", f"{PATH}/acme", json={"allowedClusters": ["standalone"]})
    replicated = NamespaceRecord(overrides=Overrides(replication_clusters=["standalone", "west"]))
    admin.done("POST", f"{PATH}/acme", json={"allowedClusters": ["standalone", "west"]})
    admin.broker.catalog.save_namespace("acme/n", replicated)
    assert "cluster west" in admin.reason(412, "POST", f"{PATH}/acme", json={"allowedClusters": ["standalone"]})


@pytest.mark.parametrize("name", ["plain", "many"])
def test_a_cluster_that_a_topic_is_replicated_to_cannot_be_removed_from_its_tenant(admin: Admin, name: str) -> None:
    admin.broker.catalog.save_cluster("west", ClusterRecord("http://west"))
    both, one = {"allowedClusters": ["standalone", "west"]}, {"allowedClusters": ["standalone"]}
    for tenant in ("acme", "acm"):
        admin.done("PUT", f"{PATH}/{tenant}", json=both)
        admin.done("PUT", f"/admin/v2/namespaces/{tenant}/n")
    topics = "/admin/v2/persistent/acme/n"
    admin.done("PUT", f"{topics}/plain")
    admin.done("PUT", f"{topics}/many/partitions", json=2)
    admin.done("POST", f"{topics}/{name}/replication", json=["standalone", "west"])
    assert admin.reason(412, "POST", f"{PATH}/acme", json=one) == (
        f"Cannot remove cluster west from tenant acme: topic persistent://acme/n/{name} still has it as a replication"
        " cluster"
    )
    assert admin.get(f"{PATH}/acme")["allowedClusters"] == ["standalone", "west"]
    admin.done("POST", f"{PATH}/acm", json=one)  # a prefix of another name is not that name
    admin.done("DELETE", f"{topics}/{name}/replication")
    admin.done("POST", f"{PATH}/acme", json=one)


def test_force_deletes_everything_of_a_tenant() -> None:
    admin = Admin(forceDeleteTenantAllowed=True)
    admin.done("PUT", f"{PATH}/acme", json=INFO)
    for namespace in ("acme/a", "acme/b"):
        admin.done("PUT", f"/admin/v2/namespaces/{namespace}")
    admin.done("PUT", "/admin/v2/persistent/acme/a/many/partitions", json=3)
    admin.publish("persistent://acme/a/t", b"x")
    admin.subscribe("persistent://acme/a/t", "s")
    admin.publish("non-persistent://acme/b/t", b"x")
    admin.reason(409, "DELETE", f"{PATH}/acme")
    admin.done("DELETE", f"{PATH}/acme?force=true")
    for one in (admin, admin.after_crash()):
        assert one.get(PATH) == ["public"]
        catalog = one.broker.catalog
        assert list(catalog.namespaces) == ["public/default"]
        assert not catalog.topics and not catalog.partitioned and not one.broker.topics
    admin.reason(404, "DELETE", f"{PATH}/acme?force=true")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (412, b""),
        (412, b"{}"),
        (412, b'{"allowedClusters":[]}'),
        (412, b'{"allowedClusters":["elsewhere"]}'),
        (412, b'{"allowedClusters":["standalone",""]}'),
        (412, b'{"allowedClusters":["standalone"],"adminRoles":["%s"]}' % (b"r" * 2000)),
        (412, b'{"allowedClusters":["standalone"],"adminRoles":[" ops"]}'),
        (400, b'{"allowedClusters":"standalone"}'),
        (400, b'{"allowedClusters":[{}]}'),
        (400, b'{"clusters":["standalone"]}'),
        (400, b"["),
        (400, b"\xff\xfe"),
    ],
)
def test_bad_bodies(admin: Admin, status: int, body: bytes) -> None:
    admin.reason(status, "PUT", f"{PATH}/acme", content=body)
    assert admin.get(PATH) == ["public"]


def test_the_invalid_field_is_named(admin: Admin) -> None:
    body = {"allowedClusters": ["standalone", []]}
    assert "`$.allowedClusters[1]`" in admin.reason(400, "PUT", f"{PATH}/acme", json=body)


@pytest.mark.parametrize("tenant", ["a%2Fb", "a%20b", "caf%C3%A9", "%2E%2E", "x" * 1100])
def test_an_illegal_name_is_rejected(admin: Admin, tenant: str) -> None:
    for method in ("GET", "PUT", "POST", "DELETE"):
        assert "tenant" in admin.reason(412, method, f"{PATH}/{tenant}", json=INFO)
    assert admin.get(PATH) == ["public"]

from __future__ import annotations

import pytest

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


def test_a_tenant_with_namespaces_stays(admin: Admin) -> None:
    assert admin.reason(409, "DELETE", f"{PATH}/public") == "The tenant still has active namespaces"
    admin.reason(405, "DELETE", f"{PATH}/public?force=true")
    admin.done("PUT", f"{PATH}/pub", json=INFO)  # a prefix of the other's name is not the other
    admin.done("DELETE", f"{PATH}/pub")
    assert admin.get(PATH) == ["public"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (412, b""),
        (412, b"{}"),
        (412, b'{"allowedClusters":[]}'),
        (412, b'{"allowedClusters":["elsewhere"]}'),
        (412, b'{"allowedClusters":["standalone"],"adminRoles":[" ops"]}'),
        (400, b'{"allowedClusters":"standalone"}'),
        (400, b'{"allowedClusters":[1]}'),
        (400, b'{"clusters":["standalone"]}'),
        (400, b"["),
        (400, b"\xff\xfe"),
    ],
)
def test_bad_bodies(admin: Admin, status: int, body: bytes) -> None:
    admin.reason(status, "PUT", f"{PATH}/acme", content=body)
    assert admin.get(PATH) == ["public"]


def test_the_wrong_field_is_named(admin: Admin) -> None:
    body = {"allowedClusters": ["standalone", 7]}
    assert "`$.allowedClusters[1]`" in admin.reason(400, "PUT", f"{PATH}/acme", json=body)


@pytest.mark.parametrize("tenant", ["a%2Fb", "a%20b", "caf%C3%A9", "%2E%2E", "x" * 1100])
def test_an_illegal_name_is_refused(admin: Admin, tenant: str) -> None:
    admin.reason(412, "PUT", f"{PATH}/{tenant}", json=INFO)
    assert admin.get(PATH) == ["public"]

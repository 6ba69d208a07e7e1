"""Permissions are stored and shown, as by Pulsar without authorization."""

from __future__ import annotations

import pytest

from tests.admin.driver import Admin

PATH = "/admin/v2/namespaces/public/default/permissions"


def test_permissions_of_a_role(admin: Admin) -> None:
    assert admin.get(PATH) == {}
    admin.done("POST", f"{PATH}/app", json=["consume", "produce", "produce"])
    admin.done("POST", f"{PATH}/other%2Frole", json=[])
    assert admin.after_crash().get(PATH) == {"app": ["produce", "consume"], "other/role": []}
    admin.done("POST", f"{PATH}/app", json=["functions"])
    assert admin.get(PATH)["app"] == ["functions"]
    admin.done("DELETE", f"{PATH}/app")
    admin.done("DELETE", f"{PATH}/app")
    assert admin.after_crash().get(PATH) == {"other/role": []}


def test_roles_allowed_to_use_a_subscription(admin: Admin) -> None:
    assert admin.get(f"{PATH}/subscription") == {}
    admin.done("POST", f"{PATH}/subscription/s", json=["b", "a"])
    admin.done("POST", f"{PATH}/subscription/s", json=["c"])
    assert admin.after_crash().get(f"{PATH}/subscription") == {"s": ["a", "b", "c"]}
    admin.done("DELETE", f"{PATH}/s/b")
    admin.done("DELETE", f"{PATH}/none/b")
    assert admin.get(f"{PATH}/subscription") == {"s": ["a", "c"]}


@pytest.mark.parametrize("body", [b"", b"null", b'["fly"]', b'"produce"', b"[1]", b"{"])
def test_unknown_actions(admin: Admin, body: bytes) -> None:
    admin.reason(400, "POST", f"{PATH}/app", content=body)
    assert admin.get(PATH) == {}


@pytest.mark.parametrize("role", ["%20", "r" * 1025])
def test_invalid_role_names(admin: Admin, role: str) -> None:
    assert "role" in admin.reason(412, "POST", f"{PATH}/{role}", json=["produce"])
    admin.reason(400, "POST", f"{PATH}/subscription/s", json="a")
    assert admin.get(PATH) == {}


def test_a_missing_namespace_has_none(admin: Admin) -> None:
    none = PATH.replace("default", "none")
    for method, path in (
        ("GET", ""),
        ("POST", "/r"),
        ("DELETE", "/r"),
        ("GET", "/subscription"),
        ("POST", "/subscription/s"),
        ("DELETE", "/s/r"),
    ):
        assert admin.reason(404, method, none + path, json=["produce"]) == "Namespace does not exist"

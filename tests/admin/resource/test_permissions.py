"""Permissions on namespaces, topics and subscriptions are granted, revoked and shown."""

from __future__ import annotations

import pytest

from magnetar.broker.catalog import permissions
from magnetar.names import TopicName
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
    assert admin.after_crash().get(f"{PATH}/subscription") == {"s": ["a", "b"]}
    admin.done("POST", f"{PATH}/subscription/s", json=["c", "b"])
    assert admin.get(f"{PATH}/subscription") == {"s": ["b", "c"]}, "the roles are replaced, as in Apache Pulsar"
    admin.done("DELETE", f"{PATH}/s/b")
    admin.done("DELETE", f"{PATH}/none/b")
    assert admin.get(f"{PATH}/subscription") == {"s": ["c"]}
    admin.done("DELETE", f"{PATH}/s/c")
    assert admin.get(f"{PATH}/subscription") == {}


def test_a_subscription_is_not_opened_by_an_empty_list_of_roles(admin: Admin) -> None:
    admin.done("POST", f"{PATH}/subscription/s", json=["a"])
    assert admin.reason(400, "POST", f"{PATH}/subscription/s", json=[]) == "Roles should not be null or empty"
    assert admin.get(f"{PATH}/subscription") == {"s": ["a"]}


# -- topics


def on(topic: str) -> str:
    return f"/admin/v2/{topic.replace('://', '/')}/permissions"


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_permissions_on_a_topic_are_shown_with_those_of_its_namespace(admin: Admin, domain: str) -> None:
    topic = f"{domain}://public/default/t"
    admin.publish(topic, b"x")
    assert admin.get(on(topic)) == {}
    admin.done("POST", f"{PATH}/app", json=["produce"])
    admin.done("POST", f"{on(topic)}/app", json=["packages", "consume"])
    admin.done("POST", f"{on(topic)}/reader", json=["consume"])
    assert admin.get(on(topic)) == {"app": ["produce", "consume", "packages"], "reader": ["consume"]}
    assert admin.get(PATH) == {"app": ["produce"]}
    stored = admin.after_crash().get("/admin/v2/namespaces/public/default")["auth_policies"]["destination_auth"]
    assert stored == {topic: {"app": ["consume", "packages"], "reader": ["consume"]}}
    admin.done("POST", f"{on(topic)}/app", json=["sinks"])
    assert admin.get(on(topic))["app"] == ["produce", "sinks"], "what was granted before is replaced"
    admin.done("DELETE", f"{on(topic)}/app")
    admin.done("DELETE", f"{on(topic)}/none")
    assert admin.get(on(topic)) == {"app": ["produce"], "reader": ["consume"]}


def test_permissions_on_a_partitioned_topic_cover_its_partitions(admin: Admin) -> None:
    topic = "persistent://public/default/many"
    admin.done("PUT", "/admin/v2/persistent/public/default/many/partitions", json=2)
    admin.done("POST", f"{on(topic)}/app", json=["consume"])
    admin.done("POST", f"{on(topic + '-partition-1')}/app", json=["produce"])
    assert admin.get(on(topic)) == {"app": ["consume"]}
    assert admin.get(on(topic + "-partition-0")) == {"app": ["consume"]}
    assert admin.get(on(topic + "-partition-1")) == {"app": ["produce", "consume"]}
    catalog = admin.broker.catalog
    new = TopicName.parse(topic + "-partition-2")
    assert permissions.of_topic(catalog, new) == {"app": ["consume"]}, "of a partition that does not exist yet too"
    admin.done("DELETE", f"{on(topic)}/app")
    assert admin.get(on(topic + "-partition-1")) == {}, "revoking reaches every partition, as in Apache Pulsar"


def test_a_deleted_topic_leaves_no_permissions(admin: Admin) -> None:
    plain, many = "persistent://public/default/t", "persistent://public/default/many"
    for path, body in (("t", {}), ("many/partitions", 2)):
        admin.done("PUT", f"/admin/v2/persistent/public/default/{path}", json=body)
    for topic in (plain, many, many + "-partition-0"):
        admin.done("POST", f"{on(topic)}/app", json=["consume"])
    admin.done("DELETE", "/admin/v2/persistent/public/default/t")
    admin.done("DELETE", "/admin/v2/persistent/public/default/many/partitions")
    assert admin.after_crash().broker.catalog.namespaces["public/default"].topic_permissions == {}


def test_a_topic_that_does_not_exist_has_no_permissions(admin: Admin) -> None:
    none = on("persistent://public/default/none")
    for method, path in (("GET", none), ("POST", f"{none}/r"), ("DELETE", f"{none}/r")):
        assert "none not found" in admin.reason(404, method, path, json=["produce"])
    assert admin.broker.catalog.namespaces["public/default"].topic_permissions == {}


@pytest.mark.parametrize("body", [b"", b"null", b'["fly"]'])
def test_unknown_actions_on_a_topic(admin: Admin, body: bytes) -> None:
    topic = "persistent://public/default/t"
    admin.publish(topic, b"x")
    admin.reason(400, "POST", f"{on(topic)}/app", content=body)
    assert admin.get(on(topic)) == {}


# -- names and bodies


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

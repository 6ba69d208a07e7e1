"""Limits of what administrators send and get: the value at the limit is taken, the next one refused with the limit."""

from __future__ import annotations

import pytest

from magnetar.access_bounds import ROLE_SIZE, TOPIC_PERMISSIONS
from magnetar.admin.routes import ROUTES
from magnetar.bounds import (
    CLUSTER_URL,
    CONDITION_SIZE,
    DEAD_LETTER_PAGE,
    ERROR_TEXT_SIZE,
    MAP_SIZE,
    MASKS,
    PAUSE_REASON,
    REPORTS_BODY,
    TEMPLATE_SIZE,
)
from magnetar.broker.catalog import permissions as topic_permissions
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.errors import InvalidName, InvalidSetting
from magnetar.replication.model import Mask
from magnetar.replication.route import check_masks
from magnetar.replication.topic_template import check_template
from magnetar.replication.where import check_where
from tests.admin.driver import Admin

DEFAULT = "/admin/v2/persistent/public/default"
SUBSCRIPTION = f"{DEFAULT}/t/subscription/s"


def test_bound_reports_body(admin: Admin) -> None:
    (route,) = [route for route in ROUTES if route.path == "/admin/v2/replication/reports"]
    assert route.body_size_max == REPORTS_BODY.limit
    body = b" " * (REPORTS_BODY.limit + 1)
    assert str(REPORTS_BODY.limit) in admin.reason(413, "PUT", route.path, content=body)


@pytest.mark.parametrize("path", [f"{DEFAULT}/t-s-DLQ/deadLetters", "/admin/v2/namespaces/public/default/deadLetters"])
def test_bound_dead_letter_page(admin: Admin, path: str) -> None:
    admin.done("PUT", f"{DEFAULT}/t-s-DLQ")
    limit = DEAD_LETTER_PAGE.limit
    assert admin("GET", f"{path}?limit={limit}").status_code == 200
    assert f"1 to {limit}" in admin.reason(400, "GET", f"{path}?limit={limit + 1}")


def test_bound_pause_reason(admin: Admin) -> None:
    admin.done("PUT", SUBSCRIPTION)
    reason = "x" * PAUSE_REASON.limit
    assert str(PAUSE_REASON.limit) in admin.reason(400, "POST", f"{SUBSCRIPTION}/pause", json={"reason": reason + "x"})
    admin.done("POST", f"{SUBSCRIPTION}/pause", json={"reason": reason})


def test_bound_error_text_size(admin: Admin) -> None:
    admin.done("PUT", SUBSCRIPTION, content=b'"earliest"')
    admin.publish("t", b"a")
    topic = admin.broker.topics["persistent://public/default/t"]
    assert isinstance(topic, PersistentTopic)
    error = "e" * (ERROR_TEXT_SIZE.limit + 100)
    admin.done("POST", f"{SUBSCRIPTION}/failure", json={"messageId": f"{topic.ledger_id}:0", "error": error})
    subscription = topic.subscriptions["s"]
    assert isinstance(subscription, Subscription)
    state = subscription.cursor.state_of(0)
    assert state is not None and list(state.errors.values()) == ["e" * ERROR_TEXT_SIZE.limit]


def test_bound_role_size(admin: Admin) -> None:
    role = "r" * ROLE_SIZE.limit
    tenant = {"allowedClusters": ["standalone"], "adminRoles": [role + "r"]}
    assert str(ROLE_SIZE.limit) in admin.reason(412, "PUT", "/admin/v2/tenants/a", json=tenant)
    admin.done("PUT", "/admin/v2/tenants/a", json=tenant | {"adminRoles": [role]})
    path = "/admin/v2/namespaces/public/default/permissions"
    assert str(ROLE_SIZE.limit) in admin.reason(412, "POST", f"{path}/{role}r", json=["produce"])
    admin.done("POST", f"{path}/{role}", json=["produce"])


def test_bound_topic_permissions(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_permissions, "TOPICS_MAX", 2)
    for topic in ("a", "b", "c"):
        admin.done("PUT", f"/admin/v2/persistent/public/default/{topic}")
    path = "/admin/v2/persistent/public/default"
    for topic in ("a", "b", "b"):
        admin.done("POST", f"{path}/{topic}/permissions/r", json=["produce"])
    assert "the limit is 2" in admin.reason(412, "POST", f"{path}/c/permissions/r", json=["produce"])
    roles = {f"public/a/t{index}": {"r": ["produce"]} for index in range(TOPIC_PERMISSIONS.limit + 1)}
    policies = {"auth_policies": {"destination_auth": roles}}
    assert str(TOPIC_PERMISSIONS.limit) in admin.reason(412, "PUT", "/admin/v2/namespaces/public/a", json=policies)


def test_bound_cluster_url(admin: Admin) -> None:
    hosts = ",".join(["host"] * 300)
    url = f"http://{hosts}"[: CLUSTER_URL.limit].rstrip(",")
    url += "h" * (CLUSTER_URL.limit - len(url))
    reason = admin.reason(400, "PUT", "/admin/v2/clusters/west", json={"serviceUrl": url + "h"})
    assert str(CLUSTER_URL.limit) in reason
    assert admin("PUT", "/admin/v2/clusters/west", json={"serviceUrl": url}).status_code == 200


def test_bound_condition_size() -> None:
    check_where("n > 1" + " " * (CONDITION_SIZE.limit - 5))
    with pytest.raises(InvalidSetting, match=f"more than {CONDITION_SIZE.limit}"):
        check_where("n > 1" + " " * (CONDITION_SIZE.limit - 4))


def test_bound_masks() -> None:
    masks = tuple(Mask(f"f{number}") for number in range(MASKS.limit + 1))
    check_masks(masks[1:])
    with pytest.raises(InvalidSetting, match=f"exceed the limit of {MASKS.limit}"):
        check_masks(masks)


def test_bound_template_size() -> None:
    with pytest.raises(InvalidName, match=f"more than {TEMPLATE_SIZE.limit}"):
        check_template("x" * (TEMPLATE_SIZE.limit + 1))


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("PUT", f"{DEFAULT}/new", "properties of the topic"),
        ("PUT", f"{DEFAULT}/t/properties", "properties of the topic"),
        ("PUT", f"{SUBSCRIPTION}/properties", "properties of the subscription"),
        ("PUT", "/admin/v2/namespaces/public/default/properties", "properties of the namespace"),
    ],
)
def test_bound_map_size_of_properties(admin: Admin, method: str, path: str, name: str) -> None:
    admin.done("PUT", f"{DEFAULT}/t")
    admin.done("PUT", SUBSCRIPTION)
    limit = MAP_SIZE.limit
    refusal = f"{name} of {limit + 1} bytes exceeds {limit}"
    assert admin.reason(412, method, path, json={"é": "x" * (limit - 1)}) == refusal
    admin.done(method, path, json={"é": "x" * (limit - 2)})


def test_bound_map_size_counts_the_properties_that_are_kept(admin: Admin) -> None:
    admin.done("PUT", f"{DEFAULT}/t", json={"a": "x" * (MAP_SIZE.limit - 1)})
    assert "exceeds" in admin.reason(412, "PUT", f"{DEFAULT}/t/properties", json={"b": ""})
    namespace = "/admin/v2/namespaces/public/default"
    admin.done("PUT", f"{namespace}/properties", json={"a": "x" * (MAP_SIZE.limit - 1)})
    assert "exceeds" in admin.reason(412, "PUT", f"{namespace}/property/b/c")


def test_bound_map_size_of_new_things(admin: Admin) -> None:
    large = {"a": "x" * MAP_SIZE.limit}
    position = {"ledgerId": -1, "entryId": -1, "properties": large}
    assert "of the subscription" in admin.reason(412, "PUT", SUBSCRIPTION, json=position)
    body = {"partitions": 2, "properties": large}
    headers = {"Content-Type": "application/vnd.partitioned-topic-metadata+json"}
    assert "of the topic" in admin.reason(412, "PUT", f"{DEFAULT}/p/partitions", json=body, headers=headers)
    schema = {"type": "STRING", "schema": "", "properties": large}
    assert "schema" in admin.reason(412, "POST", "/admin/v2/schemas/public/default/t/schema", json=schema)
    assert "of the namespace" in admin.reason(412, "PUT", "/admin/v2/namespaces/public/n", json={"properties": large})
    assert admin.existing() == ([], {})

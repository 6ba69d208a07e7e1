"""Positions of many topics in one response, for pipelines that replicate subscriptions."""

from __future__ import annotations

import pytest

from magnetar.admin.resource.replication import TOPICS_MAX
from tests.admin.driver import Admin

PATH = "/admin/v2/replication/cursors"
TOPIC = "persistent://public/default/orders"


def test_gr9_many_topics_return_the_same_as_one_by_one(admin: Admin) -> None:
    admin("PUT", "/admin/v2/persistent/public/default/orders")
    admin("PUT", "/admin/v2/persistent/public/default/orders/subscription/s", json="earliest")
    admin("PUT", "/admin/v2/persistent/public/default/parts/partitions", json=2)
    names = [TOPIC, "persistent://public/default/parts-partition-1", "persistent://public/default/missing"]
    found = admin("POST", PATH, json=names).json()
    assert found[TOPIC] == admin.get("/admin/v2/persistent/public/default/orders/internalStats")
    assert found[TOPIC]["cursors"]["s"]["markDeletePosition"].endswith(":-1")
    assert TOPIC.replace("orders", "missing") not in found


def test_gr9_a_query_creates_nothing(admin: Admin) -> None:
    before = admin.existing()
    assert admin("POST", PATH, json=[TOPIC, "persistent://nobody/nowhere/t", "orders-partition-3"]).json() == {}
    assert admin.existing() == before


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (["bad//name"], "bad//name"),
        ({"topic": TOPIC}, "array"),
    ],
)
def test_gr9_an_invalid_list_of_topics_is_rejected(admin: Admin, body: object, reason: str) -> None:
    assert reason in admin.reason(400, "POST", PATH, json=body)


def test_bound_cursor_topics(admin: Admin) -> None:
    assert str(TOPICS_MAX) in admin.reason(400, "POST", PATH, json=[TOPIC] * (TOPICS_MAX + 1))
    assert admin("POST", PATH, json=[TOPIC] * TOPICS_MAX).status_code == 200

from __future__ import annotations

import pytest

from tests.admin.driver import Admin

PATH = "/admin/v2/persistent/public/default"
FULL = "persistent://public/default"


def backlog(admin: Admin, subscription: str, topic: str = "t") -> int:
    backlog: int = admin.get(f"{PATH}/{topic}/stats")["subscriptions"][subscription]["msgBacklog"]
    return backlog


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", 0),
        (b"{}", 0),
        (b'"latest"', 0),
        (b'"earliest"', 3),
        (b'{"ledgerId":-1,"entryId":-1,"partitionIndex":-1}', 3),
        (b'{"ledgerId":9223372036854775807,"entryId":9223372036854775807,"partitionIndex":-1}', 0),
        (b'{"ledgerId":%d,"entryId":1}', 2),
        (b'{"ledgerId":%d,"entryId":0,"isExcluded":false,"batchIndex":-1}', 3),
        (b'{"ledgerId":%d,"entryId":99}', 0),
        (b'"%d:2"', 1),
        (b'{"ledgerId":0,"entryId":0}', 3),
    ],
)
def test_create_at_a_position(admin: Admin, body: bytes, expected: int) -> None:
    admin.publish("t", b"a", b"b", b"c")
    if b"%d" in body:
        body = body % admin.get(f"{PATH}/t/lastMessageId")["ledgerId"]
    admin.done("PUT", f"{PATH}/t/subscription/s", content=body)
    assert backlog(admin, "s") == expected
    assert backlog(admin.after_crash(), "s") == expected
    admin.broker.invariants()


def test_properties_and_replicated(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/subscription/s?replicated=true", json={"properties": {"k": "v"}})
    stats = admin.after_crash().get(f"{PATH}/t/stats")["subscriptions"]["s"]
    assert stats["subscriptionProperties"] == {"k": "v"} and stats["isReplicated"]


@pytest.mark.parametrize(("encoded", "name"), [("a%2Fb", "a/b"), ("a%20b%25", "a b%"), ("%E2%82%AC", "€")])
def test_any_text_is_a_name(admin: Admin, encoded: str, name: str) -> None:
    admin.done("PUT", f"{PATH}/t/subscription/{encoded}")
    assert admin.get(f"{PATH}/t/subscriptions") == [name]
    admin.done("DELETE", f"{PATH}/t/subscription/{encoded}")
    assert admin.get(f"{PATH}/t/subscriptions") == []


def test_creating_twice_is_a_conflict(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/subscription/s")
    assert admin.reason(409, "PUT", f"{PATH}/t/subscription/s") == "Subscription already exists for topic"


def test_a_missing_topic_is_created_where_clients_may(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/subscription/s")
    assert admin.get(PATH) == [f"{FULL}/t"]
    strict = Admin(allowAutoTopicCreation=False)
    strict.reason(404, "PUT", f"{PATH}/t/subscription/s")
    assert strict.get(PATH) == []


def test_a_partitioned_topic_gets_it_on_all_partitions(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    admin.subscribe(f"{FULL}/t-partition-0", "s")
    admin.done("PUT", f"{PATH}/t/subscription/s")
    admin.reason(409, "PUT", f"{PATH}/t/subscription/s")
    assert admin.get(f"{PATH}/t-partition-1/subscriptions") == ["s"]
    admin.subscribe(f"{FULL}/t-partition-1", "other")
    assert admin.get(f"{PATH}/t/subscriptions") == ["other", "s"]


@pytest.mark.parametrize(
    "body",
    [b"{", b"3", b'"now"', b'"1:x"', b'":"', b'{"ledgerId":"x"}', b'{"ledger":1}', b'{"properties":{"a":[]}}', b"\xff"],
)
def test_a_body_that_is_no_position(admin: Admin, body: bytes) -> None:
    admin.reason(400, "PUT", f"{PATH}/t/subscription/s", content=body)
    assert admin.get(PATH) == []


def test_the_invalid_field_is_named(admin: Admin) -> None:
    assert "`$.ledgerId`" in admin.reason(400, "PUT", f"{PATH}/t/subscription/s", json={"ledgerId": "x"})


def test_bound_subscription_name(admin: Admin) -> None:
    assert "1025 bytes" in admin.reason(412, "PUT", f"{PATH}/t/subscription/{'x' * 1025}")
    assert admin.get(PATH) == []


def test_subscription_limits_are_enforced() -> None:
    admin = Admin(maxSubscriptionsPerTopic=1)
    admin.done("PUT", f"{PATH}/t/subscription/a")
    assert "maxSubscriptionsPerTopic" in admin.reason(412, "PUT", f"{PATH}/t/subscription/b")


def test_a_non_persistent_topic_gets_subscriptions_from_consumers_only(admin: Admin) -> None:
    path = "/admin/v2/non-persistent/public/default/n"
    admin.reason(400, "PUT", f"{path}/subscription/s")
    admin.subscribe("non-persistent://public/default/n", "s")
    assert admin.get(f"{path}/subscriptions") == ["s"]
    admin.done("DELETE", f"{path}/subscription/s?force=true")
    assert admin.get(f"{path}/subscriptions") == []


def test_delete(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/subscription/s")
    admin.done("DELETE", f"{PATH}/t/subscription/s")
    assert admin.get(f"{PATH}/t/subscriptions") == []
    assert admin.after_crash().get(f"{PATH}/t/subscriptions") == []
    reason = admin.reason(404, "DELETE", f"{PATH}/t/subscription/s")
    assert reason == f"Subscription s not found for topic {FULL}/t"
    admin.reason(404, "DELETE", f"{PATH}/missing/subscription/s")


def test_a_subscription_in_use_is_deleted_by_force_only(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    admin.done("PUT", f"{PATH}/t/subscription/s")
    consumer = admin.subscribe(f"{FULL}/t-partition-1", "s")
    assert admin.reason(412, "DELETE", f"{PATH}/t/subscription/s") == "Subscription has active connected consumers"
    assert admin.get(f"{PATH}/t-partition-0/subscriptions") == ["s"]
    admin.done("DELETE", f"{PATH}/t/subscription/s?force=true")
    assert admin.get(f"{PATH}/t/subscriptions") == []
    assert consumer.peer.closed == 1  # type: ignore[attr-defined]


def test_properties_are_replaced_on_all_partitions(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    admin.done("PUT", f"{PATH}/t/subscription/s", json={"properties": {"a": "1"}})
    admin.done("PUT", f"{PATH}/t-partition-1/subscription/s/properties", json={"b": "2"})
    assert admin.get(f"{PATH}/t/subscription/s/properties") == {"a": "1", "b": "2"}
    admin.done("PUT", f"{PATH}/t/subscription/s/properties", json={"c": "3"})
    again = admin.after_crash()
    assert again.get(f"{PATH}/t/subscription/s/properties") == {"c": "3"}
    assert again.get(f"{PATH}/t-partition-0/subscription/s/properties") == {"c": "3"}
    admin.done("PUT", f"{PATH}/t/subscription/s/properties")
    assert admin.get(f"{PATH}/t/subscription/s/properties") == {}
    admin.reason(400, "PUT", f"{PATH}/t/subscription/s/properties", json={"a": []})
    for method in ("GET", "PUT"):
        reason = admin.reason(404, method, f"{PATH}/t/subscription/other/properties")
        assert reason == f"Subscription other not found for topic {FULL}/t"


def test_properties_of_a_non_durable_subscription(admin: Admin) -> None:
    path = "/admin/v2/non-persistent/public/default/n/subscription/s/properties"
    admin.subscribe("non-persistent://public/default/n", "s")
    assert admin.get(path) == {}
    admin.done("PUT", path, json={"a": "b"})
    assert admin.get(path) == {"a": "b"}
    admin.subscribe("t", "reader", durable=False)
    admin.done("PUT", f"{PATH}/t/subscription/reader/properties", json={"a": "b"})
    assert admin.get(f"{PATH}/t/subscription/reader/properties") == {"a": "b"}
    assert admin.after_crash().get(f"{PATH}/t/subscriptions") == []


def test_replicated_status(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    admin.done("PUT", f"{PATH}/t/subscription/s")
    path = f"{PATH}/t/subscription/s/replicatedSubscriptionStatus"
    assert admin.get(path) == {f"{FULL}/t-partition-{index}": False for index in range(2)}
    admin.done("POST", path, content=b"true")
    assert admin.after_crash().get(path) == {f"{FULL}/t-partition-{index}": True for index in range(2)}
    admin.done("POST", f"{PATH}/t-partition-0/subscription/s/replicatedSubscriptionStatus", content=b"false")
    assert admin.get(path) == {f"{FULL}/t-partition-0": False, f"{FULL}/t-partition-1": True}
    for body in (b"", b'"yes"', b"1.5"):
        admin.reason(400, "POST", path, content=body)
    admin.reason(404, "GET", f"{PATH}/t/subscription/other/replicatedSubscriptionStatus")
    admin.subscribe("non-persistent://public/default/n", "s")
    for method in ("GET", "POST"):
        other = "/admin/v2/non-persistent/public/default/n/subscription/s/replicatedSubscriptionStatus"
        admin.reason(405, method, other, content=b"true")


def test_no_partition_gets_a_subscription_where_one_is_not_allowed_to() -> None:
    admin = Admin(maxSubscriptionsPerTopic=1)
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    admin.done("PUT", f"{PATH}/t-partition-1/subscription/a")
    assert "maxSubscriptionsPerTopic" in admin.reason(412, "PUT", f"{PATH}/t/subscription/b")
    assert admin.get(f"{PATH}/t-partition-0/subscriptions") == []


@pytest.mark.parametrize("body", [b'{"ledgerId":-2}', b'{"entryId":9223372036854775808}', b'{"batchIndex":2147483648}'])
def test_a_position_has_limits(admin: Admin, body: bytes) -> None:
    admin.reason(400, "PUT", f"{PATH}/t/subscription/s", content=body)
    assert admin.get(PATH) == []


def test_bodies_of_pulsar_admin_and_pulsarctl_are_accepted(admin: Admin) -> None:
    """Both send more fields than needed."""
    admin.done("PUT", f"{PATH}/t")
    latest = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "batchIndex": -1, "excluded": False, "properties": {}}
    admin.done("PUT", f"{PATH}/t/subscription/java", json=latest | {"partitionIndex": -1, "batchSize": 0})
    admin.done("PUT", f"{PATH}/t/subscription/go", json=latest | {"partitionedIndex": -1})
    assert admin.get(f"{PATH}/t/subscriptions") == ["go", "java"]

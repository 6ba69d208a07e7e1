"""GET …/partitions and related calls: responses of Apache Pulsar 4.2.4, and the topics that exist afterwards."""

from __future__ import annotations

import pytest

from magnetar.bounds import PARTITIONS
from tests.admin.driver import Admin

PATH = "/admin/v2/persistent/public/default"
FULL = "persistent://public/default"

OFF = {"allowAutoTopicCreation": False}
PLAIN = {"allowAutoTopicCreationType": "non-partitioned"}
PARTITIONED = {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": 2}
POLICIES = {"off": OFF, "plain": PLAIN, "partitioned": PARTITIONED}
FLAGS = {"absent": "", "false": "?checkAllowAutoCreation=false", "true": "?checkAllowAutoCreation=true"}


def partitioned(name: str, count: int) -> tuple[list[str], dict[str, int]]:
    return [f"{FULL}/{name}-partition-{index}" for index in range(count)], {f"{FULL}/{name}": count}


NOTHING: tuple[list[str], dict[str, int]] = ([], {})

# topic, auto-creation, flag -> partitions (None: 404), existing topics afterwards
MISSING = [
    ("t", "off", "absent", None, NOTHING),
    ("t", "off", "false", None, NOTHING),
    ("t", "off", "true", None, NOTHING),
    ("t", "plain", "absent", None, NOTHING),
    ("t", "plain", "false", None, NOTHING),
    ("t", "plain", "true", 0, NOTHING),
    ("t", "partitioned", "absent", None, NOTHING),
    ("t", "partitioned", "false", None, NOTHING),
    ("t", "partitioned", "true", 2, partitioned("t", 2)),
    ("x-DLQ", "off", "true", None, NOTHING),
    ("x-DLQ", "plain", "true", 0, NOTHING),
    ("x-DLQ", "partitioned", "true", 0, NOTHING),
    ("x-DLQ", "partitioned", "absent", None, NOTHING),
    ("x-RETRY", "partitioned", "true", 0, NOTHING),
    ("x-dlq", "plain", "true", 0, NOTHING),
    ("x-dlq", "partitioned", "true", 2, partitioned("x-dlq", 2)),
    ("DLQ", "partitioned", "true", 2, partitioned("DLQ", 2)),
]


@pytest.mark.parametrize(("topic", "policy", "flag", "count", "existing"), MISSING)
def test_a_missing_topic(
    topic: str, policy: str, flag: str, count: int | None, existing: tuple[list[str], dict[str, int]]
) -> None:
    admin = Admin(**POLICIES[policy])
    path = f"{PATH}/{topic}/partitions{FLAGS[flag]}"
    if count is None:
        assert admin.reason(404, "GET", path) == f"Topic {FULL}/{topic} not found"
    else:
        assert admin.get(path) == {"partitions": count, "deleted": False}
    assert admin.existing() == existing
    assert admin.after_crash().existing() == existing


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("flag", FLAGS)
def test_an_existing_topic_returns_its_count_for_any_flag(policy: str, flag: str) -> None:
    admin = Admin(**POLICIES[policy])
    admin.done("PUT", f"{PATH}/plain")
    admin.done("PUT", f"{PATH}/parts/partitions", json=3)
    before = admin.existing()
    assert admin.get(f"{PATH}/plain/partitions{FLAGS[flag]}") == {"partitions": 0, "deleted": False}
    assert admin.get(f"{PATH}/parts/partitions{FLAGS[flag]}") == {"partitions": 3, "deleted": False}
    assert admin.get(f"{PATH}/parts-partition-2/partitions{FLAGS[flag]}") == {"partitions": 0, "deleted": False}
    assert admin.existing() == before


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("flag", FLAGS)
def test_a_partition_past_the_last_is_not_found(policy: str, flag: str) -> None:
    admin = Admin(**POLICIES[policy])
    admin.done("PUT", f"{PATH}/parts/partitions", json=3)
    admin.reason(404, "GET", f"{PATH}/parts-partition-9/partitions{FLAGS[flag]}")
    assert admin.existing() == partitioned("parts", 3)


@pytest.mark.parametrize("namespace", ["public/none", "none/default"])
@pytest.mark.parametrize("flag", FLAGS)
def test_a_missing_namespace(admin: Admin, namespace: str, flag: str) -> None:
    path = f"/admin/v2/persistent/{namespace}/t/partitions{FLAGS[flag]}"
    assert admin.reason(404, "GET", path) == "Namespace not found"


def test_non_persistent_topics_respond_alike() -> None:
    admin = Admin(**PARTITIONED)
    path = "/admin/v2/non-persistent/public/default/t/partitions"
    admin.reason(404, "GET", path)
    assert admin.get(path + FLAGS["true"]) == {"partitions": 2, "deleted": False}
    assert admin.existing()[1] == {"non-persistent://public/default/t": 2}


def test_an_invalid_flag_is_rejected(admin: Admin) -> None:
    assert "checkAllowAutoCreation" in admin.reason(400, "GET", f"{PATH}/t/partitions?checkAllowAutoCreation=maybe")


# -- create


@pytest.mark.parametrize("body", [b"3", b'{"partitions":3}', b'{"partitions":3,"deleted":false,"properties":null}'])
def test_create(admin: Admin, body: bytes) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", content=body)
    assert admin.existing() == partitioned("t", 3)
    assert admin.after_crash().existing() == partitioned("t", 3)


def test_properties_given_at_creation_are_kept(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json={"partitions": 1, "properties": {"owner": "me"}})
    assert admin.get(f"{PATH}/t/properties") == {"owner": "me"}
    assert admin.after_crash().get(f"{PATH}/t/properties") == {"owner": "me"}


def test_a_dead_letter_topic_may_be_partitioned_explicitly(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/x-DLQ/partitions", json=2)
    assert admin.existing() == partitioned("x-DLQ", 2)


def test_creating_an_existing_topic_is_a_conflict(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/plain")
    admin.done("PUT", f"{PATH}/parts/partitions", json=2)
    for path in (f"{PATH}/plain/partitions", f"{PATH}/parts/partitions"):
        assert admin.reason(409, "PUT", path, json=2) == "This topic already exists"
    for path in (f"{PATH}/plain", f"{PATH}/parts"):
        assert admin.reason(409, "PUT", path) == "This topic already exists"


@pytest.mark.parametrize("count", [0, -1, -(2**31)])
def test_at_least_one_partition_is_required(admin: Admin, count: int) -> None:
    reason = admin.reason(406, "PUT", f"{PATH}/t/partitions", json=count)
    assert reason == "Number of partitions should be more than 0"
    assert admin.existing() == NOTHING


@pytest.mark.parametrize("count", [PARTITIONS.limit + 1, 2**31 - 1])
def test_bound_partitions_at_most(admin: Admin, count: int) -> None:
    reason = admin.reason(406, "PUT", f"{PATH}/t/partitions", json=count)
    assert reason == "Number of partitions should be less than or equal to 4096"
    assert admin.existing() == NOTHING


def test_bound_partitions_by_setting() -> None:
    admin = Admin(maxNumPartitionsPerPartitionedTopic=4)
    assert "4" in admin.reason(406, "PUT", f"{PATH}/t/partitions", json=5)
    admin.done("PUT", f"{PATH}/t/partitions", json=4)
    admin.reason(422, "POST", f"{PATH}/t/partitions", json=5)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b'"3.0"',
        b"true",
        b"{}",
        b'{"partitions":"x"}',
        b"[3]",
        b"{",
        b"\xff",
        b"2147483648",
        b"9" * 400,
        b"[" * 9999,
    ],
)
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_body_that_is_no_number_of_partitions(admin: Admin, method: str, body: bytes) -> None:
    admin.reason(400, method, f"{PATH}/t/partitions", content=body)
    assert admin.existing() == NOTHING


def test_the_invalid_field_is_named(admin: Admin) -> None:
    assert "`$.partitions`" in admin.reason(400, "PUT", f"{PATH}/t/partitions", content=b'{"partitions":"x"}')
    assert "`count`" in admin.reason(400, "PUT", f"{PATH}/t/partitions", content=b'{"partitions":3,"count":3}')


def test_a_partition_cannot_be_partitioned(admin: Admin) -> None:
    admin.reason(412, "PUT", f"{PATH}/t-partition-0/partitions", json=2)
    admin.reason(412, "POST", f"{PATH}/t-partition-0/partitions", json=2)


# -- add partitions


def test_add_partitions(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    admin.done("POST", f"{PATH}/t/partitions", json=4)
    assert admin.existing() == partitioned("t", 4)
    assert admin.after_crash().existing() == partitioned("t", 4)


def test_new_partitions_have_the_durable_subscriptions_from_their_first_message(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=1)
    admin.done("PUT", f"{PATH}/t/subscription/s", json={"properties": {"k": "v"}})
    admin.subscribe(f"{FULL}/t-partition-0", "reader", durable=False)
    admin.done("POST", f"{PATH}/t/partitions", json=3)
    admin.publish(f"{FULL}/t-partition-2", b"a")
    stats = admin.get(f"{PATH}/t-partition-2/stats")["subscriptions"]
    assert list(stats) == ["s"]
    assert stats["s"]["msgBacklog"] == 1 and stats["s"]["subscriptionProperties"] == {"k": "v"}
    assert list(admin.after_crash().get(f"{PATH}/t-partition-2/subscriptions")) == ["s"]


def test_partitions_cannot_be_removed(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=3)
    reason = admin.reason(422, "POST", f"{PATH}/t/partitions", json=2)
    assert reason == "Desired partitions 2 can't be less than the current partitions 3."
    admin.reason(422, "POST", f"{PATH}/t/partitions", json=-1)
    admin.reason(422, "POST", f"{PATH}/t/partitions", json=2**31 - 1)
    admin.done("POST", f"{PATH}/t/partitions", json=3)
    assert admin.existing() == partitioned("t", 3)


def test_partitions_are_added_to_partitioned_topics_only(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/plain")
    for topic in ("plain", "missing"):
        reason = admin.reason(409, "POST", f"{PATH}/{topic}/partitions", json=2)
        assert reason == f"Topic {FULL}/{topic} is not the partitioned topic."


# -- delete


def test_delete(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    admin.done("DELETE", f"{PATH}/t/partitions")
    assert admin.existing() == NOTHING
    assert admin.after_crash().existing() == NOTHING


def test_a_partitioned_topic_in_use_is_deleted_by_force_only(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    producer = admin.publish(f"{FULL}/t-partition-1", b"a")
    admin.reason(412, "DELETE", f"{PATH}/t/partitions")
    assert admin.existing() == partitioned("t", 2)
    admin.done("DELETE", f"{PATH}/t/partitions?force=true")
    assert admin.existing() == NOTHING
    assert producer.peer.closed == 1  # type: ignore[attr-defined]


def test_a_plain_topic_is_not_deleted_as_a_partitioned_one(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/plain")
    admin.reason(409, "DELETE", f"{PATH}/plain/partitions")
    admin.reason(404, "DELETE", f"{PATH}/missing/partitions")
    assert admin.existing() == ([f"{FULL}/plain"], {})


def test_partitioned_topics_are_listed_by_domain_and_namespace(admin: Admin) -> None:
    admin.done("PUT", "/admin/v2/namespaces/public/other")
    admin.done("PUT", f"{PATH}/b/partitions", json=1)
    admin.done("PUT", f"{PATH}/a/partitions", json=1)
    admin.done("PUT", "/admin/v2/non-persistent/public/default/n/partitions", json=1)
    admin.done("PUT", "/admin/v2/persistent/public/other/o/partitions", json=1)
    assert admin.get(f"{PATH}/partitioned") == [f"{FULL}/a", f"{FULL}/b"]
    assert admin.get("/admin/v2/non-persistent/public/default/partitioned") == ["non-persistent://public/default/n"]
    assert admin.reason(404, "GET", "/admin/v2/persistent/public/none/partitioned") == "Namespace does not exist"

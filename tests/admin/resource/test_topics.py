from __future__ import annotations

import pytest

from magnetar.names import TopicName
from tests.admin.driver import NOW_MS, Admin

PATH = "/admin/v2/persistent/public/default"
FULL = "persistent://public/default"
NON_PERSISTENT = "/admin/v2/non-persistent/public/default"


# -- create, list, delete


@pytest.mark.parametrize("body", [b"", b"null", b"{}"])
def test_create(admin: Admin, body: bytes) -> None:
    admin.done("PUT", f"{PATH}/t", content=body)
    assert admin.get(PATH) == [f"{FULL}/t"]
    assert admin.after_crash().get(PATH) == [f"{FULL}/t"]


def test_properties(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t", json={"owner": "me"})
    assert admin.get(f"{PATH}/t/properties") == {"owner": "me"}
    assert admin.after_crash().get(f"{PATH}/t/properties") == {"owner": "me"}
    admin.reason(404, "GET", f"{PATH}/missing/properties")


def test_lists_are_by_domain(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/b")
    admin.done("PUT", f"{PATH}/a/partitions", json=1)
    admin.done("PUT", f"{NON_PERSISTENT}/n")
    assert admin.get(PATH) == [f"{FULL}/a-partition-0", f"{FULL}/b"]
    assert admin.get(NON_PERSISTENT) == ["non-persistent://public/default/n"]
    assert admin.reason(404, "GET", "/admin/v2/persistent/public/none") == "Namespace does not exist"


@pytest.mark.parametrize(
    ("encoded", "local"),
    [
        ("a%20b", "a b"),
        ("100%25", "100%"),
        ("caf%C3%A9", "café"),
        ("a%3Fb", "a?b"),
        ("a+b", "a b"),
        ("a%2Bb", "a+b"),
        ("%2541", "%41"),
    ],
)
def test_names_are_percent_encoded_once(admin: Admin, encoded: str, local: str) -> None:
    admin.done("PUT", f"{PATH}/{encoded}")
    assert admin.get(PATH) == [f"{FULL}/{local}"]
    assert admin.get(f"{PATH}/{encoded}/stats")["msgInCounter"] == 0


@pytest.mark.parametrize("topic", ["a%2Fb", "%00", "%C2%85", "%20", "x" * 1100])
def test_an_illegal_topic_name_is_rejected(admin: Admin, topic: str) -> None:
    for method, path in (("PUT", f"{PATH}/{topic}"), ("GET", f"{PATH}/{topic}/stats"), ("DELETE", f"{PATH}/{topic}")):
        admin.reason(412, method, path)
    admin.reason(412, "GET", f"{PATH}/{topic}/partitions?checkAllowAutoCreation=true")
    admin.reason(412, "PUT", f"{PATH}/{topic}/partitions", json=1)
    assert admin.existing() == ([], {})


@pytest.mark.parametrize("namespace", ["a%2Fb/c", "a/b%2Fc", "a%20b/c", "caf%C3%A9/c"])
def test_an_illegal_namespace_is_rejected(admin: Admin, namespace: str) -> None:
    admin.reason(412, "PUT", f"/admin/v2/persistent/{namespace}/t")
    admin.reason(412, "GET", f"/admin/v2/persistent/{namespace}")
    admin.reason(412, "GET", f"/admin/v2/persistent/{namespace}/partitioned")


def test_a_path_that_is_not_utf8_is_rejected(admin: Admin) -> None:
    assert admin.reason(400, "PUT", f"{PATH}/%ff") == "topic in the path is not percent-encoded UTF-8"


def test_an_unknown_namespace_is_not_found(admin: Admin) -> None:
    path = "/admin/v2/persistent/public/none/t"
    for method, suffix in (
        ("PUT", ""),
        ("DELETE", ""),
        ("DELETE", "/partitions"),
        ("POST", "/terminate"),
        ("GET", "/stats"),
        ("GET", "/internalStats"),
        ("GET", "/partitioned-stats"),
        ("GET", "/subscriptions"),
        ("GET", "/lastMessageId"),
        ("GET", "/properties"),
        ("PUT", "/subscription/s"),
        ("DELETE", "/subscription/s"),
    ):
        assert admin.reason(404, method, path + suffix) == "Namespace not found", suffix
    assert admin.reason(404, "PUT", path + "/partitions", json=1) == "Namespace not found"
    assert admin.reason(404, "POST", path + "/partitions", json=1) == "Namespace not found"


def test_a_single_partition_is_created_only_below_the_count(admin: Admin) -> None:
    assert "if there isn't a partitioned topic t" in admin.reason(412, "PUT", f"{PATH}/t-partition-0")
    admin.done("PUT", f"{PATH}/t/partitions", json=1)
    assert "which is 1" in admin.reason(412, "PUT", f"{PATH}/t-partition-1")
    admin.done("DELETE", f"{PATH}/t-partition-0")
    assert admin.get(PATH) == []
    admin.done("PUT", f"{PATH}/t-partition-0")
    assert admin.get(PATH) == [f"{FULL}/t-partition-0"]


@pytest.mark.parametrize("path", [PATH, NON_PERSISTENT])
def test_delete(admin: Admin, path: str) -> None:
    admin.done("PUT", f"{path}/t")
    admin.done("DELETE", f"{path}/t")
    assert admin.get(path) == []
    assert admin.after_crash().get(path) == []
    assert admin.reason(404, "DELETE", f"{path}/t").endswith("/t not found")


def test_a_topic_in_use_is_deleted_by_force_only(admin: Admin) -> None:
    producer = admin.publish("t", b"a")
    consumer = admin.subscribe("t", "s")
    assert admin.reason(412, "DELETE", f"{PATH}/t") == (
        "Topic has 2 clients connected Including 1 consumers, 1 producers, and 0 replicators."
    )
    admin.reason(412, "DELETE", f"{PATH}/t?force=false")
    admin.reason(400, "DELETE", f"{PATH}/t?force=perhaps")
    assert admin.get(PATH) == [f"{FULL}/t"]
    admin.done("DELETE", f"{PATH}/t?force=true")
    assert admin.get(PATH) == []
    assert producer.peer.closed == consumer.peer.closed == 1  # type: ignore[attr-defined]


def test_a_partitioned_topic_is_not_deleted_as_a_plain_one(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=1)
    assert "delete-partitioned-topic" in admin.reason(409, "DELETE", f"{PATH}/t")
    assert admin.get(f"{PATH}/partitioned") == [f"{FULL}/t"]


def test_a_recreated_topic_is_empty(admin: Admin) -> None:
    admin.publish("t", b"a")
    old = admin.get(f"{PATH}/t/lastMessageId")
    admin.done("DELETE", f"{PATH}/t?force=true")
    admin.done("PUT", f"{PATH}/t")
    new = admin.get(f"{PATH}/t/lastMessageId")
    assert new["ledgerId"] > old["ledgerId"] and new["entryId"] == -1


@pytest.mark.parametrize("body", [b"[]", b'{"a":[]}', b"{", b'"x"'])
def test_properties_must_be_text(admin: Admin, body: bytes) -> None:
    admin.reason(400, "PUT", f"{PATH}/t", content=body)
    assert admin.get(PATH) == []


# -- messages


def test_terminate(admin: Admin) -> None:
    admin.publish("t", b"a", b"b")
    ledger_id = admin.get(f"{PATH}/t/lastMessageId")["ledgerId"]
    response = admin("POST", f"{PATH}/t/terminate")
    assert (response.status_code, response.json()) == (
        200,
        {"ledgerId": ledger_id, "entryId": 1, "partitionIndex": -1, "batchIndex": -1, "batchSize": 0},
    )
    assert admin.get(f"{PATH}/t/internalStats")["state"] == "Terminated"
    assert admin.after_crash().get(f"{PATH}/t/internalStats")["state"] == "Terminated"


def test_topics_that_cannot_be_terminated(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=1)
    admin.done("PUT", f"{NON_PERSISTENT}/n")
    assert admin.reason(405, "POST", f"{PATH}/t/terminate") == "Termination of a partitioned topic is not allowed"
    admin.reason(406, "POST", f"{NON_PERSISTENT}/n/terminate")
    admin.reason(404, "POST", f"{PATH}/missing/terminate")


def test_last_message_id(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    empty = admin.get(f"{PATH}/t-partition-1/lastMessageId")
    assert (empty["entryId"], empty["partitionIndex"]) == (-1, 1)
    admin.publish(f"{FULL}/t-partition-1", b"a", b"b")
    assert admin.get(f"{PATH}/t-partition-1/lastMessageId") == empty | {"entryId": 1}
    admin.publish(f"{FULL}/t-partition-1", b"c", batch=5)
    last = admin.get(f"{PATH}/t-partition-1/lastMessageId")
    assert last == empty | {"entryId": 2, "batchIndex": 4, "batchSize": 5}
    admin.reason(404, "GET", f"{PATH}/t/lastMessageId")
    admin.done("PUT", f"{NON_PERSISTENT}/n")
    admin.reason(405, "GET", f"{NON_PERSISTENT}/n/lastMessageId")


# -- stats


def test_stats(admin: Admin) -> None:
    consumer = admin.subscribe("t", "s", permits=2)
    admin.publish("t", b"a", b"bb")
    admin.publish("t", b"cc", batch=3)
    while admin.broker.has_work:
        admin.broker.pump()
    consumer.subscription.ack(0)  # type: ignore[union-attr]
    stats = admin.get(f"{PATH}/t/stats")
    topic = admin.broker.topics[f"{FULL}/t"]
    assert stats["msgInCounter"] == 5
    assert stats["bytesInCounter"] == stats["storageSize"] == topic.bytes_in > 0
    assert stats["averageMsgSize"] == topic.bytes_in / 5
    assert stats["lastPublishTimeStamp"] == NOW_MS
    assert stats["deduplicationStatus"] == "Disabled" and "topicEpoch" not in stats

    (publisher,) = stats["publishers"]
    assert publisher["producerName"] == "p" and publisher["producerId"] == 7
    assert publisher["accessMode"] == "Shared" and publisher["metadata"] == {"app": "test"}
    assert publisher["connectedSince"] == "2023-11-14T22:13:20.000Z"
    assert publisher["clientVersion"] == "Test-Client-1.0"

    subscription = stats["subscriptions"]["s"]
    assert subscription["type"] == "Shared" and subscription["isDurable"] and subscription["durable"]
    assert subscription["msgBacklog"] == 2 and subscription["unackedMessages"] == 1
    assert subscription["msgOutCounter"] == stats["msgOutCounter"] == 2
    assert 0 < subscription["backlogSize"] == stats["backlogSize"] < stats["storageSize"]
    (seen,) = subscription["consumers"]
    assert seen["consumerName"] == "c" and seen["unackedMessages"] == 1 and seen["availablePermits"] == 0
    assert seen["address"] == "/127.0.0.1:50000"


def test_a_subscription_without_consumers_has_no_type_and_keeps_its_counters(admin: Admin) -> None:
    admin.publish("t", b"a")
    admin.unsubscribe_idle(admin.subscribe("t", "s", permits=1))
    subscription = admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]
    assert subscription["type"] == "None" and subscription["consumers"] == []
    assert subscription["msgOutCounter"] == 1 and subscription["msgBacklog"] == 1


def test_stats_of_a_non_persistent_topic(admin: Admin) -> None:
    admin.subscribe("non-persistent://public/default/n", "s", permits=5)
    admin.publish("non-persistent://public/default/n", b"a")
    stats = admin.get(f"{NON_PERSISTENT}/n/stats")
    assert stats["msgInCounter"] == 1 and stats["storageSize"] == 0
    assert stats["subscriptions"]["s"]["msgOutCounter"] == 1 and stats["subscriptions"]["s"]["msgBacklog"] == 0
    internal = admin.get(f"{NON_PERSISTENT}/n/internalStats")
    assert internal["numberOfEntries"] == 0 and "ledgers" not in internal and list(internal["cursors"]) == ["s"]


@pytest.mark.parametrize("kind", ["stats", "internalStats"])
def test_only_an_existing_topic_with_its_own_messages_has_stats(admin: Admin, kind: str) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=1)
    admin.reason(404, "GET", f"{PATH}/t/{kind}")
    admin.reason(404, "GET", f"{PATH}/t-partition-1/{kind}")
    assert admin.reason(404, "GET", f"{PATH}/missing/{kind}") == f"Topic {FULL}/missing not found"
    assert admin.existing() == ([f"{FULL}/t-partition-0"], {f"{FULL}/t": 1})


def test_internal_stats(admin: Admin) -> None:
    consumer = admin.subscribe("t", "s", permits=10)
    admin.publish("t", b"a", b"b", b"c")
    while admin.broker.has_work:
        admin.broker.pump()
    consumer.subscription.ack(0)  # type: ignore[union-attr]
    stats = admin.get(f"{PATH}/t/internalStats")
    topic = admin.broker.topics[f"{FULL}/t"]
    ledger_id = topic.ledger_id
    assert stats["numberOfEntries"] == stats["entriesAddedCounter"] == 3
    assert stats["lastConfirmedEntry"] == f"{ledger_id}:2" and stats["state"] == "LedgerOpened"
    assert stats["ledgers"] == [
        {
            "ledgerId": ledger_id,
            "entries": 3,
            "size": topic.bytes_in,
            "offloaded": False,
            "underReplicated": False,
        }
    ]
    cursor = stats["cursors"]["s"]
    assert cursor["markDeletePosition"] == f"{ledger_id}:0" and cursor["readPosition"] == f"{ledger_id}:3"
    assert cursor["numberOfEntriesSinceFirstNotAckedMessage"] == 2 and cursor["waitingReadOp"]


def test_partitioned_stats_are_the_sum(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=3)
    for index in range(2):
        admin.publish(f"{FULL}/t-partition-{index}", b"a", b"b")
        admin.subscribe(f"{FULL}/t-partition-{index}", "s")
    stats = admin.get(f"{PATH}/t/partitioned-stats")
    assert stats["metadata"] == {"partitions": 3, "deleted": False}
    assert stats["msgInCounter"] == 4 and stats["subscriptions"]["s"]["msgBacklog"] == 4
    assert stats["subscriptions"]["s"]["type"] == "Shared" and len(stats["subscriptions"]["s"]["consumers"]) == 2
    assert stats["subscriptions"]["s"]["isDurable"] is True
    assert stats["lastPublishTimeStamp"] == NOW_MS and len(stats["publishers"]) == 2
    parts = stats["partitions"]
    assert [parts[f"{FULL}/t-partition-{index}"]["msgInCounter"] for index in range(3)] == [2, 2, 0]
    assert parts[f"{FULL}/t-partition-0"]["subscriptions"]["s"]["msgBacklog"] == 2
    assert stats["storageSize"] == sum(part["storageSize"] for part in parts.values()) > 0
    assert admin.get(f"{PATH}/t/partitioned-stats?perPartition=false")["partitions"] == {}
    admin.done("PUT", f"{PATH}/plain")
    for topic in ("plain", "missing"):
        assert admin.reason(404, "GET", f"{PATH}/{topic}/partitioned-stats").startswith("Partitioned Topic")


def test_a_query_opens_a_topic_unused_since_the_start(admin: Admin) -> None:
    admin.subscribe("t", "s")
    admin.publish("t", b"a")
    again = admin.after_crash()
    assert f"{FULL}/t" not in again.broker.topics
    assert again.get(f"{PATH}/t/stats")["subscriptions"]["s"]["msgBacklog"] == 1
    assert again.broker.topic(TopicName.parse("t")) is again.broker.topics[f"{FULL}/t"]

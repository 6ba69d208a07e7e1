"""Administration of existing topics: properties, unload, truncate, trim, terminate, and lists."""

from __future__ import annotations

import pytest

from magnetar.broker.topic.persistent import PersistentTopic
from tests.admin.driver import NOW_MS, Admin

PATH = "/admin/v2/persistent/public/default"
FULL = "persistent://public/default"
NON_PERSISTENT = "/admin/v2/non-persistent/public/default"


# -- properties


def test_ac3_an_auto_created_topic_is_marked_until_an_administrator_takes_it_over(admin: Admin) -> None:
    """AC3: visible over REST, survives restarts."""
    admin.publish("auto", b"a")
    admin.done("PUT", f"{PATH}/made")
    assert admin.get(f"{PATH}/auto/properties") == {"wasAutoCreated": "true"}
    assert admin.after_crash().get(f"{PATH}/auto/properties") == {"wasAutoCreated": "true"}
    assert admin.get(f"{PATH}/made/properties") == {}
    admin.done("PUT", f"{PATH}/auto/properties", json={"owner": "me"})
    assert admin.get(f"{PATH}/auto/properties") == {"wasAutoCreated": "true", "owner": "me"}
    admin.done("DELETE", f"{PATH}/auto/properties?key=wasAutoCreated")
    assert admin.get(f"{PATH}/auto/properties") == admin.after_crash().get(f"{PATH}/auto/properties") == {"owner": "me"}


@pytest.mark.parametrize("path", [PATH, NON_PERSISTENT])
def test_properties_are_added_and_removed(admin: Admin, path: str) -> None:
    admin.done("PUT", f"{path}/t", json={"a": "1", "b": "2"})
    admin.done("PUT", f"{path}/t/properties", json={"b": "3", "c": "4"})
    assert admin.get(f"{path}/t/properties") == {"a": "1", "b": "3", "c": "4"}
    admin.done("PUT", f"{path}/t/properties")
    admin.done("DELETE", f"{path}/t/properties?key=a")
    admin.done("DELETE", f"{path}/t/properties?key=never")
    assert admin.get(f"{path}/t/properties") == {"b": "3", "c": "4"}


def test_a_partitioned_topic_has_its_own_properties(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json={"partitions": 1, "properties": {"a": "1"}})
    admin.done("PUT", f"{PATH}/t/properties", json={"b": "2"})
    again = admin.after_crash()
    assert again.get(f"{PATH}/t/properties") == {"a": "1", "b": "2"}
    assert again.get(f"{PATH}/t-partition-0/properties") == {"a": "1"}
    assert again.get(f"{PATH}/t/partitions")["partitions"] == 1


def test_invalid_properties(admin: Admin) -> None:
    admin.reason(404, "PUT", f"{PATH}/t/properties", json={"a": "b"})
    admin.reason(404, "DELETE", f"{PATH}/t/properties?key=a")
    admin.done("PUT", f"{PATH}/t")
    assert "`$[...]`" in admin.reason(400, "PUT", f"{PATH}/t/properties", json={"a": []})
    assert "parameter key" in admin.reason(400, "DELETE", f"{PATH}/t/properties")


# -- unload


def test_unload_disconnects_clients_and_keeps_everything(admin: Admin) -> None:
    producer = admin.publish("t", b"a", b"b")
    consumer = admin.subscribe("t", "s", permits=1)
    admin.subscribe("t", "reader", durable=False)
    consumer.subscription.ack(0)  # type: ignore[union-attr]
    old = admin.broker.topics[f"{FULL}/t"]
    admin.done("PUT", f"{PATH}/t/unload")
    assert producer.peer.closed == consumer.peer.closed == 1  # type: ignore[attr-defined]
    assert f"{FULL}/t" not in admin.broker.topics
    assert admin.get(f"{PATH}/t/subscriptions") == ["s"]
    assert admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]["msgBacklog"] == 1
    assert admin.broker.topics[f"{FULL}/t"] is not old
    again = admin.subscribe("t", "s", permits=5)
    assert again.peer.delivered == [1]  # type: ignore[attr-defined]
    admin.broker.invariants()


def test_unloading_a_closed_topic_or_twice(admin: Admin) -> None:
    admin.publish("t", b"a")
    again = admin.after_crash()
    again.done("PUT", f"{PATH}/t/unload")
    again.done("PUT", f"{PATH}/t/unload")
    assert again.get(f"{PATH}/t/internalStats")["numberOfEntries"] == 1
    assert again.reason(404, "PUT", f"{PATH}/missing/unload") == f"Topic {FULL}/missing not found"


def test_all_partitions_are_unloaded(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    consumers = [admin.subscribe(f"{FULL}/t-partition-{index}", "s") for index in range(2)]
    admin.done("PUT", f"{PATH}/t-partition-0/unload")
    assert [consumer.peer.closed for consumer in consumers] == [1, 0]  # type: ignore[attr-defined]
    admin.done("PUT", f"{PATH}/t/unload")
    assert [consumer.peer.closed for consumer in consumers] == [1, 1]  # type: ignore[attr-defined]
    assert admin.broker.topics == {}


def test_subscriptions_of_a_non_persistent_topic_are_deleted_with_it(admin: Admin) -> None:
    admin.subscribe(f"non-{FULL}/n", "s")
    admin.done("PUT", f"{NON_PERSISTENT}/n/unload")
    assert admin.get(f"{NON_PERSISTENT}/n/subscriptions") == []
    assert admin.get(NON_PERSISTENT) == [f"non-{FULL}/n"]


# -- truncate and trim


def test_truncate(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    for index in range(2):
        admin.publish(f"{FULL}/t-partition-{index}", b"a", b"b")
    admin.done("PUT", f"{PATH}/t/subscription/s", content=b'"earliest"')
    admin.done("DELETE", f"{PATH}/t-partition-0/truncate")
    assert admin.get(f"{PATH}/t/partitioned-stats")["subscriptions"]["s"]["msgBacklog"] == 2
    admin.done("DELETE", f"{PATH}/t/truncate")
    for one in (admin, admin.after_crash()):
        stats = one.get(f"{PATH}/t/partitioned-stats")
        assert stats["storageSize"] == 0 and stats["subscriptions"]["s"]["msgBacklog"] == 0
    admin.publish(f"{FULL}/t-partition-0", b"c")
    assert admin.get(f"{PATH}/t-partition-0/lastMessageId")["entryId"] == 2


def test_trim_applies_retention_at_once(admin: Admin) -> None:
    admin.publish("t", b"a", b"b")
    assert admin("POST", f"{PATH}/t/trim").status_code == 200
    assert admin.get(f"{PATH}/t/internalStats")["numberOfEntries"] == 2
    admin.broker.clock.advance(hours=1)  # type: ignore[attr-defined]
    assert admin("POST", f"{PATH}/t/trim").status_code == 200
    assert admin.get(f"{PATH}/t/internalStats")["numberOfEntries"] == 0
    assert admin.broker.deleted_space.size > 0
    assert admin.after_crash().get(f"{PATH}/t/internalStats")["numberOfEntries"] == 0


def test_both_statistics_agree_on_the_size(admin: Admin) -> None:
    def sizes() -> tuple[int, int]:
        return admin.get(f"{PATH}/t/stats")["storageSize"], admin.get(f"{PATH}/t/internalStats")["totalSize"]

    admin.publish("t", b"a", b"b")
    assert sizes()[0] == sizes()[1] > 0
    admin.broker.clock.advance(hours=1)  # type: ignore[attr-defined]
    admin("POST", f"{PATH}/t/trim")
    assert sizes() == (0, 0)
    admin.publish("t", b"c")
    assert sizes()[0] == sizes()[1] > 0
    admin.done("DELETE", f"{PATH}/t/truncate")
    assert sizes() == (0, 0)


def test_topics_that_cannot_be_truncated_or_trimmed(admin: Admin) -> None:
    admin.done("PUT", f"{NON_PERSISTENT}/n")
    assert admin.reason(412, "DELETE", f"{NON_PERSISTENT}/n/truncate") == "unsupport truncate"
    reason = admin.reason(405, "POST", f"{NON_PERSISTENT}/n/trim")
    assert reason == "Trim on a non-persistent topic is not allowed"
    admin.reason(404, "DELETE", f"{PATH}/missing/truncate")
    admin.reason(404, "POST", f"{PATH}/missing/trim")


# -- terminate, and missing partitions


def test_all_partitions_are_terminated(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    admin.publish(f"{FULL}/t-partition-1", b"a")
    response = admin("POST", f"{PATH}/t/terminate/partitions")
    ledgers = [admin.broker.topics[f"{FULL}/t-partition-{index}"].ledger_id for index in range(2)]
    assert (response.status_code, response.json()) == (
        200,
        {
            "0": {"ledgerId": ledgers[0], "entryId": -1, "partitionIndex": 0, "batchIndex": -1, "batchSize": 0},
            "1": {"ledgerId": ledgers[1], "entryId": 0, "partitionIndex": 1, "batchIndex": -1, "batchSize": 0},
        },
    )
    states = admin.after_crash().get(f"{PATH}/t/partitioned-internalStats")["partitions"]
    assert {stats["state"] for stats in states.values()} == {"Terminated"}


def test_a_plain_topic_is_not_terminated_as_a_partitioned_one(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/plain")
    assert "please use terminate" in admin.reason(405, "POST", f"{PATH}/plain/terminate/partitions")
    admin.reason(405, "POST", f"{PATH}/missing/terminate/partitions")
    admin.reason(404, "POST", "/admin/v2/persistent/public/none/t/terminate/partitions")
    admin.done("PUT", f"{NON_PERSISTENT}/n/partitions", json=1)
    admin.reason(406, "POST", f"{NON_PERSISTENT}/n/terminate/partitions")
    assert admin.get(f"{PATH}/plain/internalStats")["state"] == "LedgerOpened"


def test_missing_partitions_are_created(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    admin.done("DELETE", f"{PATH}/t-partition-0")
    reason = admin.reason(404, "GET", f"{PATH}/t-partition-0/stats")
    assert reason.startswith("Topic partitions were not yet created")
    admin.done("POST", f"{PATH}/t/createMissedPartitions")
    assert admin.after_crash().get(PATH) == [f"{FULL}/t-partition-0", f"{FULL}/t-partition-1"]
    admin.done("PUT", f"{PATH}/plain")
    for topic in ("missing", "plain"):
        reason = admin.reason(404, "POST", f"{PATH}/{topic}/createMissedPartitions")
        assert reason == f"Topic {FULL}/{topic} does not exist"


# -- lists


def test_lists_can_be_filtered(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t", json={"team": "a", "tier": "1"})
    admin.done("PUT", f"{PATH}/u", json={"team": "b"})
    admin.done("PUT", f"{PATH}/__change_events/partitions", json=1)
    assert admin.get(PATH) == [f"{FULL}/t", f"{FULL}/u"]
    assert len(admin.get(f"{PATH}?includeSystemTopic=true")) == 3
    assert len(admin.get(f"{PATH}?bundle=0x00000000_0xffffffff")) == 2
    assert admin.get(f"{PATH}?bundle=0x00000000_0x7fffffff") == []
    assert admin.get(f"{PATH}?properties=team=a") == [f"{FULL}/t"]
    assert admin.get(f"{PATH}?properties=team=a,tier=2") == []
    assert len(admin.get(f"{PATH}?properties=nonsense")) == 2
    admin.reason(400, "GET", f"{PATH}?includeSystemTopic=perhaps")


# -- numbers


def test_stats_follow_their_flags(admin: Admin) -> None:
    admin.subscribe("t", "s")
    admin.subscribe("t", "done", permits=9)
    admin.publish("t", b"a", b"b")
    admin.broker.pump()
    admin.broker.topics[f"{FULL}/t"].subscriptions["done"].ack(0)
    admin.broker.topics[f"{FULL}/t"].subscriptions["done"].ack(1)
    stats = admin.get(f"{PATH}/t/stats")
    assert stats["subscriptions"]["s"]["backlogSize"] > 0 and len(stats["publishers"]) == 1
    assert stats["earliestMsgPublishTimeInBacklogs"] == 0
    assert stats["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] == 0
    assert stats["ownerBroker"] == "broker.test:8080" and stats["topicCreationTimeStamp"] == NOW_MS
    flags = "getEarliestTimeInBacklog=true&excludePublishers=true&excludeConsumers=true&subscriptionBacklogSize=false"
    for path in ("t/stats", "t/stats?getPreciseBacklog=true&whatever=1"):
        assert admin.get(f"{PATH}/{path}")["subscriptions"]["s"]["msgBacklog"] == 2
    stats = admin.get(f"{PATH}/t/stats?{flags}")
    assert stats["publishers"] == [] and stats["earliestMsgPublishTimeInBacklogs"] == NOW_MS
    behind, done = stats["subscriptions"]["s"], stats["subscriptions"]["done"]
    assert behind["consumers"] == [] and behind["backlogSize"] == -1
    assert behind["earliestMsgPublishTimeInBacklog"] == NOW_MS and done["earliestMsgPublishTimeInBacklog"] == -1
    assert behind["type"] == "Shared"
    for flag in flags.split("&"):
        name = flag.partition("=")[0]
        assert name in admin.reason(400, "GET", f"{PATH}/t/stats?{name}=perhaps")


def test_partitioned_stats_follow_the_same_flags(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    admin.done("PUT", f"{PATH}/t/subscription/s")
    admin.publish(f"{FULL}/t-partition-1", b"a")
    path = f"{PATH}/t/partitioned-stats"
    stats = admin.get(f"{path}?getEarliestTimeInBacklog=true&subscriptionBacklogSize=false&excludePublishers=true")
    assert stats["earliestMsgPublishTimeInBacklogs"] == NOW_MS and stats["publishers"] == []
    assert stats["subscriptions"]["s"]["backlogSize"] == -1
    assert stats["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] == NOW_MS
    assert stats["topicCreationTimeStamp"] == NOW_MS and stats["backlogQuotaLimitSize"] == -1


def test_the_age_of_a_backlog(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/subscription/s")
    admin.done("PUT", f"{PATH}/t/subscription/later")
    admin.publish("t", b"a", b"b")
    admin.done("POST", f"{PATH}/t/subscription/later/skip/1")
    admin.broker.clock.advance(seconds=90)  # type: ignore[attr-defined]
    stats = admin.get(f"{PATH}/t/stats")
    assert stats["oldestBacklogMessageAgeSeconds"] == 90 and stats["oldestBacklogMessageSubscriptionName"] == "s"
    admin.done("POST", f"{PATH}/t/subscription/s/skip_all")
    admin.done("POST", f"{PATH}/t/subscription/later/skip_all")
    stats = admin.get(f"{PATH}/t/stats")
    assert stats["oldestBacklogMessageAgeSeconds"] == -1 and "oldestBacklogMessageSubscriptionName" not in stats


def test_internal_stats_show_out_of_order_acknowledgements(admin: Admin) -> None:
    consumer = admin.subscribe("t", "s", permits=10)
    admin.publish("t", *[b"x"] * 8)
    admin.broker.pump()
    for entry_id in (0, 2, 3, 6):
        consumer.subscription.ack(entry_id)  # type: ignore[union-attr]
    ledger_id = admin.broker.topics[f"{FULL}/t"].ledger_id
    stats = admin.get(f"{PATH}/t/internalStats")
    cursor = stats["cursors"]["s"]
    ranges = [(1, 3), (5, 6)]
    text = ",".join(f"({ledger_id}:{after}..{ledger_id}:{to}]" for after, to in ranges)
    assert cursor["individuallyDeletedMessages"] == f"[{text}]"
    assert cursor["totalNonContiguousDeletedMessagesRange"] == 2 and cursor["messagesConsumedCounter"] == 4
    assert stats["compactedLedger"]["ledgerId"] == -1 and stats["schemaLedgers"] == []
    assert stats["lastLedgerCreatedTimestamp"] == "2023-11-14T22:13:20.000Z"
    assert admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]["nonContiguousDeletedMessagesRanges"] == 2
    info = admin.get(f"{PATH}/t/internal-info")
    assert info["cursors"]["s"]["markDelete"] == {"ledgerId": ledger_id, "entryId": 0}
    assert info["cursors"]["s"]["individualDeletedMessages"] == [
        {"from": {"ledgerId": ledger_id, "entryId": after}, "to": {"ledgerId": ledger_id, "entryId": to}}
        for after, to in ranges
    ]
    assert info["ledgers"][0]["entries"] == 8 and info["creationDate"] == "2023-11-14T22:13:20.000Z"
    assert "terminatedPosition" not in info
    admin("POST", f"{PATH}/t/terminate")
    assert admin.get(f"{PATH}/t/internal-info")["terminatedPosition"] == {"ledgerId": ledger_id, "entryId": 7}


def test_a_long_list_of_ranges_is_truncated(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/subscription/s")
    admin.publish("t", *[b"x"] * 2100)
    topic = admin.broker.topics[f"{FULL}/t"]
    for entry_id in range(1, 2100, 2):
        topic.subscriptions["s"].ack(entry_id)
    cursor = admin.get(f"{PATH}/t/internalStats")["cursors"]["s"]
    assert cursor["totalNonContiguousDeletedMessagesRange"] == 1050
    assert cursor["individuallyDeletedMessages"].count("(") == 1000
    assert cursor["individuallyDeletedMessages"].endswith(",...]")


def test_internal_stats_of_partitioned_topics(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t/partitions", json=2)
    admin.publish(f"{FULL}/t-partition-1", b"a")
    stats = admin.get(f"{PATH}/t/partitioned-internalStats")
    assert stats["metadata"] == {"partitions": 2, "deleted": False}
    assert [stats["partitions"][f"{FULL}/t-partition-{index}"]["numberOfEntries"] for index in range(2)] == [0, 1]
    info = admin.get(f"{PATH}/t/internal-info")
    assert [info["partitions"][f"{FULL}/t-partition-{index}"]["ledgers"][0]["entries"] for index in range(2)] == [0, 1]
    admin.done("PUT", f"{PATH}/plain")
    for topic in ("plain", "missing"):
        admin.reason(404, "GET", f"{PATH}/{topic}/partitioned-internalStats")
    admin.reason(404, "GET", f"{PATH}/missing/internal-info")
    admin.done("PUT", f"{NON_PERSISTENT}/n")
    admin.reason(405, "GET", f"{NON_PERSISTENT}/n/internal-info")


def test_a_topic_stores_its_creation_time(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t")
    admin.broker.clock.advance(hours=1)  # type: ignore[attr-defined]
    assert admin.after_crash().get(f"{PATH}/t/stats")["topicCreationTimeStamp"] == NOW_MS
    assert isinstance(admin.broker.topics[f"{FULL}/t"], PersistentTopic)

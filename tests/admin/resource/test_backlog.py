"""Skip, reset, expire and analyze: administration of a subscription's backlog."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.admin.http.request import Call
from magnetar.admin.resource import backlog
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.names import TopicName
from magnetar.settings.listeners import Listener
from magnetar.wire.metadata import build_blob
from magnetar.wire.schema_pb2 import MessageMetadata
from tests.admin.driver import NOW_MS, Admin, Alarm

PATH = "/admin/v2/persistent/public/default"
FULL = "persistent://public/default"
NON_PERSISTENT = "/admin/v2/non-persistent/public/default"
SUBSCRIPTION = f"{PATH}/t/subscription/s"
PARTITIONED = f"{PATH}/p/subscription/s"


def left(admin: Admin, topic: str = "t", name: str = "s") -> int:
    count: int = admin.get(f"{PATH}/{topic}/stats")["subscriptions"][name]["msgBacklog"]
    return count


def subscription(admin: Admin, topic: str = "t", name: str = "s") -> Subscription:
    found = admin.broker.topic(TopicName.parse(f"{FULL}/{topic}")).subscriptions[name]
    assert isinstance(found, Subscription)
    return found


def ledger_of(admin: Admin, topic: str = "t") -> int:
    return admin.broker.topics[f"{FULL}/{topic}"].ledger_id


def partitioned(admin: Admin, *counts: int) -> None:
    admin.done("PUT", f"{PATH}/p/partitions", json=len(counts))
    for index, count in enumerate(counts):
        admin.publish(f"{FULL}/p-partition-{index}", *[b"x"] * count)
    admin.done("PUT", PARTITIONED, content=b'"earliest"')


@pytest.fixture
def five(admin: Admin) -> Admin:
    """Five messages, a second apart, and a subscription that has read none."""
    admin.done("PUT", SUBSCRIPTION)
    for index in range(5):
        admin.publish("t", b"%d" % index)
        admin.broker.clock.advance_ms(1000)  # type: ignore[attr-defined]
    return admin


# -- skip


@pytest.mark.parametrize(("count", "expected"), [(0, 5), (1, 4), (5, 0), (2147483647, 0)])
def test_skip(five: Admin, count: int, expected: int) -> None:
    five.done("POST", f"{SUBSCRIPTION}/skip/{count}")
    assert left(five) == expected == left(five.after_crash())


def test_skip_all(five: Admin) -> None:
    five.done("POST", f"{SUBSCRIPTION}/skip_all")
    assert left(five) == 0 == left(five.after_crash())


def test_consumers_stay_connected_when_messages_are_skipped(five: Admin) -> None:
    consumer = five.subscribe("t", "s", permits=1)
    five.done("POST", f"{SUBSCRIPTION}/skip/3")
    consumer.subscription.flow(consumer, 5)  # type: ignore[union-attr]
    five.broker.pump()
    assert consumer.peer.delivered == [0, 3, 4] and consumer.peer.closed == 0  # type: ignore[attr-defined]
    five.broker.invariants()


def test_on_a_partitioned_topic_only_skip_all_is_possible(admin: Admin) -> None:
    partitioned(admin, 2, 3)
    reason = admin.reason(405, "POST", f"{PARTITIONED}/skip/1")
    assert reason == "Skip messages on a partitioned topic is not allowed"
    admin.done("POST", f"{PATH}/p-partition-1/subscription/s/skip/1")
    assert (left(admin, "p-partition-0"), left(admin, "p-partition-1")) == (2, 2)
    admin.done("POST", f"{PARTITIONED}/skip_all")
    assert (left(admin, "p-partition-0"), left(admin, "p-partition-1")) == (0, 0)


# -- reset


@pytest.mark.parametrize(
    ("time_ms", "expected"),
    [(0, 5), (NOW_MS, 5), (NOW_MS + 1, 0), (NOW_MS + 9_000_000, 0), ((1 << 63) - 1, 0)],
)
def test_reset_to_a_time(five: Admin, time_ms: int, expected: int) -> None:
    """The driver's producer gives all messages the same publish time."""
    five.done("POST", f"{SUBSCRIPTION}/skip/2")
    five.done("POST", f"{SUBSCRIPTION}/resetcursor/{time_ms}")
    assert left(five) == expected == left(five.after_crash())


def test_a_reset_disconnects_consumers_which_reconnect(five: Admin) -> None:
    consumer = five.subscribe("t", "s", permits=9)
    five.done("POST", f"{SUBSCRIPTION}/skip_all")
    five.done("POST", f"{SUBSCRIPTION}/resetcursor/{NOW_MS}")
    assert consumer.peer.closed == 1  # type: ignore[attr-defined]
    again = five.subscribe("t", "s", permits=9)
    assert again.peer.delivered == [0, 1, 2, 3, 4]  # type: ignore[attr-defined]


def test_all_partitions_are_reset_to_a_time_and_none_to_a_position(admin: Admin) -> None:
    partitioned(admin, 1, 2)
    admin.done("POST", f"{PARTITIONED}/skip_all")
    reason = admin.reason(405, "POST", f"{PARTITIONED}/resetcursor", json={"ledgerId": -1, "entryId": -1})
    assert reason == "Reset-cursor at position is not allowed for partitioned-topic"
    admin.done("POST", f"{PARTITIONED}/resetcursor/0")
    assert (left(admin, "p-partition-0"), left(admin, "p-partition-1")) == (1, 2)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"entryId": 3}, 2),
        ({"entryId": 3, "isExcluded": True}, 1),
        ({"entryId": 3, "excluded": True, "properties": None, "partitionIndex": -1, "batchIndex": -1}, 1),
        ({"entryId": 4, "excluded": True}, 0),
        ({"entryId": 99}, 0),
        ({"entryId": -1}, 5),
        ({"ledgerId": -1, "entryId": -1}, 5),
        ({"ledgerId": 0, "entryId": 7}, 5),
        ({"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}, 0),
        ({"ledgerId": 10_000, "entryId": 0, "excluded": True}, 0),
        ({"entryId": 3, "batchIndex": 0}, 2),
        ({"entryId": 3, "batchIndex": 0, "excluded": True}, 1),
        ("earliest", 5),
        ("latest", 0),
    ],
)
def test_reset_to_a_position(five: Admin, body: Any, expected: int) -> None:
    five.done("POST", f"{SUBSCRIPTION}/skip/1")
    if isinstance(body, dict):
        body = {"ledgerId": ledger_of(five)} | body
    five.done("POST", f"{SUBSCRIPTION}/resetcursor", json=body)
    assert left(five) == expected == left(five.after_crash())
    five.broker.invariants()


@pytest.mark.parametrize(
    ("index", "excluded", "backlog_left", "open_bits"),
    [
        (0, False, 2, None),
        (2, False, 2, 0b1100),
        (2, True, 2, 0b1000),
        (3, True, 1, None),
        (9, False, 1, None),
        (0, True, 2, 0b1110),
    ],
)
def test_reset_into_a_batch(admin: Admin, index: int, excluded: bool, backlog_left: int, open_bits: int | None) -> None:
    admin.publish("t", b"a", batch=4)
    admin.publish("t", b"b")
    admin.done("PUT", SUBSCRIPTION)
    body = {"ledgerId": ledger_of(admin), "entryId": 0, "batchIndex": index, "isExcluded": excluded}
    admin.done("POST", f"{SUBSCRIPTION}/resetcursor", json=body)
    for one in (admin, admin.after_crash()):
        assert left(one) == backlog_left
        assert subscription(one).cursor.open_bits(0) == open_bits


# -- expire


@pytest.mark.parametrize(("seconds", "expected"), [(0, 0), (2, 1), (3, 2), (60, 5)])
def test_expire_older_messages(five: Admin, seconds: int, expected: int) -> None:
    five.done("POST", f"{SUBSCRIPTION}/expireMessages/{seconds}")
    assert left(five) == expected == left(five.after_crash())
    assert five.get(f"{PATH}/t/stats")["subscriptions"]["s"]["totalMsgExpired"] == 5 - expected


def test_messages_held_by_consumers_are_not_expired(five: Admin) -> None:
    five.subscribe("t", "s")
    reason = five.reason(409, "POST", f"{SUBSCRIPTION}/expireMessages/60")
    assert reason.startswith(f"Expire message by timestamp not issued on topic {FULL}/t for subscription s")
    assert left(five) == 5
    five.done("POST", f"{SUBSCRIPTION}/expireMessages/4")
    assert left(five) == 3
    five.done("POST", f"{SUBSCRIPTION}/skip_all")
    five.reason(409, "POST", f"{SUBSCRIPTION}/expireMessages/0")


def test_expire_on_all_partitions_and_all_subscriptions(admin: Admin) -> None:
    partitioned(admin, 2, 0)
    admin.done("POST", f"{PARTITIONED}/expireMessages/0")
    assert left(admin, "p-partition-0") == 0
    admin.reason(409, "POST", f"{PARTITIONED}/expireMessages/0")
    admin.done("POST", f"{PARTITIONED}/resetcursor/0")
    admin.done("PUT", f"{PATH}/p/subscription/other", content=b'"earliest"')
    admin.done("POST", f"{PATH}/p/all_subscription/expireMessages/0")
    assert (left(admin, "p-partition-0"), left(admin, "p-partition-0", "other")) == (0, 0)
    admin.reason(409, "POST", f"{PATH}/p/all_subscription/expireMessages/0")
    admin.done("PUT", f"{PATH}/nobody")
    admin.done("POST", f"{PATH}/nobody/all_subscription/expireMessages/0")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"entryId": 2}, 2),
        ({"entryId": 2, "isExcluded": True}, 3),
        ({"entryId": 4}, 0),
        ({"entryId": 0, "isExcluded": True}, 5),
        ({"ledgerId": -1, "entryId": -1}, 5),
        ({"ledgerId": 0, "entryId": 3}, 5),
        ("earliest", 5),
    ],
)
def test_expire_up_to_a_position(five: Admin, body: Any, expected: int) -> None:
    if isinstance(body, dict):
        body = {"ledgerId": ledger_of(five)} | body
    five.done("POST", f"{SUBSCRIPTION}/expireMessages", json=body)
    assert left(five) == expected == left(five.after_crash())


@pytest.mark.parametrize(
    ("index", "excluded", "backlog_left", "open_bits"),
    [(0, False, 2, 0b1110), (0, True, 2, None), (2, True, 2, 0b1100), (3, False, 1, None), (9, True, 1, None)],
)
def test_expire_into_a_batch(
    admin: Admin, index: int, excluded: bool, backlog_left: int, open_bits: int | None
) -> None:
    admin.publish("t", b"0")
    admin.publish("t", b"a", batch=4)
    admin.publish("t", b"b")
    admin.done("PUT", SUBSCRIPTION, content=b'"earliest"')
    body = {"ledgerId": ledger_of(admin), "entryId": 1, "batchIndex": index, "isExcluded": excluded}
    admin.done("POST", f"{SUBSCRIPTION}/expireMessages", json=body)
    assert left(admin) == backlog_left
    assert subscription(admin).cursor.open_bits(1) == open_bits
    admin.broker.invariants()


def test_invalid_expiry_by_position(five: Admin) -> None:
    body = {"ledgerId": ledger_of(five), "entryId": 5}
    assert "is after its last message" in five.reason(409, "POST", f"{SUBSCRIPTION}/expireMessages", json=body)
    reason = five.reason(412, "POST", f"{SUBSCRIPTION}/expireMessages", json=body | {"partitionIndex": 1})
    assert reason.startswith("Invalid parameter for expire message by position") and "partitionIndex is 1" in reason
    partitioned(five, 1)
    reason = five.reason(405, "POST", f"{PARTITIONED}/expireMessages", json=body)
    assert reason == "Expire message at position is not supported for partitioned-topic"
    body = {"ledgerId": ledger_of(five, "p-partition-0"), "entryId": 0, "partitionIndex": 0}
    five.done("POST", f"{PATH}/p-partition-0/subscription/s/expireMessages", json=body)
    assert left(five, "p-partition-0") == 0


# -- analyze


def test_analyze_counts_entries_and_messages(admin: Admin) -> None:
    admin.publish("t", b"a", b"b")
    admin.publish("t", b"c", batch=7)
    admin.done("PUT", SUBSCRIPTION, content=b'"earliest"')
    subscription(admin).ack(1)
    topic = admin.broker.topics[f"{FULL}/t"]
    marker = MessageMetadata(producer_name="p", sequence_id=0, publish_time=NOW_MS, marker_type=13)
    topic.publish(topic.producers.by_name["p"], [(0, 0, 1, build_blob(marker, b""), False, False)])
    admin.commit()
    response = admin("POST", f"{SUBSCRIPTION}/analyzeBacklog")
    assert (response.status_code, response.json()) == (
        200,
        {
            "entries": 2,
            "messages": 8,
            "markerMessages": 1,
            "filterAcceptedEntries": 2,
            "filterAcceptedMessages": 8,
            "filterRejectedEntries": 0,
            "filterRejectedMessages": 0,
            "filterRescheduledEntries": 0,
            "filterRescheduledMessages": 0,
            "aborted": False,
            "firstMessageId": f"{topic.ledger_id}:0",
            "lastMessageId": f"{topic.ledger_id}:3",
        },
    )
    later = admin("POST", f"{SUBSCRIPTION}/analyzeBacklog", json={"ledgerId": topic.ledger_id, "entryId": 1}).json()
    assert later["entries"] == 1 and later["messages"] == 7
    admin.done("POST", f"{SUBSCRIPTION}/skip_all")
    assert "firstMessageId" not in admin("POST", f"{SUBSCRIPTION}/analyzeBacklog").json()


@pytest.mark.parametrize(("limit", "aborted"), [(4, True), (5, False)])
def test_bound_backlog_scan_entries_are_reported(limit: int, aborted: bool) -> None:
    admin = Admin(subscriptionBacklogScanMaxEntries=limit)
    admin.publish("t", *[b"x"] * 5)
    admin.done("PUT", SUBSCRIPTION, content=b'"earliest"')
    result = admin("POST", f"{SUBSCRIPTION}/analyzeBacklog").json()
    assert (result["entries"], result["aborted"]) == (min(limit, 5), aborted)


def test_bound_backlog_scan_time_lets_other_tasks_run() -> None:
    admin = Admin(dispatcherMaxReadBatchSize=2, subscriptionBacklogScanMaxTimeMs=1000)
    admin.publish("t", *[b"x"] * 10)
    admin.done("PUT", SUBSCRIPTION, content=b'"earliest"')
    path = {"domain": "persistent", "tenant": "public", "namespace": "default", "topic": "t", "subscription": "s"}
    call = Call(
        broker=admin.broker,
        path=path,
        query={},
        body=b"",
        accept="",
        host="h",
        http_port=1,
        addresses=lambda host, listener: Listener(),
        alarm=Alarm,
        vitals=admin.vitals,
        backups=admin.backups,
    )
    turns = 0

    async def others() -> None:
        nonlocal turns
        for _ in range(3):
            turns += 1
            await asyncio.sleep(0)
        admin.broker.clock.advance_ms(2000)  # type: ignore[attr-defined]

    async def both() -> backlog.Analysis:
        analysis, _ = await asyncio.gather(backlog.analyze(call), others())
        return analysis

    analysis = asyncio.run(both())
    assert turns == 3 and analysis.aborted and 0 < analysis.entries < 10


# -- sizes


def test_the_size_after_a_message(five: Admin) -> None:
    topic = five.broker.topics[f"{FULL}/t"]
    assert isinstance(topic, PersistentTopic)
    sizes = [
        five("PUT", f"{PATH}/t/backlogSize", json={"ledgerId": topic.ledger_id, "entryId": entry_id}).json()
        for entry_id in range(-1, 6)
    ]
    assert sizes[0] == topic.log.size and sizes == sorted(sizes, reverse=True)
    assert sizes[-2:] == [0, 0] and sizes[1] == topic.log.size_from(1)
    java = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchIndex": -1, "batchSize": 0, "ackSet": None}
    assert five("PUT", f"{PATH}/t/backlogSize", json=java).json() == topic.log.size
    assert "`ledgerId`" in five.reason(400, "PUT", f"{PATH}/t/backlogSize", json={"entryId": 1})
    partitioned(five, 1)
    reason = five.reason(405, "PUT", f"{PATH}/p/backlogSize", json=java)
    assert reason == "calculate backlog size is not allowed for partitioned-topic"


def test_the_backlog_of_a_topic(five: Admin) -> None:
    five.done("POST", f"{SUBSCRIPTION}/skip/2")
    answer = five.get(f"{PATH}/t/backlog")
    topic = five.broker.topics[f"{FULL}/t"]
    assert answer["topicName"] == "public/default/persistent/t" and answer["brokerName"] == "broker.test"
    assert answer["totalMessages"] == 5 and answer["messageBacklog"] == 3
    assert answer["storageSize"] == topic.bytes_in
    assert answer["cursorDetails"] == {"s": {"cursorBacklog": 3, "cursorLedgerId": -1}}
    assert [ledger["ledgerId"] for ledger in answer["dataLedgerDetails"]] == [topic.ledger_id]


# -- bad input

CHANGES = ("skip/1", "skip_all", "resetcursor/0", "expireMessages/0")
WITH_BODY = ("resetcursor", "expireMessages")


@pytest.mark.parametrize("change", CHANGES + WITH_BODY)
def test_a_missing_resource_is_named(admin: Admin, change: str) -> None:
    body = {"ledgerId": 1, "entryId": 0}
    reason = admin.reason(404, "POST", f"{PATH}/missing/subscription/s/{change}", json=body)
    assert reason == f"Topic {FULL}/missing not found"
    admin.done("PUT", f"{PATH}/t")
    reason = admin.reason(404, "POST", f"{SUBSCRIPTION}/{change}", json=body)
    assert reason == f"Subscription s not found for topic {FULL}/t"
    admin.done("PUT", f"{NON_PERSISTENT}/n")
    reason = admin.reason(405, "POST", f"{NON_PERSISTENT}/n/subscription/s/{change}", json=body)
    assert "non-persistent topic" in reason


@pytest.mark.parametrize("change", ["skip_all", "resetcursor/0", "expireMessages/0"])
def test_nothing_is_changed_where_one_partition_lacks_the_subscription(admin: Admin, change: str) -> None:
    admin.done("PUT", f"{PATH}/p/partitions", json=2)
    admin.publish(f"{FULL}/p-partition-0", b"a")
    admin.done("PUT", f"{PATH}/p-partition-0/subscription/s", content=b'"earliest"')
    admin.done("POST", f"{PATH}/p-partition-0/subscription/s/skip/0")
    reason = admin.reason(404, "POST", f"{PARTITIONED}/{change}")
    assert reason == f"Subscription s not found for topic {FULL}/p"
    assert left(admin, "p-partition-0") == 1


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        ("skip/x", "numMessages"),
        ("skip/-1", "numMessages"),
        ("skip/2147483648", "numMessages"),
        ("skip/1.0", "numMessages"),
        ("skip/%20", "numMessages"),
        ("resetcursor/-1", "timestamp"),
        ("resetcursor/9223372036854775808", "timestamp"),
        ("resetcursor/now", "timestamp"),
        ("expireMessages/-1", "expireTimeInSeconds"),
        ("expireMessages/1e3", "expireTimeInSeconds"),
    ],
)
def test_an_invalid_number_is_named(five: Admin, change: str, parameter: str) -> None:
    assert parameter in five.reason(400, "POST", f"{SUBSCRIPTION}/{change}")
    assert left(five) == 5


@pytest.mark.parametrize("change", WITH_BODY)
@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "ledgerId"),
        (b"{}", "ledgerId"),
        (b'{"ledgerId":1}', "entryId"),
        (b'{"ledgerId":-2,"entryId":0}', "ledgerId"),
        (b'{"ledgerId":1,"entryId":9223372036854775808}', "entryId"),
        (b'{"ledgerId":1,"entryId":0,"batchIndex":-2}', "batchIndex"),
        (b'{"ledgerId":1,"entryId":0,"partitionIndex":4294967296}', "partitionIndex"),
        (b'{"ledgerId":1,"entryId":0,"offset":3}', "offset"),
        (b'{"ledgerId":1,"entryId":0,"properties":{"a":"b"}}', "properties"),
        (b'{"ledgerId":1,"entryId":0,"isExcluded":"yes"}', "isExcluded"),
        (b'"tomorrow"', "tomorrow"),
        (b"7", "body"),
        (b"{", "body"),
    ],
)
def test_an_invalid_body_is_named(five: Admin, change: str, body: bytes, field: str) -> None:
    assert field in five.reason(400, "POST", f"{SUBSCRIPTION}/{change}", content=body)
    assert left(five) == 5

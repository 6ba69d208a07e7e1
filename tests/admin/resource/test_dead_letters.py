"""Dead letters listed, counted and shown, whichever side wrote them (DL8)."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.resource import dead_letters
from magnetar.deadletter import tally as dead_letter_tally
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.compression import compress
from magnetar.wire.metadata import build_blob
from tests.admin.driver import NOW_MS, Admin
from tests.admin.failed_messages import (
    DLQ,
    FULL,
    PATH,
    POLICY,
    SUBSCRIPTION,
    batch,
    fail,
    kill,
    put,
    settle,
    subscription_of,
    topic_of,
)


def test_dl8_dead_letters_of_the_broker_are_listed(admin: Admin) -> None:
    kill(admin, b"a", b"bb")
    page = admin.get(DLQ)
    ledger = topic_of(admin, "t-s-DLQ").ledger_id
    origin = topic_of(admin).ledger_id
    assert page["next"] is None
    assert [one["id"] for one in page["deadLetters"]] == [f"{ledger}:0:-1", f"{ledger}:1:-1"]
    first = page["deadLetters"][0]
    assert first.pop("description").startswith("It failed 2 times, maxRedeliverCount is 1")
    assert first == {
        "id": f"{ledger}:0:-1",
        "time": "2023-11-14T22:13:20.000Z",
        "reason": "MaxRedeliveries",
        "originTopic": f"{FULL}/t",
        "originSubscription": "s",
        "originMessageId": f"{origin}:0:-1",
        "count": 2,
        "consumer": "c",
        "consumerAddress": "127.0.0.1:50000",
        "clientVersion": "Test-Client-1.0",
        "size": 1,
    }


FAILURE = f"{SUBSCRIPTION}/failure"


def test_dl8_an_error_that_the_application_reports_is_on_the_dead_letter(admin: Admin) -> None:
    consumer = admin.subscribe("t", "s", permits=1000)
    admin.publish("t", b"a", b"b", b"c")
    settle(admin)
    admin.done("POST", POLICY, json={"maxRedeliverCount": 1})
    ledger = topic_of(admin).ledger_id
    forms = (f"{ledger}:0:-1", f"({ledger},1,-1,-7)", f"{ledger}:2")
    for number, message_id in enumerate(forms):
        admin.done("POST", FAILURE, json={"messageId": message_id, "error": f"error {number}" + "x" * 5000})
    for _ in range(2):
        fail(admin, consumer, 0, 1, 2)
    page = admin.get(DLQ)["deadLetters"]
    assert [one["error"][:8] for one in page] == ["error 0x", "error 1x", "error 2x"]
    assert {len(one["error"]) for one in page} == {4096}
    details = admin.get(f"{DLQ}/{page[0]['id']}")
    assert details["properties"]["DEATH_ERROR"] == page[0]["error"]
    assert details["failures"][0]["error"] == page[0]["error"][:200]
    assert details["failures"][0]["consumer"] == details["consumer"]


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (400, {"messageId": "x:y", "error": "e"}, "messageId 'x:y' is not ledger:entry"),
        (400, {"messageId": "LEDGER:0"}, "missing required field `error`"),
        (400, {"messageId": "LEDGER:0", "error": ""}, "length >= 1"),
        (400, None, "messageId and error are expected"),
        (404, {"messageId": "LEDGER:1:-1", "error": "e"}, "is not waiting in subscription 's'"),
        (404, {"messageId": "LEDGER:5:-1", "error": "e"}, "is not waiting"),
        (404, {"messageId": "LEDGER:0:-1:3", "error": "e"}, "is not waiting"),
        (404, {"messageId": "99999:0:-1", "error": "e"}, "is not waiting"),
    ],
)
def test_reports_of_errors_that_belong_to_no_waiting_message_are_refused(
    admin: Admin, status: int, body: dict[str, str] | None, reason: str
) -> None:
    admin.subscribe("t", "s", permits=1000)
    admin.publish("t", b"a", b"b")
    settle(admin)
    subscription_of(admin).ack(1)
    settle(admin)
    if body:
        body = {name: text.replace("LEDGER", str(topic_of(admin).ledger_id)) for name, text in body.items()}
    assert reason in admin.reason(status, "POST", FAILURE, json=body)


def test_a_report_for_a_partitioned_topic_finds_the_partition_by_its_id(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/parts/partitions", json=2)
    for index in range(2):
        admin.subscribe(f"parts-partition-{index}", "s")
    admin.publish("parts-partition-1", b"a")
    settle(admin)
    ledger = topic_of(admin, "parts-partition-1").ledger_id
    admin.done("POST", f"{PATH}/parts/subscription/s/failure", json={"messageId": f"({ledger},0,1,-1)", "error": "e"})
    state = subscription_of(admin, "parts-partition-1").cursor.state_of(0)
    assert state is not None and state.error_of(-1) == "e"


@pytest.mark.parametrize(
    ("properties", "message_id", "subscription", "count"),
    [
        ({"ORIGIN_MESSAGE_ID": "12:34:-1"}, "12:34:-1", "s", None),
        ({"ORIGIN_MESSAGE_ID": "12:34:0:5"}, "12:34:0:5", "s", None),
        ({"ORIGIN_MESSAGE_ID": "(12,34,2,7)"}, "12:34:2:7", "s", None),
        ({"ORIGIN_MESSAGE_ID": "(12,34,-1,-1)"}, "12:34:-1", "s", None),
        ({"ORIGIN_MESSAGE_IDY_TIME": "12:34:-1", "RECONSUMETIMES": "3"}, "12:34:-1", "s", 3),
        ({"ORIGIN_MESSAGE_ID": "who knows", "REAL_SUBSCRIPTION": "other"}, "who knows", "other", None),
        ({"RECONSUMETIMES": "many"}, None, "s", None),
    ],
)
def test_dl8_dead_letters_of_clients_are_listed_in_every_spelling(
    admin: Admin, properties: dict[str, str], message_id: str | None, subscription: str, count: int | None
) -> None:
    put(admin, REAL_TOPIC=f"{FULL}/t-partition-3", **properties)
    (found,) = admin.get(DLQ)["deadLetters"]
    assert (found["reason"], found["originTopic"]) == ("Client", f"{FULL}/t-partition-3")
    assert (found["originMessageId"], found["originSubscription"], found["count"]) == (message_id, subscription, count)


def test_messages_without_dead_letter_properties_are_listed_too(admin: Admin) -> None:
    put(admin)
    (found,) = admin.get(DLQ)["deadLetters"]
    assert (found["reason"], found["originTopic"], found["originSubscription"]) == ("Unknown", None, None)


def test_pages_of_a_partitioned_dead_letter_topic(admin: Admin) -> None:
    admin.done("PUT", f"{PATH}/t-s-DLQ/partitions", json=3)
    for index, count in enumerate((3, 0, 2)):
        for number in range(count):
            put(admin, b"%d" % number, topic=f"{FULL}/t-s-DLQ-partition-{index}", REAL_TOPIC="t", k=str(number))
    whole = [one["id"] for one in admin.get(DLQ)["deadLetters"]]
    assert [int(text.split(":")[2]) for text in whole] == [0, 0, 0, 2, 2]
    for limit in (1, 2, 3, 4, 5):
        paged: list[str] = []
        query = f"?limit={limit}"
        while True:
            page = admin.get(DLQ + query)
            paged += [one["id"] for one in page["deadLetters"]]
            assert len(page["deadLetters"]) <= limit
            if page["next"] is None:
                break
            query = f"?limit={limit}&after={page['next']}"
        assert paged == whole
    assert [one["id"] for one in admin.get(f"{DLQ}?after={whole[2]}")["deadLetters"]] == whole[3:]


def test_dead_letters_in_a_compressed_batch_are_listed_individually(admin: Admin) -> None:
    metadata, payload = batch(
        *((b"%d" % index, {"REAL_TOPIC": "t", "ORIGIN_MESSAGE_ID": f"1:2:-1:{index}"}) for index in range(3)),
        compression=pb.LZ4,
    )
    put(admin, payload, metadata=metadata, messages=3)
    put(admin, b"after")
    found = admin.get(DLQ)["deadLetters"]
    ledger = topic_of(admin, "t-s-DLQ").ledger_id
    assert [one["id"] for one in found] == [f"{ledger}:0:-1:{index}" for index in range(3)] + [f"{ledger}:1:-1"]
    assert [one["originMessageId"] for one in found[:3]] == [f"1:2:-1:{index}" for index in range(3)]
    page = admin.get(f"{DLQ}?limit=2")
    assert page["next"] == f"{ledger}:0:-1:1"
    assert [one["id"] for one in admin.get(f"{DLQ}?after={page['next']}")["deadLetters"]] == [
        one["id"] for one in found[2:]
    ]
    assert admin.get(f"{DLQ}/{ledger}:0:-1:2")["payload"] == "2"
    assert admin.get(f"{DLQ}/{ledger}:0:-1:2")["batchSize"] == 3
    assert f"{ledger}:0:-1:0" in admin.reason(412, "GET", f"{DLQ}/{ledger}:0")
    assert "batch index 3" in admin.reason(404, "GET", f"{DLQ}/{ledger}:0:-1:3")
    assert admin.get(f"{DLQ}/stats")["deadLetters"] == 4


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("limit=0", 400, "1 to 1000"),
        ("limit=1001", 400, "1 to 1000"),
        ("limit=x", 400, "limit"),
        ("after=x", 400, "ledger:entry"),
        ("after=1", 400, "ledger:entry"),
        ("after=999:0", 404, "999"),
    ],
)
def test_invalid_parameters_are_rejected_by_name(admin: Admin, query: str, status: int, words: str) -> None:
    put(admin)
    assert words in admin.reason(status, "GET", f"{DLQ}?{query}")
    if query.startswith("after"):
        assert words in admin.reason(status, "GET", f"{DLQ}/stats?{query}")


def test_missing_dead_letters_and_topics(admin: Admin) -> None:
    assert "t-s-DLQ" in admin.reason(404, "GET", DLQ)
    admin.done("PUT", f"{PATH}/t-s-DLQ")
    assert admin.get(DLQ) == {"deadLetters": [], "next": None}
    assert "1:0" in admin.reason(404, "GET", f"{DLQ}/1:0")
    assert "nonsense" in admin.reason(400, "GET", f"{DLQ}/nonsense")
    volatile = "/admin/v2/non-persistent/public/default/v/deadLetters"
    admin.publish("non-persistent://public/default/v", b"x")
    for path in (volatile, f"{volatile}/stats", f"{volatile}/1:0"):
        assert "persistent" in admin.reason(405, "GET", path)


def test_dead_letter_stats(admin: Admin) -> None:
    kill(admin, b"a", b"b")
    put(admin, REAL_TOPIC=f"{FULL}/t", ORIGIN_MESSAGE_ID="1:2:-1")
    put(admin, REAL_TOPIC=f"{FULL}/elsewhere", REAL_SUBSCRIPTION="x", DEATH_REASON="Expired")
    stats = admin.get(f"{DLQ}/stats")
    time = "2023-11-14T22:13:20.000Z"
    assert stats == {
        "waiting": 4,
        "handled": 0,
        "deadLetters": 4,
        "reasons": {"MaxRedeliveries": 2, "Client": 1, "Expired": 1},
        "first": time,
        "last": time,
        "origins": [
            {
                "topic": f"{FULL}/t",
                "subscription": "s",
                "deadLetters": 3,
                "reasons": {"MaxRedeliveries": 2, "Client": 1},
                "first": time,
                "last": time,
            },
            {
                "topic": f"{FULL}/elsewhere",
                "subscription": "x",
                "deadLetters": 1,
                "reasons": {"Expired": 1},
                "first": time,
                "last": time,
            },
        ],
        "originsLeftOut": 0,
        "aborted": False,
        "next": None,
    }


def test_stats_report_their_limit_and_can_be_continued() -> None:
    admin = Admin(subscriptionBacklogScanMaxEntries=2)
    for _ in range(5):
        put(admin, REAL_TOPIC="t")
    counted, query = [], ""
    while True:
        stats = admin.get(f"{DLQ}/stats{query}")
        counted.append(stats["deadLetters"])
        assert stats["aborted"] == (stats["next"] is not None)
        if not stats["aborted"]:
            break
        query = f"?after={stats['next']}"
    assert counted == [2, 2, 1]


def test_bound_origins_of_dead_letters(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_tally, "ORIGINS_MAX", 2)
    for index in range(4):
        put(admin, REAL_TOPIC=f"t{index}", ORIGIN_MESSAGE_ID="1:1:-1")
    stats = admin.get(f"{DLQ}/stats")
    assert (stats["deadLetters"], len(stats["origins"]), stats["originsLeftOut"]) == (4, 2, 2)
    assert stats["reasons"] == {"Client": 4}


def test_dl8_one_dead_letter_with_all_details(admin: Admin) -> None:
    consumer = admin.subscribe("t", "s", permits=10)
    metadata = pb.MessageMetadata(
        partition_key="key", ordering_key=b"\x01", event_time=NOW_MS - 5, schema_version=b"\x02"
    )
    metadata.compression, metadata.uncompressed_size = pb.ZSTD, 9
    put(admin, compress(pb.ZSTD, b'{"a": 1} '), topic="t", metadata=metadata, colour="red")
    settle(admin)
    admin.done("POST", POLICY, json={"maxRedeliverCount": 1})
    fail(admin, consumer, 0)
    admin.broker.clock.advance_ms(9000)  # type: ignore[attr-defined]
    fail(admin, consumer, 0)
    ledger = topic_of(admin, "t-s-DLQ").ledger_id
    for text in (f"{ledger}:0", f"{ledger}:0:-1"):
        found = admin.get(f"{DLQ}/{text}")
        assert (found["payload"], found["payloadEncoding"]) == ({"a": 1}, "json")
        assert found["properties"]["colour"] == "red"
        assert found["failures"] == [
            {
                "topic": f"{FULL}/t",
                "subscription": "s",
                "reason": "MaxRedeliveries",
                "count": 2,
                "first": "2023-11-14T22:13:20.000Z",
                "last": "2023-11-14T22:13:29.000Z",
                "consumer": "c",
                "address": "127.0.0.1:50000",
                "clientVersion": "Test-Client-1.0",
            }
        ]
        assert (found["key"], found["eventTime"], found["compression"]) == ("key", "2023-11-14T22:13:19.995Z", "ZSTD")
        assert (found["orderingKeyBase64"], found["schemaVersionBase64"]) == ("AQ==", "Ag==")
        assert found["size"] == 9 and found["isEncrypted"] is False


@pytest.mark.parametrize(
    ("payload", "encoding", "shown"),
    [
        (b"plain", "text", "plain"),
        (b"", "text", ""),
        (b"12", "text", "12"),
        (b" [1, 2]", "json", [1, 2]),
        (b"{broken", "text", "{broken"),
        (b"[" * 5000, "text", "[" * 5000),
        (b"\xff\x00", "base64", "/wA="),
        ("häßlich".encode(), "text", "häßlich"),
    ],
)
def test_text_payloads_are_decoded(admin: Admin, payload: bytes, encoding: str, shown: Any) -> None:
    put(admin, payload)
    found = admin.get(f"{DLQ}/{topic_of(admin, 't-s-DLQ').ledger_id}:0")
    assert (found["payloadEncoding"], found["payload"]) == (encoding, shown)


def test_a_dead_letter_without_a_value_and_an_encrypted_one(admin: Admin) -> None:
    put(admin, b"", metadata=pb.MessageMetadata(null_value=True))
    secret = pb.MessageMetadata(compression=pb.LZ4, uncompressed_size=99)
    secret.encryption_keys.add(key="k", value=b"v")
    secret.num_messages_in_batch = 3
    put(admin, b"\x80secret", metadata=secret, messages=3, REAL_TOPIC="t")
    ledger = topic_of(admin, "t-s-DLQ").ledger_id
    nothing, encrypted = (admin.get(f"{DLQ}/{ledger}:{entry}") for entry in range(2))
    assert (nothing["payloadEncoding"], nothing["payload"]) == (None, None)
    assert encrypted["isEncrypted"] and "encrypted" in encrypted["fault"]
    assert base64.b64decode(encrypted["payload"]) == b"\x80secret"
    assert admin.get(f"{DLQ}/stats")["reasons"] == {"Unknown": 1, "Client": 1}


def test_unreadable_entries_are_listed_with_the_reason(admin: Admin) -> None:
    producer = admin.publish("t-s-DLQ")
    broken = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=NOW_MS)
    broken.num_messages_in_batch = 3
    for blob in (b"\x00\x00\x00\xff", build_blob(broken, b"no batch at all")):
        topic_of(admin, "t-s-DLQ").publish(producer, [(0, 0, 1, blob, False, False)])
    admin.commit()
    found = admin.get(DLQ)["deadLetters"]
    assert len(found) == 2 and all(one["fault"] for one in found)
    ledger = topic_of(admin, "t-s-DLQ").ledger_id
    assert admin.get(f"{DLQ}/{ledger}:0")["payload"] is None
    assert admin.get(f"{DLQ}/{ledger}:1")["payload"] == "no batch at all"


def test_texts_that_are_not_utf8_are_harmless(admin: Admin) -> None:
    producer = admin.publish("t-s-DLQ")
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=2**64 - 1, publish_time=2**63, partition_key="XX")
    metadata.properties.add(key="REAL_TOPIC", value="XX")
    metadata.properties.add(key="DEATH_HISTORY", value='[{"topic":"t","subscription":"s","reason":"r","count":1e99}]')
    blob = build_blob(metadata, b"x")[6:].replace(b"XX", b"\xff\xfe")
    topic_of(admin, "t-s-DLQ").publish(producer, [(0, 0, 1, blob, False, False)])
    admin.commit()
    (found,) = admin.get(DLQ)["deadLetters"]
    assert (found["originTopic"], found["key"], found["time"]) == ("��", "��", None)
    shown = admin.get(f"{DLQ}/{found['id']}")
    assert (shown["sequenceId"], shown["failures"]) == (-1, [])


def test_the_longest_list_lets_other_tasks_run(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = []

    class Counting(TimeSlice):
        async def checkpoint(self) -> None:
            checkpoints.append(1)
            await self.restart()

    monkeypatch.setattr(dead_letters, "TimeSlice", Counting)
    for _ in range(5):
        put(admin)
    admin.get(DLQ)
    admin.get(f"{DLQ}/stats")
    assert len(checkpoints) == 10

"""Single messages over HTTP: payload and headers as Pulsar's clients read them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings

from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.producer import Producer
from magnetar.names import TopicName
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.metadata import build_blob
from magnetar.wire.schema_pb2 import (
    LZ4,
    EncryptionKeys,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)
from tests.admin.driver import NOW_MS, Admin, Listener
from tests.wire.hostile_text import hostile_metadata, metadata_texts

PATH = "/admin/v2/persistent/public/default"
FULL = "persistent://public/default"
NON_PERSISTENT = "/admin/v2/non-persistent/public/default"


def publish(admin: Admin, topic: str, *blobs: bytes, messages: int = 1) -> PersistentTopic:
    opened = admin.broker.topic(TopicName.parse(topic), create=True)
    assert isinstance(opened, PersistentTopic)
    producer = opened.producers.by_name.get("raw")
    if producer is None:
        producer = Producer(Listener(), 1, "raw")
        opened.add_producer(producer)
    opened.publish(producer, [(0, 0, messages, blob, False, False) for blob in blobs])
    admin.commit()
    return opened


def blob_at(time_ms: int, payload: bytes = b"x") -> bytes:
    return build_blob(MessageMetadata(producer_name="p", sequence_id=0, publish_time=time_ms), payload)


def paths(topic: PersistentTopic, entry_id: int = 0) -> Sequence[str]:
    return (
        f"{PATH}/t/ledger/{topic.ledger_id}/entry/{entry_id}",
        f"{PATH}/t/subscription/s/position/{entry_id + 1}",
        f"{PATH}/t/examinemessage?initialPosition=earliest&messagePosition={entry_id + 1}",
    )


def test_an_entry_is_the_same_by_every_path(admin: Admin) -> None:
    metadata = MessageMetadata(
        producer_name="p-ü",
        sequence_id=(1 << 64) - 1,
        publish_time=NOW_MS + 123,
        event_time=NOW_MS,
        partition_key="k\r\nSet-Cookie: a",
        ordering_key=b"\x01\x02",
        schema_version=b"\x00",
        properties=[KeyValue(key="ключ", value="a\nb"), KeyValue(key="k", value="1"), KeyValue(key="k", value="2")],
        replicate_to=["a", "b"],
    )
    topic = publish(admin, "t", build_blob(metadata, b"payload"))
    admin.done("PUT", f"{PATH}/t/subscription/s", content=b'"earliest"')
    for path in paths(topic):
        response = admin("GET", path)
        assert (response.status_code, response.content) == (200, b"payload")
        headers = response.headers
        assert headers["X-Pulsar-Message-ID"] == f"{topic.ledger_id}:0"
        assert json.loads(headers["X-Pulsar-PROPERTY"]) == {"ключ": "a\nb", "k": "2"}
        assert headers["X-Pulsar-publish-time"] == "2023-11-14T22:13:20.123Z"
        assert headers["X-Pulsar-event-time"] == "2023-11-14T22:13:20.000Z"
        assert headers["X-Pulsar-sequence-id"] == "-1"
        assert headers["X-Pulsar-partition-key"] == "k??Set-Cookie: a" and "Set-Cookie" not in headers
        assert headers["X-Pulsar-Base64-ordering-key"] == "AQI="
        assert headers["X-Pulsar-Base64-schema-version"] == "AA=="
        assert headers.get_list("X-Pulsar-replicated-to") == ["a", "b"]
        assert headers["X-Pulsar-Is-Encrypted"] == "false" and headers["X-Pulsar-txn-consumable"] == "true"
        assert "X-Pulsar-num-batch-message" not in headers and "X-Pulsar-deliver-at-time" not in headers
        sent = dict(response.headers.raw)
        assert sent[b"X-Pulsar-producer-name"] == "p-ü".encode()
        assert b"X-Pulsar-PROPERTY" in sent, "Java's client looks for this very spelling"


def test_a_batch_is_returned_whole_and_uncompressed(admin: Admin) -> None:
    batch = build_batch([(SingleMessageMetadata(payload_size=0), text) for text in (b"one", b"two", b"three")])
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=NOW_MS,
        num_messages_in_batch=3,
        compression=LZ4,
        uncompressed_size=len(batch),
    )
    blob = build_blob(metadata, compress(LZ4, batch))
    topic = publish(admin, "t", blob, messages=3)
    response = admin("GET", f"{PATH}/t/ledger/{topic.ledger_id}/entry/0")
    assert response.content == batch
    assert response.headers["X-Pulsar-num-batch-message"] == "3" and response.headers["X-Pulsar-compression"] == "LZ4"
    assert response.headers["X-Pulsar-batch-size"] == str(len(blob) - metadata.ByteSize())


def test_encrypted_entries_and_chunks_are_returned_unchanged(admin: Admin) -> None:
    common = {"producer_name": "p", "sequence_id": 0, "publish_time": NOW_MS, "compression": LZ4}
    key = EncryptionKeys(key="k", value=b"v")
    encrypted = MessageMetadata(**common, uncompressed_size=9, encryption_keys=[key], encryption_param=b"\xff")
    chunk = MessageMetadata(**common, uncompressed_size=9000, num_chunks_from_msg=3, chunk_id=1, uuid="u")
    topic = publish(admin, "t", build_blob(encrypted, b"secret"), build_blob(chunk, b"part"))
    first, second = (admin("GET", f"{PATH}/t/ledger/{topic.ledger_id}/entry/{entry}") for entry in range(2))
    assert first.content == b"secret" and first.headers["X-Pulsar-Is-Encrypted"] == "true"
    assert "X-Pulsar-Base64-encryption-keys" in first.headers
    assert second.content == b"part" and second.headers["X-Pulsar-chunk-id"] == "1"
    assert second.headers["X-Pulsar-PROPERTY-TOTAL-CHUNKS"] == "3"


def test_an_unset_time_is_omitted(admin: Admin) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=NOW_MS, event_time=(1 << 64) - 1)
    topic = publish(admin, "t", build_blob(metadata, b""))
    response = admin("GET", f"{PATH}/t/ledger/{topic.ledger_id}/entry/0")
    assert response.status_code == 200 and "X-Pulsar-event-time" not in response.headers


@pytest.mark.parametrize(
    "blob",
    [
        (2).to_bytes(4, "big") + b"\xff\xff",
        build_blob(MessageMetadata(producer_name="p", sequence_id=0, compression=LZ4, uncompressed_size=9), b"junk"),
        build_blob(MessageMetadata(producer_name="p", sequence_id=0, compression=LZ4, uncompressed_size=1 << 31), b""),
    ],
)
def test_an_unreadable_entry_is_a_conflict(admin: Admin, blob: bytes) -> None:
    topic = publish(admin, "t", blob)
    assert "cannot be read" in admin.reason(409, "GET", f"{PATH}/t/ledger/{topic.ledger_id}/entry/0")


def test_missing_messages(admin: Admin) -> None:
    topic = publish(admin, "t", blob_at(NOW_MS))
    admin.done("PUT", f"{PATH}/t/subscription/s", content=b'"earliest"')
    for ledger_id, entry_id in ((topic.ledger_id, 1), (topic.ledger_id + 1, 0), (topic.ledger_id, (1 << 63) - 1)):
        assert admin.reason(404, "GET", f"{PATH}/t/ledger/{ledger_id}/entry/{entry_id}") == "Message id not found"
    assert admin.reason(404, "GET", f"{PATH}/t/subscription/s/position/2") == "Message not found"
    admin.done("DELETE", f"{PATH}/t/truncate")
    admin.reason(404, "GET", f"{PATH}/t/ledger/{topic.ledger_id}/entry/0")
    reason = admin.reason(412, "GET", f"{PATH}/t/examinemessage")
    assert reason == "Could not examine messages due to the total message is zero"


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("t/ledger/x/entry/0", "ledgerId"),
        ("t/ledger/1/entry/-1", "entryId"),
        ("t/ledger/9223372036854775808/entry/0", "ledgerId"),
        ("t/ledger/1/entry/" + "9" * 5000, "entryId"),
        ("t/subscription/s/position/0", "messagePosition"),
        ("t/subscription/s/position/2147483648", "messagePosition"),
        ("t/subscription/s/position/%D9%A1", "messagePosition"),
        ("t/examinemessage?messagePosition=-1", "messagePosition"),
        ("t/examinemessage?messagePosition=1.5", "messagePosition"),
        ("t/examinemessage?initialPosition=middle", "initialPosition"),
        ("t/messageid/soon", "timestamp"),
        ("t/messageid/-1", "timestamp"),
    ],
)
def test_an_invalid_number_is_named(admin: Admin, path: str, parameter: str) -> None:
    admin.publish("t", b"a")
    assert parameter in admin.reason(400, "GET", f"{PATH}/{path}")
    assert admin.get(f"{PATH}/t/subscriptions") == []


def test_examine_counts_from_either_end(admin: Admin) -> None:
    publish(admin, "t", *(blob_at(NOW_MS, payload) for payload in (b"a", b"b", b"c")))
    for query, payload in (
        ("", b"c"),
        ("?messagePosition=0", b"c"),
        ("?initialPosition=latest&messagePosition=2", b"b"),
        ("?initialPosition=latest&messagePosition=99", b"a"),
        ("?initialPosition=earliest&messagePosition=1", b"a"),
        ("?initialPosition=earliest&messagePosition=99", b"c"),
    ):
        assert admin("GET", f"{PATH}/t/examinemessage{query}").content == payload, query


def test_peek_counts_unacknowledged_messages(admin: Admin) -> None:
    publish(admin, "t", *(blob_at(NOW_MS, payload) for payload in (b"a", b"b", b"c")))
    consumer = admin.subscribe("t", "s", permits=10)
    consumer.subscription.ack(1)  # type: ignore[union-attr]
    answers = [admin("GET", f"{PATH}/t/subscription/s/position/{number}").content for number in (1, 2)]
    assert answers == [b"a", b"c"]
    assert admin.get(f"{PATH}/t/stats")["subscriptions"]["s"]["msgBacklog"] == 2


def test_peeking_shows_what_a_new_subscription_would_get_and_creates_none(admin: Admin) -> None:
    publish(admin, "t", blob_at(NOW_MS, b"a"), blob_at(NOW_MS, b"b"))
    assert admin("GET", f"{PATH}/t/subscription/new/position/2").content == b"b"
    admin.reason(404, "GET", f"{PATH}/t/subscription/new/position/3")
    assert admin.get(f"{PATH}/t/subscriptions") == [] and admin.commits == 0
    strict = Admin(allowAutoSubscriptionCreation=False)
    publish(strict, "t", blob_at(NOW_MS))
    assert "is disabled" in strict.reason(412, "GET", f"{PATH}/t/subscription/new/position/1")
    assert strict.get(f"{PATH}/t/subscriptions") == []


def test_message_id_by_time(admin: Admin) -> None:
    topic = publish(admin, "t", *(blob_at(NOW_MS + step) for step in (0, 10, 10, 30)))
    expected = {0: 0, NOW_MS: 0, NOW_MS + 1: 1, NOW_MS + 10: 1, NOW_MS + 11: 3, NOW_MS + 30: 3, NOW_MS + 31: 4}
    for time_ms, entry_id in expected.items():
        answer = admin.get(f"{PATH}/t/messageid/{time_ms}")
        assert answer == {"ledgerId": topic.ledger_id, "entryId": entry_id, "partitionIndex": -1} | {
            "batchIndex": -1,
            "batchSize": 0,
        }
    admin.done("PUT", f"{PATH}/empty")
    assert admin.get(f"{PATH}/empty/messageid/0")["entryId"] == 0


@pytest.mark.parametrize(
    "rest", ["ledger/1/entry/0", "subscription/s/position/1", "examinemessage", f"messageid/{NOW_MS}"]
)
def test_only_persistent_topics_without_partitions_show_messages(admin: Admin, rest: str) -> None:
    admin.done("PUT", f"{PATH}/p/partitions", json=1)
    admin.done("PUT", f"{NON_PERSISTENT}/n")
    assert "artition" in admin.reason(405, "GET", f"{PATH}/p/{rest}")
    assert "non-persistent topic" in admin.reason(405, "GET", f"{NON_PERSISTENT}/n/{rest}")
    assert admin.reason(404, "GET", f"{PATH}/missing/{rest}") == f"Topic {FULL}/missing not found"
    admin.publish(f"{FULL}/p-partition-0", b"a")
    assert admin("GET", f"{PATH}/p-partition-0/{rest}").status_code in (200, 404)
    assert admin.existing()[0] == [f"non-{FULL}/n", f"{FULL}/p-partition-0"]


@given(texts=metadata_texts)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_in_texts_are_shown(admin: Admin, texts: dict[str, bytes]) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=NOW_MS)
    topic = publish(admin, "t", build_blob(hostile_metadata(metadata, texts), b"x"))
    response = admin("GET", paths(topic, topic.log.confirmed)[0])
    assert response.status_code == 200
    assert len(json.loads(response.headers["X-Pulsar-PROPERTY"])) == ("properties" in texts)

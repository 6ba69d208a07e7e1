"""Messages in responses of the admin REST API, rebuilt from their headers."""

from __future__ import annotations

import httpx
import pytest

from magnetar.client.consume.peeked import messages_of_response
from magnetar.client.errors import ClientError
from magnetar.client.message import MessageId
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch

TOPIC = "persistent://public/default/orders-partition-2"
HEADERS = {
    "X-Pulsar-Message-ID": "3:4",
    "X-Pulsar-producer-name": "p",
    "X-Pulsar-sequence-id": "7",
    "X-Pulsar-publish-time": "2026-01-02T03:04:05.678Z",
}


def test_a_single_message() -> None:
    headers = httpx.Headers(
        {
            **HEADERS,
            "X-Pulsar-PROPERTY": '{"a": "b"}',
            "X-Pulsar-event-time": "1970-01-01T01:00:01+01:00",
            "X-Pulsar-deliver-at-time": "1970-01-01T00:00:02Z",
            "X-Pulsar-partition-key": "aw==",
            "X-Pulsar-partition-key-b64-encoded": "true",
            "X-Pulsar-Base64-ordering-key": "bw==",
            "X-Pulsar-Base64-schema-version": "AAAAAAAAAAE=",
            "X-Pulsar-replicated-from": "there",
            "X-Pulsar-null-value": "true",
        }
    )
    (message,) = messages_of_response(TOPIC, 2, headers, b"")
    assert message.id == MessageId(3, 4, 2)
    assert (message.topic, message.producer_name, message.sequence_id) == (TOPIC, "p", 7)
    assert (message.key, message.key_is_base64, message.ordering_key) == ("aw==", True, b"o")
    assert (message.properties, message.replicated_from, message.is_null) == ({"a": "b"}, "there", True)
    assert (message.publish_time_ms, message.event_time_ms, message.deliver_at_ms) == (1767323045678, 1000, 2000)
    assert message.schema_version == bytes([0] * 7 + [1])


def test_a_batch_is_split() -> None:
    batch = build_batch([(pb.SingleMessageMetadata(partition_key=key), key.encode()) for key in ("a", "b")])
    headers = httpx.Headers({**HEADERS, "X-Pulsar-num-batch-message": "2"})
    messages = messages_of_response(TOPIC, 2, headers, batch)
    assert [(message.id, message.key, message.value) for message in messages] == [
        (MessageId(3, 4, 2, 0, 2), "a", b"a"),
        (MessageId(3, 4, 2, 1, 2), "b", b"b"),
    ]


def test_an_encrypted_batch_stays_whole() -> None:
    headers = httpx.Headers({**HEADERS, "X-Pulsar-num-batch-message": "2", "X-Pulsar-Is-Encrypted": "true"})
    (message,) = messages_of_response(TOPIC, 2, headers, b"secret")
    assert message.value == b"secret"


def test_what_a_broker_wrote_for_itself_is_no_message() -> None:
    assert messages_of_response(TOPIC, 2, httpx.Headers({**HEADERS, "X-Pulsar-marker-type": "10"}), b"") == []


def test_older_brokers_have_a_header_for_each_property() -> None:
    (message,) = messages_of_response(TOPIC, 2, httpx.Headers({**HEADERS, "X-Pulsar-PROPERTY-team": "sales"}), b"x")
    assert message.properties == {"team": "sales"}


@pytest.mark.parametrize(
    "changed",
    [
        {"X-Pulsar-Message-ID": "here"},
        {"X-Pulsar-publish-time": "yesterday"},
        {"X-Pulsar-sequence-id": "x"},
        {"X-Pulsar-num-batch-message": "2"},
        {"X-Pulsar-num-batch-message": "-1"},
        {"X-Pulsar-PROPERTY": "{"},
        {"X-Pulsar-Base64-ordering-key": "!"},
    ],
)
def test_unreadable_headers_are_a_client_error(changed: dict[str, str]) -> None:
    with pytest.raises(ClientError):
        messages_of_response(TOPIC, 2, httpx.Headers({**HEADERS, **changed}), b"x")


def test_a_response_without_an_id_is_a_client_error() -> None:
    with pytest.raises(ClientError):
        messages_of_response(TOPIC, 2, httpx.Headers({}), b"x")

"""Single messages over HTTP: by id, by position in a backlog or topic, and the message id of a time.

Owns the conversion of a stored entry to a response: the uncompressed payload, a batch as a whole, and the metadata as
`X-Pulsar-*` headers. Each request reads one entry.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from starlette.responses import Response

from magnetar.admin.http.errors import Conflict, MessageNotFound
from magnetar.admin.http.request import Call
from magnetar.admin.iso_time import iso_time_or_none
from magnetar.admin.opened import find_subscription, open_persistent
from magnetar.admin.resource.subscriptions import LONG_MAX
from magnetar.admin.resource.topics import MessageIdReply
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.run import Entry
from magnetar.errors import NotAllowed
from magnetar.wire.entry import ChunkEntry, EncryptedEntry, content_of
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import split_blob
from magnetar.wire.schema_pb2 import CompressionType, MessageMetadata
from magnetar.wire.text import readable

INT_MAX = (1 << 31) - 1


# -- requests


def get(call: Call) -> Response:
    """Show one entry by its id: the payload, and the metadata as `X-Pulsar-*` headers."""
    ledger_id, entry_id = call.number("ledgerId", 0, LONG_MAX), call.number("entryId", 0, LONG_MAX)
    topic = open_persistent(
        call,
        partitioned="GetMessageById is not allowed on partitioned-topic",
        non_persistent="GetMessageById is not allowed on a non-persistent topic",
    )
    entry = topic.log.read_one(entry_id) if ledger_id == topic.ledger_id else None
    if entry is None:
        raise MessageNotFound("Message id not found")
    return _response(topic, entry)


def peek(call: Call) -> Response:
    """Show one entry of the backlog; of a missing subscription, which is not created, what it would get."""
    number = call.number("messagePosition", 1, INT_MAX)
    topic = open_persistent(
        call,
        partitioned="Peek messages on a partitioned topic is not allowed",
        non_persistent="Peek messages on a non-persistent topic is not allowed",
    )
    entry = _peeked(call, topic, number)
    if entry is None:
        raise MessageNotFound("Message not found")
    return _response(topic, entry)


def _peeked(call: Call, topic: PersistentTopic, number: int) -> Entry | None:
    """Apache Pulsar creates a missing subscription, where auto-creation allows it."""
    name = call.subscription
    if name in topic.subscriptions:
        return find_subscription(topic, name).peek(number)
    if not topic.policies.auto_subscription_creation:
        raise NotAllowed(
            f"Subscription {name} does not exist for topic {topic.name.full}"
            " and automatic subscription creation is disabled"
        )
    entry_id = topic.log.first + number - 1
    return topic.log.read_one(entry_id) if entry_id <= topic.log.confirmed else None


def examine(call: Call) -> Response:
    """Show one entry, counted from the start or the end of the topic."""
    from_start = call.choice("initialPosition", ("LATEST", "EARLIEST")) == "EARLIEST"
    number = max(call.number("messagePosition", 0, LONG_MAX, default=1), 1)
    topic = open_persistent(
        call,
        partitioned="Examine messages on a partitioned topic is not allowed,"
        " please try examine message on specific topic partition",
        non_persistent="Examine messages on a non-persistent topic is not allowed",
    )
    log = topic.log
    if log.first > log.confirmed:
        raise NotAllowed("Could not examine messages due to the total message is zero")
    entry_id = log.first + number - 1 if from_start else log.confirmed - number + 1
    entry = log.read_one(min(max(entry_id, log.first), log.confirmed))
    if entry is None:
        raise MessageNotFound("Message not found")
    return _response(topic, entry)


def id_by_time(call: Call) -> MessageIdReply:
    """Show the id of the first message published at or after a time; if there is none, of the next one."""
    time_ms = call.number("timestamp", 0, LONG_MAX)
    topic = open_persistent(
        call,
        partitioned="Get message ID by timestamp on a partitioned topic is not allowed,"
        " please try do it on specific topic partition",
        non_persistent="Get message ID by timestamp on a non-persistent topic is not allowed",
    )
    return MessageIdReply(topic.ledger_id, topic.log.first_published_from(time_ms), topic.name.partition)


# -- an entry as a response


def _response(topic: PersistentTopic, entry: Entry) -> Response:
    entry_id, _, _, blob = entry
    try:
        metadata, payload = split_blob(blob)
        payload = _uncompressed(metadata, payload, topic.broker.settings.maxMessageSize)
    except EntryError as error:
        raise Conflict(f"message {topic.ledger_id}:{entry_id} cannot be read: {error}") from error
    response = Response(payload, media_type="application/octet-stream")
    position = [("X-Pulsar-Message-ID", f"{topic.ledger_id}:{entry_id}")]
    # Not through Response.headers, which lower-cases names: Java's client is case-sensitive.
    response.raw_headers += [
        (name.encode(), _header_value(value)) for name, value in (*position, *_headers(metadata, len(blob)))
    ]
    return response


def _uncompressed(metadata: MessageMetadata, payload: bytes, size_max: int) -> bytes:
    """Encrypted entries and chunks are left as they are."""
    try:
        return content_of(metadata, payload, size_max)
    except (EncryptedEntry, ChunkEntry):
        return payload


def _headers(metadata: MessageMetadata, size: int) -> Iterator[tuple[str, str]]:
    properties = {readable(pair.key): readable(pair.value) for pair in metadata.properties}
    yield "X-Pulsar-PROPERTY", json.dumps(properties, separators=(",", ":"))
    for field, header, shown in _FIELDS:
        if metadata.HasField(field) and (text := shown(getattr(metadata, field))) is not None:  # type: ignore[arg-type]
            yield header, text
    if metadata.HasField("num_messages_in_batch"):
        # Partial: stored metadata may lack required fields that its client left out.
        yield "X-Pulsar-batch-size", str(size - len(metadata.SerializePartialToString()))
    if metadata.HasField("num_chunks_from_msg"):
        yield "X-Pulsar-PROPERTY-TOTAL-CHUNKS", str(metadata.num_chunks_from_msg)
        yield "X-Pulsar-PROPERTY-CHUNK-ID", str(metadata.chunk_id)
    yield "X-Pulsar-Is-Encrypted", _flag(bool(metadata.encryption_keys))
    for cluster in metadata.replicate_to:
        yield "X-Pulsar-replicated-to", readable(cluster)
    for key in metadata.encryption_keys:
        yield "X-Pulsar-Base64-encryption-keys", _base64(key.SerializePartialToString())
    # There are no transactions. Older clients read the first header, newer ones the second.
    yield "X-Pulsar-txn-uncommitted", "false"
    yield "X-Pulsar-txn-consumable", "true"


def _header_value(text: str) -> bytes:
    """Names and keys are arbitrary text: a line end in one must not end the header."""
    return _CONTROL.sub("?", text).encode(errors="replace")


_CONTROL = re.compile("[\x00-\x1f\x7f]")


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _signed(value: int) -> str:
    """Unsigned on the wire, but signed in every client."""
    return str(value - (1 << 64) if value >> 63 else value)


# Field of the metadata, header, how the value is shown.
_FIELDS: tuple[tuple[str, str, Callable[[Any], str | None]], ...] = (
    ("publish_time", "X-Pulsar-publish-time", iso_time_or_none),
    ("event_time", "X-Pulsar-event-time", iso_time_or_none),
    ("deliver_at_time", "X-Pulsar-deliver-at-time", iso_time_or_none),
    ("num_messages_in_batch", "X-Pulsar-num-batch-message", str),
    ("null_value", "X-Pulsar-null-value", _flag),
    ("producer_name", "X-Pulsar-producer-name", readable),
    ("sequence_id", "X-Pulsar-sequence-id", _signed),
    ("replicated_from", "X-Pulsar-replicated-from", readable),
    ("partition_key", "X-Pulsar-partition-key", readable),
    ("compression", "X-Pulsar-compression", CompressionType.Name),
    ("uncompressed_size", "X-Pulsar-uncompressed-size", str),
    ("encryption_algo", "X-Pulsar-encryption-algo", readable),
    ("encryption_param", "X-Pulsar-Base64-encryption-param", _base64),
    ("schema_version", "X-Pulsar-Base64-schema-version", _base64),
    ("partition_key_b64_encoded", "X-Pulsar-partition-key-b64-encoded", _flag),
    ("ordering_key", "X-Pulsar-Base64-ordering-key", _base64),
    ("marker_type", "X-Pulsar-marker-type", str),
    ("txnid_least_bits", "X-Pulsar-txnid-least-bits", _signed),
    ("txnid_most_bits", "X-Pulsar-txnid-most-bits", _signed),
    ("highest_sequence_id", "X-Pulsar-highest-sequence-id", _signed),
    ("uuid", "X-Pulsar-uuid", readable),
    ("num_chunks_from_msg", "X-Pulsar-num-chunks-from-msg", str),
    ("total_chunk_msg_size", "X-Pulsar-total-chunk-msg-size", str),
    ("chunk_id", "X-Pulsar-chunk-id", str),
    ("null_partition_key", "X-Pulsar-null-partition-key", _flag),
)

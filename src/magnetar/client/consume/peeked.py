"""Messages as the admin REST API returns them: an entry is the body of a response, its metadata `X-Pulsar-…` headers.

Owns the names of these headers. Sends nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime

import msgspec

from magnetar.client.consume.entry import Entry, EntryDecoder
from magnetar.client.errors import UnreadableMessage
from magnetar.client.message import Message, MessageId
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import MetadataError, build_blob

_MESSAGE_ID = "X-Pulsar-Message-ID"
_PROPERTIES = "X-Pulsar-PROPERTY"
_PROPERTY_PREFIX = "x-pulsar-property-"
_IS_ENCRYPTED = "X-Pulsar-Is-Encrypted"

_properties = msgspec.json.Decoder(dict[str, str])


def messages_of_response(topic: str, partition: int, headers: Mapping[str, str], body: bytes) -> list[Message]:
    """The messages of the entry in a response; `headers` ignore the case of names. Raises `UnreadableMessage`."""
    try:
        position = msgspec.structs.replace(MessageId.parse(headers[_MESSAGE_ID]), partition=partition)
        metadata = _metadata(headers)
    except (KeyError, ValueError, MetadataError) as error:
        raise UnreadableMessage(
            f"a message of {topic} cannot be read: the headers of the response are invalid: {error}",
            topic=topic,
            message_id=headers.get(_MESSAGE_ID, ""),
        ) from error
    if headers.get(_IS_ENCRYPTED, "").lower() == "true":
        metadata.ClearField("num_messages_in_batch")  # without the key an encrypted batch cannot be split
    return EntryDecoder().decode(Entry(topic, position, 0, (), build_blob(metadata, body)))[0]


def _metadata(headers: Mapping[str, str]) -> pb.MessageMetadata:
    metadata = pb.MessageMetadata(
        producer_name=headers.get("X-Pulsar-producer-name", ""),
        sequence_id=max(0, int(headers.get("X-Pulsar-sequence-id", "0"))),
        publish_time=_time(headers, "X-Pulsar-publish-time") or 0,
    )
    if (event_time := _time(headers, "X-Pulsar-event-time")) is not None:
        metadata.event_time = event_time
    if (deliver_at := _time(headers, "X-Pulsar-deliver-at-time")) is not None:
        metadata.deliver_at_time = deliver_at
    if (count := headers.get("X-Pulsar-num-batch-message")) is not None:
        metadata.num_messages_in_batch = int(count)
    if (marker := headers.get("X-Pulsar-marker-type")) is not None:
        metadata.marker_type = int(marker)
    if (key := headers.get("X-Pulsar-partition-key")) is not None:
        metadata.partition_key = key
        metadata.partition_key_b64_encoded = headers.get("X-Pulsar-partition-key-b64-encoded", "").lower() == "true"
    if (ordering_key := _base64(headers, "X-Pulsar-Base64-ordering-key")) is not None:
        metadata.ordering_key = ordering_key
    if (version := _base64(headers, "X-Pulsar-Base64-schema-version")) is not None:
        metadata.schema_version = version
    metadata.replicated_from = headers.get("X-Pulsar-replicated-from", "")
    metadata.null_value = headers.get("X-Pulsar-null-value", "").lower() == "true"
    for name, value in _properties_of(headers).items():
        metadata.properties.add(key=name, value=value)
    return metadata


def _time(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name)
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1000)


def _base64(headers: Mapping[str, str], name: str) -> bytes | None:
    text = headers.get(name)
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} is not base64") from error


def _properties_of(headers: Mapping[str, str]) -> dict[str, str]:
    """One JSON object, or from older brokers a header for each property."""
    text = headers.get(_PROPERTIES)
    if text:
        return _properties.decode(text)
    return {
        name[len(_PROPERTY_PREFIX) :]: value
        for name, value in headers.items()
        if name.lower().startswith(_PROPERTY_PREFIX)
    }

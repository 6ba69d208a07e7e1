"""Metadata whose text fields hold any bytes, as a client may send them: protobuf itself refuses to build it."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from magnetar.wire.schema_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata
from magnetar.wire.varint import encode_varint

Text = st.one_of(st.binary(max_size=12), st.sampled_from([b"\xff", b"\xff\xfe", b"a", b"", b"\xc3\x28", b"\x00"]))


def with_octets(message: Message, fields: dict[str, bytes]) -> bytes:
    """The encoded message with these bytes in its text fields; in a repeated one, as another element."""
    encoded = message.SerializePartialToString()
    for name, value in fields.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            value = with_octets(KeyValue(), {"key": value, "value": value})
        encoded += encode_varint(field.number << 3 | 2) + encode_varint(len(value)) + value
    return encoded


def _text_fields(message: type[Message]) -> list[str]:
    texts = [f.name for f in message.DESCRIPTOR.fields if f.type == FieldDescriptor.TYPE_STRING]
    return [*texts, "properties"]


metadata_texts = st.dictionaries(st.sampled_from(_text_fields(MessageMetadata)), Text, max_size=4)
single_texts = st.dictionaries(st.sampled_from(_text_fields(SingleMessageMetadata)), Text, max_size=3)


def hostile_metadata(metadata: MessageMetadata, texts: dict[str, bytes]) -> MessageMetadata:
    return MessageMetadata.FromString(with_octets(metadata, texts))


def hostile_single(single: SingleMessageMetadata, texts: dict[str, bytes]) -> SingleMessageMetadata:
    return SingleMessageMetadata.FromString(with_octets(single, texts))

"""Text fields of protobuf messages that a client sent: protobuf returns a text that is not UTF-8 as bytes.

Keys, properties and names in the metadata of a message are the client's business: the broker stores, copies and hashes
them as bytes, whatever they are. Commands are different: `frames` refuses such a text in them.
"""

from __future__ import annotations

from google.protobuf.message import Message

from magnetar.wire.varint import encode_varint

_WIRE_TYPE_BYTES = 2


def readable(value: str | bytes) -> str:
    """The text for people: what is not UTF-8 is replaced."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def octets(value: str | bytes) -> bytes:
    """The bytes as they were sent."""
    return value.encode() if isinstance(value, str) else value


def copy_field(source: Message, target: Message, field: str) -> None:
    """Copies a field that is set and not repeated; a text as the bytes that it is."""
    value = getattr(source, field)
    if isinstance(value, bytes) and target.DESCRIPTOR.fields_by_name[field].type == _STRING:
        # Assigning bytes that are not UTF-8 raises; protobuf only takes them from encoded messages.
        tag = target.DESCRIPTOR.fields_by_name[field].number << 3 | _WIRE_TYPE_BYTES
        target.MergeFromString(encode_varint(tag) + encode_varint(len(value)) + value)
    else:
        setattr(target, field, value)


_STRING = 9  # FieldDescriptor.TYPE_STRING, without importing the module for it

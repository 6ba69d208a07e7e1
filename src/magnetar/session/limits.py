"""Limits of commands: sizes of names and maps, and numbers that fit a signed 64-bit integer.

Owns which fields are names, texts, maps and numbers; derived once from the descriptors of the commands, so that a field
of a later protocol has its limit too. What the fields mean is the handlers' business.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from magnetar.bounds import (
    HANDLE_BYTES,
    HANDLES_PER_CONNECTION,
    IDS_PER_COMMAND,
    MAP_SIZE,
    NAME_SIZE,
    NUMBER,
    TEXT_SIZE,
)
from magnetar.errors import MetadataInvalid, NotAllowed
from magnetar.session.handles import Command, H, Handles
from magnetar.wire.schema_pb2 import KeyValue, Schema

if TYPE_CHECKING:
    from magnetar.session.session import Session

_IDS_MAX = IDS_PER_COMMAND.limit
_HANDLES_MAX = HANDLES_PER_CONNECTION.limit
_HANDLE_BYTES_MAX = HANDLE_BYTES.limit

# Topics and subscriptions have limits of their own, with an error of their own (see `names`).
_CHECKED_ELSEWHERE = frozenset(("topic", "subscription"))
_TEXTS = frozenset(("topics_pattern", "original_auth_data"))
# Java clients use all 64 bits of a request id, and -1 for a consumer without an epoch; a seek to a negative time is to
# the start. Positions are nested messages: -1:-1 is the earliest.
_ANY_NUMBER = frozenset(("request_id", "consumer_epoch", "message_publish_time", "txnid_least_bits", "txnid_most_bits"))


class _Fields(NamedTuple):
    texts: tuple[tuple[str, int], ...]
    """With the largest size in bytes."""
    maps: tuple[str, ...]
    numbers: tuple[str, ...]
    has_schema: bool


def check_limits(command: Command) -> None:
    """Raises NotAllowed or MetadataInvalid for a field that is too large."""
    for field, message in command.ListFields():
        if isinstance(message, Message):
            _check(message, _fields_of(field.message_type))


def _check(message: Message, fields: _Fields) -> None:
    for name, size_max in fields.texts:
        text: str = getattr(message, name)
        if len(text) * 4 > size_max and len(text.encode()) > size_max:
            raise NotAllowed(f"{name} of {len(text.encode())} bytes exceeds {size_max}")
    for name in fields.numbers:
        number: int = getattr(message, name)
        if number > NUMBER.limit:
            raise NotAllowed(f"{name} {number} exceeds {NUMBER.limit}")
    for name in fields.maps:
        _check_map(name, getattr(message, name))
    if fields.has_schema and message.HasField("schema"):
        schema: Schema = getattr(message, "schema")  # noqa: B009  # any message with this field
        _check_map("schema properties", schema.properties)


def _check_map(name: str, pairs: Iterable[KeyValue]) -> None:
    size = map_size(pairs)
    if size > MAP_SIZE.limit:
        raise MetadataInvalid(f"{name} of {size} bytes exceeds {MAP_SIZE.limit}")


def map_size(pairs: Iterable[KeyValue]) -> int:
    """Bytes of keys and values."""
    return sum(len(pair.key.encode()) + len(pair.value.encode()) for pair in pairs)


@cache
def _fields_of(descriptor: Descriptor) -> _Fields:
    plain = [field for field in descriptor.fields if field.name not in _CHECKED_ELSEWHERE]
    texts = [field.name for field in plain if field.type == FieldDescriptor.TYPE_STRING]
    numbers = [field.name for field in plain if field.type == FieldDescriptor.TYPE_UINT64]
    messages = {field.name: field.message_type for field in plain if field.type == FieldDescriptor.TYPE_MESSAGE}
    return _Fields(
        texts=tuple((name, TEXT_SIZE.limit if name in _TEXTS else NAME_SIZE.limit) for name in texts),
        maps=tuple(name for name, kind in messages.items() if kind is KeyValue.DESCRIPTOR),
        numbers=tuple(name for name in numbers if name not in _ANY_NUMBER),
        has_schema=messages.get("schema") is Schema.DESCRIPTOR,
    )


def check_room(session: Session, handles: Handles[H], what: str) -> None:
    """Raises NotAllowed if the connection may not have another producer or consumer."""
    if len(handles) >= _HANDLES_MAX:
        raise NotAllowed(f"the connection has {len(handles)} {what}, the limit is {_HANDLES_MAX}")
    size = session.producers.size + session.consumers.size
    if size >= _HANDLE_BYTES_MAX:
        raise NotAllowed(
            f"producers and consumers of the connection have {size} bytes of metadata, the limit is {_HANDLE_BYTES_MAX}"
        )


def takes_ids(session: Session, command: str, count: int) -> bool:
    """Whether one command may name so many messages; if not, the connection is closed."""
    if count > _IDS_MAX:
        session.fail(f"{command} with {count} message ids exceeds the limit of {_IDS_MAX}")
        return False
    return True

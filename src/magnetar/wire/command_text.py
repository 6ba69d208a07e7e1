"""Texts of commands: each is UTF-8, or the command is refused.

protobuf returns a text that is not UTF-8 as bytes, which would be stored, compared and sorted as if it were text. Owns
the list of text fields of every command, derived once from its descriptor. Knows nothing of the texts of messages
(see `text`): those are the client's business.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from magnetar.bounds import PAIRS_PER_COMMAND

_PAIRS_MAX = PAIRS_PER_COMMAND.limit
_NOT_TEXT = "is not UTF-8"


class _Field(NamedTuple):
    """A text, if `nested` is None, or a message that has texts."""

    name: str
    is_repeated: bool
    nested: tuple[_Field, ...] | None


def text_fault(message: Message) -> str | None:
    """What is wrong with the texts of a command; None if nothing is."""
    found = _fault(message, _fields(message.DESCRIPTOR))
    return None if found is None else " ".join(found)


def _fault(message: Message, fields: tuple[_Field, ...]) -> tuple[str, str] | None:
    """The path of the first field that is wrong, and what is wrong with it."""
    for name, is_repeated, nested in fields:
        value = getattr(message, name)
        if nested is None:
            is_text = all(type(one) is str for one in value) if is_repeated else type(value) is str
            if not is_text:
                return name, _NOT_TEXT
            continue
        if not is_repeated and not message.HasField(name):
            continue
        if is_repeated and len(value) > _PAIRS_MAX:
            return name, f"has {len(value)} elements, the limit is {_PAIRS_MAX}"
        for one in value if is_repeated else (value,):
            found = _fault(one, nested)
            if found is not None:
                return f"{name}.{found[0]}", found[1]
    return None


@cache
def _fields(descriptor: Descriptor, within: frozenset[str] = frozenset()) -> tuple[_Field, ...]:
    """Fields with texts in them; a message inside one of its own kind has none that its outer one has not."""
    found = []
    for field in descriptor.fields:
        is_repeated = _is_repeated(field)
        if field.type == FieldDescriptor.TYPE_STRING:
            found.append(_Field(field.name, is_repeated, None))
        elif field.message_type is not None and field.message_type.full_name not in within:
            nested = _fields(field.message_type, within | {descriptor.full_name})
            if nested:
                found.append(_Field(field.name, is_repeated, nested))
    return tuple(found)


def _is_repeated(field: FieldDescriptor) -> bool:
    # protobuf has renamed it, and warns of the old name.
    known: bool | None = getattr(field, "is_repeated", None)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED) if known is None else known  # type: ignore[attr-defined]

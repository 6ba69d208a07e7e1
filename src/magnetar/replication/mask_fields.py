"""Fields of masks against the schema of a topic: a mistyped name would hide nothing, and nothing would say so.

Follows paths as the pipelines process does: by names through records and maps, through arrays to each element, and a
name may contain dots.
"""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.replication.model import Mask
from magnetar.schema.avro import AvroType

_FIELDS_SHOWN = 20


def unknown_field(definition: AvroType, masks: tuple[Mask, ...]) -> str:
    """The first mask whose field the definition does not have, and what it has; empty if it has all."""
    from difflib import get_close_matches  # only needed for a message

    for mask in masks:
        if not _has(definition, mask.field.split(".")):
            names = list(_names(definition))
            near = get_close_matches(mask.field.lower(), names, n=1)
            hint = f"; did you mean {near[0]}" if near and near[0] != mask.field else ""
            shown = ", ".join(names[:_FIELDS_SHOWN]) or "none"
            return (
                f"mask of field {mask.field!r}: the schema of the topic has no such field{hint}: its fields are {shown}"
            )
    return ""


def _has(definition: AvroType, path: list[str]) -> bool:
    """A definition may contain itself: each type is visited once at each place of the path."""
    seen: set[tuple[AvroType, int]] = set()
    todo = [(definition, 0)]
    while todo:
        type_, at = todo.pop()
        if at == len(path):
            return True
        if (type_, at) not in seen:
            seen.add((type_, at))
            todo.extend(_inside(type_, path, at))
    return False


def _inside(type_: AvroType, path: list[str], at: int) -> Iterator[tuple[AvroType, int]]:
    if type_.kind == "map":
        yield from ((type_.parts[0], end) for end in range(at + 1, len(path) + 1))
    elif type_.kind == "record":
        types = {each.name: each.type for each in type_.fields}
        for end in range(at + 1, len(path) + 1):
            if found := types.get(".".join(path[at:end])):
                yield found, end
    else:
        yield from ((part, at) for part in type_.parts)  # of an array or a union


def _names(type_: AvroType) -> Iterator[str]:
    """The fields of a record, or of the records of a union."""
    yield from (each.name for each in type_.fields)
    for part in type_.parts if type_.kind == "union" else ():
        yield from _names(part)

"""Reading a storage of which parts cannot be read: every row that can, and the extent of what cannot.

Knows nothing of the meaning of keys. A block with a bad checksum hides the rows in it; those before are read forwards,
those after it backwards, from the first place behind it that can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from magnetar.storage.api import Space, Storage, StorageError

_ROWS = 512
_SIZE = 4 << 20
_PLACE_SIZE = 25  # of the longest key that is not a name

Row = tuple[bytes, bytes]


class Hole(NamedTuple):
    """Rows between two keys, neither included, that cannot be read; `end` is the end of the range if none is after."""

    space: Space
    start: bytes
    end: bytes
    reason: str


def rows(storage: Storage, space: Space, start: bytes, end: bytes) -> Iterator[Row | Hole]:
    """Everything from `start` to before `end`, in order."""
    limit = _ROWS
    while True:
        try:
            found = storage.scan(space, start, end, limit=limit, size_max=_SIZE)
        except StorageError as error:
            if limit > 1:
                limit = max(1, limit // 8)
                continue
            beyond = _first_readable(storage, space, start, end)
            after = _readable_before(storage, space, start, beyond)
            until = after[0][0] if after else beyond
            yield Hole(space, start, until, str(error))
            yield from after
            start, limit = beyond, _ROWS
            if start >= end:
                return
            continue
        if not found:
            return
        yield from found
        start, limit = found[-1][0] + b"\0", _ROWS


def _first_readable(storage: Storage, space: Space, start: bytes, end: bytes) -> bytes:
    """The first of a few thousand places behind `start` from which a row can be read; `end` if there is none."""
    for place in _places_after(start):
        if place >= end:
            break
        try:
            storage.scan(space, place, end, limit=1)
        except StorageError:
            continue
        return place
    return end


def _places_after(key: bytes) -> Iterator[bytes]:
    """Keys greater than `key`, in order: near ones first, then ever larger steps."""
    key = key.ljust(_PLACE_SIZE, b"\0")
    for length in range(len(key), 0, -1):
        for last in range(key[length - 1] + 1, 256):
            yield key[: length - 1] + bytes([last])


def _readable_before(storage: Storage, space: Space, start: bytes, place: bytes) -> list[Row]:
    """The rows from `start` to before `place` that can be read backwards, in order."""
    found: list[Row] = []
    while True:
        try:
            row = storage.scan(space, start, found[-1][0] if found else place, limit=1, reverse=True)
        except StorageError:
            break
        if not row:
            break
        found += row
    return found[::-1]

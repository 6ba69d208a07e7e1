"""A run: entries of a topic that were published together and are stored as one record.

Owns the byte layout of that record. The key of a run is the id of its last entry, so the first run at or after a
position contains it.

    ┌───────────────────────────────────────────┬─────────────────────────────────────────────┬────────────────┐
    │ count u32, broker time ms u64,            │ per entry: messages u32,                    │ the blobs as   │
    │ bytes published to the topic before it u64│ deliver at ms u64 (0: at once), size u32    │ clients sent   │
    └───────────────────────────────────────────┴─────────────────────────────────────────────┴────────────────┘

A void run takes the place of entries that were lost: no messages, no bytes, only their ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct

from magnetar.bounds import RUN_BYTES, RUN_ENTRIES

# entry id, messages, deliver at ms (0: at once), blob
Entry = tuple[int, int, int, bytes]
# the same before it has an id
NewEntry = tuple[int, int, bytes]

# A run is read as a whole. Larger ones would save little: a run only saves the storage's cost per record.
COUNT_MAX = RUN_ENTRIES.limit
SIZE_MAX = RUN_BYTES.limit


class RunDamaged(ValueError):
    """The record is not a run."""


_HEAD = Struct(">IQQ")
_ENTRY = Struct(">IQI")
_HEAD_SIZE, _ENTRY_SIZE = _HEAD.size, _ENTRY.size
_pack_entry, _unpack_head, _unpack_entry = _ENTRY.pack, _HEAD.unpack_from, _ENTRY.unpack_from


def cut(new: Sequence[NewEntry]) -> Iterator[Sequence[NewEntry]]:
    """Entries in groups of at most COUNT_MAX; a group ends with the entry that fills SIZE_MAX."""
    start, size = 0, 0
    for index, entry in enumerate(new):
        size += len(entry[2])
        if size >= SIZE_MAX or index - start == COUNT_MAX - 1:
            yield new[start : index + 1]
            start, size = index + 1, 0
    if start < len(new):
        yield new[start:] if start else new


def head(value: bytes) -> tuple[int, int, int]:
    """Number of entries, broker time ms, bytes published before them."""
    count, received_ms, bytes_before = _unpack_head(value)
    return count, received_ms, bytes_before


def parts(value: bytes) -> list[NewEntry]:
    """The entries without their ids, void ones too; raises ValueError if the sizes do not add up."""
    start = _HEAD_SIZE + head(value)[0] * _ENTRY_SIZE
    found: list[NewEntry] = []
    for messages, deliver_at_ms, size in _ENTRY.iter_unpack(value[_HEAD_SIZE:start]):
        found.append((messages, deliver_at_ms, value[start : start + size]))
        start += size
    if start != len(value) or len(found) != head(value)[0]:
        raise ValueError(f"it has {len(value)} bytes, its table needs {start}")
    return found


def void(count: int, received_ms: int, bytes_before: int) -> bytes:
    """A run in the place of entries that are lost: their ids are taken, and nothing is read."""
    return encode([(0, 0, b"")] * count, received_ms, bytes_before)


def is_void(entries: Sequence[NewEntry]) -> bool:
    return bool(entries) and not entries[0][0] and not entries[0][2]


def encode(new: Sequence[NewEntry], now_ms: int, bytes_before: int) -> bytes:
    parts = [_pack_entry(messages, deliver_at_ms, len(blob)) for messages, deliver_at_ms, blob in new]
    parts += [entry[2] for entry in new]
    return _HEAD.pack(len(new), now_ms, bytes_before) + b"".join(parts)


def decode(last: int, value: bytes) -> list[Entry]:
    """The entries of the run that ends with the id `last`; none of a void one."""
    count = _unpack_head(value)[0]
    table_end = _HEAD_SIZE + count * _ENTRY_SIZE
    entries: list[Entry] = []
    start, entry_id = table_end, last - count
    for messages, deliver_at_ms, size in _ENTRY.iter_unpack(value[_HEAD_SIZE:table_end]):
        entry_id += 1
        end = start + size
        entries.append((entry_id, messages, deliver_at_ms, value[start:end]))
        start = end
    if start != len(value):
        raise RunDamaged(f"it has {len(value)} bytes and its table {start}")
    if entries and not entries[0][1] and not entries[0][3]:
        return []  # void: their ids are all there is
    return entries


def header(last: int, value: bytes, entry_id: int) -> tuple[int, int, int, int] | None:
    """Of one entry of the run: messages, broker time ms, bytes published before it, deliver at ms."""
    count, received_ms, bytes_before = _unpack_head(value)
    index = entry_id - (last - count + 1)
    if not 0 <= index < count:
        return None
    position = _HEAD_SIZE
    for _ in range(index):
        bytes_before += _unpack_entry(value, position)[2]
        position += _ENTRY_SIZE
    messages, deliver_at_ms, _ = _unpack_entry(value, position)
    return messages, received_ms, bytes_before, deliver_at_ms


def count_of(value: bytes) -> int:
    """The number of entries in the run."""
    count: int = _unpack_head(value)[0]
    return count


def bytes_after(value: bytes) -> int:
    """Bytes published to the topic up to the end of the run."""
    count, _, bytes_before = _unpack_head(value)
    size: int = bytes_before + len(value) - _HEAD_SIZE - count * _ENTRY_SIZE
    return size

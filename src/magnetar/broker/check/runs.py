"""The check of runs: every entry of every topic has its id, its size and the checksum its producer gave it.

Owns the repair of a run: entries that are lost become void ones under the same ids, so that no id ever means another
message, and the entries beside them stay. Fills the bounds of the topics.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from magnetar.broker import keys
from magnetar.broker.check.finding import Change, Finding, delete, put, shown_key
from magnetar.broker.check.inventory import CheckedTopic, Inventory
from magnetar.broker.topic import run
from magnetar.broker.topic.run import NewEntry
from magnetar.storage.api import Space
from magnetar.wire.metadata import BAD_CHECKSUM, MALFORMED, examine, messages_in

VOIDS_MAX = 1_000_000
"""Missing ids that a repair fills; more of them are the sign of a key that is wrong itself."""

_KEY_SIZE = 16
_FATE = {BAD_CHECKSUM: "its checksum does not match", MALFORMED: "it ends before its metadata"}


class TopicRuns:
    """The runs of one topic, in order. `next` is the id that the next run should begin with, None before the first."""

    __slots__ = ("_facts", "_name", "_prefix", "_received_ms", "_size", "next")

    def __init__(self, topic_id: int, facts: CheckedTopic | None, first: int, size: int | None) -> None:
        """`first` and `size` are those of the record of a trimmed topic; 0 and 0 of one that was not."""
        self._facts = facts
        self._name = f"topic id {topic_id}" if facts is None else facts.name
        self._prefix = keys.ID.pack(topic_id)
        self._size = size  # bytes published before the next run; None if not known
        self._received_ms = 0
        self.next = first
        if facts is not None:
            facts.first, facts.last = first, first - 1

    def check(self, key: bytes, value: bytes) -> Iterator[Finding]:
        last = keys.ID.unpack_from(key, 8)[0]
        if last < self.next:
            return  # left over from before the first entry: it is deleted with the topic
        try:
            entries, received_ms, bytes_before = _whole(value)
        except (struct.error, ValueError) as error:
            yield self._lost(key, last, f"entries up to {last} cannot be decoded: {error}")
            return
        first = last - len(entries) + 1
        is_begin = self._facts is None or not self._facts.entries
        if first > last or first < 0 or (first < self.next and not is_begin):
            yield self._lost(key, last, f"its {len(entries)} entries up to {last} overlap those before {self.next}")
            return
        if first > self.next:
            yield from self._missing(first, is_begin, bytes_before)
        self._received_ms = received_ms
        if run.is_void(entries):
            self._size = None  # how much was lost is not known
        else:
            yield from self._checked(key, last, entries, received_ms, bytes_before)
        self._take(last, len(entries))

    def _checked(
        self, key: bytes, last: int, entries: list[NewEntry], received_ms: int, bytes_before: int
    ) -> Iterator[Finding]:
        first, size = last - len(entries) + 1, sum(len(entry[2]) for entry in entries)
        expected = bytes_before if self._size is None or first < self.next else self._size
        bad = {index: fate for index, entry in enumerate(entries) if (fate := _fate(entry))}
        counts = [index for index, entry in enumerate(entries) if not entry[0]]
        if bad:
            ids = ", ".join(str(first + index) for index in bad)
            what = f"entry {ids} is damaged: {next(iter(bad.values()))}"
            changes = self._rewritten(first, entries, set(bad), received_ms, expected)
            repair = "export it, and leave its id empty; the entries beside it stay"
            yield Finding("entries", self._name, what, repair, Space.ENTRIES, key, changes)
        elif counts or bytes_before != expected:
            what = f"entries {first} to {last} have a wrong number of messages or of bytes before them"
            counted = (
                [
                    (messages_in(blob), at, blob) if not messages else (messages, at, blob)
                    for messages, at, blob in entries
                ]
                if counts
                else entries
            )
            changes = (put(key, run.encode(counted, received_ms, expected), Space.ENTRIES),)
            yield Finding("entries", self._name, what, "write the right numbers", Space.ENTRIES, key, changes)
        self._size = expected + size

    def _missing(self, first: int, is_begin: bool, bytes_before: int) -> Iterator[Finding]:
        """Ids without a run before the run of `first`."""
        what = f"entries {self.next} to {first - 1} are missing"
        if is_begin:
            key = keys.FIRST + self._prefix
            changes: tuple[Change, ...] = (put(key, keys.PAIR.pack(first, bytes_before)),)
            yield Finding("entries", self._name, what, f"let the topic begin with {first}", key=key, changes=changes)
            if self._facts is not None:
                self._facts.first = first
            self._size = bytes_before
        else:
            changes = self._voids(first - 1)
            repair = "leave their ids empty" if changes else "none: there are too many, a key may be wrong"
            yield Finding("entries", self._name, what, repair, Space.ENTRIES, self._prefix, changes)
            self._size = None

    def _lost(self, key: bytes, last: int, what: str) -> Finding:
        changes = self._voids(last) or (delete(key, Space.ENTRIES),)
        self._take(last, 1)
        self._size = None
        return Finding(
            "entries", self._name, what, "export them, and leave their ids empty", Space.ENTRIES, key, changes
        )

    def _voids(self, last: int) -> tuple[Change, ...]:
        """Void runs from the next expected id up to `last`."""
        if last - self.next >= VOIDS_MAX:
            return ()
        changes, start = [], self.next
        while start <= last:
            end = min(last, start + run.COUNT_MAX - 1)
            value = run.void(end - start + 1, self._received_ms, self._size or 0)
            changes.append(put(self._prefix + keys.ID.pack(end), value, Space.ENTRIES))
            start = end + 1
        return tuple(changes)

    def _rewritten(
        self, first: int, entries: list[NewEntry], bad: set[int], received_ms: int, size: int
    ) -> tuple[Change, ...]:
        """The run in pieces: those that are whole as they were, the others void."""
        changes: list[Change] = []
        index = 0
        while index < len(entries):
            end = index
            while end < len(entries) and (end in bad) == (index in bad):
                end += 1
            piece = entries[index:end]
            value = run.void(len(piece), received_ms, size) if index in bad else run.encode(piece, received_ms, size)
            changes.append(put(self._prefix + keys.ID.pack(first + end - 1), value, Space.ENTRIES))
            size = run.bytes_after(value)
            index = end
        return tuple(changes)

    def _take(self, last: int, entries: int) -> None:
        self.next = last + 1
        if self._facts is not None:
            self._facts.last = last
            self._facts.entries += entries


def _whole(value: bytes) -> tuple[list[NewEntry], int, int]:
    """The entries of a run, its time, and the bytes before it; raises if the sizes do not add up."""
    count, received_ms, bytes_before = run.head(value)
    if not 0 < count <= run.COUNT_MAX:
        raise ValueError(f"it has {count} entries, not 1 to {run.COUNT_MAX}")
    entries = run.parts(value)
    return entries, received_ms, bytes_before


def _fate(entry: NewEntry) -> str:
    return _FATE.get(examine(entry[2]), "")


def runs(
    rows: Iterator[tuple[bytes, bytes]],
    inventory: Inventory,
    bounds: dict[int, tuple[int, int]],
    with_entries: set[int],
) -> Iterator[Finding]:
    """All runs of all topics. `bounds` are the records of trimmed topics; `with_entries` gets the ids of topics."""
    current: TopicRuns | None = None
    current_id = -1
    for key, value in rows:
        inventory.records += 1
        if len(key) != _KEY_SIZE:
            yield Finding(
                "entries",
                shown_key(key),
                "its key has the wrong size",
                "export and delete it",
                Space.ENTRIES,
                key,
                (delete(key, Space.ENTRIES),),
            )
            continue
        topic_id = keys.ID.unpack_from(key)[0]
        if current is None or topic_id != current_id:
            current_id = topic_id
            with_entries.add(topic_id)
            facts = inventory.topics.get(topic_id)
            if facts is None:
                inventory.orphans.add(topic_id)
                inventory.saw(topic_id)
            current = TopicRuns(topic_id, facts, *bounds.get(topic_id, (0, 0)))
        yield from current.check(key, value)

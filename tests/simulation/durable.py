"""Durable state, read from the written and synced operations; does not query the broker.

Checks the order of a producer's messages, and that none is stored more often than sent, or with deduplication more than
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from magnetar.broker import keys
from magnetar.broker.topic import run
from magnetar.storage.api import Space
from magnetar.storage.memory import _DELETE_RANGE, _PUT, Operation
from magnetar.wire.metadata import MetadataError, metadata_of, sticky_key

from .dead_letters import DeadLettersOnDisk, is_dead_letter
from .failure import expect
from .snapshot import Boundary

Write = tuple[Sequence[Operation], Boundary]


@dataclass(frozen=True, slots=True)
class Stored:
    messages: int
    received_ms: int
    size_before: int
    deliver_at_ms: int
    blob: bytes
    producer: str  # empty for malformed input and for dead letters
    sequence_id: int
    highest_id: int
    key: bytes
    publish_ms: int


class Durable:
    def __init__(self, dead_letters: DeadLettersOnDisk, *, deduplicates: bool) -> None:
        self._deduplicates = deduplicates
        self._dead_letters = dead_letters
        self.entries: dict[tuple[int, int], Stored] = {}
        self.last_of: dict[int, int] = {}
        self.by_key: dict[tuple[int, bytes], list[int]] = {}
        self.highest: dict[tuple[int, str], int] = {}
        self.sent: Counter[tuple[str, int]] = Counter()  # how often a message reached the broker
        self._stored: Counter[tuple[str, int]] = Counter()
        self.boundary = Boundary({}, {})
        self.unsynced: list[Write] = []

    def synced(self, writes: int | None = None) -> None:
        """The first `writes` unsynced writes are durable now, or all; with a number, the others are lost."""
        for operations, boundary in self.unsynced[:writes]:
            self._dead_letters.wrote(operations)
            for operation in operations:
                self._apply(operation)
            self.boundary = boundary
        self.unsynced = []

    def _apply(self, operation: Operation) -> None:
        kind, space, key, value = operation
        if space is not Space.ENTRIES:
            return
        if kind == _PUT:
            ledger, last = keys.PAIR.unpack(key)
            for entry in run.decode(last, value):
                header = run.header(last, value, entry[0])
                assert header is not None
                self._append(ledger, entry[0], _stored_of(*header, entry[3]))
        elif kind == _DELETE_RANGE:
            for position in [p for p in self.entries if key <= keys.PAIR.pack(*p) < value]:
                del self.entries[position]

    def _append(self, ledger: int, entry: int, stored: Stored) -> None:
        expect((ledger, entry) not in self.entries, f"entry {ledger}:{entry} is written twice")
        if ledger in self.last_of:
            expect(entry == self.last_of[ledger] + 1, f"entry {ledger}:{entry} follows {self.last_of[ledger]}")
        else:
            expect(entry == 0, f"ledger {ledger} starts with entry {entry}")
        self.last_of[ledger] = entry
        self.entries[ledger, entry] = stored
        self.by_key.setdefault((ledger, stored.key), []).append(entry)
        if stored.producer:
            self._check_sequence(ledger, entry, stored)

    def _check_sequence(self, ledger: int, entry: int, stored: Stored) -> None:
        name, sequence_id = stored.producer, stored.sequence_id
        what = f"message {sequence_id} of {name} at {ledger}:{entry}"
        self._stored[name, sequence_id] += 1
        copies, sent = self._stored[name, sequence_id], self.sent[name, sequence_id]
        expect(copies <= sent, f"{what} is stored {copies} times and was sent {sent} times")
        highest = self.highest.get((ledger, name))
        if highest is not None:
            expect(sequence_id <= highest + 1, f"{what} follows {highest}: the messages in between are missing")
            if self._deduplicates:
                expect(sequence_id == highest + 1, f"{what} is a duplicate: {highest} is already stored")
        self.highest[ledger, name] = max(stored.highest_id, -1 if highest is None else highest)


def _stored_of(messages: int, received_ms: int, size_before: int, deliver_at_ms: int, blob: bytes) -> Stored:
    try:
        metadata = metadata_of(blob)
    except MetadataError:
        return Stored(messages, received_ms, size_before, deliver_at_ms, blob, "", 0, 0, b"", received_ms)
    return Stored(
        messages,
        received_ms,
        size_before,
        deliver_at_ms,
        blob,
        "" if is_dead_letter(metadata) else metadata.producer_name,
        metadata.sequence_id,
        max(metadata.highest_sequence_id, metadata.sequence_id),
        sticky_key(metadata),
        metadata.publish_time,
    )

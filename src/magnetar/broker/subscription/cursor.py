"""How far a subscription has come: which positions of its topic are acknowledged, wholly or in part.

Owns the mark-delete position, the acknowledged positions above it, what is known of single unacknowledged ones (see
`position`), and how all that is kept on disk: one small key per position above the mark-delete position, so that an ack
costs the same whatever the number of holes. Knows nothing of consumers or of what is in flight.

What is known of positions is in memory for some and on disk for all that were stored: a subscription with millions of
failed messages needs a bit in memory for each, not an object.
"""

from __future__ import annotations

from collections.abc import Callable

from pyroaring import BitMap64

from magnetar.broker import keys
from magnetar.broker.commit import Commits
from magnetar.broker.subscription import entry_state
from magnetar.broker.subscription.entry_state import EntryState
from magnetar.storage.api import Batch, Space, Storage

_ACKED = b"a"
_OPEN = b"o"  # then the EntryState

POSITIONS_KEPT = 50_000
"""How many positions of a cursor are remembered in memory; the others are read again when they are delivered."""

_NOTHING = EntryState()

# A range delete leaves a tombstone that every later scan pays for: a few keys are cheaper one by one.
_RANGE_DELETE_MIN = 64


class Cursor:
    """Everything up to `mark_delete` is acknowledged, and so is every position in `acked`, all of them above it + 1."""

    __slots__ = (
        "_changed",
        "_changed_since",
        "_commits",
        "_id",
        "_known",
        "_storage",
        "_stored",
        "_stored_mark",
        "acked",
        "mark_delete",
        "suspects",
    )

    def __init__(
        self, commits: Commits | None, cursor_id: int, mark_delete: int, storage: Storage | None = None
    ) -> None:
        """Without `commits` the cursor lives in memory only: a reader's, or one of a non-durable subscription."""
        self._commits = commits
        self._storage = storage
        self._id = cursor_id
        self.mark_delete = mark_delete
        self.acked = BitMap64()
        self.suspects = BitMap64()  # those of the positions below that are under suspicion
        self._known: dict[int, EntryState] = {}
        self._changed_since: set[int] | None = None  # since some of what is known was chosen to be forgotten
        self._changed: set[int] = set()
        self._stored = BitMap64()
        self._stored_mark = mark_delete

    def create(self, batch: Batch) -> None:
        batch.put(keys.under(keys.CURSOR, self._id), keys.SIGNED.pack(self.mark_delete))

    @classmethod
    def load(cls, storage: Storage, commits: Commits, cursor_id: int) -> Cursor:
        value = storage.get(Space.STATE, keys.under(keys.CURSOR, cursor_id))
        cursor = cls(commits, cursor_id, keys.SIGNED.unpack(value)[0] if value else -1, storage)
        start = keys.under(keys.POSITION, cursor_id)
        for key, state in storage.scan(Space.STATE, start, keys.after(start)):
            entry = keys.ID.unpack_from(key, 9)[0]
            cursor._stored.add(entry)
            if state == _ACKED:
                cursor.acked.add(entry)
                continue
            found = entry_state.decode(state[1:])
            if found.suspicions:
                cursor.suspects.add(entry)
            if len(cursor._known) < POSITIONS_KEPT:
                cursor._known[entry] = found
        return cursor

    # -- what is known of unacknowledged positions

    @property
    def knows_any(self) -> bool:
        """Whether anything is known of any position: nothing nearly always."""
        return bool(self._known) or bool(self._stored)

    def known(self, entry: int) -> EntryState | None:
        """What is known of an unacknowledged position, if anything."""
        found = self._known.get(entry)
        if found is not None or entry not in self._stored or entry in self._changed or self._storage is None:
            return found
        if not self.is_acked(entry):
            state = self._storage.get(Space.STATE, self._position_key(entry))
            if state is not None and state != _ACKED:
                return entry_state.decode(state[1:])
        return None

    def change(self, entry: int, change: Callable[[EntryState], None]) -> EntryState:
        """Changes what is known of an unacknowledged position."""
        found = self._known[entry] = self.known(entry) or EntryState()
        # Before it is touched: that may store what is known, and what comes after it would not be seen as a change.
        change(found)
        if found.suspicions:
            self.suspects.add(entry)
        self._position_changed(entry)
        self._forget_some()
        return found

    def open_bits(self, entry: int) -> int | None:
        """The messages of a batch that are still open; None for all."""
        found = self.known(entry) if self.knows_any else None
        return None if found is None else found.open_bits

    @property
    def partial(self) -> dict[int, int]:
        """Open bits of all positions in memory that are acknowledged in part."""
        return {entry: bits for entry, found in self._known.items() if (bits := found.open_bits) is not None}

    @property
    def counts(self) -> dict[int, int]:
        """Counts of all positions in memory that have failed."""
        return {entry: count for entry, found in self._known.items() if (count := found.highest_count)}

    def _forget_some(self) -> None:
        """When too many positions are in memory, most of them go as soon as they are certainly on disk."""
        is_full = len(self._known) > POSITIONS_KEPT and self._changed_since is None
        if not is_full or self._commits is None or self._storage is None:
            return
        older = list(self._known)[: -POSITIONS_KEPT // 2]
        self._changed_since = set()
        self._commits.after(lambda: self._forget(older))

    def _forget(self, entries: list[int]) -> None:
        """They were durable, as they were then: all but those that have changed again."""
        assert self._changed_since is not None
        for entry in entries:
            if entry not in self._changed_since:
                self._known.pop(entry, None)
        self._changed_since = None
        self._forget_some()

    # -- acknowledging

    def is_acked(self, entry: int) -> bool:
        return entry <= self.mark_delete or entry in self.acked

    def next_open(self, entry: int) -> int:
        """The first position from `entry` on that is not acknowledged."""
        entry = max(entry, self.mark_delete + 1)
        if entry not in self.acked:
            return entry
        # Double the step while the whole stretch is acknowledged, then halve it: a run of millions costs a few steps.
        step = 1
        while self.acked.contains_range(entry, entry + step):
            entry += step
            step *= 2
        while step > 1:
            step //= 2
            if self.acked.contains_range(entry, entry + step):
                entry += step
        return entry

    def nth_open(self, count: int) -> int:
        """The position of the `count`-th one, from 1 on, that is not acknowledged."""
        low = self.mark_delete + count
        high = low + len(self.acked)
        while low < high:
            middle = (low + high) // 2
            acked = self.acked.range_cardinality(self.mark_delete + 1, middle + 1)
            if middle - self.mark_delete - acked >= count:
                high = middle
            else:
                low = middle + 1
        return low

    def acked_ranges(self, limit: int) -> list[tuple[int, int]]:
        """First and last position of the first `limit` stretches that are acknowledged above the mark-delete one."""
        ranges: list[tuple[int, int]] = []
        while len(ranges) < limit and self.acked and (not ranges or ranges[-1][1] < self.acked.max()):
            first = self.acked.next_set_bit(ranges[-1][1] + 1 if ranges else 0)
            ranges.append((first, self.next_open(first) - 1))
        return ranges

    @property
    def acked_range_count(self) -> int:
        """How many such stretches there are: as many as there are positions whose predecessor is not acknowledged."""
        return self.acked.difference_cardinality(self.acked.shift(1)) if self.acked else 0

    def ack(self, entry: int) -> bool:
        """Acknowledges a whole entry; false when it was acknowledged before."""
        if entry <= self.mark_delete:
            return False
        if entry == self.mark_delete + 1:
            self._advance(self.next_open(entry + 1) - 1 if self.acked else entry)
            return True
        if entry in self.acked:
            return False
        self.acked.add(entry)
        self._known.pop(entry, None)
        self.suspects.discard(entry)
        self._position_changed(entry)
        return True

    def ack_part(self, entry: int, open_bits: int, messages: int) -> int:
        """Keeps only the messages of a batch open whose bit is set in `open_bits` and was open before.

        Returns the bits still open; 0 means that the whole entry is acknowledged now.
        """
        if self.is_acked(entry):
            return 0
        everything = (1 << messages) - 1
        before = self.open_bits(entry)
        still_open = (everything if before is None else before) & open_bits & everything
        if not still_open:
            self.ack(entry)
        elif still_open != everything:
            self.change(entry, lambda found: found.set_open_bits(still_open))
        return still_open

    def ack_up_to(self, entry: int) -> None:
        if entry > self.mark_delete:
            self._advance(self.next_open(entry + 1) - 1 if self.acked else entry)

    def count_redelivery(self, entry: int, now_ms: int = 0, indexes: int | None = None) -> EntryState:
        """It failed and comes back; with `indexes` only some messages of a batch did."""
        return self.change(entry, lambda found: found.failed(now_ms, indexes))

    def reset(self, mark_delete: int) -> None:
        """Forgets everything above and below: the subscription starts again after `mark_delete`."""
        # What is on disk may be more than what memory still knows: an ack not stored yet may have passed it.
        for entry in (*self._stored.to_array(), *self.acked.to_array(), *self._known):
            self._position_changed(entry)
        self.acked.clear()
        self.suspects.clear()
        self._known.clear()
        self.mark_delete = mark_delete
        self._touch()

    def holes(self, last: int) -> int:
        """Positions up to `last` that are not acknowledged: the backlog in entries."""
        return last - self.mark_delete - len(self.acked)

    def _advance(self, mark_delete: int) -> None:
        if self.acked:
            self.acked.remove_range(self.mark_delete + 1, mark_delete + 1)
        if self.suspects:
            self.suspects.remove_range(0, mark_delete + 1)
        if self._known:
            known, passed = self._known, range(self.mark_delete + 1, mark_delete + 1)
            for entry in passed if len(passed) < len(known) else [entry for entry in known if entry in passed]:
                known.pop(entry, None)
        self.mark_delete = mark_delete
        self._touch()

    def _position_changed(self, entry: int) -> None:
        self._changed.add(entry)
        if self._changed_since is not None:
            self._changed_since.add(entry)
        self._touch()

    def _touch(self) -> None:
        if self._commits is not None:
            self._commits.touch(self)

    def store(self, batch: Batch) -> None:
        if self.mark_delete != self._stored_mark:
            batch.put(keys.under(keys.CURSOR, self._id), keys.SIGNED.pack(self.mark_delete))
            self._stored_mark = self.mark_delete
            self._delete_positions(batch)
        for entry in self._changed:
            state = self._state_of(entry)
            if state is not None:
                batch.put(self._position_key(entry), state)
                self._stored.add(entry)
            elif entry in self._stored:
                batch.delete(self._position_key(entry))
                self._stored.remove(entry)
        self._changed.clear()

    def _delete_positions(self, batch: Batch) -> None:
        """Positions at or below the mark-delete position need no key of their own any more."""
        if not self._stored or self._stored.min() > self.mark_delete:
            return
        end = self.mark_delete + 1
        if self._stored.range_cardinality(0, end) >= _RANGE_DELETE_MIN:
            batch.delete_range(Space.STATE, self._position_key(self._stored.min()), self._position_key(end))
        else:
            while self._stored and self._stored.min() < end:
                batch.delete(self._position_key(self._stored.min()))
                self._stored.remove(self._stored.min())
        self._stored.remove_range(0, end)

    def _state_of(self, entry: int) -> bytes | None:
        if entry <= self.mark_delete:
            return None
        if entry in self.acked:
            return _ACKED
        found = self._known.get(entry)
        return None if found is None or found == _NOTHING else _OPEN + entry_state.encode(found)

    def _position_key(self, entry: int) -> bytes:
        return keys.POSITION + keys.PAIR.pack(self._id, entry)

    def delete(self, batch: Batch) -> None:
        """Removes every trace from disk."""
        if self._commits is not None:
            self._commits.forget(self)
            batch.delete(keys.under(keys.CURSOR, self._id))
            start = keys.under(keys.POSITION, self._id)
            batch.delete_range(Space.STATE, start, keys.after(start))

"""Cursor of a subscription: which positions of its topic are acknowledged, wholly or in part.

Owns the mark-delete position, the acknowledged positions above it, the states of single unacknowledged entries (see
`entry_state`), and their form on disk: one small key per position above the mark-delete position, so that the cost of
an ack does not depend on the number of holes. Knows nothing of consumers, or of what is in flight.

All stored entry states are on disk and some of them in memory: a subscription with millions of failed messages needs a
bit in memory for each, not an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyroaring import BitMap64

from magnetar.bounds import ENTRY_STATES, ERROR_TEXTS, ERRORS_OF_ENTRY, INDEX_COUNTS
from magnetar.broker import keys
from magnetar.broker.commit import Commits
from magnetar.broker.subscription import entry_state
from magnetar.broker.subscription.entry_state import ACKED, OPEN, EntryState
from magnetar.errors import NotAllowed
from magnetar.storage.api import Batch, Space, Storage

ERRORS_MAX = ERROR_TEXTS.limit
"""Error texts of applications that a cursor remembers."""

_INDEX_BITS = 32  # of a batch index, in `_errors`

STATES_KEPT = ENTRY_STATES.limit
"""Entry states that a cursor keeps in memory; the others are read from disk when they are needed."""

STATES_OF_READER = ENTRY_STATES.limit
"""The same for a cursor that is only in memory, which forgets the others."""

_NOTHING = EntryState()

# A range delete leaves a tombstone that every later scan pays for: a few keys are cheaper one by one.
_RANGE_DELETE_MIN = 64


def first_missing(positions: BitMap64, position: int) -> int:
    """The first position from `position` on that is not among these."""
    if position not in positions:
        return position
    # Double the step while the whole range is there, then halve it: millions cost a few steps.
    step = 1
    while positions.contains_range(position, position + step):
        position += step
        step *= 2
    while step > 1:
        step //= 2
        if positions.contains_range(position, position + step):
            position += step
    return position


class Cursor:
    """Everything up to `mark_delete` is acknowledged, and so is every position in `acked`, all of them above it + 1."""

    __slots__ = (
        "_changed",
        "_changed_since",
        "_commits",
        "_counts",
        "_errors",
        "_id",
        "_states",
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
        """Without `commits` the cursor is only in memory, as that of a reader or another non-durable subscription."""
        self._commits = commits
        self._storage = storage
        self._id = cursor_id
        self.mark_delete = mark_delete
        self.acked = BitMap64()
        self.suspects = BitMap64()  # entries with suspicions in their state
        self._errors = BitMap64()  # messages with an error text in the state of their entry: entry id, batch index + 1
        self._states: dict[int, EntryState] = {}
        self._counts = 0  # of single messages of batches, in the states; at least as many as there are
        self._changed_since: set[int] | None = None  # since states were chosen to be dropped from memory
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
            if state == ACKED:
                cursor.acked.add(entry)
                continue
            found = entry_state.decode(state[1:])
            cursor._index(entry, found)
            if len(cursor._states) < STATES_KEPT:
                cursor._states[entry] = found
        if cursor.mark_delete + 1 in cursor.acked:  # ahead of the mark, when the process ended
            mark_delete = cursor.next_open(cursor.mark_delete + 1) - 1
            cursor.acked.remove_range(0, mark_delete + 1)
            cursor.mark_delete = mark_delete
        return cursor

    # -- states of unacknowledged entries

    @property
    def has_states(self) -> bool:
        """Whether any entry has a state: nearly always none has."""
        return bool(self._states) or bool(self._stored)

    @property
    def stated(self) -> BitMap64:
        """The unacknowledged entries that have a state, and maybe others that are acknowledged."""
        return self._stored | BitMap64(list(self._states))

    def state_of(self, entry: int) -> EntryState | None:
        """The state of an unacknowledged entry, if it has one."""
        found = self._states.get(entry)
        if found is not None or entry not in self._stored or entry in self._changed or self._storage is None:
            return found
        if not self.is_acked(entry):
            state = self._storage.get(Space.STATE, self._position_key(entry))
            if state is not None and state != ACKED:
                return entry_state.decode(state[1:])
        return None

    def change(self, entry: int, change: Callable[[EntryState], None]) -> EntryState:
        """Changes the state of an unacknowledged entry."""
        found = self._states[entry] = self.state_of(entry) or EntryState()
        counts = len(found.index_counts)
        # Before the cursor is touched, which may store it: a later change would not be noticed.
        change(found)
        self._index(entry, found)
        self._counts += len(found.index_counts) - counts
        self._position_changed(entry)
        self._forget_some()
        return found

    def _index(self, entry: int, state: EntryState) -> None:
        if state.suspicions:
            self.suspects.add(entry)
        for index in state.errors:
            self._errors.add(entry << _INDEX_BITS | index + 1)

    def report_error(self, entry: int, index: int, error: str) -> None:
        """Remembers why an unacknowledged message, or with index -1 a whole entry, failed. Raises NotAllowed."""
        if len(self._errors) >= ERRORS_MAX and (entry << _INDEX_BITS | index + 1) not in self._errors:
            raise NotAllowed(
                f"the subscription remembers {ERRORS_MAX} errors already: they go when their messages are"
                " acknowledged or dead"
            )
        state = self.state_of(entry)
        if state is not None and len(state.errors) >= ERRORS_OF_ENTRY.limit and index not in state.errors:
            raise NotAllowed(f"the batch has {ERRORS_OF_ENTRY.limit} errors already")
        self.change(entry, lambda found: found.report(index, error))

    def open_bits(self, entry: int) -> int | None:
        """The messages of a batch that are still open; None for all."""
        found = self.state_of(entry) if self.has_states else None
        return None if found is None else found.open_bits

    def _forget_some(self) -> None:
        """When too many states are in memory, drops most of them as soon as they are durable; a cursor that is only
        in memory forgets them.
        """
        is_heavy = self._counts > INDEX_COUNTS.limit
        if is_heavy:  # those of dropped and acknowledged states are still in it
            self._counts = sum([len(state.index_counts) for state in self._states.values()])
            is_heavy = self._counts > INDEX_COUNTS.limit
        kept = STATES_OF_READER if self._storage is None else STATES_KEPT
        if not (is_heavy or len(self._states) > kept) or self._changed_since is not None:
            return
        older = list(self._states)[: -1 if is_heavy else -kept // 2]
        if self._commits is None or self._storage is None:
            for entry in older:
                del self._states[entry]
            return
        self._changed_since = set()
        self._commits.after(lambda: self._forget(older))

    def _forget(self, entries: list[int]) -> None:
        """The states are durable as they were when they were chosen; those that have changed since stay."""
        assert self._changed_since is not None
        for entry in entries:
            if entry not in self._changed_since:
                self._states.pop(entry, None)
        self._changed_since = None
        self._forget_some()

    # -- acknowledging

    def is_acked(self, entry: int) -> bool:
        return entry <= self.mark_delete or entry in self.acked

    def next_open(self, entry: int) -> int:
        """The first position from `entry` on that is not acknowledged."""
        return first_missing(self.acked, max(entry, self.mark_delete + 1))

    def nth_open(self, count: int) -> int:
        """The `count`-th position, counted from 1, that is not acknowledged."""
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
        """First and last position of the first `limit` acknowledged ranges above the mark-delete position."""
        ranges: list[tuple[int, int]] = []
        while len(ranges) < limit and self.acked and (not ranges or ranges[-1][1] < self.acked.max()):
            first = self.acked.next_set_bit(ranges[-1][1] + 1 if ranges else 0)
            ranges.append((first, self.next_open(first) - 1))
        return ranges

    @property
    def acked_range_count(self) -> int:
        """The number of such ranges: that of the positions whose predecessor is not acknowledged."""
        return self.acked.difference_cardinality(self.acked.shift(1)) if self.acked else 0

    def ack(self, entry: int) -> bool:
        """Acknowledges a whole entry; false if it was acknowledged before."""
        if entry <= self.mark_delete:
            return False
        if entry == self.mark_delete + 1:
            self._advance(self.next_open(entry + 1) - 1 if self.acked else entry)
            return True
        if entry in self.acked:
            return False
        self.acked.add(entry)
        self._states.pop(entry, None)
        self._unindex(entry, entry + 1)
        self._position_changed(entry)
        return True

    def ack_ahead(self, batch: Batch, entries: Iterable[int]) -> None:
        """Stores with `batch`, which has the entries themselves, that they are acknowledged. `ack` follows once they
        are durable: until then no position above the last durable entry is acknowledged in memory."""
        for entry in entries:
            batch.put(self._position_key(entry), ACKED)
            self._stored.add(entry)

    def ack_part(self, entry: int, open_bits: int, messages: int) -> int:
        """Keeps those messages of a batch open that were open before and whose bit is set in `open_bits`.

        Returns the bits still open; 0 means that the whole entry is acknowledged.
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

    def _unindex(self, start: int, end: int) -> None:
        if self.suspects:
            self.suspects.remove_range(start, end)
        if self._errors:
            self._errors.remove_range(start << _INDEX_BITS, end << _INDEX_BITS)

    def count_redelivery(
        self, entry: int, now_ms: int = 0, indexes: int | None = None, failed_by: str = ""
    ) -> EntryState:
        """Counts a failure of an entry, or of the messages of a batch whose bits are set in `indexes`."""
        return self.change(entry, lambda found: found.fail(now_ms, indexes, failed_by))

    def reset(self, mark_delete: int) -> None:
        """Drops all acks and states: the subscription starts again after `mark_delete`."""
        # There may be more on disk than in memory: an ack that is not stored yet may have passed it.
        for entry in (*self._stored.to_array(), *self.acked.to_array(), *self._states):
            self._position_changed(entry)
        self.acked.clear()
        self.suspects.clear()
        self._errors.clear()
        self._states.clear()
        self.mark_delete = mark_delete
        self._touch()

    def holes(self, last: int) -> int:
        """Positions up to `last` that are not acknowledged: the backlog in entries."""
        return last - self.mark_delete - len(self.acked)

    def _advance(self, mark_delete: int) -> None:
        if self.acked:
            self.acked.remove_range(self.mark_delete + 1, mark_delete + 1)
        self._unindex(0, mark_delete + 1)
        if self._states:
            states, passed = self._states, range(self.mark_delete + 1, mark_delete + 1)
            for entry in passed if len(passed) < len(states) else [entry for entry in states if entry in passed]:
                states.pop(entry, None)
        self.mark_delete = mark_delete
        self._touch()

    def _position_changed(self, entry: int) -> None:
        if self._commits is None:
            return
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
            state = self._encoded(entry)
            if state is not None:
                batch.put(self._position_key(entry), state)
                self._stored.add(entry)
            elif entry in self._stored:
                batch.delete(self._position_key(entry))
                self._stored.remove(entry)
        self._changed.clear()

    def _delete_positions(self, batch: Batch) -> None:
        """Positions up to the mark-delete position need no keys."""
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

    def _encoded(self, entry: int) -> bytes | None:
        if entry <= self.mark_delete:
            return None
        if entry in self.acked:
            return ACKED
        found = self._states.get(entry)
        return None if found is None or found == _NOTHING else OPEN + entry_state.encode(found)

    def _position_key(self, entry: int) -> bytes:
        return keys.POSITION + keys.PAIR.pack(self._id, entry)

    def delete(self, batch: Batch) -> None:
        """Removes the cursor from disk."""
        if self._commits is not None:
            self._commits.forget(self)
            batch.delete(keys.under(keys.CURSOR, self._id))
            start = keys.under(keys.POSITION, self._id)
            batch.delete_range(Space.STATE, start, keys.after(start))

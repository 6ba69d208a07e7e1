"""Memory that a function's process shares with its parent: which rows are under way, and the results so far.

It outlives the process, so that a crash loses no result and is attributed to its row.

    i64: number of results │ SLOTS times i64 row, i64 since (monotonic ns); row -1 for none
    of each result: i32 row │ u8 kind │ u32 end of its bytes
    the bytes of all results
"""

from __future__ import annotations

import mmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SLOTS_MAX = 1000
RESULTS_BYTES = 4 << 20
NO_ROW = -1
FINISHED = -2
"""In the first slot: all rows of the batch were called."""

NOTHING, VALUE, MESSAGES, FAILED = 0, 1, 2, 3

RESULTS_MAX = 1 << 16
_SLOT_BYTES = 8 * (1 + 2 * SLOTS_MAX)
_ROWS, _ENDS, _KINDS = _SLOT_BYTES, _SLOT_BYTES + 4 * RESULTS_MAX, _SLOT_BYTES + 8 * RESULTS_MAX
_START = _KINDS + RESULTS_MAX


class Results(NamedTuple):
    """By result: its row and kind, and where its bytes end in `data`; they begin where those before it end."""

    rows: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    ends: NDArray[np.uint32]
    data: bytes


class SharedState:
    """Written by the child, one slot for each row under way; read by the parent."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._memory = mmap.mmap(-1, _START + RESULTS_BYTES)
        self._view = memoryview(self._memory)
        self.words = self._view[:_SLOT_BYTES].cast("q")
        self._rows = self._view[_ROWS:_ENDS].cast("i")
        self._ends = self._view[_ENDS:_KINDS].cast("I")
        self._kinds = self._view[_KINDS:_START]
        self._data = self._view[_START:]
        self._end = 0  # of the bytes that this process has added
        self.clear()

    @property
    def is_finished(self) -> bool:
        return self.words[1] == FINISHED

    def clear(self) -> None:
        """Of rows under way; results stay."""
        for slot in range(self.slots):
            self.words[1 + 2 * slot] = NO_ROW

    # -- the child

    def begin(self, slot: int, row: int, now_ns: int) -> None:
        self.words[2 + 2 * slot] = now_ns
        self.words[1 + 2 * slot] = row

    def end(self, slot: int) -> None:
        self.words[1 + 2 * slot] = NO_ROW

    def finish(self) -> None:
        self.words[1] = FINISHED

    def has_room(self, size: int) -> bool:
        number = self.words[0]
        self._end = self._ends[number - 1] if number else 0
        return number < RESULTS_MAX and self._end + size <= RESULTS_BYTES

    def add(self, row: int, kind: int, data: bytes) -> None:
        """After `has_room`."""
        number, end = self.words[0], self._end + len(data)
        self._data[self._end : end] = data
        self._rows[number], self._ends[number], self._kinds[number] = row, end, kind
        self.words[0] = number + 1  # last: until then the result does not exist

    # -- the parent

    def under_way(self) -> list[tuple[int, int]]:
        """Row and start of all under way."""
        words = self.words
        return [(words[1 + 2 * slot], words[2 + 2 * slot]) for slot in range(self.slots) if words[1 + 2 * slot] >= 0]

    def take(self) -> Results:
        """The results so far, which leave."""
        count = self.words[0]
        ends = np.array(self._ends[:count], np.uint32)
        data = bytes(self._data[: int(ends[-1]) if count else 0])
        found = Results(np.array(self._rows[:count], np.int32), np.array(self._kinds[:count], np.uint8), ends, data)
        self.words[0] = 0
        return found

    def close(self) -> None:
        for view in (self.words, self._rows, self._ends, self._kinds, self._data, self._view):
            view.release()
        self._memory.close()

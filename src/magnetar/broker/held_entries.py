"""Held entries: the unacknowledged entries of a consumer that gets everything in order, a byte or four for each.

Such a consumer may hold millions. Their ids only grow, nearly always by one, so only the number of open messages of
each is kept, in runs of neighbours. Reads as a dictionary of ids to numbers, in order of the ids.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

_RUN_MAX = 4096
_GAP_MAX = 64  # ids that are not held and stay within a run; a new run costs more than that
_OCTETS, _WORDS = "B", "I"


class HeldEntries(Mapping[int, int]):
    """`starts[i]` is the id of the first entry of run i; a run has a 0 where nothing is held."""

    __slots__ = ("_counts", "_held", "_runs", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._runs: list[array[int]] = []
        self._counts: list[int] = []  # entries held of each run
        self._held = 0

    def __len__(self) -> int:
        return self._held

    def __iter__(self) -> Iterator[int]:
        for start, run in list(zip(self._starts, self._runs, strict=True)):
            for entry_id, messages in enumerate(run, start):
                if messages:
                    yield entry_id

    def __getitem__(self, entry_id: int) -> int:
        messages = self._find(entry_id)[2]
        if not messages:
            raise KeyError(entry_id)
        return messages

    def __contains__(self, entry_id: object) -> bool:
        return isinstance(entry_id, int) and self._find(entry_id)[2] > 0

    def extend(self, entry_ids: Sequence[int], messages: Sequence[int]) -> None:
        """Adds entries with ids above all others, in order."""
        first, last = entry_ids[0], entry_ids[-1]
        run = self._runs[-1] if self._runs else None
        is_next = run is not None and self._starts[-1] + len(run) == first
        if is_next and last - first == len(entry_ids) - 1 and len(run) + len(entry_ids) <= _RUN_MAX:  # type: ignore[arg-type]
            assert run is not None
            run = self._wide_enough(run, max(messages))
            run.extend(messages)
            self._counts[-1] += len(entry_ids)
            self._held += len(entry_ids)
        else:
            for entry_id, count in zip(entry_ids, messages, strict=True):
                self._append(entry_id, count)

    def _append(self, entry_id: int, messages: int) -> None:
        run = self._runs[-1] if self._runs else None
        gap = entry_id - self._starts[-1] - len(run) if run is not None else 0
        if run is None or gap > _GAP_MAX or len(run) + gap >= _RUN_MAX:
            run = array(_OCTETS)
            self._starts.append(entry_id)
            self._runs.append(run)
            self._counts.append(0)
        elif gap:
            run.extend((0,) * gap)
        self._wide_enough(run, messages).append(messages)
        self._counts[-1] += 1
        self._held += 1

    def _wide_enough(self, run: array[int], messages: int) -> array[int]:
        """The last run, with room for numbers that do not fit into a byte."""
        if messages > 255 and run.typecode == _OCTETS:
            run = self._runs[-1] = array(_WORDS, run)
        return run

    def lower(self, entry_id: int, messages: int) -> None:
        """Some messages of a held batch were acknowledged; `messages` are left."""
        number, index, before = self._find(entry_id)
        assert 0 < messages <= before
        self._runs[number][index] = messages

    def pop(self, entry_id: int, default: int = 0) -> int:
        """Removes an entry. Returns its open messages, or `default` if it is not held."""
        starts, runs, counts, number = self._starts, self._runs, self._counts, 0
        if not starts:
            return default
        run, index = runs[0], entry_id - starts[0]
        if not 0 <= index < len(run):  # most acks are of the first ones
            number, index, messages = self._find(entry_id)
            run = runs[number]
            if not messages:
                return default
        messages = run[index]
        if not messages:
            return default
        self._held -= 1
        left = counts[number] = counts[number] - 1
        if left:
            run[index] = 0
        else:
            del starts[number], runs[number], counts[number]
        return messages

    def pop_up_to(self, entry_id: int) -> int:
        """Removes everything up to an entry. Returns the open messages."""
        whole = bisect_right(self._starts, entry_id) - 1  # runs before this one go as a whole
        if whole < 0:
            return 0
        messages = sum([sum(run) for run in self._runs[:whole]])
        self._held -= sum(self._counts[:whole])
        del self._starts[:whole], self._runs[:whole], self._counts[:whole]
        run, end = self._runs[0], entry_id + 1 - self._starts[0]
        passed = run[:end]
        gone = len(passed) - passed.count(0)
        self._held -= gone
        self._counts[0] -= gone
        if self._counts[0]:
            del run[:end]
            self._starts[0] += len(passed)
        else:
            del self._starts[0], self._runs[0], self._counts[0]
        return messages + sum(passed)

    def clear(self) -> None:
        self._starts.clear()
        self._runs.clear()
        self._counts.clear()
        self._held = 0

    def _find(self, entry_id: int) -> tuple[int, int, int]:
        """The run of an entry, its index in the run, and its open messages; 0 if it is not held."""
        starts = self._starts
        if not starts or entry_id < starts[0]:
            return 0, 0, 0
        number = 0 if entry_id < starts[0] + len(self._runs[0]) else bisect_right(starts, entry_id) - 1
        run, index = self._runs[number], entry_id - starts[number]
        return (number, index, run[index]) if index < len(run) else (number, index, 0)

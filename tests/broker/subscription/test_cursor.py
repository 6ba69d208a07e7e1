"""The cursor against a model of plain sets, through any sequence of acks and restarts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.commit import GROUP_SIZE_MAX, Commits
from magnetar.broker.host import ManualHost
from magnetar.broker.subscription.cursor import ERRORS_MAX, Cursor
from magnetar.broker.subscription.entry_state import EntryState
from magnetar.errors import NotAllowed
from magnetar.storage.memory import MemoryStorage

LAST = 40


class Model:
    """The meaning of a cursor: a set of open positions, open bits of batches of four, counts."""

    def __init__(self) -> None:
        self.open = dict.fromkeys(range(LAST + 1), 15)
        self.counts: dict[int, int] = {}

    def ack(self, entry: int) -> None:
        self.open.pop(entry, None)
        self.counts.pop(entry, None)

    def ack_part(self, entry: int, bits: int) -> None:
        if entry in self.open:
            self.open[entry] &= bits
            if not self.open[entry]:
                self.ack(entry)

    def ack_up_to(self, entry: int) -> None:
        for passed in range(entry + 1):
            self.ack(passed)

    def count(self, entry: int) -> None:
        if entry in self.open:
            self.counts[entry] = self.counts.get(entry, 0) + 1


entries = st.integers(0, LAST)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), entries),
        st.tuples(st.just("ack_part"), entries, st.integers(0, 15)),
        st.tuples(st.just("ack_up_to"), entries),
        st.tuples(st.just("count"), entries),
        st.tuples(st.just("commit")),
        st.tuples(st.just("restart")),
    ),
    max_size=60,
)


def commit(storage: MemoryStorage, commits: Commits) -> None:
    while (group := commits.take()) is not None:
        storage.write(group.batch)
        storage.sync()


def same(cursor: Cursor, model: Model) -> None:
    is_open = {entry for entry in range(LAST + 1) if not cursor.is_acked(entry)}
    assert is_open == set(model.open)
    assert cursor.mark_delete == min(model.open, default=LAST + 1) - 1
    known = {entry: cursor.state_of(entry) or EntryState() for entry in is_open}
    assert {entry: 0b1111 if (bits := k.open_bits) is None else bits for entry, k in known.items()} == model.open
    assert {entry: k.highest_count for entry, k in known.items() if k.count} == model.counts
    assert cursor.holes(LAST) == len(model.open)
    for entry in range(LAST + 1):
        assert cursor.next_open(entry) == min((e for e in model.open if e >= entry), default=LAST + 1)


@given(steps)
@settings(max_examples=300, deadline=None)
def test_any_sequence_equals_the_model(steps: list[tuple[str, int, int]]) -> None:
    storage = MemoryStorage()
    commits = Commits(storage, ManualHost())
    cursor = Cursor(commits, 7, -1)
    model = Model()
    for name, *arguments in steps:
        if name == "commit":
            commit(storage, commits)
        elif name == "restart":
            commit(storage, commits)
            storage = storage.crash()
            commits = Commits(storage, ManualHost())
            cursor = Cursor.load(storage, commits, 7)
        elif name == "ack":
            cursor.ack(arguments[0])
            model.ack(arguments[0])
        elif name == "ack_part":
            cursor.ack_part(arguments[0], arguments[1], 4)
            model.ack_part(*arguments)
        elif name == "ack_up_to":
            cursor.ack_up_to(arguments[0])
            model.ack_up_to(arguments[0])
        elif not cursor.is_acked(arguments[0]):
            cursor.count_redelivery(arguments[0])
            model.count(arguments[0])
        same(cursor, model)
    commit(storage, commits)
    same(Cursor.load(storage.crash(), Commits(storage, ManualHost()), 7), model)


def test_a_hundred_thousand_holes_survive_a_restart_and_close_again() -> None:
    storage = MemoryStorage()
    commits = Commits(storage, ManualHost())
    cursor = Cursor(commits, 1, -1)
    for entry in range(1, 200_001, 2):
        cursor.ack(entry)
    assert cursor.mark_delete == -1
    commit(storage, commits)
    storage = storage.crash()
    commits = Commits(storage, ManualHost())
    cursor = Cursor.load(storage, commits, 1)
    assert cursor.holes(200_000) == 100_001
    for entry in range(200_000, -1, -2):
        cursor.ack(entry)
    assert cursor.mark_delete == 200_000
    assert not cursor.acked
    commit(storage, commits)
    again = Cursor.load(storage.crash(), Commits(storage, ManualHost()), 1)
    assert again.mark_delete == 200_000
    assert not again.acked


def test_one_ack_writes_one_key_for_any_number_of_holes() -> None:
    storage = MemoryStorage()
    commits = Commits(storage, ManualHost())
    cursor = Cursor(commits, 1, -1)
    for entry in range(1, 20_001, 2):
        cursor.ack(entry)
    commit(storage, commits)
    cursor.ack(10_000)
    group = commits.take()
    assert group is not None
    assert len(group.batch) == 1


def test_seek_forgets_acks_before_and_after() -> None:
    storage = MemoryStorage()
    commits = Commits(storage, ManualHost())
    cursor = Cursor(commits, 1, -1)
    cursor.ack(5)
    cursor.ack_part(7, 0b01, 2)
    cursor.count_redelivery(8)
    commit(storage, commits)
    cursor.reset(2)
    commit(storage, commits)
    again = Cursor.load(storage.crash(), Commits(storage, ManualHost()), 1)
    assert (again.mark_delete, list(again.acked), again.has_states) == (2, [], False)


def test_a_change_that_closes_a_full_group_is_not_lost() -> None:
    """Touching the cursor may store it with the previous group: the change must be made by then."""
    storage = MemoryStorage()
    commits = Commits(storage, ManualHost())
    cursor = Cursor(commits, 1, -1, storage)
    cursor.ack(5)
    commits.open().grow(GROUP_SIZE_MAX + 1)
    cursor.count_redelivery(3)
    commit(storage, commits)
    found = Cursor.load(storage.crash(), Commits(storage, ManualHost()), 1).state_of(3)
    assert found is not None and found.count == 1


def test_bound_error_texts_go_with_their_messages() -> None:
    cursor = Cursor(None, 1, -1)
    for entry in range(ERRORS_MAX):
        cursor.report_error(entry, entry % 3 - 1, "e")
    cursor.report_error(7, 7 % 3 - 1, "again")
    with pytest.raises(NotAllowed, match=f"remembers {ERRORS_MAX} errors"):
        cursor.report_error(ERRORS_MAX, -1, "e")
    cursor.ack(ERRORS_MAX - 1)
    cursor.report_error(ERRORS_MAX, -1, "e")
    cursor.ack_up_to(9)
    for entry in range(2000, 2010):
        cursor.report_error(entry, -1, "e")
    with pytest.raises(NotAllowed):
        cursor.report_error(3000, -1, "e")
    cursor.reset(-1)
    cursor.report_error(3000, -1, "e")

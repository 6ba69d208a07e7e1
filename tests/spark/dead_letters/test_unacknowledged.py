"""Unacknowledged positions: both brokers' reports, compared with sets of positions."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.errors import ServerFailure
from magnetar.spark.dead_letters.unacknowledged import (
    CursorState,
    Unacknowledged,
    cursor_state,
    everything,
    of_cursors,
    of_positions,
)
from magnetar.wire.moves import positions_of

LEDGERS, ENTRIES = (3, 7, 9), 12

positions = st.tuples(st.sampled_from(LEDGERS), st.integers(-1, ENTRIES - 1))
cursor_states = st.builds(
    lambda mark, bounds: CursorState(mark, tuple(zip(sorted(bounds)[::2], sorted(bounds)[1::2], strict=False))),
    positions,
    st.lists(positions, unique=True, max_size=8),
)


def mask(found: Unacknowledged, messages: list[tuple[int, int, int]]) -> list[bool]:
    """Of ledgers, entries and batch indexes."""
    ledgers, entries, indexes = np.array(messages, np.int64).T
    result: list[bool] = found.mask(entries, indexes, ledgers).tolist()
    return result


@given(st.lists(cursor_states, max_size=4))
def test_sp4_everything_waits_but_what_all_cursors_have_acknowledged(cursors: list[CursorState]) -> None:
    everywhere = [(ledger, entry) for ledger in (1, *LEDGERS, 8, 11) for entry in range(ENTRIES)]

    def is_acknowledged(position: tuple[int, int], cursor: CursorState) -> bool:
        return position <= cursor.mark or any(before < position <= last for before, last in cursor.ranges)

    waiting = [not cursors or not all(is_acknowledged(one, cursor) for cursor in cursors) for one in everywhere]
    found = of_cursors(cursors)
    assert mask(found, [(*one, -1) for one in everywhere]) == waiting
    assert mask(pickle.loads(pickle.dumps(found)), [(*one, 4) for one in everywhere]) == waiting
    known = [one for one, waits in zip(everywhere, waiting, strict=True) if waits and one >= (3, 0)]
    assert found.first is None or not known or found.first <= known[0]


@given(st.sets(st.tuples(st.integers(0, 30), st.integers(-1, 5)), max_size=40), st.integers(1, 3))
def test_sp4_positions_of_a_broker(messages: set[tuple[int, int]], pages: int) -> None:
    whole = {entry for entry, index in messages if index < 0}
    messages = {(entry, index) for entry, index in messages if index < 0 or entry not in whole}
    parts = positions_of(5, messages).text.partition(":")[2].split(",")
    texts = [
        ",".join(parts[start : start + 1 + len(parts) // pages])
        for start in range(0, len(parts), 1 + len(parts) // pages)
    ]
    found = of_positions(5, texts if messages else [""])
    everywhere = [(entry, index) for entry in range(32) for index in range(-1, 6)]
    entries, indexes = np.array(everywhere, np.int64).T
    open_entries = {entry for entry, _ in messages}
    expected = [
        entry in whole or (entry, index) in messages or (index < 0 and entry in open_entries)
        for entry, index in everywhere
    ]
    assert found.mask(entries, indexes).tolist() == expected
    assert not found.mask(entries, indexes, 6).any(), "another ledger"
    assert found.is_empty == (not messages)
    assert found.first == ((5, min(open_entries)) if messages else None)


def test_reports_of_apache_pulsar() -> None:
    ranges = "[(12:7..12:9], (13:1‥13:4], ]"
    assert cursor_state("12:5", ranges) == CursorState((12, 5), (((12, 7), (12, 9)), ((13, 1), (13, 4))))
    assert cursor_state("-1:-1", "[]") == CursorState((-1, -1), ())
    assert mask(everything(), [(0, 0, -1), (12, 10, 5)]) == [True, True]
    with pytest.raises(ServerFailure, match="are not of the form"):
        cursor_state("12:5", "[(12:7 to 12:9]]")
    with pytest.raises(ServerFailure, match="mark-delete position 'none' is not of the form"):
        cursor_state("none", "[]")
    with pytest.raises(ServerFailure, match="position '7-' is not of the form"):
        of_positions(1, ["7-"])


def test_several_ledgers_need_the_one_of_each_message() -> None:
    found = of_cursors([cursor_state("12:5", "[(13:1..13:4]]")])
    with pytest.raises(ValueError, match="2 ledgers"):
        found.mask(np.array([1], np.int64), np.array([-1], np.int64))

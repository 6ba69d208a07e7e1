"""States on the status board: times, log lines, and changes."""

from __future__ import annotations

import logging

import pytest

from magnetar.clock import ManualClock
from magnetar.log.events import REPLICATION_STATE
from magnetar.pipelines.replicate.reports import log_level
from magnetar.pipelines.status_board import LINES_MAX, StatusBoard
from magnetar.replication.model import State

KEY = ("persistent://public/default/t", "b")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000)


@pytest.fixture
def board(clock: ManualClock) -> StatusBoard[State]:
    return StatusBoard(clock, REPLICATION_STATE, log_level)


def test_gr5_a_state_has_a_time_a_reason_and_the_last_error(board: StatusBoard[State], clock: ManualClock) -> None:
    board.set(KEY, State.CATCHING_UP)
    clock.advance_ms(10)
    board.set(KEY, State.UNREACHABLE, "nobody there", error="nobody there")
    clock.advance_ms(10)
    board.set(KEY, State.RUNNING)
    (row,) = board.take().rows.values()
    assert (row.state, row.reason, row.since_ms) == (State.RUNNING, "", 1020)
    assert (row.error, row.error_ms) == ("nobody there", 1010), "it is over, but it was"


def test_another_reason_keeps_the_time_of_the_state(board: StatusBoard[State], clock: ManualClock) -> None:
    board.set(KEY, State.RUNNING, "one")
    clock.advance_ms(10)
    board.set(KEY, State.RUNNING, "two")
    (row,) = board.take().rows.values()
    assert (row.reason, row.since_ms) == ("two", 1000)


def test_a_change_is_returned_once(board: StatusBoard[State]) -> None:
    other = ("persistent://public/default/other", "b")
    board.set(KEY, State.RUNNING)
    board.set(other, State.RUNNING)
    everything = board.take()
    assert everything.is_all and len(everything.rows) == 2
    assert board.changed.is_set()
    board.changed.clear()
    board.set(KEY, State.RUNNING)
    assert not board.changed.is_set()
    assert board.take().rows == {}
    board.set(other, State.PAUSED)
    taken = board.take()
    assert not taken.is_all
    assert list(taken.rows) == [other]


def test_after_a_lost_snapshot_all_rows_are_returned(board: StatusBoard[State]) -> None:
    board.set(KEY, State.RUNNING)
    board.take()
    board.put_back()
    again = board.take()
    assert again.is_all and len(again.rows) == 1


def test_a_removed_row_is_missing_from_the_next_snapshot_of_all(board: StatusBoard[State]) -> None:
    board.set(KEY, State.RUNNING)
    board.take()
    board.remove(KEY)
    taken = board.take()
    assert taken.is_all and taken.rows == {}


def test_counts_are_summed(board: StatusBoard[State]) -> None:
    board.set(KEY, State.RUNNING)
    board.take()
    board.changed.clear()
    board.count(KEY, entries=2, messages=20)
    board.count(KEY, entries=1, messages=1)
    assert not board.changed.is_set(), "counts go with the next heartbeat"
    (row,) = board.take().rows.values()
    assert row.counts == {"entries": 3, "messages": 21}
    assert board.take().rows == {}


def test_gr4_only_changes_are_logged(board: StatusBoard[State], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "magnetar")
    for _ in range(3):
        board.set(KEY, State.MISMATCH, "2 here, 1 there")
    board.set(KEY, State.CATCHING_UP)
    board.set(KEY, State.RUNNING)
    board.set(KEY, State.CATCHING_UP)
    board.set(KEY, State.RUNNING)
    assert [record.getMessage() for record in caplog.records] == [
        f"{KEY[0]} -> b: partition-mismatch: 2 here, 1 there",
        f"{KEY[0]} -> b: catching-up",
    ], "that a topic catches up for a while is no news"


def test_an_error_that_is_over_is_not_the_reason_of_a_log_line(
    board: StatusBoard[State], caplog: pytest.LogCaptureFixture
) -> None:
    """A message was refused and set aside, and copying goes on."""
    caplog.set_level(logging.INFO, "magnetar")
    board.set(KEY, State.REFUSED, "too large", error="too large")
    board.set(KEY, State.RUNNING, error="too large, of 2 MB")
    assert caplog.messages[-1].endswith("running: after an error: too large, of 2 MB")


def test_topics_that_fail_together_share_log_lines(board: StatusBoard[State], caplog: pytest.LogCaptureFixture) -> None:
    for number in range(100):
        board.set((f"persistent://public/default/t{number}", "b"), State.UNREACHABLE, "away")
    board.take()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == LINES_MAX + 1
    assert lines[-1] == "80 more -> b: unreachable"

"""States on the board: since when, what is logged, what is told."""

from __future__ import annotations

import logging

import pytest

from magnetar.clock import ManualClock
from magnetar.pipelines.copy.assignment import Outcome
from magnetar.pipelines.status_board import LINES_MAX, StatusBoard
from magnetar.replication.model import State

KEY = ("persistent://public/default/t", "b")


class Bells:
    def __init__(self) -> None:
        self.count = 0

    def ring(self) -> None:
        self.count += 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1000)


@pytest.fixture
def bells() -> Bells:
    return Bells()


@pytest.fixture
def board(clock: ManualClock, bells: Bells) -> StatusBoard:
    return StatusBoard("p1", clock, bells.ring)


def test_gr5_a_state_has_a_time_a_reason_and_the_last_error(board: StatusBoard, clock: ManualClock) -> None:
    board.set(KEY, State.CATCHING_UP)
    clock.advance_ms(10)
    board.set(KEY, State.UNREACHABLE, "nobody there", error="nobody there")
    clock.advance_ms(10)
    board.set(KEY, State.RUNNING)
    (row,) = board.take().rows
    assert (row.state, row.reason, row.since_ms) == (State.RUNNING, "", 1020)
    assert (row.error, row.error_ms) == ("nobody there", 1010), "it is over, but it was"


def test_another_reason_is_no_other_state(board: StatusBoard, clock: ManualClock) -> None:
    board.set(KEY, State.RUNNING, "one")
    clock.advance_ms(10)
    board.set(KEY, State.RUNNING, "two")
    (row,) = board.take().rows
    assert (row.reason, row.since_ms) == ("two", 1000)


def test_only_what_changed_is_told_and_only_once(board: StatusBoard, bells: Bells) -> None:
    other = ("persistent://public/default/other", "b")
    board.set(KEY, State.RUNNING)
    board.set(other, State.RUNNING)
    everything = board.take()
    assert everything.is_all and len(everything.rows) == 2
    board.set(KEY, State.RUNNING)
    assert bells.count == 2, "nothing changed"
    assert board.take().rows == []
    board.set(other, State.PAUSED)
    told = board.take()
    assert not told.is_all
    assert [row.topic for row in told.rows] == [other[0]]


def test_what_did_not_arrive_is_told_again_with_all_else(board: StatusBoard) -> None:
    board.set(KEY, State.RUNNING)
    board.take()
    board.put_back()
    again = board.take()
    assert again.is_all and len(again.rows) == 1


def test_a_row_that_is_removed_is_left_out_of_the_next_report_of_all(board: StatusBoard) -> None:
    board.set(KEY, State.RUNNING)
    board.take()
    board.remove(KEY)
    told = board.take()
    assert told.is_all and told.rows == []


def test_what_is_copied_is_counted(board: StatusBoard) -> None:
    board.set(KEY, State.RUNNING)
    board.take()
    board.count(KEY, Outcome(*KEY, entries=2, messages=20, bytes=200))
    board.count(KEY, Outcome(*KEY, entries=1, messages=1, bytes=10))
    board.count(KEY, Outcome(*KEY))
    (row,) = board.take().rows
    assert (row.entries_out, row.messages_out, row.bytes_out) == (3, 21, 210)
    assert board.take().rows == []


def test_gr4_changes_are_logged_and_nothing_else(board: StatusBoard, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "magnetar.pipelines.status_board")
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


def test_topics_that_fail_together_share_log_lines(board: StatusBoard, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(100):
        board.set((f"persistent://public/default/t{number}", "b"), State.UNREACHABLE, "away")
    board.take()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == LINES_MAX + 1
    assert lines[-1] == "80 more -> b: unreachable"

"""Heartbeats: immediately after a change, with all rows after a loss."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from magnetar.clock import ManualClock
from magnetar.log.events import REPLICATION_STATE
from magnetar.pipelines import heartbeats
from magnetar.pipelines.heartbeats import Heartbeats
from magnetar.pipelines.replicate.reports import log_level
from magnetar.pipelines.status_board import Snapshot, StatusBoard
from magnetar.replication.model import State

WAIT_S = 15.0
KEY = ("persistent://public/default/t", "b")


class Receiver:
    def __init__(self) -> None:
        self.board = StatusBoard[State](ManualClock(0), REPLICATION_STATE, log_level)
        self.snapshots: queue.SimpleQueue[Snapshot[State]] = queue.SimpleQueue()
        self.is_away = False

    def send(self, snapshot: Snapshot[State]) -> bool:
        if not self.is_away:
            self.snapshots.put(snapshot)
        return not self.is_away

    def next(self) -> Snapshot[State]:
        return self.snapshots.get(timeout=WAIT_S)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(heartbeats, "HEARTBEAT_S", 0.05)
    receiver = Receiver()
    beats = Heartbeats(receiver.board, receiver.send)
    beats.start()
    yield receiver
    beats.stop()
    beats.join()


def test_heartbeats_are_sent_without_changes(receiver: Receiver) -> None:
    first = receiver.next()
    assert (first.is_all, first.rows) == (True, {})
    second = receiver.next()
    assert (second.is_all, second.rows) == (False, {})


def test_a_change_is_in_the_next_heartbeat(receiver: Receiver) -> None:
    receiver.next()
    receiver.board.set(KEY, State.RUNNING)
    while not (snapshot := receiver.next()).rows:
        pass
    assert snapshot.rows[KEY].state is State.RUNNING


def test_all_rows_follow_a_heartbeat_that_was_lost(receiver: Receiver) -> None:
    receiver.board.set(KEY, State.RUNNING)
    while not receiver.next().rows:
        pass
    receiver.is_away = True
    receiver.board.set(KEY, State.PAUSED)
    while receiver.board.changed.is_set():
        pass
    receiver.is_away = False
    while not (snapshot := receiver.next()).rows:
        pass
    assert snapshot.is_all and snapshot.rows[KEY].state is State.PAUSED


def test_all_rows_follow_a_restart_of_the_source() -> None:
    """It knows none, and a restart may be too quick for a heartbeat to fail."""
    receiver = Receiver()
    beats = Heartbeats(receiver.board, receiver.send)
    receiver.board.set(KEY, State.RUNNING)
    beats.start()
    assert KEY in receiver.next().rows
    beats.start_over()
    again = receiver.next()
    assert again.is_all and KEY in again.rows
    beats.stop()
    beats.join()

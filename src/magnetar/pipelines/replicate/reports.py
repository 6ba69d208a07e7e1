"""Reports of replication: the rows of the status board as the source's broker takes them, and their log levels."""

from __future__ import annotations

import logging

from magnetar.pipelines.copy.assignment import Outcome
from magnetar.pipelines.status_board import Key, Snapshot, StatusBoard, StatusRow
from magnetar.replication.model import Problem, Report, Reports, State

_QUIET = (State.RUNNING, State.CATCHING_UP, State.PAUSED)


def reports_of(pipeline: str, snapshot: Snapshot[State]) -> Reports:
    """`pipeline` is the id of this start of the process."""
    return Reports(pipeline, snapshot.is_all, [_report(key, row) for key, row in snapshot.rows.items()])


def _report(key: Key, row: StatusRow[State]) -> Report:
    topic, remote = key
    return Report(
        topic=topic,
        remote=remote,
        state=row.state,
        reason=row.reason,
        error=row.error,
        since_ms=row.since_ms,
        error_ms=row.error_ms,
        problem=Problem(row.problem),
        entries_out=row.counts["entries"],
        messages_out=row.counts["messages"],
        bytes_out=row.counts["bytes"],
    )


def count_outcome(board: StatusBoard[State], key: Key, outcome: Outcome) -> None:
    if outcome.entries:
        board.count(key, entries=outcome.entries, messages=outcome.messages, bytes=outcome.bytes)


def log_level(before: State | None, state: State) -> int:
    """A topic that starts, or catches up for a while, is routine."""
    if state not in _QUIET:
        return logging.WARNING
    is_routine = state is State.CATCHING_UP if before is None else before.is_copying and state.is_copying
    return logging.DEBUG if is_routine else logging.INFO

"""Rows of replication: one topic without partitions, or one partition, and one remote cluster; each in one state.

    held         nothing can be copied: the remote topic is unknown or does not fit, or the route is paused
    backing off  an attempt failed, and the back-off is not over
    idle         all is copied; the topic watcher reports new entries
    ready        there are entries to copy, and no lane was free yet
    copying      a lane copies it

Owns the data of rows and jobs. `scheduler` moves rows from state to state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from magnetar.client.connection.retry import Backoff
from magnetar.client.message import MessageId
from magnetar.pipelines.copy.assignment import Assignment, Outcome
from magnetar.pipelines.replicate.remote_topics import Route

RowKey = tuple[str, str]
"""A topic without partitions, or one partition, and a remote cluster."""


class RowState(Enum):
    HELD = auto()
    BACKING_OFF = auto()
    IDLE = auto()
    READY = auto()
    COPYING = auto()


@dataclass
class Row:
    """One topic without partitions, or one partition, to one remote cluster."""

    key: RowKey
    route: Route
    partition: int
    assignment: Assignment
    backoff: Backoff
    state: RowState = RowState.HELD
    after: MessageId | None = None  # the last copied position, where known
    reason: str = ""  # reported while it is copied
    behind: int = 0  # jobs in a row that did not reach the end of the topic
    empty_jobs: int = 0  # jobs in a row that found no entries
    is_failing: bool = False


@dataclass
class CopyJob:
    """Rows that are copied together, for at most `slice_s`. `starts` are the last copied positions, where known."""

    assignments: list[Assignment]
    starts: dict[RowKey, MessageId | None]
    slice_s: float
    linger_s: float
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Copied:
    """The result of a job. `is_full`: it took all of its time, so its topics were not silent."""

    outcomes: list[Outcome]
    is_full: bool

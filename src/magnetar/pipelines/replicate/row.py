"""A row of replication: one topic, or one partition, and one remote cluster; and the place it is in.

    held       nothing can be copied: its shape is not known or does not fit, or it is paused
    resting    something failed, and its back-off is not over
    idle       all is copied; the source tells when there is more
    ready      there is something to copy, and no lane has had time for it
    copying    a lane has it

Owns what is known of a row, and what a job is. What moves rows is in `replicate`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from magnetar.client.connection.retry import Backoff
from magnetar.client.message import MessageId
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.replicate.remote_topics import Route
from magnetar.pipelines.status_board import Key


class RowState(Enum):
    HELD = auto()
    BACKING_OFF = auto()
    IDLE = auto()
    READY = auto()
    COPYING = auto()


@dataclass
class Row:
    """One topic without partitions, or one partition, to one remote cluster."""

    key: Key
    route: Route
    partition: int
    assignment: Assignment
    backoff: Backoff
    state: RowState = RowState.HELD
    after: MessageId | None = None  # how far it is copied, as far as that is known
    reason: str = ""  # what is to be said of it while it is copied
    behind: int = 0
    empty_jobs: int = 0
    is_failing: bool = False


@dataclass
class Job:
    """Rows that are copied together, for `slice_s` at most. `starts` are where those are that were copied before."""

    assignments: list[Assignment]
    starts: dict[Key, MessageId | None]
    slice_s: float
    linger_s: float
    rows: list[Row] = field(default_factory=list)

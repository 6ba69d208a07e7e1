"""Assignments and outcomes: the plain data that is pickled between the driver and the tasks that copy.

Owns nothing else. The driver creates assignments; `copier` carries them out and returns outcomes.
"""

from __future__ import annotations

import msgspec

from magnetar.client.message import MessageId, Position
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import AS_IT_IS, Problem, RoutePolicy, State


class Assignment(msgspec.Struct, frozen=True):
    """One topic without partitions, or one partition, to copy to one remote cluster.

    `target` is the topic's name there, which the route policy may change. With `policy.where`, the messages to keep
    were chosen before, up to `until`, where the copy ends: `messages_kept` has, by position, the indexes of messages
    within their batch, 0 for an entry that is no batch; other entries are skipped. A text in place of indexes is the
    reason why the choice failed: that entry is refused (`Transform.apply` takes either).
    """

    source: ClusterEndpoint
    remote: ClusterEndpoint
    topic: str
    target: str
    subscription: str
    policy: RoutePolicy = AS_IT_IS
    messages_kept: dict[Position, tuple[int, ...] | str] | None = None
    until: MessageId | None = None


class Outcome(msgspec.Struct):
    """The progress of an assignment, and its state.

    `acked` is the last position of the source that is done, None if unknown. `state` is running, or catching-up if
    `is_behind`: the time was over before the whole topic was copied. Any other state has a `reason`; these two may have
    one. `error` is the last error, also one that is over.
    """

    topic: str
    remote: str
    acked: MessageId | None = None
    entries: int = 0  # copied
    messages: int = 0
    bytes: int = 0
    skipped: int = 0  # entries that are not for the remote cluster, or that it refused and the policy skips
    dead_lettered: int = 0  # entries that it refused
    is_behind: bool = False
    state: State = State.RUNNING
    reason: str = ""
    error: str = ""
    problem: Problem = Problem.OTHER  # of the reason

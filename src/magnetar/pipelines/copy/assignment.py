"""What a task of geo-replication is told, and what it tells: plain data that is pickled between Spark's processes.

Owns nothing else. The driver makes assignments, `copying` does them and answers with outcomes.
"""

from __future__ import annotations

import msgspec

from magnetar.client.message import MessageId, Position
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import AS_IT_IS, RoutePolicy, State


class Assignment(msgspec.Struct, frozen=True):
    """One topic without partitions, or one partition, that is copied to one remote cluster.

    `target` is the topic's name there, which a way may change. With `way.where`, what stays of the range up to `until`
    was decided before: `messages_kept` has, by position, the indexes within their batch of messages that stay (0 of an
    entry that is no batch); an entry that is not in it is left out, and nothing after `until` is looked at. A text in
    place of indexes says why it cannot be told what stays: that entry is refused (`Transform.apply` takes either).
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
    """How far an assignment came, and how it stands with it.

    `acked` is the last position of the source that is done with; None if nothing is known of it. `state` is running, or
    catching-up if `is_behind`: then the time was over before all of the topic was copied. Any other state has a
    `reason`; these two have one if there is something to know. `error` is the text of an error that happened, also of
    one that passed.
    """

    topic: str
    remote: str
    acked: MessageId | None = None
    entries: int = 0  # copied
    messages: int = 0
    bytes: int = 0
    skipped: int = 0  # entries that are not for the remote cluster, or that it refused and the way lets go
    dead_lettered: int = 0  # entries that it refused
    is_behind: bool = False
    state: State = State.RUNNING
    reason: str = ""
    error: str = ""

"""PIP-370's table: the topic in a remote cluster, by the partitions it has here and there.

Owns the decision alone, for brokers and pipelines that create remote topics or copy into them. It queries no cluster
and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from magnetar.replication.model import Mismatch, Problem, State

NOT_PARTITIONED = 0


class WantedTopic(msgspec.Struct, frozen=True):
    """The topic that a route wants in its remote cluster."""

    topic: str  # here
    target: str  # its name in the remote cluster
    partitions: int
    grown_from: int
    copy_of: str = ""  # `{cluster}/{topic}` if it has another name there


@dataclass(frozen=True, slots=True)
class Decision:
    """`creates` and `grows_to` are partitions to create in the remote cluster; `copied` are those to copy."""

    state: State
    reason: str = ""
    creates: int | None = None
    grows_to: int | None = None
    copied: int = 0
    problem: Problem = Problem.OTHER

    def copies(self, partition: int) -> bool:
        """The partition is -1 for a topic without partitions."""
        return max(partition, 0) < self.copied


def decide_remote(
    local: int, remote: int | None, *, creates: bool, mismatch: Mismatch, grown_from: int = 0
) -> Decision:
    """`local` and `remote` are partitions, 0 for a topic without; `remote` is None where the topic does not exist.

    `grown_from` is the number that the topic had here before it first grew: a remote topic with as many, or with a
    number between both, grows along.
    """
    all_of_it = max(local, 1)
    if remote is None:
        if creates:
            return Decision(State.RUNNING, creates=local, copied=all_of_it)
        return Decision(
            State.WAITING,
            "the topic does not exist in the remote cluster, and createTopicToRemoteClusterForReplication is false",
        )
    if remote == local:
        return Decision(State.RUNNING, copied=all_of_it)
    shapes = f"the topic {_shape(local)} here and {_shape(remote)} in the remote cluster"
    if not (local and remote):
        return Decision(State.MISMATCH, f"{shapes}: nothing is copied")
    if creates and 0 < grown_from <= remote < local:
        return Decision(State.RUNNING, grows_to=local, copied=local)
    if mismatch is Mismatch.STOP:
        return Decision(State.MISMATCH, f"{shapes}: nothing is copied, because of partitionMismatch=stop")
    if remote > local:
        return Decision(State.RUNNING, f"{shapes}: each is copied to the one with its index", copied=local)
    left_out = f"partition {remote}" if remote == local - 1 else f"partitions {remote} to {local - 1}"
    return Decision(State.MISMATCH, f"{shapes}: {left_out} cannot be copied", copied=remote)


def _shape(partitions: int) -> str:
    if partitions == NOT_PARTITIONED:
        return "is not partitioned"
    return f"has {partitions} partition{'s' if partitions > 1 else ''}"

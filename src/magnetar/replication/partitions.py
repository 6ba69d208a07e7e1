"""PIP-370's table: what becomes of a topic in a remote cluster, by the partitions it has here and there.

Whoever makes remote topics or copies into them asks here: admin calls, and the pipeline that replicates. Owns the
decision alone. It asks no cluster and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.replication.model import Mismatch, State

NOT_PARTITIONED = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """`creates` and `grows_to` are partitions to be made in the remote cluster; `copied` is how many are copied."""

    state: State
    reason: str = ""
    creates: int | None = None
    grows_to: int | None = None
    copied: int = 0

    def copies(self, partition: int) -> bool:
        """Of a topic that is not partitioned, the partition is -1."""
        return max(partition, 0) < self.copied


def decide_remote(
    local: int, remote: int | None, *, creates: bool, mismatch: Mismatch, grown_from: int = 0
) -> Decision:
    """`local` and `remote` are partitions, 0 for a topic without; `remote` is None where there is no topic.

    `grown_from` is what the topic had here before it was first given more partitions: a remote that has so many, or a
    number on the way from there to here, is to follow.
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
        return Decision(State.MISMATCH, f"{shapes}: nothing is copied, as partitionMismatch=stop says")
    if remote > local:
        return Decision(State.RUNNING, f"{shapes}: each is copied to the one of its index", copied=local)
    left_out = f"partition {remote}" if remote == local - 1 else f"partitions {remote} to {local - 1}"
    return Decision(State.MISMATCH, f"{shapes}: {left_out} cannot be copied", copied=remote)


def _shape(partitions: int) -> str:
    if partitions == NOT_PARTITIONED:
        return "is not partitioned"
    return f"has {partitions} partition{'s' if partitions > 1 else ''}"

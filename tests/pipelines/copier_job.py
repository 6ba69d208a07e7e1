"""A process that copies one topic completely: `copier_job source_url remote_url topic`.

Prints `copying` when it starts, and `copied` when it is done.
"""

from __future__ import annotations

import sys

from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.copy.copier import copy
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import State


def main(source_url: str, remote_url: str, topic: str) -> None:
    assigned = Assignment(
        ClusterEndpoint("a", source_url), ClusterEndpoint("b", remote_url), topic, topic, "magnetar.repl.b"
    )
    print("copying", flush=True)
    while True:
        [outcome] = copy([assigned], 0.2, 0.05)
        if outcome.state is State.RUNNING:
            print("copied", flush=True)
            return


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Topics in remote clusters: checked, created or grown soon after those here, and their state reported.

A task in the server's loop that finds new and changed routes in the broker's declaration and hands each to the
`cluster_topics` of its cluster. It never delays the broker: changes are collected and processed in turns. Where
createTopicToRemoteClusterForReplication is false, remote topics are checked only.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from magnetar.names import TopicName
from magnetar.replication.model import ClusterAddress, Declaration, DeclaredRoute
from magnetar.replication.partitions import Decision, WantedTopic
from magnetar.replication.topic_template import wanted_topic
from magnetar.server import tasks
from magnetar.server.tasks import Spawn

if TYPE_CHECKING:
    from magnetar.server.cluster_topics import ClusterTopics

_GATHERING_S = 0.02  # after a change, to collect more: topics created in bulk are processed together
_ROWS_PER_TURN = 500

OnDecision = Callable[[str, str, Decision], None]

Key = tuple[str, str]
"""A route: a topic without partition, and a remote cluster."""


class RemoteTopics:
    """`changed` announces a new declaration; the work runs in the loop until `close`.

    `on_decision` gets the state of each remote topic as soon as it is known: topic, remote cluster, decision.
    """

    def __init__(
        self,
        declaration: Callable[[], Declaration],
        clusters: Callable[[], Mapping[str, ClusterAddress]],
        on_decision: OnDecision,
        *,
        pause_last_s: float,
        spawn: Spawn = tasks.spawn,
    ) -> None:
        self._declaration = declaration
        self._clusters = clusters
        self._on_decision = on_decision
        self._pause_last_s = pause_last_s
        self._spawn = spawn
        self._seen: dict[Key, WantedTopic] = {}
        self._remotes: dict[str, ClusterTopics] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        self._changed.set()
        if self._task is None:
            self._task = self._spawn("remote topics", self._follow)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(remote.close() for remote in self._remotes.values()))

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_GATHERING_S)
            self._changed.clear()
            try:
                await self._process(self._declaration())
            except Exception:
                self._changed.set()  # processed again when the task is started again
                raise

    async def _process(self, declaration: Declaration) -> None:
        """In turns: there may be many topics, and the broker has other work."""
        await self._set_remotes(declaration)
        seen: dict[Key, WantedTopic] = {}
        for index, row in enumerate(declaration.topics):
            if index % _ROWS_PER_TURN == _ROWS_PER_TURN - 1:
                await asyncio.sleep(0)
            wanted = _wanted(row, declaration.cluster)
            remote = self._remotes.get(row.remote)
            if wanted is None or remote is None:
                continue
            key = (row.topic, row.remote)
            seen[key] = wanted
            if self._seen.get(key) != wanted:
                remote.put(wanted)
        for topic, name in self._seen.keys() - seen.keys():
            if name in self._remotes:
                self._remotes[name].discard(topic)
        self._seen = seen

    async def _set_remotes(self, declaration: Declaration) -> None:
        """A cluster with a new address starts over: what failed there may work now."""
        clusters = self._clusters()  # with credentials, which the declaration has not
        names = {row.remote for row in declaration.topics} & clusters.keys()
        for name, remote in list(self._remotes.items()):
            if name not in names or clusters[name] != remote.address:
                del self._remotes[name]
                self._seen = {key: wanted for key, wanted in self._seen.items() if key[1] != name}
                await remote.close()
        for name in names - self._remotes.keys():
            # The client takes long to import and most brokers never need it: in a thread, while clients are served.
            module = await asyncio.to_thread(importlib.import_module, "magnetar.server.cluster_topics")
            self._remotes[name] = module.ClusterTopics(
                name,
                clusters[name],
                self._on_decision,
                creates=declaration.creates_topics,
                mismatch=declaration.mismatch,
                pause_last_s=self._pause_last_s,
                spawn=self._spawn,
            )


def _wanted(row: DeclaredRoute, cluster: str) -> WantedTopic | None:
    """None for what only a pipeline can judge: a bad name, a partition without its partitioned topic."""
    wanted = wanted_topic(row, cluster)
    return None if wanted is None or TopicName.parse(wanted.target).is_partition else wanted

"""Replicated subscriptions: the position of a subscription follows to the topic's copy in another cluster.

    results = follow_all(tasks, slice_s=1.0)

Runs about once a second inside a Spark task. A `FollowTask` names a topic or partition, its copy in the remote cluster
and the subscriptions to follow; `memories` comes from the last `FollowResult` of the same topic and remote, or is
empty: that costs only time. There is one result for each task, in the same order. Errors of clusters are not raised:
`error` is the reason that nothing was done, `notes` has, by subscription, why it was left alone. After a result that
`is_behind` the next round is due at once; after several that are `is_quiet`, later.

Owns the connections of a process to the clusters; one that cannot be reached does not delay others. `following` has the
round of one topic.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

from magnetar.client.errors import ClientError
from magnetar.client.gather import gather
from magnetar.client.inline import InlineLoop
from magnetar.names import TopicName
from magnetar.pipelines.subscriptions.cursors import CursorClient, Cursors
from magnetar.pipelines.subscriptions.following import FollowedTopic, FollowResult, FollowTask, Memory, Round
from magnetar.replication.cluster import ClusterEndpoint

__all__ = ["FollowResult", "FollowTask", "Memory", "close", "follow_all"]

_AT_ONCE = 16
"""Topics at the same time."""

_Looks = dict[tuple[ClusterEndpoint, str], Cursors]


def follow_all(tasks: Sequence[FollowTask], slice_s: float = 1.0) -> list[FollowResult]:
    """One round; the rest after `slice_s` is left to the next one."""
    return _connections().follow(tasks, time.monotonic() + slice_s)


def close() -> None:
    """Closes the connections that this process keeps between rounds."""
    global _kept
    if _kept is not None and _kept.process_id == os.getpid():
        _kept.close()
    _kept = None


class _Connections:
    """The clients of this process, kept between rounds."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._loop = InlineLoop()
        self._clusters: dict[ClusterEndpoint, CursorClient] = {}

    def follow(self, tasks: Sequence[FollowTask], deadline_s: float) -> list[FollowResult]:
        results = self._loop.run(self._follow_all(tasks, deadline_s))
        used = {endpoint.name: endpoint for task in tasks for endpoint in (task.source, task.remote)}
        for endpoint, cluster in list(self._clusters.items()):
            # A cluster that failed gets a new client, as does one with another address or token.
            if cluster.failure or used.get(endpoint.name, endpoint) != endpoint:
                del self._clusters[endpoint]
                self._loop.run(cluster.close())
        return results

    async def _follow_all(self, tasks: Sequence[FollowTask], deadline_s: float) -> list[FollowResult]:
        # The remotes first, see `following`.
        there = await self._cursors_of((task.remote, task.target) for task in tasks)
        here = await self._cursors_of((task.source, task.topic) for task in tasks)
        results: list[FollowResult] = []
        for start in range(0, len(tasks), _AT_ONCE):
            some = tasks[start : start + _AT_ONCE]
            results += await gather(self._follow(task, deadline_s, there, here) for task in some)
        return results

    async def _cursors_of(self, topics: Iterable[tuple[ClusterEndpoint, str]]) -> _Looks:
        """The cursors of all topics that one request can return."""
        by_endpoint: dict[ClusterEndpoint, list[TopicName]] = {}
        for endpoint, topic in topics:
            by_endpoint.setdefault(endpoint, []).append(TopicName.parse(topic))
        parts = await gather(self._cursors_in(endpoint, names) for endpoint, names in by_endpoint.items())
        return {key: cursors for part in parts for key, cursors in part.items()}

    async def _cursors_in(self, endpoint: ClusterEndpoint, topics: list[TopicName]) -> _Looks:
        try:
            found = await self._cluster(endpoint).cursors_of_many(topics)
        except ClientError:
            return {}  # the request for a single topic reports the error
        return {(endpoint, topic): cursors for topic, cursors in found.items()}

    async def _follow(self, task: FollowTask, deadline_s: float, there: _Looks, here: _Looks) -> FollowResult:
        result = FollowResult(task.topic, task.remote.name, dict(task.memories))
        try:
            source, remote = self._cluster(task.source), self._cluster(task.remote)
            result.error = source.failure or remote.failure
            if not result.error:
                topic = FollowedTopic(
                    source, remote, TopicName.parse(task.topic), TopicName.parse(task.target), deadline_s
                )
                known = there.get((task.remote, topic.target.full)), here.get((task.source, topic.name.full))
                await Round(topic, task.subscriptions, result).run(*known)
        except ClientError as error:
            result.error = error.text
        return result

    def close(self) -> None:
        for cluster in self._clusters.values():
            self._loop.run(cluster.close())
        self._loop.close()

    def _cluster(self, endpoint: ClusterEndpoint) -> CursorClient:
        cluster = self._clusters.get(endpoint)
        if cluster is None:
            cluster = self._clusters[endpoint] = CursorClient(endpoint)
        return cluster


_kept: _Connections | None = None


def _connections() -> _Connections:
    """A forked process creates its own."""
    global _kept
    if _kept is None or _kept.process_id != os.getpid():
        _kept = _Connections()
    return _kept

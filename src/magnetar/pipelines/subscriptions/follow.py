"""Replicated subscriptions: the position of a subscription follows to the topic's copy in another cluster.

    results = follow_all(works, slice_s=1.0)

About once a second, inside of a task. A `FollowTask` names a topic or partition, its copy in the remote cluster and the
subscriptions to follow; `memories` comes from the last `FollowResult` of the same topic and remote, or is empty: that
costs only time. There is one result for each work, in the same order, and nothing is raised for a cluster's
trouble: `error` says why nothing could be done, `notes` by subscription why it was left alone. After a result that
`is_behind` the next round is worth while at once; after several that are `is_quiet`, less often.

Owns the connections of a process to the clusters, and that one which cannot be reached holds nobody up. A round of one
topic is in `following`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

from magnetar.client.errors import ClientError
from magnetar.client.gather import gather
from magnetar.client.inline import InlineLoop
from magnetar.names import TopicName
from magnetar.pipelines.subscriptions.cursors import Cluster, Cursors
from magnetar.pipelines.subscriptions.following import FollowResult, FollowTask, Memory, Round, Topic
from magnetar.replication.cluster import ClusterEndpoint

__all__ = ["FollowResult", "FollowTask", "Memory", "close", "follow_all"]

_AT_ONCE = 16
"""Topics that are followed at the same time."""

_Looks = dict[tuple[ClusterEndpoint, str], Cursors]


def follow_all(works: Sequence[FollowTask], slice_s: float = 1.0) -> list[FollowResult]:
    """One round; what is not done after `slice_s` is left to the next one."""
    return _connections().follow(works, time.monotonic() + slice_s)


def close() -> None:
    """Closes the connections that rounds of this process have left open."""
    global _kept
    if _kept is not None and _kept.process_id == os.getpid():
        _kept.close()
    _kept = None


class _Connections:
    """Kept from round to round."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._loop = InlineLoop()
        self._clusters: dict[ClusterEndpoint, Cluster] = {}

    def follow(self, works: Sequence[FollowTask], deadline_s: float) -> list[FollowResult]:
        results = self._loop.run(self._follow_all(works, deadline_s))
        used = {endpoint.name: endpoint for work in works for endpoint in (work.source, work.remote)}
        for endpoint, cluster in list(self._clusters.items()):
            # After trouble the next round begins anew; a cluster with another address or token has another client.
            if cluster.trouble or used.get(endpoint.name, endpoint) != endpoint:
                del self._clusters[endpoint]
                self._loop.run(cluster.close())
        return results

    async def _follow_all(self, works: Sequence[FollowTask], deadline_s: float) -> list[FollowResult]:
        # The remotes first, see `following`.
        there = await self._look((work.remote, work.target) for work in works)
        here = await self._look((work.source, work.topic) for work in works)
        results: list[FollowResult] = []
        for start in range(0, len(works), _AT_ONCE):
            some = works[start : start + _AT_ONCE]
            results += await gather(self._follow(work, deadline_s, there, here) for work in some)
        return results

    async def _look(self, topics: Iterable[tuple[ClusterEndpoint, str]]) -> _Looks:
        """At all that can be asked for at once."""
        by_endpoint: dict[ClusterEndpoint, list[TopicName]] = {}
        for endpoint, topic in topics:
            by_endpoint.setdefault(endpoint, []).append(TopicName.parse(topic))
        parts = await gather(self._look_at(endpoint, names) for endpoint, names in by_endpoint.items())
        return {key: cursors for part in parts for key, cursors in part.items()}

    async def _look_at(self, endpoint: ClusterEndpoint, topics: list[TopicName]) -> _Looks:
        try:
            found = await self._cluster(endpoint).cursors_of_many(topics)
        except ClientError:
            return {}  # who asks for one of the topics says why
        return {(endpoint, topic): cursors for topic, cursors in found.items()}

    async def _follow(self, work: FollowTask, deadline_s: float, there: _Looks, here: _Looks) -> FollowResult:
        result = FollowResult(work.topic, work.remote.name, dict(work.memories))
        try:
            source, remote = self._cluster(work.source), self._cluster(work.remote)
            result.error = source.trouble or remote.trouble
            if not result.error:
                topic = Topic(source, remote, TopicName.parse(work.topic), TopicName.parse(work.target), deadline_s)
                known = there.get((work.remote, topic.target.full)), here.get((work.source, topic.name.full))
                await Round(topic, work.subscriptions, result).run(*known)
        except ClientError as error:
            result.error = error.text
        return result

    def close(self) -> None:
        for cluster in self._clusters.values():
            self._loop.run(cluster.close())
        self._loop.close()

    def _cluster(self, endpoint: ClusterEndpoint) -> Cluster:
        cluster = self._clusters.get(endpoint)
        if cluster is None:
            cluster = self._clusters[endpoint] = Cluster(endpoint)
        return cluster


_kept: _Connections | None = None


def _connections() -> _Connections:
    """A process that was forked makes its own."""
    global _kept
    if _kept is None or _kept.process_id != os.getpid():
        _kept = _Connections()
    return _kept

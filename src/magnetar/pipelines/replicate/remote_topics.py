"""The remote topics of routes, in threads: each is checked until it fits, and again when it may have changed.

Owns the threads, the clients of remote clusters, and the sweeps that find deleted and changed topics. The algorithm is
in `client.admin.remote_topics`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from magnetar.client import Client
from magnetar.client.admin.remote_topics import (
    BlockingTopics,
    Ticket,
    TopicQueue,
    decision_after,
    reconcile,
    run_blocking,
)
from magnetar.client.errors import ClientError, Closed, NotSupported
from magnetar.names import TopicName
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import Declaration, State
from magnetar.replication.partitions import Decision, WantedTopic
from magnetar.replication.topic_template import wanted_topic

log = logging.getLogger(__name__)

Route = tuple[str, str]
"""A topic without partition, and a remote cluster."""

OnDecision = Callable[[Route, Decision], None]

THREADS = 16
RETRY_FIRST_S = 1.0
SWEEP_S = 30.0
"""The time between searches for remote topics that were deleted or have other partitions."""

_ONE_BY_ONE_MAX = 20  # so many topics of a namespace are checked one by one; more by a list of the namespace
_OPERATION_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0


class TopicsClient(BlockingTopics, Protocol):
    """A client of a remote cluster."""

    def topics(self, namespace: str) -> list[str]: ...

    def close(self) -> None: ...


class RemoteClient:
    """Reads by the binary protocol, which is faster, and changes by REST."""

    def __init__(self, endpoint: ClusterEndpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._clients: dict[bool, Client] = {}
        self._is_closed = False

    def _client(self, *, by_rest: bool) -> Client:
        with self._lock:
            if self._is_closed:
                raise Closed(f"the connections to cluster {self._endpoint.name} are closed")
            client = self._clients.get(by_rest)
            if client is None:
                client = self._clients[by_rest] = Client(
                    self._endpoint.service_url,
                    admin_url=self._endpoint.admin_url if by_rest else None,
                    security=self._endpoint.security,
                    operation_timeout_s=_OPERATION_TIMEOUT_S,
                    connect_timeout_s=_CONNECT_TIMEOUT_S,
                )
            return client

    def partition_count(self, topic: str) -> int | None:
        try:
            return self._client(by_rest=False).partition_count(topic)
        except NotSupported:  # brokers before PIP-344 answer without creating the topic by REST only
            if self._endpoint.admin_url is None:
                raise
            return self._client(by_rest=True).partition_count(topic)

    def create_topic(self, topic: str, partitions: int, copy_of: str) -> None:
        self._client(by_rest=True).create_topic(topic, partitions, copy_of)

    def grow_topic(self, topic: str, partitions: int) -> None:
        self._client(by_rest=True).grow_topic(topic, partitions)

    def topics(self, namespace: str) -> list[str]:
        return self._client(by_rest=False).topics(namespace)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()


class _Cluster:
    """A remote cluster, and the topics that routes want there."""

    def __init__(
        self, name: str, endpoint: ClusterEndpoint, client: TopicsClient, queue: TopicQueue, sweep_at_s: float
    ) -> None:
        self.name = name
        self.endpoint = endpoint
        self.client = client
        self.queue = queue
        self.wanted: dict[str, WantedTopic] = {}
        self.settled: set[str] = set()
        self.listed: dict[str, int] = {}  # by topic: its names in the last list of its namespace
        self.sweep_at_s = sweep_at_s


class RemoteTopics:
    """`declare` sets the routes, `check` requests a check of one now; `on_decision` is called from threads."""

    def __init__(
        self,
        on_decision: OnDecision,
        *,
        retry_max_s: float = 10.0,
        open_client: Callable[[ClusterEndpoint], TopicsClient] = RemoteClient,
        sweep_s: float = SWEEP_S,
    ) -> None:
        self._on_decision = on_decision
        self._retry_max_s = retry_max_s
        self._open_client = open_client
        self._sweep_s = sweep_s
        self._declaration: Declaration | None = None
        self._errors: dict[str, str] = {}
        self._routes: dict[Route, WantedTopic] = {}
        self._clusters: dict[str, _Cluster] = {}
        self._changed = threading.Condition()
        self._is_stopped = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="remote")
        self._scheduler = threading.Thread(target=self._schedule, name="remote-topics", daemon=True)
        self._scheduler.start()

    # -- wanted topics

    def declare(self, declaration: Declaration, endpoints: dict[str, ClusterEndpoint], errors: dict[str, str]) -> None:
        """Checks new and changed routes. `errors` has, by name, why a cluster has no endpoint."""
        with self._changed:
            before, self._declaration = self._declaration, declaration
            new_errors = {name for name in errors if errors[name] != self._errors.get(name)}
            self._errors = errors
            moved = self._open_clusters(endpoints) | new_errors
            if before is None or _rules_of(before) != _rules_of(declaration):
                moved |= {row.remote for row in declaration.topics}
            routes = {
                (row.topic, row.remote): wanted
                for row in declaration.topics
                if (wanted := wanted_topic(row, declaration.cluster)) is not None
            }
            for topic, name in self._routes.keys() - routes.keys():
                if name in self._clusters:
                    self._withdraw(self._clusters[name], topic)
            changed = [
                route for route, wanted in routes.items() if route[1] in moved or self._routes.get(route) != wanted
            ]
            self._routes = routes
            known = [self._put(route) for route in changed]
            self._changed.notify()
        for route, decision in zip(changed, known, strict=True):
            if decision is not None:
                self._on_decision(route, decision)

    def _open_clusters(self, endpoints: dict[str, ClusterEndpoint]) -> set[str]:
        """The names of clusters that are reached in another way than before."""
        for name in [name for name, cluster in self._clusters.items() if endpoints.get(name) != cluster.endpoint]:
            self._threads.submit(self._clusters.pop(name).client.close)
        moved = endpoints.keys() - self._clusters.keys()
        for name in moved:
            endpoint = endpoints[name]
            queue = TopicQueue(RETRY_FIRST_S, self._retry_max_s)
            sweep_at_s = time.monotonic() + self._sweep_s
            self._clusters[name] = _Cluster(name, endpoint, self._open_client(endpoint), queue, sweep_at_s)
        return set(moved)

    def _withdraw(self, cluster: _Cluster, topic: str) -> None:
        cluster.wanted.pop(topic, None)
        cluster.settled.discard(topic)
        cluster.listed.pop(topic, None)
        cluster.queue.discard(topic)

    def _put(self, route: Route) -> Decision | None:
        """The decision if it is known without a check: the cluster has no endpoint, or is away."""
        topic, name = route
        cluster = self._clusters.get(name)
        if cluster is None:
            return Decision(State.UNREACHABLE, self._errors.get(name, f"cluster {name} is not declared here"))
        cluster.wanted[topic] = self._routes[route]
        cluster.settled.discard(topic)
        cluster.queue.put(topic, time.monotonic())
        return cluster.queue.away

    def check(self, route: Route) -> None:
        """As soon as possible."""
        with self._changed:
            if route not in self._routes:
                return
            known = self._put(route)
            self._changed.notify()
        if known is not None:
            self._on_decision(route, known)

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        self._scheduler.join()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for cluster in self._clusters.values():
            cluster.client.close()

    # -- checks

    def _schedule(self) -> None:
        with self._changed:
            while not self._is_stopped:
                now_s = time.monotonic()
                next_s = now_s + self._sweep_s
                for cluster in self._clusters.values():
                    for ticket in cluster.queue.take(now_s):
                        self._threads.submit(self._check, cluster, ticket, cluster.wanted[ticket.topic])
                    if cluster.sweep_at_s <= now_s and cluster.queue.away is None:
                        cluster.sweep_at_s = now_s + self._sweep_s
                        self._threads.submit(self._sweep, cluster)
                    due_s = cluster.queue.next_s()
                    next_s = min(next_s, cluster.sweep_at_s, next_s if due_s is None else due_s)
                self._changed.wait(max(next_s - now_s, 0.01))

    def _check(self, cluster: _Cluster, ticket: Ticket, wanted: WantedTopic) -> None:
        """In a thread."""
        declaration = self._declaration
        assert declaration is not None
        steps = reconcile(wanted, creates=declaration.creates_topics, mismatch=declaration.mismatch)
        try:
            decision = run_blocking(steps, cluster.client)
        except Closed:  # the cluster has another endpoint by now, or none
            with self._changed:
                cluster.queue.abandoned(ticket, time.monotonic())
                self._changed.notify()
            return
        except ClientError as error:
            decision = decision_after(error, wanted.target, cluster.name)
        except Exception as error:  # a bug must not leave a route without a state
            log.exception("checking %s in cluster %s failed", wanted.target, cluster.name)
            decision = Decision(State.REFUSED, f"unexpected {error!r}")
        with self._changed:
            topics = self._record(cluster, ticket, decision)
            if self._is_stopped or self._clusters.get(cluster.name) is not cluster:
                return
            self._changed.notify()
        for topic in topics:
            self._on_decision((topic, cluster.name), decision)

    def _record(self, cluster: _Cluster, ticket: Ticket, decision: Decision) -> list[str]:
        """The topics that the decision is about."""
        queue, topic, now_s = cluster.queue, ticket.topic, time.monotonic()
        if decision.state is State.UNREACHABLE:
            was_away = queue.away is not None
            if not queue.unreachable(ticket, decision, now_s):
                return []
            cluster.settled.clear()
            return [topic] if was_away else queue.topics
        if not decision.state.is_copying:
            return [topic] if queue.retry(ticket, now_s) else []
        if not queue.settled(ticket, now_s):
            return []
        cluster.settled.add(topic)
        return [topic]

    # -- sweeps

    def _sweep(self, cluster: _Cluster) -> None:
        """Finds settled topics that changed; a list of a namespace costs less than many requests."""
        with self._changed:
            by_namespace: dict[str, list[WantedTopic]] = {}
            for topic in cluster.settled:
                wanted = cluster.wanted[topic]
                by_namespace.setdefault(TopicName.parse(wanted.target).namespace_full, []).append(wanted)
        for namespace, topics in by_namespace.items():
            try:
                changed = self._changed_of(cluster, namespace, topics)
            except ClientError as error:
                log.debug("the topics of %s in %s cannot be listed: %s", namespace, cluster.name, error)
                changed = topics[:1]  # whose check finds the reason
            for wanted in changed:
                self.check((wanted.topic, cluster.name))

    def _changed_of(self, cluster: _Cluster, namespace: str, topics: list[WantedTopic]) -> Iterable[WantedTopic]:
        if len(topics) <= _ONE_BY_ONE_MAX:
            return topics
        names: dict[str, int] = {}
        for name in cluster.client.topics(namespace):
            base = TopicName.parse(name).base.full
            names[base] = names.get(base, 0) + 1
        changed = []
        for wanted in topics:
            listed = names.get(wanted.target, 0)
            if listed == 0 or cluster.listed.get(wanted.topic, listed) != listed:
                changed.append(wanted)
            cluster.listed[wanted.topic] = listed
        return changed


def _rules_of(declaration: Declaration) -> tuple[object, ...]:
    return declaration.creates_topics, declaration.mismatch

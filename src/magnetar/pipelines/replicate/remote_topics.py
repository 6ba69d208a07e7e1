"""Topics in remote clusters: which shape each has, making and growing them, and asking again until it fits.

Owns how often a remote cluster is asked, by how many threads, and that one which is away is tried by one question at a
time and not by each of its topics. What a shape means is decided in `shapes`.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Protocol

from magnetar.client import Client
from magnetar.client.connection.retry import Backoff
from magnetar.client.errors import (
    ClientError,
    Closed,
    Conflict,
    InvalidArgument,
    NamespaceNotFound,
    NotSupported,
    Timeout,
)
from magnetar.names import TopicName
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import Declaration, DeclaredRoute, State
from magnetar.replication.partitions import Decision, decide_remote
from magnetar.replication.topic_template import remote_topic

log = logging.getLogger(__name__)

Route = tuple[str, str]
"""A topic as a whole, and a remote cluster."""

OnDecision = Callable[[Route, Decision], None]

THREADS = 16
RETRY_FIRST_S = 1.0
SWEEP_S = 30.0
"""How often it is looked for remote topics that were deleted or have another shape."""

_ONE_BY_ONE_MAX = 20  # so many topics of a namespace are asked one by one, more by a list of the namespace
_TRIES_MAX = 3  # of creating a topic that somebody else creates and deletes at the same time
_OPERATION_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0


class Cluster(Protocol):
    """What is asked of a remote cluster; `Client` is one."""

    def partition_count(self, topic: str) -> int | None: ...

    def create_topic(self, topic: str, partitions: int) -> None: ...

    def grow_topic(self, topic: str, partitions: int) -> None: ...

    def topics(self, namespace: str) -> list[str]: ...

    def close(self) -> None: ...


class RemoteCluster:
    """Asks by the binary protocol, which is quicker, and changes by REST."""

    def __init__(self, endpoint: ClusterEndpoint) -> None:
        self._side = endpoint
        self._lock = threading.Lock()
        self._clients: dict[bool, Client] = {}
        self._is_closed = False

    def _client(self, *, by_rest: bool) -> Client:
        with self._lock:
            if self._is_closed:
                raise Closed(f"the connections to cluster {self._side.name} are closed")
            client = self._clients.get(by_rest)
            if client is None:
                client = self._clients[by_rest] = Client(
                    self._side.service_url,
                    admin_url=self._side.admin_url if by_rest else None,
                    security=self._side.security,
                    operation_timeout_s=_OPERATION_TIMEOUT_S,
                    connect_timeout_s=_CONNECT_TIMEOUT_S,
                )
            return client

    def partition_count(self, topic: str) -> int | None:
        try:
            return self._client(by_rest=False).partition_count(topic)
        except NotSupported:  # brokers before PIP-344 can tell it without creating by REST alone
            if self._side.admin_url is None:
                raise
            return self._client(by_rest=True).partition_count(topic)

    def create_topic(self, topic: str, partitions: int) -> None:
        self._client(by_rest=True).create_topic(topic, partitions)

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


class _Asked:
    """A route: what is asked for, and what is known of it."""

    def __init__(self, declared: DeclaredRoute, retry_max_s: float) -> None:
        self.declared = declared
        self.target = remote_topic(declared.topic, declared.policy.rename)
        self.backoff = Backoff(RETRY_FIRST_S, retry_max_s)
        self.is_asked = False  # at this moment
        self.is_again = False  # something changed while it was asked
        self.is_settled = False  # it is copied, as far as shapes go
        self.listed: int | None = None  # names in the list of the namespace that are its


class _Remote:
    """A cluster; while it is `away`, the route `prober` is tried and the others wait for its outcome."""

    def __init__(self, cluster: Cluster, retry_max_s: float) -> None:
        self.cluster = cluster
        self.away: Decision | None = None
        self.backoff = Backoff(RETRY_FIRST_S, retry_max_s)
        self.prober: Route | None = None
        self.waiting: set[Route] = set()
        self.sweep_at_s = time.monotonic() + SWEEP_S


class Remotes:
    """`declare` says what is wanted, `check` that a route is to be asked now; `on_decision` is called from threads."""

    def __init__(
        self,
        on_decision: OnDecision,
        *,
        retry_max_s: float = 10.0,
        open_cluster: Callable[[ClusterEndpoint], Cluster] = RemoteCluster,
        sweep_s: float = SWEEP_S,
    ) -> None:
        self._on_decision = on_decision
        self._retry_max_s = max(retry_max_s, RETRY_FIRST_S)
        self._open_cluster = open_cluster
        self._sweep_s = sweep_s
        self._declaration: Declaration | None = None
        self._endpoints: dict[str, ClusterEndpoint] = {}
        self._errors: dict[str, str] = {}
        self._remotes: dict[str, _Remote] = {}
        self._routes: dict[Route, _Asked] = {}
        self._due: list[tuple[float, int, Route]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="remote")
        self._scheduler = threading.Thread(target=self._schedule, name="remotes", daemon=True)
        self._scheduler.start()

    # -- what is wanted

    def declare(self, declaration: Declaration, endpoints: dict[str, ClusterEndpoint], errors: dict[str, str]) -> None:
        """Checks new and changed routes. `errors` has, by name, why a cluster has no endpoint."""
        with self._changed:
            before = self._declaration
            is_other = before is None or (before.creates_topics, before.mismatch) != (
                declaration.creates_topics,
                declaration.mismatch,
            )
            self._declaration = declaration
            for name in [name for name in self._remotes if endpoints.get(name) != self._endpoints.get(name)]:
                remote = self._remotes.pop(name)
                self._threads.submit(remote.cluster.close)
            moved = {name for name in endpoints if endpoints[name] != self._endpoints.get(name)}
            moved |= {name for name in errors if errors[name] != self._errors.get(name)}
            self._endpoints, self._errors = endpoints, errors
            wanted = {(declared.topic, declared.remote): declared for declared in declaration.topics}
            for route in self._routes.keys() - wanted.keys():
                del self._routes[route]
            for route, declared in wanted.items():
                asked = self._routes.get(route)
                if asked is None or _shape_of(asked.declared) != _shape_of(declared):
                    self._routes[route] = _Asked(declared, self._retry_max_s)
                    self._plan(route, 0)
                elif is_other or declared.remote in moved:
                    asked.declared = declared
                    self._plan(route, 0)
                else:
                    asked.declared = declared
            self._replace_probers()
            self._changed.notify()

    def _replace_probers(self) -> None:
        for remote in self._remotes.values():
            if remote.away is not None and remote.prober not in self._routes:
                remote.waiting &= self._routes.keys()
                remote.prober = remote.waiting.pop() if remote.waiting else None
                if remote.prober is not None:
                    self._plan(remote.prober, 0)

    def check(self, route: Route) -> None:
        """Asks it as soon as possible."""
        with self._changed:
            if route in self._routes:
                self._plan(route, 0)
                self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        self._scheduler.join()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for remote in self._remotes.values():
            remote.cluster.close()

    # -- when

    def _plan(self, route: Route, delay_s: float) -> None:
        heapq.heappush(self._due, (time.monotonic() + delay_s, next(self._numbers), route))

    def _schedule(self) -> None:
        with self._changed:
            while not self._is_stopped:
                now_s = time.monotonic()
                while self._due and self._due[0][0] <= now_s:
                    self._start(heapq.heappop(self._due)[2])
                for name, remote in self._remotes.items():
                    if remote.sweep_at_s <= now_s and remote.away is None:
                        remote.sweep_at_s = now_s + self._sweep_s
                        self._threads.submit(self._sweep, name, remote)
                next_s = min((remote.sweep_at_s for remote in self._remotes.values()), default=now_s + self._sweep_s)
                if self._due:
                    next_s = min(next_s, self._due[0][0])
                self._changed.wait(max(next_s - now_s, 0.01))

    def _start(self, route: Route) -> None:
        asked = self._routes.get(route)
        if asked is None:
            return
        if asked.is_asked:
            asked.is_again = True
            return
        asked.is_asked = True
        self._threads.submit(self._ask, route, asked)

    # -- asking, in a thread

    def _ask(self, route: Route, asked: _Asked) -> None:
        try:
            decision = self._decision(route, asked)
        except Closed:
            self._ask_again(route, asked)
            return
        except Exception as error:  # a mistake of ours must not leave a topic without a state
            log.exception("asking %s for %s failed", route[1], route[0])
            decision = Decision(State.REFUSED, f"unexpected {error!r}")
        with self._changed:
            asked.is_asked = False
            if self._is_stopped or self._routes.get(route) is not asked:
                return
            asked.is_settled = decision.state.is_copying
            if asked.is_again:
                asked.is_again = False
                self._plan(route, 0)
            elif asked.is_settled:
                asked.backoff.reset()
            elif decision.state is not State.UNREACHABLE or self._endpoints.get(route[1]) is None:
                self._plan(route, asked.backoff.next_s())
            self._changed.notify()
        self._on_decision(route, decision)

    def _ask_again(self, route: Route, asked: _Asked) -> None:
        """The cluster is reached otherwise by now, or not at all any more."""
        with self._changed:
            asked.is_asked = asked.is_again = False
            if not self._is_stopped and self._routes.get(route) is asked:
                self._plan(route, 0)
                self._changed.notify()

    def _decision(self, route: Route, asked: _Asked) -> Decision:
        remote = self._remote(route[1])
        if remote is None:
            reason = self._errors.get(route[1], f"cluster {route[1]} is not known here")
            return Decision(State.UNREACHABLE, reason)
        with self._changed:
            away = remote.away
            if away is not None and route != remote.prober and remote.prober in self._routes:
                remote.waiting.add(route)
                return away
        try:
            decision = self._shape(remote.cluster, asked)
        except ClientError as error:
            if isinstance(error, Closed):
                raise
            if not (error.retriable or isinstance(error, Timeout)):
                self._is_back(remote)
                return _refused(error, asked.target, route[1])
            decision = Decision(State.UNREACHABLE, f"cluster {route[1]} cannot be reached: {error.text}")
            self._is_away(remote, route, decision)
            return decision
        self._is_back(remote)
        return decision

    def _remote(self, name: str) -> _Remote | None:
        with self._changed:
            remote = self._remotes.get(name)
            if remote is None and name in self._endpoints:
                remote = self._remotes[name] = _Remote(self._open_cluster(self._endpoints[name]), self._retry_max_s)
                remote.sweep_at_s = time.monotonic() + self._sweep_s
            return remote

    def _shape(self, cluster: Cluster, asked: _Asked) -> Decision:
        declared, declaration = asked.declared, self._declaration
        assert declaration is not None
        for _ in range(_TRIES_MAX):
            decision = decide_remote(
                declared.partitions,
                cluster.partition_count(asked.target),
                creates=declaration.creates_topics,
                mismatch=declaration.mismatch,
                grown_from=declared.grown_from,
            )
            try:
                if decision.creates is not None:
                    cluster.create_topic(asked.target, decision.creates)
                elif decision.grows_to is not None:
                    cluster.grow_topic(asked.target, decision.grows_to)
            except Conflict as error:  # somebody else was quicker, and what they made is what counts
                last = error
                continue
            return decision
        raise last

    def _is_away(self, remote: _Remote, route: Route, decision: Decision) -> None:
        """All routes wait; this one is the next to try."""
        with self._changed:
            is_new = remote.away is None
            remote.away = decision
            remote.prober = route
            others = [other for other in self._routes if other[1] == route[1] and other != route] if is_new else []
            remote.waiting.update(others)
            self._plan(route, remote.backoff.next_s())
            self._changed.notify()
        for other in others:
            self._on_decision(other, decision)

    def _is_back(self, remote: _Remote) -> None:
        with self._changed:
            if remote.away is None:
                return
            remote.away = None
            remote.backoff.reset()
            waiting, remote.waiting, remote.prober = remote.waiting, set(), None
            for route in waiting:
                self._plan(route, 0)
            self._changed.notify()

    # -- looking after those that fit

    def _sweep(self, name: str, remote: _Remote) -> None:
        """Finds routes whose remote topic has changed; a list of a namespace costs less than many questions."""
        with self._changed:
            settled = {route: asked for route, asked in self._routes.items() if route[1] == name and asked.is_settled}
        by_namespace: dict[str, list[Route]] = {}
        for route, asked in settled.items():
            by_namespace.setdefault(TopicName.parse(asked.target).namespace_full, []).append(route)
        for namespace, routes in by_namespace.items():
            try:
                changed = self._changed_of(remote.cluster, namespace, routes, settled)
            except ClientError as error:
                log.debug("the topics of %s in %s cannot be listed: %s", namespace, name, error)
                changed = routes[:1]  # whose question finds out what is wrong
            for route in changed:
                self.check(route)

    def _changed_of(
        self, cluster: Cluster, namespace: str, routes: list[Route], settled: dict[Route, _Asked]
    ) -> Iterable[Route]:
        if len(routes) <= _ONE_BY_ONE_MAX:
            return routes
        names: dict[str, int] = {}
        for topic in cluster.topics(namespace):
            base = TopicName.parse(topic).base.full
            names[base] = names.get(base, 0) + 1
        changed = []
        for route in routes:
            listed, asked = names.get(settled[route].target, 0), settled[route]
            if listed == 0 or asked.listed not in (None, listed):
                changed.append(route)
            asked.listed = listed
        return changed


def _shape_of(declared: DeclaredRoute) -> tuple[int, int, str]:
    return declared.partitions, declared.grown_from, declared.policy.rename


def _refused(error: ClientError, target: str, remote: str) -> Decision:
    if isinstance(error, NamespaceNotFound):
        return Decision(State.REFUSED, f"in cluster {remote} {error.text}")
    if isinstance(error, InvalidArgument):  # a file of a token or certificate: nobody was asked
        return Decision(State.REFUSED, f"cluster {remote} cannot be asked: {error.text}")
    return Decision(State.REFUSED, f"cluster {remote} refuses {target}: {error.text}")

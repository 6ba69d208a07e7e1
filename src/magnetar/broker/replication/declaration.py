"""Declared routes: which topics are replicated to which clusters, under which policy, and from which position.

A route is a persistent topic and a remote cluster. Owns the declaration, which is refreshed on demand and has a new
version after every change, and the subscription `pulsar.repl.{remote}`, which exists on a topic as long as it is
replicated. Copies nothing and connects to no cluster: processes that do report to `reports`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from magnetar.broker.catalog.policies import Policies
from magnetar.broker.pipelines.watchers import Watcher, Watchers
from magnetar.broker.replication.remote_clusters import address_of
from magnetar.broker.replication.reports import ReplicationReports
from magnetar.broker.replication.route_policies import RoutePolicies, topic_scope
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.deadletter.topics import is_dead_letter_or_retry_topic
from magnetar.errors import Damaged, ServiceNotReady
from magnetar.names import TopicName, is_system_topic
from magnetar.replication.model import (
    PARKED_SUFFIX,
    ROUTE_FINGERPRINT,
    ClusterAddress,
    Declaration,
    DeclaredRoute,
    Mismatch,
    Process,
    State,
    Status,
    route_fingerprint,
    subscription_of,
)
from magnetar.replication.partitions import Decision
from magnetar.replication.route_parts import NOTHING, RouteParts
from magnetar.replication.topic_template import with_clashes

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker

_TOPICS_PER_TURN = 200

LATE_S = 5.0
"""A route whose oldest message waits longer than this is not running, whatever was reported before it was published."""


class DeclaredRoutes:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.policies = RoutePolicies(broker.storage, broker.commits, broker.damage)
        self._rows: dict[str, tuple[DeclaredRoute, ...]] = {}  # by topic, without partitions
        self._changed: set[str] = set()  # topics whose rows are out of date
        self._started_ms = broker.now_ms()
        self._count = 0
        self._declaration: Declaration | None = None
        self._addresses: dict[str, ClusterAddress] = {}
        self._addresses_count = 0
        self._are_addresses_old = True
        self._watchers = Watchers(lambda watcher: self._guarded("all topics", watcher))
        self.reports = ReplicationReports(self._started_ms)

    def load(self) -> None:
        """Called once the catalog is loaded. Replicated topics are opened soon, some per turn."""
        catalog = self._broker.catalog
        of_namespaces = {namespace for namespace in catalog.namespaces if self._is_replicated(namespace)}
        replicated = [full for full in catalog.topics if self._may_be_replicated(full, of_namespaces)]
        self.targets_changed(replicated)

    def _is_replicated(self, namespace: str) -> bool:
        return bool(self._remotes(self._broker.catalog.policies_of(namespace).replication_clusters))

    def _remotes(self, clusters: Iterable[str]) -> list[str]:
        """Those that are registered and not this one."""
        own, registered = self._broker.settings.clusterName, self._broker.catalog.clusters
        return [cluster for cluster in clusters if cluster != own and cluster in registered]

    def _may_be_replicated(self, full: str, of_namespaces: set[str]) -> bool:
        name = TopicName.parse(full)
        if name.namespace_full in of_namespaces:
            return True
        return self._broker.catalog.overrides_of(name).replication_clusters is not None

    # -- declaration

    @property
    def version(self) -> str:
        return f"{self._broker.life}-{self._started_ms:x}-{self._count}"

    def declaration(self) -> Declaration:
        self._refresh()
        if self._declaration is None:
            settings = self._broker.settings
            self._update_addresses()
            self._declaration = Declaration(
                version=self.version,
                cluster=settings.clusterName,
                creates_topics=settings.createTopicToRemoteClusterForReplication,
                mismatch=Mismatch(settings.partitionMismatch),
                clusters={name: address.without_secret for name, address in self._addresses.items()},
                topics=with_clashes([row for full in sorted(self._rows) for row in self._rows[full]]),
                clusters_version=self._clusters_version,
            )
        return self._declaration

    def is_expecting_routes(self) -> bool:
        """Whether there is a route, or a namespace whose first topic will have one."""
        return any(map(self._is_replicated, self._broker.catalog.namespaces)) or bool(self.declaration().topics)

    def rows_of(self, name: TopicName) -> tuple[DeclaredRoute, ...]:
        """Of a topic, a partitioned topic or one of its partitions."""
        self._refresh()
        return self._rows.get(name.base.full) or self._rows.get(name.full, ())

    def remotes_of(self, name: TopicName, policies: Policies | None = None) -> list[str]:
        """The remote clusters of a topic or partition; `policies` are its effective ones, if known."""
        if not name.is_persistent or is_system_topic(name) or self._is_only_a_copy(name):
            return []
        if name.base.local.endswith(PARKED_SUFFIX):
            return []
        remotes = self._remotes(self._clusters_of(name) if policies is None else policies.replication_clusters)
        if remotes and is_dead_letter_or_retry_topic(name):
            return [remote for remote in remotes if self.policies.of(name, remote).dead_letters]
        return remotes

    def _is_only_a_copy(self, name: TopicName) -> bool:
        """Copies are never copied again, and a renamed one would create another topic in the cluster it comes from.
        Replication clusters of the topic itself are a word for it."""
        catalog = self._broker.catalog
        return catalog.is_renamed_copy(name) and catalog.overrides_of(name).replication_clusters is None

    def _clusters_of(self, name: TopicName) -> Sequence[str]:
        own = self._broker.catalog.overrides_of(name).replication_clusters
        return self._broker.catalog.policies_of(name.namespace_full).replication_clusters if own is None else own

    def _refresh(self) -> None:
        changed, self._changed = self._changed, set()
        for full in changed:
            rows = self._rows_for(TopicName.parse(full))
            if rows:
                self._rows[full] = rows
            else:
                self._rows.pop(full, None)

    def _rows_for(self, name: TopicName) -> tuple[DeclaredRoute, ...]:
        catalog = self._broker.catalog
        partitioned = catalog.partitioned.get(name.full)
        if partitioned is None and not catalog.exists(name):
            return ()
        remotes = self.remotes_of(name)
        if not remotes:
            return ()
        partitions = 0 if partitioned is None else partitioned.partitions
        return tuple(
            DeclaredRoute(
                topic=name.full,
                partitions=partitions,
                remote=remote,
                policy=self.policies.of(name, remote),
                grown_from=0 if partitioned is None else partitioned.grown_from,
                subscriptions=self._following(name, partitions),
            )
            for remote in remotes
        )

    def _following(self, name: TopicName, partitions: int) -> tuple[str, ...]:
        """Subscriptions whose positions are replicated too. A topic that is not open adds its own when it is opened."""
        topics = (self._broker.topics.get(full) for full in _parts(name, partitions))
        open_ones = (topic for topic in topics if isinstance(topic, PersistentTopic))
        return tuple(sorted({one.name for topic in open_ones for one in topic.cursors if one.record.replicated}))

    def clusters(self) -> tuple[str, dict[str, ClusterAddress]]:
        """The remote clusters with our credentials there, and a version that differs after every change of them. For
        those who connect to the clusters: never for an answer."""
        self._update_addresses()
        return self._clusters_version, self._addresses

    @property
    def _clusters_version(self) -> str:
        return f"{self._broker.life}-{self._started_ms:x}-{self._addresses_count}"

    def _update_addresses(self) -> None:
        settings, records = self._broker.settings, self._broker.catalog.clusters
        if not self._are_addresses_old:
            return
        self._are_addresses_old = False
        found = {name: address_of(name, record, settings) for name, record in records.items()}
        if found != self._addresses:
            self._addresses = found
            self._addresses_count += 1

    # -- changes

    def watch(self, watcher: Watcher) -> bool:
        """See `Watchers`."""
        return self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.remove(watcher)

    def clusters_changed(self) -> None:
        self._are_addresses_old = True
        self._notify()

    def topic_changed(self, name: TopicName) -> None:
        """A topic was created, grown or deleted, or its policies changed."""
        full = self._row_topic(name)
        if full in self._rows or self.remotes_of(name):
            self._changed.add(full)
            self._notify()

    def topic_deleted(self, name: TopicName) -> None:
        self.topic_changed(name)
        if name.is_persistent and not (name.is_partition and name.base.full in self._broker.catalog.partitioned):
            self.forget_routes(scope=topic_scope(name))

    def targets_changed(self, topics: Iterable[str]) -> None:
        """The remote clusters of these topics, if any, and of their namespace may have changed. Open topics follow at
        once, the others when they are opened, which is soon and before anything is published to them."""
        waiting: list[str] = []
        for full in list(topics):
            name = TopicName.parse(full)
            if not name.is_persistent:
                continue
            self._changed.add(self._row_topic(name))
            topic = self._broker.topics.get(full)
            if isinstance(topic, PersistentTopic):
                self._guarded(full, lambda topic=topic: self.update_subscriptions(topic))  # type: ignore[misc]
            else:
                waiting.append(full)
        self._notify()
        if waiting:
            self._broker.wake_after(0, lambda: self._open(waiting))

    def _open(self, topics: list[str]) -> None:
        rest = topics[_TOPICS_PER_TURN:]
        if rest:
            self._broker.wake_after(0, lambda: self._open(rest))
        for full in topics[:_TOPICS_PER_TURN]:
            self._guarded(full, lambda full=full: self._opened(TopicName.parse(full)))  # type: ignore[misc]

    def _guarded(self, topic: str, action: Callable[[], object]) -> None:
        """What is done to one of many topics: its failure costs the others nothing."""
        try:
            action()
        except Exception as error:
            self._broker.fault("maintenance", error, f"replication of {topic}")

    def _opened(self, name: TopicName) -> PersistentTopic | None:
        if name.full not in self._broker.catalog.topics:
            return None
        try:
            topic = self._broker.topic(name)
        except (ServiceNotReady, Damaged):
            return None  # being unloaded: its subscriptions are updated when it is opened again; or listed as damaged
        return topic if isinstance(topic, PersistentTopic) else None

    def _notify(self) -> None:
        self._count += 1
        self._declaration = None
        self._watchers.notify()

    def _row_topic(self, name: TopicName) -> str:
        """The topic of a row: the partitioned topic, unless this is a partition without one."""
        return name.base.full if name.base.full in self._broker.catalog.partitioned else name.full

    # -- subscriptions

    def opened(self, topic: PersistentTopic) -> None:
        """A topic was opened just now: nothing was published to it yet."""
        self.update_subscriptions(topic)
        if any(one.record.replicated for one in topic.cursors):
            self.topic_changed(topic.name)

    def update_subscriptions(self, topic: PersistentTopic) -> None:
        """Creates missing subscriptions and deletes those that are no longer needed.

        A topic that was just created is empty, so its subscription gets every message wherever it starts.
        """
        wanted = {subscription_of(remote): None for remote in self.remotes_of(topic.name, topic.policies)}
        is_known = not self._broker.catalog.is_uncertain(topic.name)  # else it may be replicated all the same
        for name in [one.name for one in topic.cursors if one.is_internal]:
            if name not in wanted and is_known:
                topic.end_replication(name)
        from_earliest = self._broker.settings.replicationStartAt == "earliest"
        for name in wanted:
            if name not in topic.subscriptions:
                topic.begin_replication(name, from_earliest=from_earliest)
        self._disconnect_stale(topic)

    def _disconnect_stale(self, topic: PersistentTopic) -> None:
        """Disconnects consumers that copy under a policy that is no longer in force: what is published from now on must
        be copied under the new one."""
        consumers = [consumer for subscription in topic.cursors for consumer in subscription.consumers]
        for consumer in consumers:
            if not self.admits_consumer(topic.name, consumer.metadata):
                consumer.peer.close_consumer(consumer)
                topic.remove_consumer(consumer)

    def admits_consumer(self, name: TopicName, metadata: Mapping[str, str]) -> bool:
        """Whether the route policy that a consumer copies under is in force; other consumers are always admitted."""
        fingerprint = metadata.get(ROUTE_FINGERPRINT)
        if fingerprint is None:
            return True
        return fingerprint in {
            route_fingerprint(remote, self.policies.of(name, remote)) for remote in self.remotes_of(name)
        }

    # -- route policies

    def set_route(self, remote: str, scope: str, parts: RouteParts, *, is_paused_again: bool = False) -> None:
        """Stores the parts of a scope. `is_paused_again`: a pause of a namespace, which also ends earlier resumes."""
        before = self.policies.all()
        self.policies.set(remote, scope, parts)
        if is_paused_again:
            self.policies.end_resumes(remote, scope)
        if self.policies.all() == before:
            return
        was_paused = before.get((remote, scope), NOTHING).paused
        if parts.paused and not was_paused:
            self.reports.paused(remote, scope, self._broker.now_ms())
        elif was_paused and not parts.paused:
            self.reports.resumed(remote, scope)
        self.targets_changed(self._topics_in(scope))

    def forget_routes(self, *, remote: str | None = None, scope: str | None = None) -> None:
        """Deletes the policies of a cluster, namespace or topic that was deleted."""
        for one in [one for one in self.policies.all() if remote in (None, one[0]) and scope in (None, one[1])]:
            self.policies.set(*one, NOTHING)
            self.reports.resumed(*one)

    def _topics_in(self, scope: str) -> list[str]:
        catalog = self._broker.catalog
        if scope in catalog.namespaces:
            return list(catalog.topics_of[scope])
        name = TopicName.parse(scope)
        partitioned = catalog.partitioned.get(name.full)
        found = _parts(name, 0 if partitioned is None else partitioned.partitions)
        return [full for full in found if full in catalog.topics]

    # -- status

    def statuses(
        self, now_ms: int, *, topic: TopicName | None = None, namespace: str | None = None, remote: str | None = None
    ) -> Iterator[Status]:
        """One for every route and partition, or for the requested ones."""
        self._refresh()
        rows = [self.rows_of(topic)] if topic is not None else [self._rows[full] for full in sorted(self._rows)]
        for row in (row for several in rows for row in several if remote in (None, row.remote)):
            name = TopicName.parse(row.topic)
            if namespace not in (None, name.namespace_full):
                continue
            for full in _parts(name, row.partitions):
                if topic is None or not topic.is_partition or full == topic.full:
                    yield self._status(TopicName.parse(full), row, now_ms)

    def known_statuses(self, now_ms: int) -> Iterator[Status]:
        """One for every route and partition, from what is in memory: no topic is opened and no entry is read, so a
        backlog is known of open topics only, and no delay at all."""
        self._refresh()
        for full in sorted(self._rows):
            for row in self._rows.get(full, ()):
                name = TopicName.parse(row.topic)
                for part in map(TopicName.parse, _parts(name, row.partitions)):
                    scope = self.policies.pausing_scope(part, row.remote)
                    status = self.reports.status(part, row, scope, now_ms)
                    topic = self._broker.topics.get(part.full)
                    replicator = topic.replicator(row.remote) if isinstance(topic, PersistentTopic) else None
                    status.backlog = 0 if replicator is None else replicator.backlog
                    yield status

    def _status(self, name: TopicName, row: DeclaredRoute, now_ms: int) -> Status:
        status = self.reports.status(name, row, self.policies.pausing_scope(name, row.remote), now_ms)
        address = self._addresses.get(row.remote)
        if status.state is State.REFUSED and address is not None and address.credentials_note:
            status.reason = f"{status.reason}; {address.credentials_note}"
        topic = self._opened(name)
        subscription = None if topic is None else topic.replicator(row.remote)
        if topic is None or subscription is None:
            status.state, status.reason = State.STOPPED, f"partition {name.partition} does not exist yet"
            return status
        status.backlog = subscription.backlog
        if status.backlog:
            status.backlog_bytes = subscription.backlog_size()
            try:
                oldest_ms = topic.log.published_ms(subscription.cursor.next_open(subscription.cursor.mark_delete + 1))
            except Damaged as error:
                status.state, status.reason = State.STOPPED, str(error)
                return status
            status.delay_s = max(0, now_ms - self._broker.clock.from_client_ms(oldest_ms)) / 1000
            if status.state is State.RUNNING and status.delay_s > LATE_S:
                status.state = State.CATCHING_UP
                status.since_ms = max(status.since_ms, now_ms - round((status.delay_s - LATE_S) * 1000))
        return status

    def update_rates(self, seconds: float) -> None:
        self.reports.retain(self.is_declared, self._is_route)
        self.reports.update_rates(seconds)

    def _is_route(self, topic: str, remote: str) -> bool:
        return any(row.topic == topic and row.remote == remote for row in self._rows.get(topic, ()))

    def expect_process(self) -> None:
        """The broker is starting a pipelines process."""
        self.reports.presence.expect_process(self._broker.now_ms())

    def no_process(self, reason: str, process: Process = Process.ABSENT) -> None:
        self.reports.presence.no_process(reason, self._broker.now_ms(), process)

    def process_left(self, pipeline: str) -> None:
        self.reports.presence.process_left(pipeline, self._broker.now_ms())

    def remote_topic_checked(self, topic: str, remote: str, decision: Decision) -> None:
        """The server checked, created or grew the remote topic of a route."""
        self.reports.remote_topic_checked(topic, remote, decision, self._broker.now_ms())

    def is_declared(self, full: str, remote: str) -> bool:
        """Whether a topic without partitions, or a partition, is part of a declared route."""
        name = TopicName.parse(full)
        return any(
            row.remote == remote
            and (0 <= name.partition < row.partitions if row.partitions else name.full == row.topic)
            for row in self.rows_of(name)
        )


def _parts(name: TopicName, partitions: int) -> list[str]:
    """The partitions of a topic, or the topic itself if it has none."""
    return [name.with_partition(index).full for index in range(partitions)] or [name.full]

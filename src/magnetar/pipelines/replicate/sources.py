"""Sources of replication: a broker that declares its routes, or a list of topics of any other cluster.

Owns how a list becomes a declaration. Knows nothing of copying.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from magnetar.client import Client
from magnetar.client.errors import ClientError
from magnetar.names import TopicName, parse_namespace
from magnetar.pipelines.declared_sources import BrokerSource, DeclaringBroker, Source
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import (
    AS_IT_IS,
    FOREIGN_SUBSCRIPTION_PREFIX,
    SUBSCRIPTION_PREFIX,
    ClusterAddress,
    Declaration,
    DeclaredRoute,
    Mismatch,
    RoutePolicy,
)
from magnetar.replication.topic_template import with_clashes

log = logging.getLogger(__name__)

_REFRESH_S = 3.0
_STOP_S = 10.0  # for the declaration in hand

OnDeclared = Callable[[Declaration], None]


class ReplicationSource(Source[Declaration], Protocol):
    subscription_prefix: str


_clusters = msgspec.json.Decoder(dict[str, ClusterAddress])


class DeclaringSource(BrokerSource[Declaration]):
    """A Magnetar broker, which declares its routes and shows their status."""

    subscription_prefix = SUBSCRIPTION_PREFIX

    def __init__(self, broker: DeclaringBroker) -> None:
        super().__init__(broker, "replication", Declaration)

    def completed(self, declaration: Declaration) -> Declaration:
        if self._handed is None:
            return declaration
        clusters = _clusters.decode(self._handed.credentials(declaration.clusters_version))
        return msgspec.structs.replace(declaration, clusters=clusters)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The topics to copy from a source that declares nothing: `tenant/namespace` for all topics in it, or a topic."""

    words: tuple[str, ...]
    remotes: dict[str, ClusterAddress]
    policy: RoutePolicy = AS_IT_IS
    creates_topics: bool = True
    mismatch: Mismatch = Mismatch.PIP370

    def __post_init__(self) -> None:
        """Raises `InvalidName`."""
        for namespace in self.namespaces:
            parse_namespace(namespace)
        _ = self.topics

    @property
    def namespaces(self) -> list[str]:
        return [word for word in self.words if "://" not in word and word.count("/") == 1]

    @property
    def topics(self) -> list[str]:
        namespaces = self.namespaces
        return [TopicName.parse(word).base.full for word in self.words if word not in namespaces]


class ListedSource:
    """Any cluster, Apache Pulsar in particular. The partitions of the listed topics are requested again and again."""

    subscription_prefix = FOREIGN_SUBSCRIPTION_PREFIX

    def __init__(self, endpoint: ClusterEndpoint, selection: Selection) -> None:
        self.endpoint = endpoint
        self.security = endpoint.security
        self._selection = selection
        self._stopped = threading.Event()
        self._client: Client | None = None
        self._thread: threading.Thread | None = None

    def follow(self, on_declared: OnDeclared, process: str = "") -> None:
        """Raises `ClientError` for an endpoint that no client can be created for."""
        client = Client(self.endpoint.service_url, admin_url=self.endpoint.admin_url, security=self.endpoint.security)
        thread = threading.Thread(target=self._follow, args=(client, on_declared), name="topics", daemon=True)
        self._client, self._thread = client, thread
        thread.start()

    def _follow(self, client: Client, on_declared: OnDeclared) -> None:
        known: dict[str, int] = {}
        grown_from: dict[str, int] = {}
        reported = ""
        while not self._stopped.is_set():
            try:
                found = self._found(client)
            except ClientError as error:
                if reported != str(error) and not self._stopped.is_set():
                    log.warning("the topics of %s cannot be listed: %s", self.endpoint.name, error)
                reported = str(error)
            else:
                reported = ""
                grown_from = {
                    topic: known[topic] for topic in found if 0 < known.get(topic, 0) < found[topic]
                } | grown_from
                if found != known or not known:
                    on_declared(self._declaration(found, grown_from))
                known = found
            self._stopped.wait(_REFRESH_S)

    def _found(self, client: Client) -> dict[str, int]:
        """Partitions by topic, for the topics that exist."""
        names = set(self._selection.topics)
        for namespace in self._selection.namespaces:
            names.update(TopicName.parse(name).base.full for name in client.topics(namespace))
        counts = {name: client.partition_count(name) for name in sorted(names) if name.startswith("persistent:")}
        return {name: count for name, count in counts.items() if count is not None}

    def _declaration(self, found: dict[str, int], grown_from: dict[str, int]) -> Declaration:
        selection = self._selection
        topics = [
            DeclaredRoute(name, partitions, remote, selection.policy, grown_from.get(name, 0))
            for name, partitions in found.items()
            for remote in selection.remotes
        ]
        return Declaration(
            version=str(hash(tuple(sorted(found.items())))),
            cluster=self.endpoint.name,
            creates_topics=selection.creates_topics,
            mismatch=selection.mismatch,
            clusters=selection.remotes,
            topics=with_clashes(topics),
        )

    def report(self, reports: msgspec.Struct) -> bool:
        """The cluster takes no reports; changes are in the log."""
        return True

    def stop(self) -> None:
        """Closes the client, which ends a request that waits."""
        self._stopped.set()
        if self._client is not None and self._thread is not None:
            self._client.close()
            self._thread.join(_STOP_S)

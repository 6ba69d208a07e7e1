"""The inventory of a cluster, read by REST: tenants, namespaces, topics, and their policies, schemas, subscriptions.

Owns the requests and their concurrency. A request that the broker does not support is sent once and noted as a remark.
Compares nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from magnetar.cli.argument import NamespaceName, parse_namespace_name
from magnetar.cli.path import namespace_path, topic_path
from magnetar.cli.policies.table import POLICIES
from magnetar.cli.replication.differences import (
    ClusterState,
    NamespaceState,
    SchemaVersion,
    TopicState,
    is_system_topic,
)
from magnetar.cli.replication.two_clusters import ComparedCluster, own_name
from magnetar.cli.rest import Refused
from magnetar.names import NON_PERSISTENT, PERSISTENT, TopicName

CONCURRENT_REQUESTS = 8
_NOT_FOUND = 404
_UNSUPPORTED = (405, 501)  # not supported, or disabled
_SYSTEM_TENANT = "pulsar"
_TOPIC_POLICIES = tuple(dict.fromkeys(policy.get_path or policy.topic for policy in POLICIES if policy.topic))

_T = TypeVar("_T")
_R = TypeVar("_R")


class ClusterInventory:
    """The inventory of one cluster. Its methods are thread-safe; read `remarks` when they are done."""

    def __init__(self, cluster: ComparedCluster) -> None:
        self._rest = cluster.rest
        self._label = cluster.label
        self._unsupported: set[str] = set()
        self._remarks: dict[str, None] = {}
        self._lock = threading.Lock()

    @property
    def remarks(self) -> list[str]:
        return list(self._remarks)

    def state(self, namespaces: list[NamespaceName]) -> ClusterState:
        """The state of all namespaces, or of those given, without missing ones."""
        chosen = namespaces or self._all_namespaces()
        tenants = sorted({namespace.tenant for namespace in chosen} if namespaces else self._tenants())
        with ThreadPoolExecutor(CONCURRENT_REQUESTS) as threads:
            of_tenants = threads.map(self._tenant, tenants)
            of_namespaces = threads.map(self._namespace, chosen)
            return ClusterState(
                own_name(self._rest),
                {name: value for name, value in zip(tenants, of_tenants, strict=True) if value is not None},
                {str(name): value for name, value in zip(chosen, of_namespaces, strict=True) if value is not None},
            )

    def topic(self, name: str) -> TopicState:
        topic = TopicName.parse(name)
        if not topic.is_persistent:
            return TopicState()
        subscriptions = self._request("subscriptions", *topic_path(topic, "subscriptions"))
        return TopicState(
            self._topic_policies(topic),
            self._schemas(topic),
            None if subscriptions is None else frozenset(subscriptions),
            frozenset(path for path in _TOPIC_POLICIES if _policy(path) in self._unsupported),
        )

    # -- parts

    def _tenants(self) -> list[str]:
        return [tenant for tenant in self._rest.get("tenants") if tenant != _SYSTEM_TENANT]

    def _all_namespaces(self) -> list[NamespaceName]:
        names = [name for tenant in self._tenants() for name in self._rest.get("namespaces", tenant)]
        return [parse_namespace_name(name) for name in sorted(names) if name.count("/") == 1]

    def _tenant(self, name: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._unless_missing("tenants", name)
        return found

    def _namespace(self, namespace: NamespaceName) -> NamespaceState | None:
        policies = self._unless_missing(*namespace_path(namespace))
        return None if policies is None else NamespaceState(policies, self._topics(namespace))

    def _topics(self, namespace: NamespaceName) -> dict[str, int]:
        """Without partitions, and without non-persistent topics that are not partitioned."""
        found: dict[str, int] = {}
        for domain in (PERSISTENT, NON_PERSISTENT):
            partitioned = self._rest.get(domain, *namespace, "partitioned")
            for name in partitioned:
                topic = TopicName.parse(name)
                found[topic.full] = int(self._rest.get(*topic_path(topic, "partitions"))["partitions"])
            if domain == PERSISTENT:
                plain = (TopicName.parse(name) for name in self._rest.get(domain, *namespace))
                found |= {topic.full: 0 for topic in plain if topic.base.full not in found}
        return {name: partitions for name, partitions in found.items() if not is_system_topic(name)}

    def _topic_policies(self, topic: TopicName) -> dict[str, Any] | None:
        """In one request if the broker supports it, otherwise one by one."""
        if "policies" not in self._unsupported:
            try:
                reply = self._rest.get(*topic_path(topic, "policies"))
            except Refused as error:
                if error.status not in (*_UNSUPPORTED, _NOT_FOUND):
                    raise
                self._unsupported.add("policies")
            else:
                return reply if isinstance(reply, dict) else {}
        return {path: self._request(_policy(path), *topic_path(topic, path)) for path in _TOPIC_POLICIES}

    def _schemas(self, topic: TopicName) -> tuple[SchemaVersion, ...] | None:
        reply = self._request("schemas", "schemas", topic.tenant, topic.namespace, topic.local, "schemas", missing={})
        if reply is None:
            return None
        versions = sorted(reply.get("getSchemaResponses") or (), key=lambda one: one.get("version", 0))
        return tuple(map(SchemaVersion.of, versions))

    def _unless_missing(self, *segments: str) -> Any:
        try:
            return self._rest.get(*segments)
        except Refused as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    def _request(self, what: str, *segments: str, missing: object = None) -> Any:
        """None if the broker does not support it; `missing` if the topic has none."""
        if what in self._unsupported:
            return None
        try:
            return self._rest.get(*segments)
        except Refused as error:
            if error.status == _NOT_FOUND:
                return missing
            if error.status not in _UNSUPPORTED:
                raise
            with self._lock:
                self._unsupported.add(what)
                self._remarks[f"{self._label} does not support {what}, not compared: {error.reason}"] = None
            return None


def _policy(path: str) -> str:
    return f"topic policy {path}"


def gather(items: Iterable[_T], request: Callable[[_T], _R]) -> list[_R]:
    """The results in the order of the items, several requests at a time."""
    with ThreadPoolExecutor(CONCURRENT_REQUESTS) as threads:
        return list(threads.map(request, items))

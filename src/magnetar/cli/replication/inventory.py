"""What a cluster has, asked by REST: tenants, namespaces, topics, and of a topic its policies, schemas, subscriptions.

Owns the questions, how many are open at once, and living with a broker that does not know one of them: it is asked for
that once, and what it cannot tell is remarked on. Compares nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from magnetar.cli.argument import NamespaceName, parse_namespace_name
from magnetar.cli.path import namespace_path, topic_path
from magnetar.cli.policies.table import POLICIES
from magnetar.cli.replication.differences import ClusterState, NamespaceState, Schema, TopicState, is_system_topic
from magnetar.cli.replication.two_clusters import ComparedCluster, own_name
from magnetar.cli.rest import Refused
from magnetar.names import NON_PERSISTENT, PERSISTENT, TopicName

ASKED_AT_ONCE = 8
_NOT_FOUND = 404
_UNKNOWN = (405, 501)  # the broker has no such thing, or it is switched off
_SYSTEM_TENANT = "pulsar"
_TOPIC_POLICIES = tuple(dict.fromkeys(policy.get_path or policy.topic for policy in POLICIES if policy.topic))

_T = TypeVar("_T")
_R = TypeVar("_R")


class Inventory:
    """Of one cluster. Its methods may be called by several threads; `remarks` is for when they are done."""

    def __init__(self, cluster: ComparedCluster) -> None:
        self._rest = cluster.rest
        self._label = cluster.label
        self._unknown: set[str] = set()
        self._remarks: dict[str, None] = {}
        self._lock = threading.Lock()

    @property
    def remarks(self) -> list[str]:
        return list(self._remarks)

    def state(self, namespaces: list[NamespaceName]) -> ClusterState:
        """Of all namespaces, or those that are named; a named one that is missing is not in it."""
        chosen = namespaces or self._all_namespaces()
        tenants = sorted({namespace.tenant for namespace in chosen} if namespaces else self._tenants())
        with ThreadPoolExecutor(ASKED_AT_ONCE) as threads:
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
        subscriptions = self._ask("subscriptions", *topic_path(topic, "subscriptions"))
        return TopicState(
            self._topic_policies(topic),
            self._schemas(topic),
            None if subscriptions is None else frozenset(subscriptions),
            frozenset(path for path in _TOPIC_POLICIES if _policy(path) in self._unknown),
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
        """Partitions of partitioned topics are not topics by themselves; of what is not kept, only what is declared."""
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
        """In one answer where the broker has that, else each by itself."""
        if "policies" not in self._unknown:
            try:
                answer = self._rest.get(*topic_path(topic, "policies"))
            except Refused as error:
                if error.status not in (*_UNKNOWN, _NOT_FOUND):
                    raise
                self._unknown.add("policies")
            else:
                return answer if isinstance(answer, dict) else {}
        return {path: self._ask(_policy(path), *topic_path(topic, path)) for path in _TOPIC_POLICIES}

    def _schemas(self, topic: TopicName) -> tuple[Schema, ...] | None:
        answer = self._ask("schemas", "schemas", topic.tenant, topic.namespace, topic.local, "schemas", missing={})
        if answer is None:
            return None
        versions = sorted(answer.get("getSchemaResponses") or (), key=lambda one: one.get("version", 0))
        return tuple(map(Schema.of, versions))

    def _unless_missing(self, *segments: str) -> Any:
        try:
            return self._rest.get(*segments)
        except Refused as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    def _ask(self, what: str, *segments: str, missing: object = None) -> Any:
        """None where the broker has no such thing; `missing` where it has none for this topic."""
        if what in self._unknown:
            return None
        try:
            return self._rest.get(*segments)
        except Refused as error:
            if error.status == _NOT_FOUND:
                return missing
            if error.status not in _UNKNOWN:
                raise
            with self._lock:
                self._unknown.add(what)
                self._remarks[f"{self._label} cannot tell its {what}, not compared: {error.reason}"] = None
            return None


def _policy(path: str) -> str:
    return f"topic policy {path}"


def asked(items: Iterable[_T], ask: Callable[[_T], _R]) -> list[_R]:
    """The answers in the order of the items, some of them asked for at once."""
    with ThreadPoolExecutor(ASKED_AT_ONCE) as threads:
        return list(threads.map(ask, items))

"""Differences between the inventories of two clusters that should be alike.

Owns what counts as a difference: not the subscriptions of replication, the lists of clusters or the bundles of a
namespace. Sends no requests; `inventory` does.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from magnetar.deadletter.topics import SUFFIXES
from magnetar.names import PARTITION_SUFFIX
from magnetar.replication.model import FOREIGN_SUBSCRIPTION_PREFIX, SUBSCRIPTION_PREFIX

# Each cluster has its own: replication clusters, for one, differ by design.
OWN_POLICIES = frozenset(
    {"replication_clusters", "allowed_clusters", "bundles", "deleted", "migrated", "latency_stats_sample_rate"}
)
OWN_TOPIC_POLICIES = frozenset({"replication"})
OWN_TENANT_FIELDS = frozenset({"allowedClusters"})

_THIS_CLUSTER = "(this cluster)"
_INTERNAL = re.compile(
    rf"({re.escape(SUBSCRIPTION_PREFIX)}|{re.escape(FOREIGN_SUBSCRIPTION_PREFIX)}|pulsar\.dedup$|__compaction$"
    r"|reader-[0-9a-f]{10}$|multiTopicsReader-[0-9a-f]{10}$|magnetar-[0-9a-f]{16}$|position-at-)"
)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version, without its number and time, which each cluster assigns."""

    kind: str
    definition: str
    properties: tuple[tuple[str, str], ...]

    @staticmethod
    def of(reply: Mapping[str, Any]) -> SchemaVersion:
        data = reply.get("data") or ""
        with contextlib.suppress(ValueError):  # primitive types have no JSON
            data = json.dumps(json.loads(data), sort_keys=True)
        properties = reply.get("properties") or {}
        return SchemaVersion(str(reply.get("type")), str(data), tuple(sorted(properties.items())))

    def described(self) -> dict[str, object]:
        return {"type": self.kind, "schema": self.definition, "properties": dict(self.properties)}


@dataclass(frozen=True, slots=True)
class TopicState:
    """A field is None if the cluster does not support the request."""

    policies: Mapping[str, Any] | None = None
    schemas: tuple[SchemaVersion, ...] | None = None  # the newest last
    subscriptions: frozenset[str] | None = None
    unsupported: frozenset[str] = frozenset()  # policies that the cluster does not have


@dataclass(frozen=True, slots=True)
class NamespaceState:
    policies: Mapping[str, Any]
    topics: Mapping[str, int]  # by full name: the number of partitions, 0 if not partitioned


@dataclass(frozen=True, slots=True)
class ClusterState:
    name: str | None
    tenants: Mapping[str, Mapping[str, Any]]
    namespaces: Mapping[str, NamespaceState]


@dataclass(frozen=True, slots=True)
class Difference:
    """`a` and `b` are the values of the two sides; None if a side has none."""

    kind: str  # tenant, namespace, topic, partitions, policy, schema, subscription
    name: str
    what: str
    a: object = None
    b: object = None

    def described(self) -> dict[str, object]:
        return {"kind": self.kind, "name": self.name, "what": self.what, "a": self.a, "b": self.b}


@dataclass(slots=True)
class Findings:
    differences: list[Difference] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def compare_clusters(a: ClusterState, b: ClusterState) -> Findings:
    """Compares all but the topics that both have, which `compare_topics` does."""
    found = Findings()
    for name in sorted(a.tenants.keys() | b.tenants.keys()):
        if name not in a.tenants or name not in b.tenants:
            found.differences.append(_one_side("tenant", name, name in a.tenants))
        else:
            own = (OWN_TENANT_FIELDS, "setting")
            found.differences.extend(_compare_values(name, a.tenants[name], b.tenants[name], a.name, b.name, *own))
    for name in sorted(a.namespaces.keys() | b.namespaces.keys()):
        here, there = a.namespaces.get(name), b.namespaces.get(name)
        if here is None or there is None:
            one = here or there
            assert one is not None
            found.differences.append(_one_side("namespace", name, there is None, topics=len(one.topics)))
            continue
        found.differences.extend(
            _compare_values(name, here.policies, there.policies, a.name, b.name, OWN_POLICIES, "policy")
        )
        _compare_names(here.topics, there.topics, found)
    return found


def shared_topics(a: ClusterState, b: ClusterState) -> list[str]:
    return sorted(
        topic
        for name in a.namespaces.keys() & b.namespaces.keys()
        for topic in a.namespaces[name].topics.keys() & b.namespaces[name].topics.keys()
    )


def compare_topics(
    topic: str, a: TopicState, b: TopicState, a_name: str | None, b_name: str | None
) -> Iterator[Difference]:
    if a.policies is not None and b.policies is not None:
        ignored = OWN_TOPIC_POLICIES | a.unsupported | b.unsupported
        yield from _compare_values(topic, a.policies, b.policies, a_name, b_name, ignored, "policy")
    if a.schemas is not None and b.schemas is not None:
        yield from _compare_schemas(topic, a.schemas, b.schemas)
    if a.subscriptions is not None and b.subscriptions is not None:
        for name in sorted(a.subscriptions ^ b.subscriptions):
            if not is_internal(name):
                yield _one_side("subscription", f"{topic} {name}", name in a.subscriptions)


def is_internal(subscription: str) -> bool:
    """A subscription of replication, deduplication, compaction or of a reader."""
    return _INTERNAL.match(subscription) is not None


def is_system_topic(topic: str) -> bool:
    return topic.rpartition("/")[2].startswith("__")


# -- parts


def _compare_names(a: Mapping[str, int], b: Mapping[str, int], found: Findings) -> None:
    dead_letter_topics = []
    for topic in sorted(a.keys() | b.keys()):
        if topic in a and topic in b:
            if a[topic] != b[topic]:
                what = f"{_partitioning(a[topic])} in A, {_partitioning(b[topic])} in B"
                found.differences.append(Difference("partitions", topic, what, a[topic], b[topic]))
        elif topic.partition(PARTITION_SUFFIX)[0].endswith(SUFFIXES):
            dead_letter_topics.append(
                f"{topic} is only in {'A' if topic in a else 'B'}: dead letter topics are not replicated by default"
            )
        else:
            found.differences.append(_one_side("topic", topic, topic in a))
    found.remarks.extend(dead_letter_topics)


def _compare_values(
    name: str,
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    a_name: str | None,
    b_name: str | None,
    ignored: frozenset[str],
    kind: str,
) -> Iterator[Difference]:
    for key in sorted((a.keys() | b.keys()) - ignored):
        here, there = normal(a.get(key), a_name), normal(b.get(key), b_name)
        if here == there or (_is_unset(here) and _is_unset(there)):
            continue
        what = f"{key} is {shown(here)} in A and {shown(there)} in B"
        yield Difference(kind, name, what, {key: here}, {key: there})


def _compare_schemas(topic: str, a: tuple[SchemaVersion, ...], b: tuple[SchemaVersion, ...]) -> Iterator[Difference]:
    """Versions may be in another order, as in clusters that replicate in both directions."""
    for side, own, others in (("A", a, b), ("B", b, a)):
        for schema in dict.fromkeys(own):
            if schema not in others:
                what = f"version {own.index(schema)} ({schema.kind}) is only in {side}"
                value = schema.described()
                yield Difference("schema", topic, what, value if side == "A" else None, value if side == "B" else None)
    if a and b and set(a) == set(b) and a[-1] != b[-1]:
        yield Difference("schema", topic, "the newest versions differ", a[-1].described(), b[-1].described())


def normal(value: Any, cluster: str | None) -> Any:
    """Without empty values, lists of names sorted, and the cluster's own name replaced by a common word."""
    if isinstance(value, Mapping):
        items = ((key, normal(item, cluster)) for key, item in value.items())
        return {_THIS_CLUSTER if key == cluster else key: item for key, item in items if not _is_empty(item)} or None
    if isinstance(value, list):
        values = [normal(item, cluster) for item in value]
        return sorted(values) if all(isinstance(item, str) for item in values) else values
    return value


def _is_empty(value: object) -> bool:
    return value is None or value in ({}, [], "")


def _is_unset(value: object) -> bool:
    """A value that some brokers send for an unset field."""
    return _is_empty(value) or value is False or (isinstance(value, int) and value in (0, -1))


def _one_side(kind: str, name: str, is_in_a: bool, **more: object) -> Difference:
    side = "A" if is_in_a else "B"
    size = "".join(f", with {count} {noun}" for noun, count in more.items())
    return Difference(
        kind, name, f"only in {side}{size}", more or True if is_in_a else None, None if is_in_a else more or True
    )


def _partitioning(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}" if partitions else "not partitioned"


def shown(value: object) -> str:
    if value is None:
        return "not set"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= 200 else text[:200] + "…"

"""What differs between two clusters that should be alike: comparing what was asked of them, and nothing else.

Owns what counts as a difference. What replication itself brings with it does not: its subscriptions, the clusters in
lists, how a broker cuts a namespace into bundles. Asks nobody; `inventory` does.
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

# A cluster has these for itself: who replicates where is the very thing in which the two sides are each other's mirror.
OWN_POLICIES = frozenset(
    {"replication_clusters", "allowed_clusters", "bundles", "deleted", "migrated", "latency_stats_sample_rate"}
)
OWN_TOPIC_POLICIES = frozenset({"replication"})
OWN_TENANT_FIELDS = frozenset({"allowedClusters"})

_THIS_CLUSTER = "(this cluster)"
_BROKERS_OWN = re.compile(
    rf"({re.escape(SUBSCRIPTION_PREFIX)}|{re.escape(FOREIGN_SUBSCRIPTION_PREFIX)}|pulsar\.dedup$|__compaction$"
    r"|reader-[0-9a-f]{10}$|multiTopicsReader-[0-9a-f]{10}$|magnetar-[0-9a-f]{16}$|position-at-)"
)


@dataclass(frozen=True, slots=True)
class Schema:
    """One version, without its number and its time, which every cluster gives itself."""

    kind: str
    definition: str
    properties: tuple[tuple[str, str], ...]

    @staticmethod
    def of(answer: Mapping[str, Any]) -> Schema:
        data = answer.get("data") or ""
        with contextlib.suppress(ValueError):  # of primitive types it is no JSON
            data = json.dumps(json.loads(data), sort_keys=True)
        properties = answer.get("properties") or {}
        return Schema(str(answer.get("type")), str(data), tuple(sorted(properties.items())))

    def described(self) -> dict[str, object]:
        return {"type": self.kind, "schema": self.definition, "properties": dict(self.properties)}


@dataclass(frozen=True, slots=True)
class TopicState:
    """`policies` and the rest are None where the cluster cannot tell."""

    policies: Mapping[str, Any] | None = None
    schemas: tuple[Schema, ...] | None = None  # the newest last
    subscriptions: frozenset[str] | None = None
    untold: frozenset[str] = frozenset()  # policies that the cluster does not know


@dataclass(frozen=True, slots=True)
class NamespaceState:
    policies: Mapping[str, Any]
    topics: Mapping[str, int]  # full names, without partitions; how many there are, 0 for a plain topic


@dataclass(frozen=True, slots=True)
class ClusterState:
    name: str | None
    tenants: Mapping[str, Mapping[str, Any]]
    namespaces: Mapping[str, NamespaceState]


@dataclass(frozen=True, slots=True)
class Difference:
    """`a` and `b` are what the two sides have; None where that side has nothing."""

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
    """Everything but the insides of topics, which `compare_topics` looks at for those that both have."""
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
        ignored = OWN_TOPIC_POLICIES | a.untold | b.untold
        yield from _compare_values(topic, a.policies, b.policies, a_name, b_name, ignored, "policy")
    if a.schemas is not None and b.schemas is not None:
        yield from _compare_schemas(topic, a.schemas, b.schemas)
    if a.subscriptions is not None and b.subscriptions is not None:
        for name in sorted(a.subscriptions ^ b.subscriptions):
            if not is_brokers_own(name):
                yield _one_side("subscription", f"{topic} {name}", name in a.subscriptions)


def is_brokers_own(subscription: str) -> bool:
    """Of replication, deduplication and compaction, or of a reader, which is gone with it."""
    return _BROKERS_OWN.match(subscription) is not None


def is_system_topic(topic: str) -> bool:
    return topic.rpartition("/")[2].startswith("__")


# -- parts


def _compare_names(a: Mapping[str, int], b: Mapping[str, int], found: Findings) -> None:
    letters = []
    for topic in sorted(a.keys() | b.keys()):
        if topic in a and topic in b:
            if a[topic] != b[topic]:
                what = f"{_shape(a[topic])} in A, {_shape(b[topic])} in B"
                found.differences.append(Difference("partitions", topic, what, a[topic], b[topic]))
        elif topic.partition(PARTITION_SUFFIX)[0].endswith(SUFFIXES):
            letters.append(
                f"{topic} is only in {'A' if topic in a else 'B'}: such topics are not replicated by default"
            )
        else:
            found.differences.append(_one_side("topic", topic, topic in a))
    found.remarks.extend(letters)


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
        if here == there or (_is_nothing(here) and _is_nothing(there)):
            continue
        what = f"{key} is {shown(here)} in A and {shown(there)} in B"
        yield Difference(kind, name, what, {key: here}, {key: there})


def _compare_schemas(topic: str, a: tuple[Schema, ...], b: tuple[Schema, ...]) -> Iterator[Difference]:
    """In clusters that replicate both ways versions come in another order on each side: that is no difference."""
    for side, own, others in (("A", a, b), ("B", b, a)):
        for schema in dict.fromkeys(own):
            if schema not in others:
                what = f"version {own.index(schema)} ({schema.kind}) is only in {side}"
                value = schema.described()
                yield Difference("schema", topic, what, value if side == "A" else None, value if side == "B" else None)
    if a and b and set(a) == set(b) and a[-1] != b[-1]:
        yield Difference("schema", topic, "the newest version is another one", a[-1].described(), b[-1].described())


def normal(value: Any, cluster: str | None) -> Any:
    """Without what is empty, lists of names in order, and the cluster's own name under one word for both sides."""
    if isinstance(value, Mapping):
        items = ((key, normal(item, cluster)) for key, item in value.items())
        return {_THIS_CLUSTER if key == cluster else key: item for key, item in items if not _is_empty(item)} or None
    if isinstance(value, list):
        values = [normal(item, cluster) for item in value]
        return sorted(values) if all(isinstance(item, str) for item in values) else values
    return value


def _is_empty(value: object) -> bool:
    return value is None or value in ({}, [], "")


def _is_nothing(value: object) -> bool:
    """What one implementation writes where another leaves a field out."""
    return _is_empty(value) or value is False or (isinstance(value, int) and value in (0, -1))


def _one_side(kind: str, name: str, is_in_a: bool, **more: object) -> Difference:
    side = "A" if is_in_a else "B"
    size = "".join(f", with {count} {noun}" for noun, count in more.items())
    return Difference(
        kind, name, f"only in {side}{size}", more or True if is_in_a else None, None if is_in_a else more or True
    )


def _shape(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions > 1 else ''}" if partitions else "not partitioned"


def shown(value: object) -> str:
    if value is None:
        return "not set"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if len(text) <= 200 else text[:200] + "…"

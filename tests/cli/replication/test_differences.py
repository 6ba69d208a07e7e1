"""Differences between two clusters, from collected facts, without a broker."""

from __future__ import annotations

from magnetar.cli.replication.differences import (
    ClusterState,
    NamespaceState,
    SchemaVersion,
    TopicState,
    compare_clusters,
    compare_topics,
    is_internal,
)

TOPIC = "persistent://acme/shop/orders"


def cluster(name: str, **policies: object) -> ClusterState:
    return ClusterState(name, {"acme": {"allowedClusters": [name]}}, {"acme/shop": NamespaceState(policies, {})})


def whats(a: ClusterState, b: ClusterState) -> list[str]:
    return [one.what for one in compare_clusters(a, b).differences]


def test_effects_of_replication_are_no_difference() -> None:
    a = cluster("a", replication_clusters=["a", "b"], topicDispatchRate={"a": {"dispatchThrottlingRateInMsg": 5}})
    b = cluster("b", replication_clusters=["b"], topicDispatchRate={"b": {"dispatchThrottlingRateInMsg": 5}})
    assert whats(a, b) == []
    for name in ("pulsar.repl.b", "magnetar.repl.a", "pulsar.dedup", "__compaction", "reader-0123456789"):
        assert is_internal(name)
    for name in ("reader-mine", "pulsar.replica", "billing", "pulsar.dedup.mine"):
        assert not is_internal(name)


def test_all_spellings_of_unset_are_equal() -> None:
    a = cluster("a", retention=None, flag=False, limit=0, auth={"namespace_auth": {}}, roles=["x", "y"])
    b = cluster("b", threshold=-1, words=[], roles=["y", "x"])
    assert whats(a, b) == []
    assert whats(cluster("a", limit=3), cluster("b", limit=0)) == ["limit is 3 in A and 0 in B"]
    assert whats(cluster("a"), cluster("b", flag=True)) == ["flag is not set in A and true in B"]


def test_schemas_are_compared_by_content() -> None:
    one = SchemaVersion.of({"version": 0, "type": "JSON", "data": '{"a": 1, "b": 2}', "timestamp": 1})
    same = SchemaVersion.of({"version": 7, "type": "JSON", "data": '{"b":2,"a":1}', "timestamp": 2, "properties": {}})
    other = SchemaVersion.of({"version": 1, "type": "STRING", "data": ""})
    assert one == same
    mirrored = TopicState(schemas=(one, other)), TopicState(schemas=(other, same))
    assert [d.what for d in compare_topics(TOPIC, *mirrored, "a", "b")] == ["the newest versions differ"]
    missing = TopicState(schemas=(one, other)), TopicState(schemas=(same,))
    assert [d.what for d in compare_topics(TOPIC, *missing, "a", "b")] == ["version 1 (STRING) is only in A"]


def test_unknown_facts_are_not_compared() -> None:
    a = TopicState({"maxConsumers": 3, "maxProducers": 3}, (), frozenset({"s"}))
    b = TopicState({"maxProducers": 4}, None, None, frozenset({"maxConsumers"}))
    assert [d.what for d in compare_topics(TOPIC, a, b, "a", "b")] == ["maxProducers is 3 in A and 4 in B"]

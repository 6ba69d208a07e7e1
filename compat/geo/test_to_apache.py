"""Replication from our broker to Apache Pulsar by our pipeline: completeness, exactly once, and topic mapping."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from clusters import Apache, Cluster, Ours, new_namespace, partition, until
from kinds import MESSAGES, Order, check_copies, check_orders, publish_all_kinds, publish_orders
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record
from routes import Routes

from magnetar.replication.model import ROUTE


def test_gr7_messages_of_all_kinds_arrive_unchanged(ours: Ours, apache: Apache, routes: Routes, namespace: str) -> None:
    topic = f"persistent://{namespace}/kinds"
    ours.replicate(namespace, apache)
    routes.declared_by(ours)
    ours.create(topic)
    publish_all_kinds(ours, topic)
    until(lambda: ours.is_copied(topic, apache), "all messages are copied")
    assert len(apache.read(topic)) == MESSAGES
    check_copies(ours, apache, topic)


def test_gr2_partitions_are_created_and_added_in_apache_pulsar(
    ours: Ours, apache: Apache, routes: Routes, namespace: str
) -> None:
    topic = f"persistent://{namespace}/parts"
    apache.ask("POST", f"namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False})
    ours.replicate(namespace, apache)
    routes.declared_by(ours)
    ours.create(topic, 3)
    until(lambda: apache.partitions(topic) == 3, "three partitions in Apache Pulsar")
    values = [b"%d" % number for number in range(30)]
    with ours.producer(topic) as producer:
        for number, value in enumerate(values):
            producer.send(value, partition_key=f"key {number % 7}")
    until(lambda: ours.is_copied(topic, apache), "all partitions are copied")
    for index in range(3):
        assert apache.values(partition(topic, index)) == ours.values(partition(topic, index))
    copies = [value for index in range(3) for value in apache.values(partition(topic, index))]
    assert sorted(copies) == sorted(values)

    ours.ask("POST", f"persistent/{namespace}/parts/partitions", 4)
    until(lambda: apache.partitions(topic) == 4, "four partitions in Apache Pulsar")
    ours.publish(partition(topic, 3), [b"new"])
    apache.has(partition(topic, 3), [b"new"])

    plain = f"persistent://{namespace}/plain"
    ours.create(plain)
    until(lambda: apache.partitions(plain) == 0, "a topic without partitions in Apache Pulsar")


@pytest.mark.parametrize("kind", [JsonSchema, AvroSchema])
def test_gr8_schemas_are_replicated_with_the_messages(
    ours: Ours, apache: Apache, routes: Routes, namespace: str, kind: type
) -> None:
    topic = f"persistent://{namespace}/{kind.__name__.lower()}"
    ours.replicate(namespace, apache)
    routes.declared_by(ours)
    ours.create(topic)
    publish_orders(ours, topic, kind)
    until(lambda: ours.is_copied(topic, apache), "all messages are copied")
    check_orders(ours, apache, topic, kind)


def test_gr8_a_schema_rejected_by_apache_pulsar_stops_the_topic_or_is_dead_lettered_by_policy(
    ours: Ours, apache: Apache, routes: Routes, namespace: str
) -> None:
    topic = f"persistent://{namespace}/refused"
    ours.replicate(namespace, apache)
    routes.declared_by(ours)
    apache.create(topic)
    with apache.producer(topic, schema=AvroSchema(Order)):
        pass
    ours.create(topic)
    ours.ask("POST", f"persistent/{namespace}/refused/schemaValidationEnforced", False)

    class Other(Record):
        other = Integer(required=True)

    with ours.producer(topic, schema=AvroSchema(Other)) as producer:
        producer.send(Other(other=1))
    until(lambda: ours.states(topic, apache) == ["refused-by-remote"], "refused")
    (row,) = ours.status(topic, apache)
    assert "schema" in row["reason"].lower()
    assert row["backlog"] == 1
    ours.ask("POST", f"replication/routes/{apache.name}/{namespace}/refused", {"refused": "park"})
    until(lambda: ours.is_copied(topic, apache), "the message is dead-lettered")
    parked = f"{topic}-{apache.name}-REPL-DLQ"
    assert len(ours.read(parked)) == 1
    assert apache.values(topic) == []


def test_gr7_disabled_deduplication_in_apache_pulsar_is_reported_and_waited_for(
    ours: Ours, apache: Apache, routes: Routes
) -> None:
    namespace = new_namespace(ours, apache, deduplicates=False)
    topic = f"persistent://{namespace}/twice"
    ours.replicate(namespace, apache)
    routes.declared_by(ours)
    ours.create(topic)
    ours.publish(topic, [b"1", b"2"])
    until(lambda: ours.states(topic, apache) == ["refused-by-remote"], "refused")
    (row,) = ours.status(topic, apache)
    assert "deduplication" in row["reason"]
    assert row["backlog"] == 2
    assert apache.values(topic) == []
    apache.ask("POST", f"namespaces/{namespace}/deduplication", True)
    apache.has(topic, [b"1", b"2"])
    until(lambda: ours.is_copied(topic, apache), "replication resumes")


def test_gr6_messages_for_other_clusters_and_dead_letters_are_not_replicated(
    ours: Ours, apache: Apache, routes: Routes, namespace: str
) -> None:
    topic = f"persistent://{namespace}/chosen"
    ours.replicate(namespace, apache)
    routes.declared_by(ours)
    ours.create(topic)
    ours.publish(f"{topic}-sub-DLQ", [b"dead"])
    with ours.producer(topic) as producer:
        producer.send(b"for all")
        producer.send(b"for nobody", disable_replication=True)
        producer.send(b"for apache", replication_clusters=[apache.name])
        producer.send(b"for others", replication_clusters=["elsewhere"])
        producer.send(b"last")
    apache.has(topic, [b"for all", b"for apache", b"last"])
    until(lambda: ours.is_copied(topic, apache), "skipped messages are acknowledged too")
    assert apache.partitions(f"{topic}-sub-DLQ") is None


SHAPES = {
    "pip370": {(0, 0): [0], (1, 1): [0], (2, 2): [0, 1], (2, 1): [0], (2, 3): [0, 1], (2, 0): [], (0, 2): []},
    "stop": {(0, 0): [0], (1, 1): [0], (2, 2): [0, 1], (2, 1): [], (2, 3): [], (2, 0): [], (0, 2): []},
}
"""Local and remote partitions: which of them are copied. The eighth row, no remote topic, has its own test."""


@pytest.mark.parametrize("mismatch", ["pip370", "stop"])
def test_gr3_gr4_the_table_of_partition_shapes(
    apache: Apache, routes: Routes, new_ours: Callable[..., Ours], mismatch: str
) -> None:
    ours = new_ours(
        f"ours-{mismatch}", partitionMismatch=mismatch, createTopicToRemoteClusterForReplication=mismatch == "stop"
    )
    namespace = new_namespace(ours, apache)
    missing = f"persistent://{namespace}/missing"
    ours.create(missing, 2)
    for here, there in SHAPES[mismatch]:
        topic = f"persistent://{namespace}/shape-{here}-{there}"
        ours.create(topic, here)
        apache.create(topic, there)
    ours.replicate(namespace, apache)
    pipeline = routes.declared_by(ours)
    for (here, there), indexes in SHAPES[mismatch].items():
        topic = f"persistent://{namespace}/shape-{here}-{there}"
        wanted = ["running" if index in indexes else "partition-mismatch" for index in range(max(here, 1))]
        until(lambda topic=topic, wanted=wanted: ours.states(topic, apache) == wanted, f"{topic} is {wanted}")
        for index, row in enumerate(ours.status(topic, apache)):
            part = partition(topic, index) if here else topic
            ours.publish(part, [b"1"])
            if index in indexes:
                apache.has(part, [b"1"])
            else:
                assert "in the remote cluster" in row["reason"]
        assert apache.partitions(topic) == there, "no partition count changed"
    if mismatch == "stop":
        until(lambda: apache.partitions(missing) == 2, "the missing topic is created")
    else:
        until(
            lambda: ours.states(missing, apache) == ["waiting-for-remote-topic"] * 2, "replication waits for the topic"
        )
        assert apache.partitions(missing) is None
        apache.create(missing, 2)
    until(lambda: ours.states(missing, apache) == ["running"] * 2, "replication starts")
    pipeline.stop()


def test_sp6_a_route_filters_masks_and_renames(ours: Ours, apache: Apache, routes: Routes, namespace: str) -> None:
    topic, renamed = f"persistent://{namespace}/people", f"persistent://{namespace}/people-of-ours"
    ours.replicate(namespace, apache)
    masked = {"where": "number > 2", "masks": [{"field": "text", "kind": "fixed", "text": "hidden"}]}
    ours.ask("POST", f"replication/routes/{apache.name}/{namespace}", {**masked, "rename": "{topic}-of-ours"})
    routes.declared_by(ours)
    ours.create(topic)
    publish_orders(ours, topic, JsonSchema)
    until(lambda: ours.is_copied(topic, apache), "all messages are copied")
    copies = apache.read(renamed, schema=JsonSchema(Order))
    assert [(copy.value().number, copy.value().text) for copy in copies] == [(n, "hidden") for n in range(3, 10)]
    assert all(ROUTE in copy.properties() for copy in copies)
    assert apache.partitions(topic) is None


def test_gr9_subscription_positions_are_replicated_to_apache_pulsar(
    ours: Ours, apache: Apache, routes: Routes, namespace: str
) -> None:
    topic = f"persistent://{namespace}/followed"
    ours.replicate(namespace, apache)
    routes.declared_by(ours)
    ours.create(topic)
    consumer = ours.client.subscribe(topic, "moves", replicate_subscription_state_enabled=True)
    ours.publish(topic, [b"%d" % number for number in range(50)])
    for _ in range(30):
        consumer.acknowledge(consumer.receive(10_000))

    def backlog() -> int | None:
        found = apache.stats(topic)["subscriptions"].get("moves") if apache.partitions(topic) == 0 else None
        return None if found is None else int(found["msgBacklog"])

    until(lambda: backlog() == 20, "the position is replicated")
    consumer.close()
    moved = apache.client.subscribe(topic, "moves")
    assert [moved.receive(10_000).data() for _ in range(20)] == [b"%d" % number for number in range(30, 50)]
    moved.close()


def test_gr10_a_topic_created_on_both_sides_at_once(ours: Ours, apache: Apache, routes: Routes, namespace: str) -> None:
    ours.replicate(namespace, apache)
    apache.replicate(namespace, ours)
    routes.declared_by(ours)
    shapes = {f"persistent://{namespace}/same-{number}": number % 4 for number in range(20)}

    def create(cluster: Cluster, topic: str) -> None:
        """The later creation finds an existing topic, as in a deployment."""
        with contextlib.suppress(AssertionError):
            cluster.create(topic, shapes[topic])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda pair: create(*pair), ((cluster, topic) for topic in shapes for cluster in (ours, apache))))
    for topic, partitions in shapes.items():
        assert [cluster.partitions(topic) for cluster in (ours, apache)] == [partitions, partitions]
        states = ["running"] * max(1, partitions)
        until(lambda topic=topic, states=states: ours.states(topic, apache) == states, f"{topic} is running")
    assert sorted(ours.ask("GET", f"persistent/{namespace}")) == sorted(apache.ask("GET", f"persistent/{namespace}"))

"""Apache Pulsar's replicator with our broker as its remote cluster, alone and together with our pipeline."""

from __future__ import annotations

from collections.abc import Callable

import pulsar
from clusters import Apache, Cluster, Ours, new_namespace, partition, until
from kinds import MESSAGES, check_copies, check_orders, publish_all_kinds, publish_orders
from pulsar.schema import JsonSchema
from routes import Routes


def is_copied(source: Apache, topic: str, target: Cluster) -> bool:
    found = source.stats(topic)["replication"].get(target.name)
    return bool(found) and found["connected"] and found["replicationBacklog"] == 0


LIMIT = 5 << 20


def test_gr7_messages_of_all_kinds_arrive_unchanged(apache: Apache, new_ours: Callable[..., Ours]) -> None:
    """Chunks have Apache Pulsar's maximum size and their copies exceed it a little.

    The replicator would drop them silently if our broker did not allow more.
    """
    ours = new_ours("ours-large", maxMessageSize=LIMIT + 1024)
    namespace = new_namespace(ours, apache)
    kinds, orders, parts = (f"persistent://{namespace}/{name}" for name in ("kinds", "orders", "parts"))
    ours.ask("POST", f"namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False})
    apache.replicate(namespace, ours)
    apache.create(parts, 2)
    until(lambda: ours.partitions(parts) == 2, "Apache Pulsar creates the topic in our broker")
    apache.publish(partition(parts, 0), [b"0"])
    apache.publish(partition(parts, 1), [b"1"])
    ours.has(partition(parts, 0), [b"0"])
    ours.has(partition(parts, 1), [b"1"])
    apache.ask("POST", f"persistent/{namespace}/parts/partitions", 3)
    until(lambda: ours.partitions(parts) == 3, "Apache Pulsar adds a partition in our broker")

    apache.create(kinds)
    publish_all_kinds(apache, kinds)
    until(lambda: ours.partitions(kinds) == 0, "the topic appears")
    until(lambda: is_copied(apache, kinds, ours), "all messages are copied")
    assert len(ours.read(kinds)) == MESSAGES
    check_copies(apache, ours, kinds)

    apache.create(orders)
    publish_orders(apache, orders, JsonSchema)
    until(lambda: ours.partitions(orders) == 0, "the topic of orders appears")
    until(lambda: is_copied(apache, orders, ours), "orders are copied")
    check_orders(apache, ours, orders, JsonSchema)


def test_gr9_markers_of_replicated_subscriptions_neither_stall_replication_nor_reach_a_consumer(
    ours: Ours, apache: Apache, namespace: str
) -> None:
    topic = f"persistent://{namespace}/marked"
    apache.replicate(namespace, ours)
    apache.create(topic)
    consumer = apache.client.subscribe(
        topic,
        "follows",
        initial_position=pulsar.InitialPosition.Earliest,
        replicate_subscription_state_enabled=True,
    )
    values = [b"%d" % number for number in range(40)]
    with apache.producer(topic) as producer:
        for value in values:
            producer.send(value)
            consumer.acknowledge(consumer.receive(10_000))

    def has_markers() -> bool:
        """There are more entries than messages."""
        return int(apache.ask("GET", f"persistent/{namespace}/marked/internalStats")["entriesAddedCounter"]) > 40

    until(has_markers, "Apache Pulsar writes markers")
    ours.has(topic, values)
    apache.publish(topic, [b"after markers"])
    ours.has(topic, [*values, b"after markers"])
    until(lambda: is_copied(apache, topic, ours), "nothing waits")
    consumer.close()


def test_gr6_both_directions_without_loops_or_duplicates(
    ours: Ours, apache: Apache, routes: Routes, namespace: str
) -> None:
    topic = f"persistent://{namespace}/both"
    ours.replicate(namespace, apache)
    apache.replicate(namespace, ours)
    routes.declared_by(ours)
    ours.create(topic, 2)
    until(lambda: apache.partitions(topic) == 2, "the topic exists in both clusters")
    part = partition(topic, 1)
    for number in range(5):
        ours.publish(part, [b"ours %d-%d" % (number, index) for index in range(20)], batching_enabled=bool(number % 2))
        apache.publish(part, [b"apache %d-%d" % (number, index) for index in range(20)])
    until(lambda: ours.is_copied(topic, apache), "all messages of ours are copied")
    until(lambda: is_copied(apache, part, ours), "all messages of theirs are copied")
    everything = [
        b"%s %d-%d" % (name, number, index)
        for name in (b"ours", b"apache")
        for number in range(5)
        for index in range(20)
    ]
    for cluster in (ours, apache):
        found = cluster.values(part)
        assert sorted(found) == sorted(everything), f"each message once in {cluster.name}"
        for name in (b"ours", b"apache"):
            assert [value for value in found if value.startswith(name)] == [
                value for value in everything if value.startswith(name)
            ], "the producer's order is kept"
    ours.publish(part, [b"last of ours"])
    apache.publish(part, [b"last of theirs"])
    until(lambda: len(ours.values(part)) == 202 and len(apache.values(part)) == 202, "the last messages arrive")
    until(lambda: ours.is_copied(topic, apache) and is_copied(apache, part, ours), "nothing loops back")
    assert len(ours.values(part)) == len(apache.values(part)) == 202

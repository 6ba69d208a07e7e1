"""Topics replicated between real brokers by real Spark jobs, from the declaration to the copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.pipelines.replicate.driver import Pipeline
from magnetar.pipelines.replicate.sources import ListedSource, Selection
from magnetar.replication.cluster import ClusterEndpoint, endpoint_of
from magnetar.replication.model import ClusterAddress
from tests.pipelines.conftest import NAMESPACE, RETRY_MAX_S, Cluster, World, full, until

SLACK_S = 5.0  # on a busy machine


def test_gr1_gr6_both_directions_without_loops(two: tuple[Cluster, Cluster]) -> None:
    a, b = two
    a.create("orders")
    a.publish("orders", b"a1", b"a2")
    assert b.values("orders", 2) == [b"a1", b"a2"]
    b.publish("orders", b"b1")
    assert a.values("orders", 3) == [b"a1", b"a2", b"b1"]
    assert not a.has_more_than("orders", 3)
    assert not b.has_more_than("orders", 3)
    until(lambda: a.states("orders", b) == ["running"], "running")


def test_gr6_a_mesh_of_three_has_every_message_once_everywhere(world: World) -> None:
    clusters = world.mesh("a", "b", "c")
    for cluster in clusters:
        world.pipeline(cluster)
    clusters[0].create("mesh")
    for cluster in clusters:
        cluster.wait_for("mesh")
        cluster.publish("mesh", *(f"{cluster.name}{number}".encode() for number in range(3)))
    everything = {f"{name}{number}".encode() for name in "abc" for number in range(3)}
    for cluster in clusters:
        messages = cluster.read("mesh", 9)
        assert {message.value for message in messages} == everything
        for origin in "abc":
            own = [message.value for message in messages if message.value.startswith(origin.encode())]
            assert own == sorted(own), "the order of a producer"
    for cluster in clusters:
        assert not cluster.has_more_than("mesh", 9, within_s=0.2)


def test_gr2_topics_appear_grow_are_withdrawn_and_deleted_without_a_restart(world: World) -> None:
    a, b = world.mesh("a", "b")
    b.replicate()  # not back
    pipeline = world.pipeline(a)
    a.create("grown", 2)
    a.publish("grown-partition-1", b"1")
    assert b.values("grown-partition-1", 1) == [b"1"]
    assert b.client.partition_count(full("grown")) == 2

    a.grow("grown", 3)
    a.publish("grown-partition-2", b"2")
    until(lambda: b.client.partition_count(full("grown")) == 3, "the remote grows")
    assert b.values("grown-partition-2", 1) == [b"2"]
    until(lambda: a.states("grown", b) == ["running"] * 3, "all partitions run")

    a.delete("grown", partitioned=True)
    until(lambda: pipeline.board.state_of((f"{full('grown')}-partition-0", "b")) is None, "deleted")
    assert a.ask("GET", "replication/status") == []
    assert b.values("grown-partition-1", 1) == [b"1"], "what was copied stays"

    a.create("grown", 3)
    a.publish("grown-partition-1", b"again")
    assert b.values("grown-partition-1", 2) == [b"1", b"again"]

    a.replicate()
    until(lambda: pipeline.board.state_of((f"{full('grown')}-partition-0", "b")) is None, "withdrawn")
    a.publish("grown-partition-1", b"kept here")
    assert not b.has_more_than("grown-partition-1", 2)


def test_gr3_waits_for_the_remote_topic_and_starts_within_a_back_off(world: World) -> None:
    a, b = world.mesh("a", "b", createTopicToRemoteClusterForReplication=False)
    b.replicate()
    world.pipeline(a)
    a.create("awaited")
    a.publish("awaited", b"1")
    until(lambda: a.states("awaited", b) == ["waiting-for-remote-topic"], "waiting")
    (row,) = a.status("awaited", b)
    assert "createTopicToRemoteClusterForReplication is false" in row["reason"]
    assert row["backlog"] == 1
    assert b.client.partition_count(full("awaited")) is None

    b.create("awaited")
    assert until(lambda: a.states("awaited", b) == ["running"], "running") < RETRY_MAX_S + SLACK_S
    assert b.values("awaited", 1) == [b"1"]


@pytest.mark.parametrize(
    ("mismatch", "copied"),
    [
        ("pip370", {(1, 1): [0], (2, 1): [0], (2, 3): [0, 1], (2, 0): [], (0, 2): []}),
        ("stop", {(1, 1): [0], (2, 1): [], (2, 3): [], (2, 0): [], (0, 2): []}),
    ],
)
def test_gr4_different_numbers_of_partitions(
    world: World, mismatch: str, copied: dict[tuple[int, int], list[int]]
) -> None:
    a, b = world.mesh("a", "b", partitionMismatch=mismatch)
    b.replicate()
    a.replicate()
    for local, remote in copied:
        b.create(f"shape-{local}-{remote}", remote)
        a.create(f"shape-{local}-{remote}", local)
    a.replicate(b)
    world.pipeline(a)
    for (local, remote), indexes in copied.items():
        topic = f"shape-{local}-{remote}"
        expected = ["running" if index in indexes else "partition-mismatch" for index in range(max(local, 1))]
        until(lambda topic=topic, expected=expected: a.states(topic, b) == expected, f"{topic} is {expected}")  # type: ignore[misc]
        for index, row in enumerate(a.status(topic, b)):
            partition = f"{topic}-partition-{index}" if local else topic
            a.publish(partition, b"1")
            if index in indexes:
                assert b.values(partition, 1) == [b"1"]
            else:
                assert "in the remote cluster" in row["reason"]
    for local, remote in copied:
        assert b.client.partition_count(full(f"shape-{local}-{remote}")) == remote, "no shape was changed"


def test_gr5_an_unreachable_remote_that_returns(world: World, tmp_path: Path) -> None:
    a, b = world.cluster("a"), world.cluster("b", tmp_path)
    a.ask("PUT", "clusters/b", {"serviceUrl": "http://127.0.0.1:9", "brokerServiceUrl": "pulsar://127.0.0.1:9"})
    a.replicate(b)
    b.replicate()
    world.pipeline(a)
    a.create("far")
    a.publish("far", b"1")
    until(lambda: a.states("far", b) == ["unreachable"], "unreachable")
    (row,) = a.status("far", b)
    assert "127.0.0.1:9" in row["reason"]
    until(lambda: bool(a.status("far", b)[0]["lastError"]), "the report of the driver, after the broker's own check")
    a.know(b)
    assert b.values("far", 1) == [b"1"]
    until(lambda: a.states("far", b) == ["running"], "running")

    b.stop_broker()
    a.publish("far", b"2")
    until(lambda: a.states("far", b) == ["unreachable"], "unreachable again")
    assert a.status("far", b)[0]["backlog"] == 1
    again = world.cluster("b", tmp_path)
    a.know(again)
    assert again.values("far", 2) == [b"1", b"2"]


def test_paused_and_resumed(world: World) -> None:
    a, b = world.mesh("a", "b")
    b.replicate()
    world.pipeline(a)
    a.create("calm")
    a.publish("calm", b"1")
    assert b.values("calm", 1) == [b"1"]
    a.set_route(b, f"{NAMESPACE}/calm", paused=True)
    assert a.pipeline is not None
    board = a.pipeline.board
    until(lambda: board.state_of((full("calm"), "b")) == "paused", "paused")
    assert a.states("calm", b) == ["paused"]
    a.publish("calm", b"2")
    assert not b.has_more_than("calm", 1)
    a.set_route(b, f"{NAMESPACE}/calm", paused=False)
    assert b.values("calm", 2) == [b"1", b"2"]


def test_gr8_dead_letter_topics_are_left_out_unless_requested(world: World) -> None:
    a, b = world.mesh("a", "b")
    b.replicate()
    world.pipeline(a)
    a.create("orders-sub-DLQ")
    a.publish("orders-sub-DLQ", b"dead")
    a.create("orders")
    a.publish("orders", b"alive")
    assert b.values("orders", 1) == [b"alive"]
    assert a.status("orders-sub-DLQ", b) == []
    assert b.client.partition_count(full("orders-sub-DLQ")) is None
    a.set_route(b, NAMESPACE, deadLetters=True)
    a.publish("orders-sub-DLQ", b"wanted")
    assert b.values("orders-sub-DLQ", 1) == [b"wanted"]


def test_gr7_a_cluster_without_declarations_is_copied_from_a_list(world: World) -> None:
    """As from Apache Pulsar: the subscription has another name, and reports have no receiver."""
    a, b = world.cluster("a"), world.cluster("b")
    for cluster in (a, b):
        cluster.replicate()
    address = ClusterAddress(service_url=b.broker.http_url, broker_service_url=b.broker.service_url)
    assert endpoint_of("b", address) == ClusterEndpoint("b", b.broker.service_url, b.broker.http_url)
    selection = Selection(words=(NAMESPACE, "public/default/named"), remotes={"b": address})
    source = ListedSource(ClusterEndpoint("a", a.broker.service_url, a.broker.http_url), selection)
    a.create("listed", 2)
    a.publish("listed-partition-0", b"before")
    pipeline = Pipeline(source, lanes=1, retry_max_s=RETRY_MAX_S)
    world.on_exit(pipeline.stop)
    pipeline.prepare()
    b.wait_for("listed")  # which is created while Spark starts
    pipeline.start(world.spark.sparkContext)
    assert b.values("listed-partition-0", 1) == [b"before"]
    a.publish("public/default/named", b"later")
    assert b.values("public/default/named", 1) == [b"later"]
    stats = a.ask("GET", f"persistent/{NAMESPACE}/listed-partition-0/stats")
    assert "magnetar.repl.b" in stats["subscriptions"]
    until(lambda: pipeline.board.state_of((full("public/default/named"), "b")) == "running", "running")

"""GR2, GR3, GR10: topics in remote clusters, created or left alone, by real brokers without a pipeline."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pulsar
import pytest

from tests.compat.stage import connect
from tests.server.two_clusters import NAMESPACE, Cluster, clusters, eventually

SOON_S = 3.0  # about one second is promised; the machine may be busy
ROUNDS = 20
TOPICS = 100

_names = count()


@pytest.fixture(scope="module")
def making() -> Iterator[list[Cluster]]:
    """Two clusters that create topics in each other; auto-creation is off."""
    with clusters("a", "b", allowAutoTopicCreation=False) as made:
        yield made


@pytest.fixture(scope="module")
def leaving() -> Iterator[list[Cluster]]:
    """Two clusters that leave each other alone."""
    with clusters("a", "b", createTopicToRemoteClusterForReplication=False) as made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"t{next(_names)}"


def nothing_is_made_in(cluster: Cluster, before: set[str]) -> bool:
    """Waits as long as a creation takes where topics are created."""
    time.sleep(0.5)
    return cluster.topics() == before


# -- true: topics are created


@pytest.mark.parametrize("partitions", [0, 1, 3])
def test_gr2_a_created_topic_is_created_remotely_with_the_same_partitions(
    making: list[Cluster], topic: str, partitions: int
) -> None:
    a, b = making
    a.create(topic, partitions)
    eventually(lambda: b.partitions(topic) is not None, SOON_S)
    assert b.partitions(topic) == partitions
    names = {topic} if not partitions else {f"{topic}-partition-{index}" for index in range(partitions)}
    assert {name for name in b.topics() if name.startswith(topic)} == names


def test_gr2_added_partitions_are_added_remotely(making: list[Cluster], topic: str) -> None:
    a, b = making
    a.create(topic, 3)
    eventually(lambda: b.partitions(topic) == 3, SOON_S)
    assert a.grow(topic, 5).status_code == 204
    eventually(lambda: b.partitions(topic) == 5, SOON_S)
    assert b.grow(topic, 6).status_code == 204
    eventually(lambda: a.partitions(topic) == 6, SOON_S)


def test_gr2_adding_partitions_twice_at_once_is_followed(making: list[Cluster], topic: str) -> None:
    a, b = making
    a.create(topic, 1)
    for partitions in range(2, 9):
        assert a.grow(topic, partitions).status_code == 204
    eventually(lambda: b.partitions(topic) == 8, SOON_S)


def test_gr4_a_difference_from_the_beginning_is_left_alone(making: list[Cluster], topic: str) -> None:
    """B has 2 partitions already, A creates 3."""
    a, b = making
    with withdrawn(b, a):  # B would create it in A
        b.create(topic, 2)
        before = b.topics()
        a.create(topic, 3)
    assert nothing_is_made_in(b, before)
    assert (a.partitions(topic), b.partitions(topic)) == (3, 2)


@contextlib.contextmanager
def withdrawn(cluster: Cluster, other: Cluster) -> Iterator[None]:
    cluster.replicate()
    yield
    cluster.replicate(other.name)


@pytest.mark.parametrize("partitions", [0, 2])
def test_gr2_enabling_replication_of_a_topic_creates_it_remotely(topic: str, partitions: int) -> None:
    with clusters("a", "b", replicated=False) as (a, b):
        a.create(topic, partitions)
        a.create("another", partitions)
        a.replicate("b", topic=topic)
        eventually(lambda: b.partitions(topic) == partitions, SOON_S)
        assert b.partitions("another") is None
        a.replicate("b")
        eventually(lambda: b.partitions("another") == partitions, SOON_S)


def test_gr2_an_auto_created_topic_is_created_remotely(topic: str) -> None:
    with (
        clusters("a", "b", allowAutoTopicCreationType="partitioned", defaultNumPartitions=2) as (a, b),
        contextlib.closing(connect(a.running)) as client,
    ):
        producer: pulsar.Producer = client.create_producer(f"persistent://{NAMESPACE}/{topic}")
        producer.send(b"hello")
        eventually(lambda: b.partitions(topic) == 2, SOON_S)


def test_gr2_a_topic_is_created_under_its_remote_name(topic: str) -> None:
    with clusters("a", "b") as (a, b):
        a.do("POST", f"replication/routes/b/{NAMESPACE}", {"rename": "{tenant}/{namespace}/{topic}-of-a"})
        b.replicate()
        a.create(topic, 2)
        eventually(lambda: b.partitions(f"{topic}-of-a") == 2, SOON_S)
        assert b.partitions(topic) is None


def test_b2_topics_renamed_both_ways_do_not_come_back(topic: str) -> None:
    """Nor is a name of a name of a name created, without an end."""
    with clusters("a", "b") as (a, b):
        a.do("POST", f"replication/routes/b/{NAMESPACE}", {"rename": "{topic}-from-a"})
        b.do("POST", f"replication/routes/a/{NAMESPACE}", {"rename": "{topic}-from-b"})
        a.create(topic, 2)
        a.create(f"{topic}-plain")
        b.create(f"{topic}-of-b")
        eventually(lambda: b.partitions(f"{topic}-from-a") == 2, SOON_S)
        eventually(lambda: b.partitions(f"{topic}-plain-from-a") == 0, SOON_S)
        eventually(lambda: a.partitions(f"{topic}-of-b-from-b") == 0, SOON_S)
        before = a.topics()
        assert nothing_is_made_in(b, b.topics()) and a.topics() == before
        assert before == {f"{topic}-partition-0", f"{topic}-partition-1", f"{topic}-plain", f"{topic}-of-b-from-b"}
        copied = {f"persistent://{NAMESPACE}/{name}" for name in (topic, f"{topic}-plain")}
        declared = a.running.server.broker.replication.declaration().topics
        assert {(row.topic, row.clash) for row in declared} == {(name, "") for name in copied}


def test_gr2_dead_letter_topics_are_not_created(making: list[Cluster], topic: str) -> None:
    a, b = making
    before = b.topics()
    a.create(f"{topic}-s-DLQ")
    a.create(f"{topic}-s-RETRY", 2)
    assert nothing_is_made_in(b, before)


def test_gr2_a_mesh_of_three(topic: str) -> None:
    with clusters("a", "b", "c") as made:
        for index, one in enumerate(made):
            one.create(f"{topic}-{index}", index)
        names = {
            f"{topic}-0",
            f"{topic}-1-partition-0",
            f"{topic}-2-partition-0",
            f"{topic}-2-partition-1",
        }
        for one in made:
            eventually(lambda one=one: one.topics() == names, 2 * SOON_S)


def test_gr2_a_namespace_created_later_gets_the_topic(making: list[Cluster], topic: str) -> None:
    a, b = making
    late = "geo/late"
    a.do("PUT", f"namespaces/{late}", {"replication_clusters": ["a", "b"]})
    a.do("PUT", f"persistent/{late}/{topic}/partitions", 2)
    path = f"persistent/{late}/{topic}/partitions"
    assert b.ask("GET", path).status_code == 404
    b.do("PUT", f"namespaces/{late}", {})
    eventually(lambda: b.ask("GET", path).is_success)
    assert b.ask("GET", path).json()["partitions"] == 2


def test_gr2_an_unreachable_cluster_does_not_block_another(topic: str) -> None:
    with clusters("a", "b") as (a, b):
        a.do("PUT", "clusters/gone", {"serviceUrl": "http://127.0.0.1:1", "brokerServiceUrl": "pulsar://127.0.0.1:1"})
        a.do("POST", "tenants/geo", {"adminRoles": [], "allowedClusters": ["a", "b", "gone"]})
        a.replicate("b", "gone")
        for index in range(50):
            a.create(f"{topic}-{index}")
        eventually(lambda: len(b.topics()) == 50, 2 * SOON_S)


def test_gr2_a_cluster_at_a_new_address_gets_missing_topics(topic: str) -> None:
    with clusters("a", "b") as (a, b):
        a.do("POST", "clusters/b", {"serviceUrl": "http://127.0.0.1:1", "brokerServiceUrl": "pulsar://127.0.0.1:1"})
        a.create(topic, 2)
        urls = {"serviceUrl": b.running.http_url, "brokerServiceUrl": b.running.service_url}
        a.do("POST", "clusters/b", urls)
        eventually(lambda: b.partitions(topic) == 2, SOON_S)


# -- false: topics are only checked


@pytest.mark.parametrize("partitions", [0, 3])
def test_gr3_creating_a_topic_creates_nothing_remotely(leaving: list[Cluster], topic: str, partitions: int) -> None:
    a, b = leaving
    before = b.topics()
    a.create(topic, partitions)
    a.replicate("b", topic=topic)
    assert nothing_is_made_in(b, before)


def test_gr3_adding_partitions_returns_204_and_leaves_the_other_cluster_alone(
    leaving: list[Cluster], topic: str
) -> None:
    """Apache Pulsar returns 409 there, and adds the partitions all the same."""
    a, b = leaving
    for one in (a, b):
        one.create(topic, 3)
    before = b.topics()
    assert a.grow(topic, 5).status_code == 204
    assert a.partitions(topic) == 5
    assert nothing_is_made_in(b, before)
    assert b.partitions(topic) == 3


def test_gr3_adding_partitions_without_a_remote_topic_returns_204(leaving: list[Cluster], topic: str) -> None:
    a, b = leaving
    a.create(topic, 3)
    assert a.grow(topic, 5).status_code == 204
    assert (a.partitions(topic), b.partitions(topic)) == (5, None)


def test_gr3_local_auto_creation_is_unaffected(leaving: list[Cluster], topic: str) -> None:
    a, b = leaving
    before = b.topics()
    with contextlib.closing(connect(a.running)) as client:
        client.create_producer(f"persistent://{NAMESPACE}/{topic}").send(b"hello")
    assert a.partitions(topic) == 0
    assert nothing_is_made_in(b, before)


def test_gr3_a_source_topic_with_a_replication_backlog_is_never_collected(topic: str) -> None:
    """Apache Pulsar 4.2.4 deleted partitions that were waiting for their remote topic, with their messages."""
    with clusters("a", "b", createTopicToRemoteClusterForReplication=False) as (a, _):
        a.create(topic, 1)
        with contextlib.closing(connect(a.running)) as client:
            client.create_producer(f"persistent://{NAMESPACE}/{topic}").send(b"waiting")
        a.running.advance(hours=2)
        assert a.topics() == {f"{topic}-partition-0"}
        assert replication_of(a, topic)["replicationBacklog"] == 1


def replication_of(cluster: Cluster, topic: str) -> Any:
    return cluster.ask("GET", f"persistent/{NAMESPACE}/{topic}-partition-0/stats").json()["replication"]["b"]


# -- states before the first report of a pipelines process


def states_of(cluster: Cluster, topic: str, remote: str = "b") -> list[tuple[str, str]]:
    path = f"persistent://{NAMESPACE}/{topic}"
    found = cluster.ask("GET", "replication/status", topic=path, remote=remote).json()
    return [(one["state"], one["reason"]) for one in found]


def test_gr4_a_topic_created_remotely_is_starting(making: list[Cluster], topic: str) -> None:
    a, b = making
    a.create(topic, 2)
    eventually(lambda: b.partitions(topic) == 2, SOON_S)
    assert [state for state, _ in states_of(a, topic)] == ["starting", "starting"]


def test_gr4_a_mismatch_is_known_without_a_pipeline(making: list[Cluster], topic: str) -> None:
    a, b = making
    with withdrawn(b, a):
        b.create(topic, 2)
    a.create(topic, 3)
    eventually(lambda: states_of(a, topic)[2][0] == "partition-mismatch", SOON_S)
    assert [state for state, _ in states_of(a, topic)] == ["starting", "starting", "partition-mismatch"]
    assert "partition 2 cannot be copied" in states_of(a, topic)[2][1]


def test_gr4_a_missing_topic_that_must_not_be_created_is_known_without_a_pipeline(
    leaving: list[Cluster], topic: str
) -> None:
    a, b = leaving
    a.create(topic)
    eventually(lambda: states_of(a, topic)[0][0] == "waiting-for-remote-topic", SOON_S)
    assert b.partitions(topic) is None


def test_gr4_an_unreachable_cluster_is_known_without_a_pipeline(topic: str) -> None:
    with clusters("a", "b") as (a, b):
        a.do("POST", "clusters/b", {"serviceUrl": "http://127.0.0.1:1", "brokerServiceUrl": "pulsar://127.0.0.1:1"})
        a.create(topic)
        eventually(lambda: states_of(a, topic)[0][0] == "unreachable", SOON_S)
        assert states_of(a, topic)[0][1].startswith("cluster b cannot be reached: ")
        urls = {"serviceUrl": b.running.http_url, "brokerServiceUrl": b.running.service_url}
        a.do("POST", "clusters/b", urls)
        eventually(lambda: states_of(a, topic)[0][0] == "starting", SOON_S)


def test_gr4_a_missing_namespace_is_known_without_a_pipeline(making: list[Cluster], topic: str) -> None:
    a, _ = making
    a.do("PUT", "namespaces/geo/absent", {"replication_clusters": ["a", "b"]})
    a.do("PUT", f"persistent/geo/absent/{topic}")
    path = f"persistent://geo/absent/{topic}"

    def state() -> tuple[str, str]:
        (found,) = a.ask("GET", "replication/status", topic=path).json()
        return found["state"], found["reason"]

    eventually(lambda: state()[0] == "refused-by-remote", SOON_S)
    assert "geo/absent" in state()[1]


# -- concurrently


@pytest.mark.parametrize("creates", [True, False])
def test_gr10_the_same_topics_created_on_both_sides_at_once(creates: bool) -> None:
    with clusters("a", "b", createTopicToRemoteClusterForReplication=creates) as (a, b):
        asyncio.run(_rounds(a, b, creates=creates))


async def _rounds(a: Cluster, b: Cluster, *, creates: bool) -> None:
    described: set[str] = set()
    only_a: set[str] = set()
    for number in range(ROUNDS):
        shapes = {f"r{number}-t{index}": index % 4 for index in range(TOPICS)}
        one_sided = f"r{number}-on-a-only"
        statuses = await asyncio.gather(_create_all(a, {**shapes, one_sided: 2}), _create_all(b, shapes))
        # The second request may get a conflict where that is allowed.
        assert statuses[0] | statuses[1] <= ({204, 409} if creates else {204})
        described |= {name for topic, partitions in shapes.items() for name in _parts(topic, partitions)}
        only_a |= set(_parts(one_sided, 2))
        eventually(partial(_has_exactly, a, described | only_a))
        eventually(partial(_has_exactly, b, described | only_a if creates else described))
    await asyncio.sleep(0.5)
    assert _has_exactly(a, described | only_a), "it stays so"
    assert _has_exactly(b, described | only_a if creates else described), "it stays so"


def _has_exactly(cluster: Cluster, topics: set[str]) -> bool:
    return cluster.topics() == topics


async def _create_all(cluster: Cluster, shapes: dict[str, int]) -> set[int]:
    """Statuses of the responses. Uses a few persistent connections: libraries are slower than the broker."""
    topics = iter(shapes.items())
    statuses: set[int] = set()

    async def create_some() -> None:
        url = urlsplit(cluster.running.http_url)
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        for topic, partitions in topics:
            path = f"/admin/v2/persistent/{NAMESPACE}/{topic}" + ("/partitions" if partitions else "")
            body = str(partitions or "")
            writer.write(
                f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            statuses.add(int(head.split()[1]))
            if "content-length: " in head:
                await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(create_some() for _ in range(4)))
    return statuses


def _parts(topic: str, partitions: int) -> list[str]:
    return [f"{topic}-partition-{index}" for index in range(partitions)] or [topic]

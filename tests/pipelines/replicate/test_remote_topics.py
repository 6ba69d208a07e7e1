"""Remote topics, in threads: each is checked once, again with back-off, and one at a time while its cluster is away."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from magnetar.client.errors import (
    ClientError,
    Closed,
    Conflict,
    ConnectionLost,
    InvalidArgument,
    NamespaceNotFound,
    NotAuthorized,
)
from magnetar.pipelines.replicate import remote_topics
from magnetar.pipelines.replicate.remote_topics import RemoteClient, RemoteTopics, Route
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import ClusterAddress, Declaration, DeclaredRoute, Mismatch, RoutePolicy, State
from magnetar.replication.partitions import Decision

TOPIC = "persistent://public/default/t"
ENDPOINTS = {"b": ClusterEndpoint("b", "pulsar://b:6650", "http://b:8080")}
WAIT_S = 10.0


class FakeCluster:
    """Topics and their partitions. `failure` is the reply to every request; `asked` are the checked topics."""

    def __init__(self) -> None:
        self.shapes: dict[str, int] = {}
        self.failure: ClientError | None = None
        self.asked: list[str] = []
        self.most_at_once = 0
        self.created_by_others: dict[str, int] = {}
        self._at_once = 0
        self._lock = threading.Lock()

    def partition_count(self, topic: str) -> int | None:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self.asked.append(topic)
        try:
            threading.Event().wait(0.002)
            if self.failure is not None:
                raise self.failure
            return self.shapes.get(topic)
        finally:
            with self._lock:
                self._at_once -= 1

    def create_topic(self, topic: str, partitions: int, copy_of: str) -> None:
        if topic in self.created_by_others:
            self.shapes[topic] = self.created_by_others[topic]
            raise Conflict(f"{topic} exists")
        self.shapes[topic] = partitions

    def grow_topic(self, topic: str, partitions: int) -> None:
        self.shapes[topic] = partitions

    def topics(self, namespace: str) -> list[str]:
        if self.failure is not None:
            raise self.failure
        return [
            f"{topic}-partition-{index}" if partitions else topic
            for topic, partitions in self.shapes.items()
            for index in range(partitions or 1)
        ]

    def close(self) -> None:
        pass


def declaration(*topics: DeclaredRoute, creates: bool = True, mismatch: Mismatch = Mismatch.PIP370) -> Declaration:
    clusters = {"b": ClusterAddress(broker_service_url="pulsar://b:6650")}
    return Declaration("1", "a", creates, mismatch, clusters, list(topics))


class Asker:
    """The remote topics of a test, and their decisions."""

    def __init__(self, cluster: FakeCluster, **options: Any) -> None:
        self._decisions: queue.SimpleQueue[tuple[Route, Decision]] = queue.SimpleQueue()
        self.remotes = RemoteTopics(
            lambda route, decision: self._decisions.put((route, decision)), open_client=lambda _: cluster, **options
        )

    def next(self) -> Decision:
        return self._decisions.get(timeout=WAIT_S)[1]

    def until(self, is_wanted: Callable[[Decision], bool]) -> Decision:
        while not is_wanted(decision := self.next()):
            pass
        return decision

    def take(self, count: int) -> dict[Route, Decision]:
        found: dict[Route, Decision] = {}
        while len(found) < count:
            route, decision = self._decisions.get(timeout=WAIT_S)
            found[route] = decision
        return found


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def asker(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asker]:
    monkeypatch.setattr(remote_topics, "RETRY_FIRST_S", 0.02)
    made = Asker(cluster, retry_max_s=0.05, sweep_s=0.1)
    yield made
    made.remotes.stop()


def test_gr2_a_missing_topic_is_created_with_the_same_partitions(asker: Asker, cluster: FakeCluster) -> None:
    asker.remotes.declare(declaration(DeclaredRoute(TOPIC, 3, "b")), ENDPOINTS, {})
    assert asker.next() == Decision(State.RUNNING, creates=3, copied=3)
    assert cluster.shapes == {TOPIC: 3}


def test_gr2_a_topic_that_grew_grows_there(asker: Asker, cluster: FakeCluster) -> None:
    cluster.shapes[TOPIC] = 2
    asker.remotes.declare(declaration(DeclaredRoute(TOPIC, 4, "b", grown_from=2)), ENDPOINTS, {})
    assert asker.next().copied == 4
    assert cluster.shapes == {TOPIC: 4}


def test_gr10_a_topic_created_by_another_client_at_the_same_moment_counts(asker: Asker, cluster: FakeCluster) -> None:
    cluster.created_by_others[TOPIC] = 1
    asker.remotes.declare(declaration(DeclaredRoute(TOPIC, 2, "b")), ENDPOINTS, {})
    decision = asker.next()
    assert (decision.state, decision.copied) == (State.MISMATCH, 1)


def test_gr3_a_topic_that_may_not_be_created_is_checked_until_it_exists(asker: Asker, cluster: FakeCluster) -> None:
    asker.remotes.declare(declaration(DeclaredRoute(TOPIC, 0, "b"), creates=False), ENDPOINTS, {})
    assert asker.next().state is State.WAITING
    assert asker.next().state is State.WAITING
    assert cluster.shapes == {}
    cluster.shapes[TOPIC] = 0
    asker.until(lambda decision: decision.state is State.RUNNING)


def test_a_renamed_topic_is_checked_by_its_remote_name(asker: Asker, cluster: FakeCluster) -> None:
    policy = RoutePolicy(rename="{tenant}/{namespace}/{topic}-copy")
    asker.remotes.declare(declaration(DeclaredRoute(TOPIC, 0, "b", policy)), ENDPOINTS, {})
    asker.next()
    assert cluster.shapes == {f"{TOPIC}-copy": 0}


@pytest.mark.parametrize(
    "error",
    [NamespaceNotFound("namespace x does not exist"), NotAuthorized("not you"), InvalidArgument("token_file is gone")],
)
def test_a_refusal_is_reported_with_the_remotes_text(asker: Asker, cluster: FakeCluster, error: ClientError) -> None:
    cluster.failure = error
    asker.remotes.declare(declaration(DeclaredRoute(TOPIC, 0, "b")), ENDPOINTS, {})
    decision = asker.next()
    assert decision.state is State.REFUSED
    assert error.text in decision.reason
    assert ("refuses" in decision.reason) == isinstance(error, NotAuthorized)
    cluster.failure = None
    asker.until(lambda decision: decision.state is State.RUNNING)


def test_gr5_of_an_unreachable_cluster_one_topic_is_tried_and_all_return(asker: Asker, cluster: FakeCluster) -> None:
    topics = [f"{TOPIC}{number}" for number in range(200)]
    cluster.failure = ConnectionLost("nobody there")
    asker.remotes.declare(declaration(*(DeclaredRoute(topic, 0, "b") for topic in topics)), ENDPOINTS, {})
    decisions = asker.take(200)
    assert {decision.state for decision in decisions.values()} == {State.UNREACHABLE}
    assert all("nobody there" in decision.reason for decision in decisions.values())
    asked = len(cluster.asked)
    assert asked <= 2 * remote_topics.THREADS, "not by each of its topics"
    threading.Event().wait(0.3)
    assert len(cluster.asked) - asked < 30
    cluster.failure = None
    asker.take(0)
    running: set[Route] = set()
    while len(running) < 200:
        route, decision = asker._decisions.get(timeout=WAIT_S)
        if decision.state is State.RUNNING:
            running.add(route)


def test_the_topic_tried_while_a_cluster_is_unreachable_may_be_withdrawn(asker: Asker, cluster: FakeCluster) -> None:
    cluster.failure = ConnectionLost("nobody there")
    others = [DeclaredRoute(f"{TOPIC}{number}", 0, "b") for number in range(3)]
    asker.remotes.declare(declaration(*others), ENDPOINTS, {})
    asker.take(3)
    cluster.failure = None
    for kept in others:
        asker.remotes.declare(declaration(kept), ENDPOINTS, {})
        cluster.failure = ConnectionLost("nobody there")
    cluster.failure = None
    asker.until(lambda decision: decision.state is State.RUNNING)


def test_a_thousand_topics_are_checked_a_few_at_a_time(asker: Asker, cluster: FakeCluster) -> None:
    topics = [f"{TOPIC}{number}" for number in range(1000)]
    cluster.shapes = dict.fromkeys(topics, 0)
    asker.remotes.declare(declaration(*(DeclaredRoute(topic, 0, "b") for topic in topics)), ENDPOINTS, {})
    assert {decision.state for decision in asker.take(1000).values()} == {State.RUNNING}
    assert 2 <= cluster.most_at_once <= remote_topics.THREADS


@pytest.mark.parametrize("others", [0, 50])
def test_a_deleted_remote_topic_is_detected_and_recreated(asker: Asker, cluster: FakeCluster, others: int) -> None:
    """One by one, and by a list of the namespace where there are many."""
    declared = [DeclaredRoute(TOPIC, 2, "b"), *(DeclaredRoute(f"{TOPIC}{number}", 0, "b") for number in range(others))]
    asker.remotes.declare(declaration(*declared), ENDPOINTS, {})
    asker.take(others + 1)
    del cluster.shapes[TOPIC]
    decision = asker.until(lambda decision: decision.creates == 2)
    assert decision.state is State.RUNNING
    assert cluster.shapes[TOPIC] == 2


def test_a_cluster_that_gets_its_address_later(asker: Asker, cluster: FakeCluster) -> None:
    wanted = declaration(DeclaredRoute(TOPIC, 0, "b"))
    asker.remotes.declare(wanted, {}, {"b": "cluster b has no address"})
    assert asker.next() == Decision(State.UNREACHABLE, "cluster b has no address")
    asker.remotes.declare(wanted, ENDPOINTS, {})
    asker.until(lambda decision: decision.state is State.RUNNING)


class SlowCluster(FakeCluster):
    """Does not answer until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()
        self._is_closed = threading.Event()

    def partition_count(self, topic: str) -> int | None:
        self.is_asked.set()
        self._is_closed.wait(WAIT_S)
        raise Closed("the client is closed")

    def close(self) -> None:
        self._is_closed.set()


def test_gr5_a_running_check_is_repeated_at_a_corrected_address(cluster: FakeCluster) -> None:
    slow, decisions = SlowCluster(), queue.SimpleQueue[Decision]()
    corrected = ClusterEndpoint("b", "pulsar://b:6651", "http://b:8080")
    remotes = RemoteTopics(
        lambda _, decision: decisions.put(decision),
        open_client=lambda endpoint: cluster if endpoint == corrected else slow,
    )
    try:
        wanted = declaration(DeclaredRoute(TOPIC, 0, "b"))
        remotes.declare(wanted, ENDPOINTS, {})
        assert slow.is_asked.wait(WAIT_S)
        remotes.declare(wanted, {"b": corrected}, {})
        assert decisions.get(timeout=WAIT_S).state is State.RUNNING
    finally:
        slow.close()
        remotes.stop()


def test_a_closed_client_ends_requests_and_accepts_no_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        remote = RemoteClient(ClusterEndpoint("b", f"pulsar://127.0.0.1:{silent.getsockname()[1]}"))
        failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

        def ask() -> None:
            try:
                remote.partition_count(TOPIC)
            except BaseException as error:
                failures.put(error)

        asking = threading.Thread(target=ask)
        asking.start()
        connection, _ = silent.accept()
        with connection:  # which never answers
            remote.close()
            asking.join(WAIT_S)
        assert isinstance(failures.get(timeout=WAIT_S), Closed)
        with pytest.raises(Closed):
            remote.partition_count(TOPIC)

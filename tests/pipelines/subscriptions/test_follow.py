"""Replicated subscriptions between real brokers: a consumer that moves to another cluster continues at its position."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from magnetar import testing
from magnetar.client import EARLIEST, LATEST, Client, Consumer, Message, Security
from magnetar.client.errors import Timeout
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.subscriptions import follow
from magnetar.pipelines.subscriptions.follow import close, follow_all
from magnetar.pipelines.subscriptions.following import FollowResult, FollowTask, Memory
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.testing import TestBroker
from tests.pipelines.conftest import Cluster, World, full, until
from tests.pipelines.two_clusters import ask, copy_one, endpoint, new_topic, path_of

NAMES = ("a", "b", "c")
QUIET_S = 0.3  # long enough for an existing message


class Mesh:
    """A topic in several clusters, copied and followed on request."""

    def __init__(self, brokers: dict[str, TestBroker], clients: dict[str, Client]) -> None:
        self.brokers = brokers
        self.clients = clients
        self.topic = new_topic()
        self.memories: dict[tuple[str, str], dict[str, Memory]] = {}
        for broker in brokers.values():
            ask(broker, "PUT", path_of(self.topic))

    def publish(self, cluster: str, *values: str, **options: Sequence[str]) -> None:
        with self.clients[cluster].producer(self.topic, batching=False) as producer:
            for value in values:
                producer.send(value.encode(), **options)  # type: ignore[arg-type]

    def copy(self, source: str, remote: str) -> None:
        outcome = copy_one(
            Assignment(
                endpoint(source, self.brokers[source]),
                endpoint(remote, self.brokers[remote]),
                self.topic,
                self.topic,
                f"magnetar.repl.{remote}",
            ),
        )
        assert not outcome.error, outcome

    def copy_all(self) -> None:
        for source, remote in itertools.permutations(self.brokers, 2):
            self.copy(source, remote)

    def follow(self, source: str, remote: str) -> FollowResult:
        """Pickled on its way, as by Spark."""
        known = self.memories.get((source, remote), {})
        endpoints = (endpoint(source, self.brokers[source]), endpoint(remote, self.brokers[remote]))
        work = FollowTask(*endpoints, self.topic, self.topic, ("s",), known)
        [result] = pickle.loads(pickle.dumps(follow_all(pickle.loads(pickle.dumps([work])))))
        assert not result.error
        self.memories[source, remote] = result.memories
        return result

    def subscribe(self, cluster: str, at: object = EARLIEST) -> None:
        """A replicated subscription without consumers."""
        body = "earliest" if at == EARLIEST else "latest"
        ask(self.brokers[cluster], "PUT", f"{path_of(self.topic)}/subscription/s?replicated=true", body)

    @contextlib.contextmanager
    def consumer(self, cluster: str) -> Iterator[Consumer]:
        with self.clients[cluster].consumer(
            self.topic, "s", subscription_type="Shared", initial_position=EARLIEST
        ) as one:
            yield one

    def consume(self, cluster: str, count: int) -> list[str]:
        with self.consumer(cluster) as consumer:
            return [text(received(consumer)) for _ in range(count)]

    def rest(self, cluster: str) -> list[str]:
        """Consumes until nothing is left, and acknowledges everything."""
        values: list[str] = []
        with self.consumer(cluster) as consumer:
            while True:
                try:
                    message = consumer.receive(QUIET_S)
                except Timeout:
                    return values
                values.append(text(message))
                consumer.acknowledge(message)

    def backlog(self, cluster: str) -> int:
        stats = ask(self.brokers[cluster], "GET", f"{path_of(self.topic)}/stats")
        return int(stats["subscriptions"]["s"]["msgBacklog"])

    def has_subscription(self, cluster: str) -> bool:
        return "s" in ask(self.brokers[cluster], "GET", f"{path_of(self.topic)}/subscriptions")


def text(message: Message) -> str:
    return message.value.decode()


def received(consumer: Consumer) -> Message:
    message = consumer.receive(5)
    consumer.acknowledge(message)
    return message


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[dict[str, TestBroker], dict[str, Client]]]:
    with contextlib.ExitStack() as stack:
        brokers = {name: stack.enter_context(testing.broker(clusterName=name)) for name in NAMES}
        clients = {name: stack.enter_context(Client(broker.service_url)) for name, broker in brokers.items()}
        yield brokers, clients
        close()


@pytest.fixture
def two(running: tuple[dict[str, TestBroker], dict[str, Client]]) -> Mesh:
    brokers, clients = running
    return Mesh({name: brokers[name] for name in "ab"}, clients)


@pytest.fixture
def three(running: tuple[dict[str, TestBroker], dict[str, Client]]) -> Mesh:
    return Mesh(*running)


def test_gr9_a_consumer_continues_in_the_other_cluster_at_its_position(two: Mesh) -> None:
    two.subscribe("a")
    two.publish("a", "1", "2", "3", "4")
    two.copy("a", "b")
    assert two.consume("a", 3) == ["1", "2", "3"]
    assert "s" in two.follow("a", "b").moved
    assert two.rest("b") == ["4"]


def test_gr9_the_subscription_is_created_in_the_remote_cluster_and_replicated_there_too(two: Mesh) -> None:
    two.subscribe("a")
    two.publish("a", "1", "2")
    two.copy("a", "b")
    assert not two.has_subscription("b")
    two.follow("a", "b")
    stats = ask(two.brokers["b"], "GET", f"{path_of(two.topic)}/stats")
    assert stats["subscriptions"]["s"]["isReplicated"]
    assert two.rest("b") == ["1", "2"], "nothing was consumed yet"


def test_gr9_a_subscription_at_the_latest_position_starts_there_remotely_too(two: Mesh) -> None:
    two.publish("a", "1", "2")
    two.subscribe("a", LATEST)
    two.publish("a", "3")
    two.copy("a", "b")
    two.follow("a", "b")
    assert two.rest("b") == ["3"]


def test_gr9_both_directions_with_interleaved_messages(two: Mesh) -> None:
    two.subscribe("a")
    for number in range(5):
        two.publish("a", f"a{number}")
        two.copy("a", "b")
        two.publish("b", f"b{number}")
        if number % 2:
            two.copy("b", "a")
    two.copy_all()
    had = two.consume("a", 6)
    two.follow("a", "b")
    then = two.rest("b")
    assert sorted({*had, *then}) == sorted(f"{name}{number}" for name in "ab" for number in range(5)), "none is missed"
    # The clusters have the messages in different orders: those after the first open one are redelivered.
    again = set(had) & set(then)
    assert len(again) <= 3, f"{had}, then {then}"


def test_gr9_after_everything_is_consumed_nothing_is_redelivered(two: Mesh) -> None:
    two.subscribe("a")
    for number in range(5):
        two.publish("a", f"a{number}")
        two.publish("b", f"b{number}")
        two.copy_all()
    assert len(two.rest("a")) == 10
    two.follow("a", "b")
    assert two.backlog("b") == 0
    assert two.rest("b") == []


def test_gr9_a_cluster_without_the_bulk_call_is_queried_topic_by_topic(
    two: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like Apache Pulsar, which does not know our path for many topics."""
    monkeypatch.setattr("magnetar.pipelines.subscriptions.cursors._MANY", "replication/nothing")
    close()  # discoveries about the cluster are dropped with the connections
    two.subscribe("a")
    two.publish("a", "1", "2")
    two.copy("a", "b")
    two.consume("a", 1)
    two.follow("a", "b")
    assert two.rest("b") == ["2"]
    close()


def test_gr9_a_mesh_of_three(three: Mesh) -> None:
    three.subscribe("a")
    for number in range(4):
        for name in NAMES:
            three.publish(name, f"{name}{number}")
        three.copy_all()
    had = three.consume("a", 9)
    for remote in ("b", "c"):
        three.follow("a", remote)
    everything = sorted(f"{name}{number}" for name in NAMES for number in range(4))
    assert sorted({*had, *three.rest("c")}) == everything
    three.follow("c", "b")
    assert three.rest("b") == [], "all was consumed in one or the other"
    three.follow("c", "a")
    assert three.rest("a") == []


def test_gr9_a_consumer_that_moves_in_mid_stream_misses_nothing(two: Mesh) -> None:
    """Back and forth; duplicates were acknowledged after the last round, or copied in another order."""
    two.subscribe("a")
    seen: list[str] = []
    published: list[str] = []
    here, there = "a", "b"
    for turn in range(6):
        for name in "ab":
            values = [f"{name}{turn}.{number}" for number in range(4)]
            two.publish(name, *values)
            published += values
        two.copy_all()
        with two.consumer(here) as consumer:
            seen += [text(received(consumer)) for _ in range(4)]
            two.follow(here, there)
            after_the_round = [text(received(consumer)) for _ in range(2)]
        seen += after_the_round
        # The other direction runs at the same time, and reverts nothing.
        two.follow(there, here)
        two.follow(here, there)
        here, there = there, here
    two.copy_all()
    seen += two.rest(here)
    assert set(seen) == set(published)
    two.follow(here, there)
    assert two.rest(there) == []


def test_gr9_the_window_is_bounded_by_the_last_round(two: Mesh) -> None:
    two.subscribe("a")
    two.publish("a", *map(str, range(10)))
    two.copy("a", "b")
    with two.consumer("a") as consumer:
        for _ in range(4):
            received(consumer)
        two.follow("a", "b")
        for _ in range(3):
            received(consumer)
    assert two.rest("b") == ["4", "5", "6", "7", "8", "9"], "4 to 6 are in the window"


def test_gr9_messages_acknowledged_beyond_an_open_one_are_redelivered(two: Mesh) -> None:
    two.subscribe("a")
    two.publish("a", *map(str, range(5)))
    two.copy("a", "b")
    with two.consumer("a") as consumer:
        messages = [consumer.receive(5) for _ in range(5)]
        for index in (0, 2, 3):
            consumer.acknowledge(messages[index])
        two.follow("a", "b")
    assert two.rest("b") == ["1", "2", "3", "4"]


def test_gr9_a_partly_acknowledged_batch_is_redelivered_whole(two: Mesh) -> None:
    two.subscribe("a")
    with two.clients["a"].producer(two.topic, batch_delay_s=5, batch_messages_max=4) as producer:
        for number in range(8):
            producer.send_async(str(number).encode())
        producer.flush()
    two.copy("a", "b")
    assert two.consume("a", 6) == ["0", "1", "2", "3", "4", "5"]
    two.follow("a", "b")
    assert two.rest("b") == ["4", "5", "6", "7"]


def test_gr9_a_restarted_follower_has_the_same_knowledge(three: Mesh) -> None:
    three.subscribe("a")
    for number in range(4):
        for name in NAMES:
            three.publish(name, f"{name}{number}")
        three.copy_all()
    three.consume("a", 8)
    three.follow("a", "b")
    backlog = three.backlog("b")
    three.memories.clear()
    three.follow("a", "b")
    assert three.backlog("b") == backlog
    three.rest("a")
    three.memories.clear()
    three.follow("a", "b")
    assert three.backlog("b") == 0


def test_gr9_a_source_that_deleted_consumed_messages_is_still_followed(two: Mesh) -> None:
    two.subscribe("a")
    two.publish("b", "b0", "b1")
    two.copy_all()
    two.publish("a", "a0")
    two.copy_all()
    assert len(two.rest("a")) == 3
    two.brokers["a"].advance(hours=2)
    internals = ask(two.brokers["a"], "GET", f"{path_of(two.topic)}/internalStats")
    assert internals["numberOfEntries"] == 0, "what says that they were consumed is gone"
    two.follow("a", "b")
    assert two.rest("b") == []


def test_gr9_a_remote_subscription_in_use_is_left_alone(two: Mesh) -> None:
    two.subscribe("a")
    two.subscribe("b")
    two.publish("a", "1", "2")
    two.copy("a", "b")
    two.consume("a", 2)
    with two.consumer("b") as consumer:
        assert text(consumer.receive(5)) == "1"
        result = two.follow("a", "b")
        assert result.notes == {"s": "a consumer is connected in cluster b"}
        assert not result.moved
    assert two.backlog("b") == 2
    two.follow("a", "b")
    assert two.backlog("b") == 0, "it has left"


def test_gr9_a_message_never_meant_for_the_consumer_waits_and_the_others_do_not(two: Mesh) -> None:
    two.subscribe("a")
    two.publish("b", "b0")
    two.publish("b", "only in b", replicate_to=["__local__"])
    two.publish("b", "b1")
    two.publish("a", "a0")
    two.copy_all()
    assert sorted(two.rest("a")) == ["a0", "b0", "b1"]
    two.follow("a", "b")
    assert two.backlog("b") == 1
    two.publish("a", "a1", "a2")
    two.copy_all()
    assert two.rest("a") == ["a1", "a2"]
    two.follow("a", "b")
    assert two.backlog("b") == 1
    assert two.rest("b") == ["only in b"]


def test_gr9_with_one_direction_messages_published_remotely_wait_there(two: Mesh) -> None:
    """One direction only: the consumer in the source never received them."""
    two.subscribe("a")
    two.publish("b", "b0")
    two.publish("a", "a0", "a1")
    two.copy("a", "b")
    two.publish("b", "b1")
    assert two.rest("a") == ["a0", "a1"]
    two.follow("a", "b")
    assert two.rest("b") == ["b0", "b1"]


def test_gr9_a_subscription_deleted_remotely_is_not_recreated(two: Mesh) -> None:
    two.subscribe("a")
    two.publish("a", "1")
    two.copy("a", "b")
    two.follow("a", "b")
    ask(two.brokers["b"], "DELETE", f"{path_of(two.topic)}/subscription/s")
    two.publish("a", "2")
    two.copy("a", "b")
    result = two.follow("a", "b")
    assert result.notes == {"s": "it was deleted in cluster b"}
    assert not two.has_subscription("b")


def test_gr9_a_missing_subscription_is_not_created(two: Mesh) -> None:
    result = two.follow("a", "b")
    assert result.notes == {"s": "it does not exist in cluster a"}
    assert not two.has_subscription("b")


def test_gr9_a_round_without_changes_reads_nothing(two: Mesh) -> None:
    two.subscribe("a")
    two.publish("a", "1", "2")
    two.copy("a", "b")
    two.consume("a", 1)
    assert not two.follow("a", "b").is_quiet
    two.follow("a", "b")
    result = two.follow("a", "b")
    assert result.is_quiet
    assert not result.moved


def test_gr9_a_long_backlog_takes_several_rounds(two: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.pipelines.subscriptions.following.ENTRIES_MAX", 40)
    two.subscribe("a")
    with two.clients["a"].producer(two.topic, batching=False) as producer:
        for number in range(200):
            producer.send_async(str(number).encode())
        producer.flush()
    two.copy("a", "b")
    ask(two.brokers["a"], "POST", f"{path_of(two.topic)}/subscription/s/skip/150")
    rounds = 1
    while two.follow("a", "b").is_behind:
        rounds += 1
    assert two.backlog("b") == 50
    assert rounds == 4


def test_gr9_an_unreachable_cluster_is_an_error_of_its_topics_only(two: Mesh) -> None:
    two.subscribe("a")
    two.publish("a", "1")
    two.copy("a", "b")
    two.consume("a", 1)
    a, b = (endpoint(name, two.brokers[name]) for name in "ab")
    gone = ClusterEndpoint("gone", "pulsar://127.0.0.1:1", "http://127.0.0.1:1")
    nowhere = ClusterEndpoint("nowhere", "pulsar://127.0.0.1:1")
    results = follow_all(
        [
            FollowTask(a, gone, two.topic, two.topic, ("s",)),
            FollowTask(a, b, two.topic, two.topic, ("s",)),
            FollowTask(a, nowhere, two.topic, two.topic, ("s",)),
            FollowTask(a, b, two.topic, two.topic + "-missing", ("s",)),
        ]
    )
    assert "cannot connect to http://127.0.0.1:1" in results[0].error
    assert results[1].error == ""
    assert results[2].error == "cluster nowhere has no HTTP address, which replicated subscriptions need"
    assert "not found" in results[3].error.lower()
    assert two.backlog("b") == 0


def test_gr9_a_changed_endpoint_leaves_no_connection(two: Mesh) -> None:
    """As after every new token."""
    two.subscribe("a")
    source, remote = endpoint("a", two.brokers["a"]), endpoint("b", two.brokers["b"])
    close()
    for token in ("first", "second"):
        known = msgspec.structs.replace(remote, security=Security(token=token))
        assert follow_all([FollowTask(source, known, two.topic, two.topic, ("s",), {})])[0].error == ""
        assert set(follow._connections()._clusters) == {source, known}


def test_gr9_partitions_are_followed_one_by_one(running: tuple[dict[str, TestBroker], dict[str, Client]]) -> None:
    brokers, clients = running
    whole = new_topic()
    for name in "ab":
        ask(brokers[name], "PUT", f"{path_of(whole)}/partitions", 2)
    mesh = Mesh.__new__(Mesh)
    mesh.brokers, mesh.clients = {name: brokers[name] for name in "ab"}, clients
    mesh.topic, mesh.memories = f"{whole}-partition-1", {}
    mesh.publish("b", "first")
    mesh.subscribe("a")
    mesh.publish("a", "1", "2")
    mesh.copy_all()
    assert len(mesh.rest("a")) == 3
    mesh.publish("a", "3")
    mesh.copy_all()
    mesh.follow("a", "b")
    assert mesh.rest("b") == ["3"]
    subscriptions = ask(brokers["b"], "GET", f"{path_of(whole)}-partition-0/subscriptions")
    assert "s" not in subscriptions


def test_gr9_with_pipelines_in_both_directions_a_consumer_moves_and_returns(world: World) -> None:
    clusters = world.mesh("a", "b")
    a, b = clusters
    for cluster in clusters:
        world.pipeline(cluster)
    a.create("orders")
    b.wait_for("orders")
    a.ask("PUT", f"{path_of(full('orders'))}/subscription/s", "earliest", replicated=True)
    seen: list[bytes] = []
    published: list[bytes] = []
    for turn, (here, there) in enumerate(((a, b), (b, a), (a, b))):
        for cluster in clusters:
            values = [f"{cluster.name}{turn}.{number}".encode() for number in range(5)]
            cluster.publish("orders", *values)
            published += values
        for cluster in clusters:
            cluster.read("orders", len(published))
        with here.client.consumer(full("orders"), "s", initial_position=EARLIEST) as consumer:
            seen += [received(consumer).value for _ in range(here_backlog(here))]
        until(lambda there=there: here_backlog(there) == 0, "the position in the other cluster")  # type: ignore[misc]
    assert sorted(seen) == sorted(published), "each of them once"


def here_backlog(cluster: Cluster) -> int:
    subscriptions = cluster.ask("GET", f"{path_of(full('orders'))}/stats")["subscriptions"]
    return int(subscriptions["s"]["msgBacklog"]) if "s" in subscriptions else -1

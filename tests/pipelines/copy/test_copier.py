"""Copying between two real brokers: the same bytes, once, in order, and a state with the reason if not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from magnetar.client import EARLIEST, Client, MessageId
from magnetar.pipelines import clusters
from magnetar.pipelines.clusters import Clusters
from magnetar.pipelines.copy.assignment import Assignment, Outcome
from magnetar.pipelines.copy.copier import _copy_all, copy
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import PRODUCER_PREFIX, ROUTE, SOURCE_POSITION, Mask, MaskKind, RoutePolicy, State
from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from tests.client.fake_broker import Command, FakeBroker, fake_broker
from tests.pipelines.two_clusters import (
    LINGER_S,
    SUBSCRIPTION,
    ask,
    assignment,
    batch,
    copy_one,
    create,
    endpoint,
    message,
    metadata_of,
    new_topic,
    path_of,
    payloads,
    position_of,
    positions,
    source_positions,
    store,
    stored,
)


@pytest.fixture(autouse=True)
def new_connections() -> Iterator[None]:
    """Each test has new clients: brokers of earlier tests are stopped."""
    yield
    for own in clusters._clusters.values():
        own.loop.close(*own._clients.values())
    clusters._clusters.clear()


# -- the bytes


ALL_KINDS = [
    message(0),
    message(1, b"x" * 100_000),
    message(2, partition_key="k", properties=[pb.KeyValue(key="p", value=":*X")], event_time=77),
    message(3, ordering_key=b"o", partition_key="a2V5", partition_key_b64_encoded=True),
    message(4, b"", null_value=True),
    batch(5, 3),
    batch(8, 100, pb.LZ4),
    batch(108, 100, pb.ZSTD, partition_key="k108"),
    message(208, b"\x00secret", encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")], encryption_algo="AES"),
    batch(209, 4, encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")], encryption_param=b"iv"),
    message(213, b"first half,", uuid="u", num_chunks_from_msg=2, chunk_id=0, total_chunk_msg_size=22),
    message(213, b"second half", uuid="u", num_chunks_from_msg=2, chunk_id=1, total_chunk_msg_size=22),
    message(214, b"later", deliver_at_time=4_000_000_000_000),
    message(215, b"compressed by the client", compression=pb.SNAPPY, uncompressed_size=5),
]


def test_gr6_copies_are_the_same_bytes_with_their_source_position(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, ALL_KINDS)
    outcome = copy_one(assignment(a, b, topic))
    originals, copies = stored(a, topic), stored(b, topic)
    assert len(originals) == len(ALL_KINDS)
    assert payloads(copies) == payloads(originals)
    for original, entry in zip(originals, copies, strict=True):
        metadata = metadata_of(entry)
        assert metadata.replicated_from == "a"
        added = metadata.properties.pop()
        assert (added.key, added.value) == (SOURCE_POSITION, f"{original.id.ledger_id}:{original.id.entry_id}")
        metadata.ClearField("replicated_from")
        assert metadata == metadata_of(original)
    assert (outcome.state, outcome.reason, outcome.error) == (State.RUNNING, "", "")
    assert (outcome.entries, outcome.messages) == (14, 10 + 3 + 100 + 100 + 4)
    assert outcome.acked == originals[-1].id == position_of(a, topic)
    assert not outcome.is_behind


def test_gr6_a_reader_of_the_copy_receives_every_message(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    with Client(a.service_url) as client, client.producer(topic, compression="zstd") as producer:
        for number in range(500):
            producer.send_async(b"%d" % number, key=f"k{number % 7}", properties={"n": str(number)})
    copy_one(assignment(a, b, topic))
    with Client(b.service_url) as client, client.reader(topic, EARLIEST) as reader:
        read = [reader.read(10) for _ in range(500)]
    assert [(m.value, m.key, m.properties["n"]) for m in read] == [(b"%d" % n, f"k{n % 7}", str(n)) for n in range(500)]


def test_gr6_unreadable_metadata_stops_the_copy(a: TestBroker, b: TestBroker) -> None:
    """Apache Pulsar reads the producer from stored metadata: the copy has its name and number there."""
    topic = create(b, new_topic())
    ask(b, "POST", f"{path_of(topic)}/deduplicationEnabled", True)
    store(a, topic, [message(0), batch(1, 3)])
    remote = endpoint("b", b)
    clusters.clusters()._is_ours[remote] = False
    assert copy_one(assignment(a, b, topic)).state is State.RUNNING
    originals = stored(a, topic)
    name = f"{PRODUCER_PREFIX}a/{topic}/{originals[0].id.ledger_id}"
    copies = [metadata_of(entry) for entry in stored(b, topic)]
    assert [(m.producer_name, m.sequence_id, m.HasField("highest_sequence_id")) for m in copies] == [
        (name, 0, False),
        (name, 1, False),
    ]
    assert payloads(stored(b, topic)) == payloads(originals)


# -- entries that are not copied


def test_gr6_nothing_loops(a: TestBroker, b: TestBroker) -> None:
    topic = new_topic()
    store(a, topic, [message(0), message(1)])
    store(b, topic, [message(2)])
    there = assignment(a, b, topic)
    back = Assignment(endpoint("b", b), endpoint("a", a), topic, topic, "magnetar.repl.a")
    for _ in range(2):
        assert copy([there, back], 5, LINGER_S)[0].state is State.RUNNING
    outcomes = [copy_one(there), copy_one(back)]
    assert [outcome.entries for outcome in outcomes] == [0, 0]
    assert sorted(payloads(stored(a, topic))) == sorted(payloads(stored(b, topic))) == [b"0", b"1", b"2"]
    # Skipped entries are acknowledged: they are in no backlog.
    assert position_of(a, topic) == stored(a, topic)[-1].id
    assert position_of(b, topic, "magnetar.repl.a") == stored(b, topic)[-1].id


def test_gr6_messages_go_to_the_clusters_set_by_their_producer(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(
        a,
        topic,
        [
            message(0),
            message(1, replicate_to=["c", "b"]),
            message(2, replicate_to=["c"]),
            message(3, replicate_to=["__local__"]),
            message(4),
        ],
    )
    outcome = copy_one(assignment(a, b, topic))
    assert payloads(stored(b, topic)) == [b"0", b"1", b"4"]
    assert (outcome.entries, outcome.skipped) == (3, 2)
    assert outcome.acked == stored(a, topic)[-1].id


def test_gr6_markers_are_not_copied(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, [message(0), message(1, marker_type=10), message(2), message(3, marker_type=10)])
    outcome = copy_one(assignment(a, b, topic))
    assert payloads(stored(b, topic)) == [b"0", b"2"]
    assert outcome.acked is not None and outcome.acked.entry_id == 3
    assert not outcome.is_behind


# -- exactly once


def test_gr6_existing_copies_are_not_sent_again(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, [message(number) for number in range(10)])
    copy_one(assignment(a, b, topic))
    again = copy_one(assignment(a, b, topic, subscription="magnetar.repl.again"))
    assert (again.entries, again.state) == (0, State.RUNNING)
    store(a, topic, [message(10)])
    assert copy_one(assignment(a, b, topic, subscription="magnetar.repl.third")).entries == 1
    assert source_positions(stored(b, topic)) == positions(stored(a, topic))


def test_gr6_two_concurrent_copiers_copy_once(a: TestBroker, b: TestBroker) -> None:
    """One holds the subscription, the other gets an error; with separate subscriptions, the target keeps order."""
    topic = create(b, new_topic())
    store(a, topic, [message(number) for number in range(5000)])
    outcomes: list[Outcome] = []

    def run(subscription: str) -> None:
        own = Clusters()
        assigned = assignment(a, b, topic, subscription=subscription)
        while True:
            [outcome] = own.loop.run(_copy_all(own, [assigned], 0.1, LINGER_S))
            outcomes.append(outcome)
            if outcome.state is State.RUNNING:
                break
        own.loop.close(*own._clients.values())

    threads = [threading.Thread(target=run, args=(f"magnetar.repl.{who}",)) for who in ("one", "one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {outcome.state for outcome in outcomes} <= {State.RUNNING, State.CATCHING_UP}
    assert source_positions(stored(b, topic)) == positions(stored(a, topic))


def test_a_slice_ends_and_the_next_continues(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, [message(number, b"x" * 1000) for number in range(20_000)])
    first = copy_one(assignment(a, b, topic), slice_s=0.05)
    assert (first.is_behind, first.state) == (True, State.CATCHING_UP)
    assert first.acked is not None and first.acked.entry_id == first.entries - 1
    second = copy_one(assignment(a, b, topic), slice_s=20)
    assert (second.is_behind, second.state) == (False, State.RUNNING)
    assert first.entries + second.entries == 20_000
    assert source_positions(stored(b, topic)) == positions(stored(a, topic))


def test_a_slow_source_is_not_mistaken_for_the_end(a: TestBroker, b: TestBroker) -> None:
    """A pause ends a task only if there is nothing more."""
    topic = create(b, new_topic())
    store(a, topic, [message(number) for number in range(5000)])
    outcome = copy_one(assignment(a, b, topic), slice_s=20, linger_s=0.00001)
    assert (outcome.entries, outcome.is_behind) == (5000, False)


def test_new_messages_are_copied_during_the_slice(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, [message(0)])
    outcomes: list[Outcome] = []
    copier = threading.Thread(target=lambda: outcomes.append(copy_one(assignment(a, b, topic), 20, 1.0)))
    copier.start()
    with Client(b.service_url) as client, client.reader(topic, EARLIEST) as reader:
        assert reader.read(10).value == b"0"
        with Client(a.service_url) as source, source.producer(topic, batching=False) as producer:
            for number in range(50):
                producer.send(b"new %d" % number)
                assert reader.read(10).value == b"new %d" % number
    copier.join()
    assert outcomes[0].entries == 51
    assert not outcomes[0].is_behind


def test_the_rest_of_a_terminated_topic_is_copied(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, [message(0), message(1)])
    ask(a, "POST", f"{path_of(topic)}/terminate")
    for copied in (2, 0):
        outcome = copy_one(assignment(a, b, topic))
        assert (outcome.state, outcome.entries, outcome.is_behind) == (State.RUNNING, copied, False)
    assert position_of(a, topic) == stored(a, topic)[-1].id


# -- entries


def test_sp6_only_kept_messages_are_copied_and_masked(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    singles = [message(0, b'{"id": 1, "name": "Ann"}'), message(1, b'{"id": 2, "name": "Bob"}'), message(2, b"{}")]
    store(a, topic, [*singles, message(3, b'{"id": 3, "name": "Eve"}')])
    entries = stored(a, topic)
    policy = RoutePolicy(where="id <> 2", masks=(Mask(field="name", kind=MaskKind.FIXED, text="?"),))
    kept: dict[tuple[int, int], tuple[int, ...] | str] = {entries[0].id.position: (0,)}
    outcome = copy_one(assignment(a, b, topic, policy=policy, messages_kept=kept, until=entries[2].id))
    [copied] = stored(b, topic)
    assert b"Ann" not in copied.blob and b"?" in copied.blob
    assert ROUTE in {pair.key for pair in metadata_of(copied).properties}
    assert source_positions([copied]) == positions(entries[:1])
    assert (outcome.entries, outcome.skipped, outcome.acked) == (1, 2, entries[2].id)


def test_sp6_a_topic_may_have_another_remote_name(a: TestBroker, b: TestBroker) -> None:
    topic, target = new_topic(), create(b, new_topic())
    store(a, topic, [message(0), batch(1, 3)])
    copy_one(assignment(a, b, topic, target=target, policy=RoutePolicy(rename="other")))
    assert source_positions(stored(b, target)) == positions(stored(a, topic))
    with Client(b.service_url) as client, client.reader(target, EARLIEST) as reader:
        assert all(ROUTE in reader.read(10).properties for _ in range(4))


# -- states


def dead_endpoint(name: str) -> ClusterEndpoint:
    with broker() as gone:
        return endpoint(name, gone)


def test_an_unreachable_remote_does_not_block_others(a: TestBroker, b: TestBroker) -> None:
    good, bad = create(b, new_topic()), new_topic()
    for topic in (good, bad):
        store(a, topic, [message(0)])
    lost = Assignment(endpoint("a", a), dead_endpoint("lost"), bad, bad, SUBSCRIPTION)
    began = time.monotonic()
    outcomes = copy([lost, assignment(a, b, good)], 0.5, LINGER_S)
    assert time.monotonic() - began < 5
    assert [outcome.state for outcome in outcomes] == [State.UNREACHABLE, State.RUNNING]
    assert "cannot connect" in outcomes[0].reason and outcomes[0].entries == 0
    assert payloads(stored(b, good)) == [b"0"]
    assert position_of(a, bad).entry_id == -1


def test_an_exclusive_remote_producer_blocks_the_topic(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, [message(0)])
    with Client(b.service_url) as client, client.producer(topic, access_mode="Exclusive"):
        outcome = copy_one(assignment(a, b, topic))
    assert (outcome.state, outcome.entries) == (State.REFUSED, 0)
    assert "has an exclusive producer" in outcome.reason


def test_an_unreachable_source_is_stopped(b: TestBroker) -> None:
    topic = create(b, new_topic())
    outcome = copy_one(Assignment(dead_endpoint("a"), endpoint("b", b), topic, topic, SUBSCRIPTION))
    assert outcome.state is State.STOPPED
    assert "the source cluster" in outcome.reason and outcome.acked is None


@pytest.mark.parametrize(
    ("url", "target", "reason"),
    [("pulsar//nowhere", None, "pulsar//nowhere"), (None, "persistent://a/b", "persistent://a/b")],
)
def test_an_invalid_cluster_or_topic_is_reported(
    a: TestBroker, b: TestBroker, url: str | None, target: str | None, reason: str
) -> None:
    topic, good = new_topic(), create(b, new_topic())
    for name in (topic, good):
        store(a, name, [message(0)])
    remote = endpoint("b", b) if url is None else ClusterEndpoint("b", url)
    bad = Assignment(endpoint("a", a), remote, topic, target or topic, SUBSCRIPTION)
    outcomes = copy([bad, assignment(a, b, good)], 0.5, LINGER_S)
    assert [outcome.state for outcome in outcomes] == [State.REFUSED, State.RUNNING]
    assert reason in outcomes[0].reason


def test_gr3_a_missing_remote_topic_is_waited_for_and_not_created(a: TestBroker, b: TestBroker) -> None:
    topic = new_topic()
    store(a, topic, [message(0)])
    outcome = copy_one(assignment(a, b, topic))
    assert (outcome.state, outcome.entries) == (State.WAITING, 0)
    assert topic in outcome.reason
    assert topic not in ask(b, "GET", "persistent/public/default")
    create(b, topic)
    assert copy_one(assignment(a, b, topic)).entries == 1


def test_gr4_a_different_number_of_partitions_is_a_mismatch(a: TestBroker, b: TestBroker) -> None:
    topic = new_topic()
    store(a, topic, [message(0)])
    ask(b, "PUT", f"{path_of(topic)}/partitions", 2)
    assert copy_one(assignment(a, b, topic)).state is State.MISMATCH
    other = create(b, new_topic())
    outcome = copy_one(assignment(a, b, topic, target=f"{other}-partition-0"))
    assert outcome.state is State.MISMATCH and "is not partitioned" in outcome.reason


def test_gr6_partitions_are_copied_to_partitions(a: TestBroker, b: TestBroker) -> None:
    topic = new_topic()
    for one in (a, b):
        ask(one, "PUT", f"{path_of(topic)}/partitions", 2)
    names = [f"{topic}-partition-{index}" for index in range(2)]
    for index, name in enumerate(names):
        store(a, name, [message(index)])
    outcomes = copy([assignment(a, b, name) for name in names], 5, LINGER_S)
    assert [(outcome.entries, outcome.acked and outcome.acked.partition) for outcome in outcomes] == [(1, 0), (1, 1)]
    assert [payloads(stored(b, name)) for name in names] == [[b"0"], [b"1"]]


def test_a_terminated_remote_topic_rejects(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, [message(0)])
    ask(b, "POST", f"{path_of(topic)}/terminate")
    outcome = copy_one(assignment(a, b, topic))
    assert outcome.state is State.REFUSED and "terminated" in outcome.reason
    assert position_of(a, topic).entry_id == -1


def test_a_remote_quota_rejects_until_there_is_room(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, [message(0, b"x" * 2000), message(1)])
    ask(b, "PUT", f"{path_of(topic)}/subscription/slow")
    copy_one(assignment(a, b, topic))
    ask(b, "POST", f"{path_of(topic)}/backlogQuota", {"limitSize": 100, "policy": "producer_exception"})
    store(a, topic, [message(2)])
    outcome = copy_one(assignment(a, b, topic))
    assert outcome.state is State.REFUSED and "quota" in outcome.reason
    assert outcome.acked == MessageId(*stored(a, topic)[1].id.position)
    ask(b, "POST", f"{path_of(topic)}/subscription/slow/skip_all")
    assert copy_one(assignment(a, b, topic)).entries == 1
    assert payloads(stored(b, topic))[1:] == [b"1", b"2"]


def test_gr5_a_topic_with_continuous_publishing_is_running(a: TestBroker, b: TestBroker) -> None:
    """There is always a recent message; only older ones count."""
    topic = create(b, new_topic())
    has_begun, is_over = threading.Event(), threading.Event()

    def publish() -> None:
        with Client(a.service_url) as client, client.producer(topic, batching=False) as producer:
            producer.send(b"first")
            has_begun.set()
            while not is_over.wait(0.001):
                producer.send_async(b"x")

    publishing = threading.Thread(target=publish)
    publishing.start()
    try:
        assert has_begun.wait(30)
        outcomes = [copy_one(assignment(a, b, topic), slice_s=0.5) for _ in range(5)]
    finally:
        is_over.set()
        publishing.join()
    assert all(outcome.entries > 0 for outcome in outcomes)
    assert State.RUNNING in {outcome.state for outcome in outcomes}


def test_disabled_deduplication_is_reported(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, [message(0)])
    clusters.clusters()._is_ours[endpoint("b", b)] = False
    outcome = copy_one(assignment(a, b, topic))
    assert outcome.state is State.REFUSED and "has no deduplication" in outcome.reason
    ask(b, "POST", f"{path_of(topic)}/deduplicationEnabled", True)
    outcome = copy_one(assignment(a, b, topic))
    assert (outcome.entries, outcome.reason) == (1, "")


def test_unknown_deduplication_is_reported_and_the_topic_is_copied(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, [message(0)])
    remote = ClusterEndpoint("b", b.service_url)
    clusters.clusters()._is_ours[remote] = False
    outcome = copy_one(Assignment(endpoint("a", a), remote, topic, topic, SUBSCRIPTION))
    assert (outcome.state, outcome.entries) == (State.RUNNING, 1)
    assert "in the remote cluster b is unknown (it has no HTTP address)" in outcome.reason


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (pb.AuthenticationError, State.REFUSED),
        (pb.AuthorizationError, State.REFUSED),
        (pb.ServiceNotReady, State.UNREACHABLE),
        (pb.TopicNotFound, State.WAITING),
    ],
)
def test_the_remotes_error_is_the_reason(a: TestBroker, code: pb.ServerError.ValueType, state: State) -> None:
    topic = new_topic()
    store(a, topic, [message(0)])

    def answer(fake: FakeBroker, command: Command) -> Command | None:
        if command.type != Command.PARTITIONED_METADATA:
            return None
        failed = pb.CommandPartitionedTopicMetadataResponse(
            request_id=command.partitionMetadata.request_id,
            response=pb.CommandPartitionedTopicMetadataResponse.Failed,
            error=code,
            message="because of this",
        )
        return Command(type=Command.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=failed)

    with fake_broker(answer, flag=True) as fake:
        outcome = copy_one(Assignment(endpoint("a", a), ClusterEndpoint("fake", fake.url), topic, topic, SUBSCRIPTION))
    assert outcome.state is state
    assert state is State.WAITING or "because of this" in outcome.reason


def test_a_remote_that_rejects_our_credentials(a: TestBroker) -> None:
    topic = new_topic()
    store(a, topic, [message(0)])

    def answer(fake: FakeBroker, command: Command) -> Command | None:
        if command.type != Command.CONNECT:
            return None
        error = pb.CommandError(request_id=(1 << 64) - 1, error=pb.AuthenticationError, message="who are you")
        return Command(type=Command.ERROR, error=error)

    with fake_broker(answer, flag=True) as fake:
        outcome = copy_one(Assignment(endpoint("a", a), ClusterEndpoint("fake", fake.url), topic, topic, SUBSCRIPTION))
    assert outcome.state is State.REFUSED and "who are you" in outcome.reason


def test_a_subscription_in_use_is_waited_for(a: TestBroker, b: TestBroker) -> None:
    topic = create(b, new_topic())
    store(a, topic, [message(0)])
    with Client(a.service_url) as client, client.cursor(topic, SUBSCRIPTION, initial_position=EARLIEST) as cursor:
        cursor.position()
        outcome = copy_one(assignment(a, b, topic), slice_s=0.1)
    assert (outcome.state, outcome.entries, outcome.is_behind) == (State.CATCHING_UP, 0, True)
    assert "another process" in outcome.reason
    assert copy_one(assignment(a, b, topic)).entries == 1


def test_a_silent_remote_is_given_up_soon(a: TestBroker) -> None:
    topic = new_topic()
    store(a, topic, [message(0)])

    def answer(fake: FakeBroker, command: Command) -> bytes | None:
        return b"" if command.type == Command.PARTITIONED_METADATA else None

    with fake_broker(answer, flag=True) as fake:
        remote = ClusterEndpoint("fake", fake.url)
        began = time.monotonic()
        outcome = copy_one(Assignment(endpoint("a", a), remote, topic, topic, SUBSCRIPTION), slice_s=0.2)
        assert time.monotonic() - began < 6
        assert outcome.state is State.UNREACHABLE and "took longer" in outcome.reason
        assert remote not in clusters.clusters()._clients

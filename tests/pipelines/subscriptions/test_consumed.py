"""The consumed messages of a subscription, seen from another cluster: rounds over in-memory clusters, in any order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from magnetar.client import Entry, MessageId
from magnetar.client.message import Position
from magnetar.names import TopicName
from magnetar.pipelines.subscriptions import consumed, following
from magnetar.pipelines.subscriptions.consumed import Consumed, Ledgers, Trace, Verdict, Walk, classify, trace
from magnetar.pipelines.subscriptions.cursors import Cursors
from magnetar.pipelines.subscriptions.following import FollowedTopic, FollowResult, Memory, Round
from magnetar.replication.model import SOURCE_POSITION, subscription_of
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import build_blob

TOPIC = TopicName.parse("persistent://public/default/orders")
_T = TypeVar("_T")


def blob(replicated_from: str = "", source: str = "", goes_to: tuple[str, ...] = (), marker: bool = False) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, replicate_to=goes_to)
    if replicated_from:
        metadata.replicated_from = replicated_from
    if source:
        metadata.properties.add(key=SOURCE_POSITION, value=source)
    if marker:
        metadata.marker_type = 10
    return build_blob(metadata, b"")


def entry(position: Position, content: bytes) -> Entry:
    return Entry(TOPIC.full, MessageId(*position), 0, (), content)


# -- one entry


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (blob(), Trace((7, 3), "b", (7, 3))),
        (blob("a", "12:5"), Trace((7, 3), "a", (12, 5))),
        (blob("a", "12:5", ("a", "b")), Trace((7, 3), "a", (12, 5), ("a", "b"))),
        (blob("a"), Trace((7, 3), "a", None)),
        (blob("a", "twelve"), Trace((7, 3), "a", None)),
        (blob(marker=True), Trace((7, 3), "b", (7, 3), (), True)),
        (b"\x0e\x01damaged", Trace((7, 3), "", None)),
    ],
)
def test_gr9_an_entry_names_its_origin(content: bytes, expected: Trace) -> None:
    assert trace(entry((7, 3), content), "b") == expected


@pytest.mark.parametrize(
    ("traced", "verdict"),
    [
        (Trace((1, 1), "a", (5, 9)), Verdict.CONSUMED),
        (Trace((1, 1), "a", (5, 10)), Verdict.OPEN),
        (Trace((1, 1), "b", (0, 4)), Verdict.CONSUMED),
        (Trace((1, 1), "b", (1, 1)), Verdict.OPEN),
        (Trace((1, 1), "c", (1, 1)), Verdict.HELD),  # nothing of that origin was seen
        (Trace((1, 1), "a", None), Verdict.HELD),
        (Trace((1, 1), "b", (0, 4), ("c",)), Verdict.HELD),  # never meant for the consumer's cluster
        (Trace((1, 1), "b", (0, 4), ("a", "c")), Verdict.CONSUMED),
        (Trace((1, 1), "a", (5, 9), ("b",)), Verdict.CONSUMED),  # always known where it was published
        (Trace((1, 1), "b", (9, 9), (), True), Verdict.CONSUMED),
    ],
)
def test_gr9_an_entry_is_judged_by_the_position_of_its_origin(traced: Trace, verdict: Verdict) -> None:
    assert classify(traced, "a", {"a": (5, 9), "b": (0, 4)}) is verdict


def test_gr9_consumed_entries_after_an_open_one_are_acknowledged_individually() -> None:
    walk = Walk(holds=False)
    verdicts = (Verdict.CONSUMED, Verdict.CONSUMED, Verdict.HELD, Verdict.CONSUMED, Verdict.OPEN)
    for number, verdict in enumerate(verdicts):
        walk.step((1, number), verdict)
    assert (walk.up_to, walk.each, walk.reached, walk.holds, walk.is_over) == ((1, 1), [(1, 3)], (1, 3), True, True)


# -- ledgers


def test_gr9_entries_are_counted_across_ledgers() -> None:
    ledgers = Ledgers(((3, 10), (5, 4), (8, 6)), (8, 5))
    assert ledgers.before_first == (3, -1)
    assert ledgers.count((3, 8), (8, 0)) == 1 + 4 + 1
    assert ledgers.count((5, -1), (5, 3)) == 4
    assert ledgers.back((8, 5), 6) == (8, -1)
    assert ledgers.back((8, 5), 7) == (5, 2)
    assert ledgers.back((8, 5), 1000) == (3, -1)


def test_gr9_the_first_entries_of_a_single_ledger_may_be_deleted() -> None:
    ledgers = Ledgers(((3, 10),), (3, 99))
    assert ledgers.before_first == (3, 89)
    assert ledgers.back((3, 99), 5) == (3, 94)
    assert ledgers.back((3, 99), 50) == (3, 89)


def test_gr9_entries_too_far_from_the_mark_are_not_scanned() -> None:
    ledgers = Ledgers(((1, 100_000),), (1, 99_999))
    known = Consumed()
    known.move_to("a", (1, 10))
    known.learn((known.next_range((1, 10), ledgers, 500) or ((0, 0), (0, 0))), "a", [Trace((1, 4), "b", (2, 2))])
    assert known.is_settled("b", (1, 10), ledgers)
    known.move_to("a", (1, 50_000))
    span = known.next_range((1, 50_000), ledgers, 500)
    assert span == ((1, 49_744), (1, 50_000))
    assert known.marks["b"] == (2, 2), "it is less than what is consumed, and true"
    assert not known.is_settled("b", (1, 50_000), ledgers)


def test_gr9_a_subscription_moved_back_has_no_known_consumption() -> None:
    known = Consumed()
    known.move_to("a", (1, 10))
    known.learn(((1, -1), (1, 10)), "a", [Trace((1, 4), "b", (2, 2))])
    known.move_to("a", (1, 3))
    assert known.marks == {"a": (1, 3)}


# -- in-memory clusters


class MemoryCluster:
    """A cluster for rounds, with one topic and one subscription `s`; `roll` closes ledgers."""

    def __init__(self, name: str, clusters: tuple[str, ...]) -> None:
        self.name = name
        self.failure = ""
        self.log: list[tuple[Position, bytes]] = []
        self.ledger_id, self.entry_id = 10, -1
        self.sizes: dict[int, int] = {10: 0}
        self.mark: Position = (10, -1)
        self.acked: set[Position] = set()  # beyond the mark
        self.copied: dict[str, Position] = {other: (10, -1) for other in clusters if other != name}
        self.is_there = True
        self.in_use = False
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens after the cluster was asked for its cursors, and before anything else is."""

    def append(self, content: bytes) -> Position:
        self.entry_id += 1
        self.sizes[self.ledger_id] += 1
        position = (self.ledger_id, self.entry_id)
        self.log.append((position, content))
        return position

    def roll(self) -> None:
        if self.entry_id >= 0:
            self.ledger_id, self.entry_id = self.ledger_id + 3, -1
            self.sizes[self.ledger_id] = 0

    def trim(self) -> None:
        """Deletes whole consumed ledgers, like Apache Pulsar."""
        done = min([self.mark, *self.copied.values()])
        for ledger_id in [one for one in self.sizes if one < min(done[0], self.ledger_id)]:
            del self.sizes[ledger_id]
        self.log = [(position, content) for position, content in self.log if position[0] in self.sizes]

    def settle_mark(self) -> None:
        """Moves the mark past acknowledged entries."""
        for position, _ in self.log:
            if position > self.mark:
                if position not in self.acked:
                    return
                self.acked.remove(position)
                self.mark = position

    def is_acked(self, position: Position) -> bool:
        return position <= self.mark or position in self.acked

    # what a round uses

    async def cursors(self, topic: TopicName) -> Cursors:
        marks = {subscription_of(other): position for other, position in self.copied.items()}
        if self.is_there:
            marks["s"] = self.mark
        last = self.log[-1][0] if self.log else (self.ledger_id, -1)
        ragged = frozenset("s" if self.acked else "")
        answer = Cursors(Ledgers(tuple(sorted(self.sizes.items())), last), marks, ragged, frozenset(), 10.0)
        self.meanwhile()
        return answer

    async def has_consumers(self, topic: TopicName, subscription: str) -> bool:
        return self.in_use

    async def create(self, topic: TopicName, subscription: str) -> None:
        self.is_there = True
        self.mark = (min(self.sizes), -1)

    async def move_up_to(self, topic: TopicName, subscription: str, position: Position) -> None:
        self.mark = max(self.mark, position)
        self.acked = {one for one in self.acked if one > self.mark}
        self.settle_mark()

    async def acknowledge_each(self, topic: TopicName, subscription: str, positions: list[Position]) -> None:
        self.acked.update(one for one in positions if one > self.mark)
        self.settle_mark()

    async def entries(self, topic: TopicName, after: Position, up_to: Position) -> AsyncGenerator[list[Entry]]:
        found = [entry(position, content) for position, content in self.log if after < position <= up_to]
        for start in range(0, len(found), 3):
            yield found[start : start + 3]


def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Runs a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: _T = stop.value
        return result
    raise AssertionError("it waits for something")


def follow(source: MemoryCluster, remote: MemoryCluster, memories: dict[str, Memory] | None = None) -> FollowResult:
    result = FollowResult(TOPIC.full, remote.name, {} if memories is None else memories)
    topic = FollowedTopic(source, remote, TOPIC, TOPIC, float("inf"))  # type: ignore[arg-type]
    run(Round(topic, ("s",), result).run())
    return result


class Mesh:
    """Clusters that replicate into each other, and an application that consumes in one of them, then moves.

    A message is the cluster and position of its publication. `consumed` are those the application received.
    """

    def __init__(self, random: Random, clusters: int) -> None:
        self.random = random
        self.names = ("a", "b", "c")[:clusters]
        self.clusters = {name: MemoryCluster(name, self.names) for name in self.names}
        self.pairs = [(source, remote) for source in self.names for remote in self.names if source != remote]
        self.memories: dict[tuple[str, str], dict[str, Memory]] = {}
        self.consumed: set[tuple[str, Position]] = set()
        self.active = "a"
        self.was_trimmed = False
        self.is_busy = True

    def step(self) -> None:
        steps = (self.publish, self.copy_some, self.consume_some, self.follow_some, self.roll, self.rarely)
        self.random.choices(steps, weights=(30, 25, 15, 25, 5, 3))[0]()
        self.nothing_is_missed()

    def publish(self) -> None:
        others = [(name,) for name in self.names]
        goes_to = self.random.choice([(), (), (), (), (), (), *others, ("__local__",)])
        self.clusters[self.random.choice(self.names)].append(blob(goes_to=goes_to))

    def copy_some(self) -> None:
        self.copy(*self.random.choice(self.pairs), self.random.randint(1, 6))

    def copy(self, source: str, remote: str, entries: int) -> None:
        here, there = self.clusters[source], self.clusters[remote]
        for position, content in [one for one in here.log if one[0] > here.copied[remote]][:entries]:
            traced = trace(entry(position, content), source)
            if traced.origin == source and (not traced.goes_to or remote in traced.goes_to):
                there.append(blob(source, f"{position[0]}:{position[1]}", traced.goes_to))
            here.copied[remote] = position

    def roll(self) -> None:
        self.clusters[self.random.choice(self.names)].roll()

    def rarely(self) -> None:
        self.random.choice((self.trim, self.fail_over, self.catch_up, self.seek_back))()

    def trim(self) -> None:
        self.was_trimmed = True
        self.clusters[self.random.choice(self.names)].trim()

    def fail_over(self) -> None:
        self.active = self.random.choice(self.names)

    def consume_some(self) -> None:
        self.consume(self.random.randint(1, 5), self.random.choice((0, 0, 0, 1, 2)))

    def consume(self, entries: int, leaves_out: int) -> None:
        """The application acknowledges the next message, or a slightly later one."""
        cluster = self.clusters[self.active]
        waiting = [one for one in cluster.log if not cluster.is_acked(one[0])]
        for position, content in waiting[leaves_out : leaves_out + entries]:
            self.consumed.add(message(self.active, position, content))
            cluster.acked.add(position)
        cluster.settle_mark()

    def follow_some(self) -> None:
        pair = self.random.choice(self.pairs)
        if self.random.random() < 0.2:
            self.memories.pop(pair, None)  # the pipeline was restarted
        self.follow(*pair)

    def follow(self, source: str, remote: str) -> FollowResult:
        asked = (self.clusters[source], self.clusters[remote])
        for cluster in asked:
            cluster.meanwhile = self.meanwhile
        result = follow(*asked, self.memories.get((source, remote)))
        for cluster in asked:
            cluster.meanwhile = lambda: None
        assert not result.error
        self.memories[source, remote] = result.memories
        return result

    def meanwhile(self) -> None:
        if self.is_busy and self.random.random() < 0.3:
            self.random.choice((self.publish, self.copy_some, self.consume_some))()

    def seek_back(self) -> None:
        """The application seeks back. With two followers of one cluster, it may be noticed late."""
        cluster = self.clusters[self.random.choice(self.names)]
        if cluster.log and len(self.names) == 2:
            (ledger_id, entry_id), _ = self.random.choice(cluster.log)
            cluster.mark, cluster.acked = min(cluster.mark, (ledger_id, entry_id - 1)), set()

    def catch_up(self) -> None:
        """After everything is copied, consumed and followed, only messages never meant for the consumer are left."""
        self.is_busy = False
        for source, remote in self.pairs:
            self.copy(source, remote, 10_000)
        self.consume(10_000, 0)
        for source, remote in self.pairs:
            if source == self.active:
                self.follow_to_the_end(source, remote)
        self.is_busy = True

    def follow_to_the_end(self, source: str, remote: str) -> None:
        for _ in range(1000):
            if not self.follow(source, remote).is_behind:
                break
        else:
            raise AssertionError("it is always behind")
        there = self.clusters[remote]
        for position, content in there.log:
            traced = trace(entry(position, content), remote)
            is_for_source = traced.origin == source or not traced.goes_to or source in traced.goes_to
            can_be_known = traced.origin in (source, remote) or not self.was_trimmed
            if is_for_source and can_be_known:
                assert there.is_acked(position), f"{traced} is consumed in {source}, and not acknowledged in {remote}"

    def nothing_is_missed(self) -> None:
        for name, cluster in self.clusters.items():
            for position, content in cluster.log:
                if cluster.is_acked(position):
                    assert message(name, position, content) in self.consumed, f"{position} of {name} would be missed"


def message(cluster: str, position: Position, content: bytes) -> tuple[str, Position]:
    traced = trace(entry(position, content), cluster)
    assert traced.source is not None
    return traced.origin, traced.source


@pytest.mark.parametrize("entries_max", [4, 20_000])
@pytest.mark.parametrize("chunk", [2, 256])
@pytest.mark.parametrize("clusters", [2, 3])
def test_gr9_nothing_is_missed_and_nothing_consumed_stays_in_any_order_of_events(
    clusters: int, chunk: int, entries_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumed, "CHUNK_FIRST", chunk)
    monkeypatch.setattr(consumed, "CHUNK_MAX", chunk * 2)
    monkeypatch.setattr(following, "ENTRIES_MAX", entries_max)

    @settings(max_examples=20, deadline=None)
    @example(38)  # an origin that takes several rounds to settle
    @given(st.integers(0, 2**32))
    def simulate(seed: int) -> None:
        mesh = Mesh(Random(seed), clusters)
        for _ in range(120):
            mesh.step()
        mesh.catch_up()

    simulate()

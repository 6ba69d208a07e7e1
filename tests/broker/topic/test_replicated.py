"""GR6: copies from other clusters are stored once, under all policies and after any crash."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.peer import Receipt
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.replicated import MARKER_STORED, position_in
from magnetar.errors import MetadataInvalid
from magnetar.names import TopicName
from magnetar.replication.model import SOURCE_POSITION
from magnetar.wire.metadata import build_blob, metadata_of
from magnetar.wire.schema_pb2 import KeyValue, MessageMetadata
from tests.broker.world import World

OURS = "magnetar.repl.east/persistent://public/default/t/7"
THEIRS = "pulsar.repl.east-->standalone"


def copy(entry: int, messages: int = 1) -> tuple[int, int, int, bytes, bool, bool]:
    """A copy as our pipelines send it, numbered by its position."""
    metadata = MessageMetadata(producer_name="someone", sequence_id=3, publish_time=1)
    first = entry << 16
    return first, first | (messages - 1), messages, build_blob(metadata, b"%d" % entry), False, False


def theirs(
    sequence_id: int, position: str = "", *, producer: str = "someone", original: int = 0, marker: int = 0
) -> tuple[int, int, int, bytes, bool, bool]:
    """A copy as Apache Pulsar's replicator sends it."""
    metadata = MessageMetadata(producer_name=producer, sequence_id=original, publish_time=1)
    if position:
        metadata.properties.append(KeyValue(key=SOURCE_POSITION, value=position))
    if marker:
        metadata.marker_type = marker
    return sequence_id, sequence_id, 1, build_blob(metadata, position.encode()), False, False


def send(
    world: World, name: str, publishes: Sequence[tuple[int, int, int, bytes, bool, bool]], **options: bool
) -> list[Receipt]:
    """Sends and returns the receipts."""
    producer = world.topic().producers.by_name.get(name) or world.producer(name=name, **options)
    world.client.receipted.clear()
    world.topic().publish(producer, publishes)
    world.settle()
    return list(world.client.receipted)


def stored(world: World) -> int:
    return world.topic().log.confirmed + 1


def deduplicate(world: World, enabled: bool) -> None:
    world.broker.catalog.set_overrides(TopicName.parse("t"), Overrides(deduplication=enabled))
    world.settle()


# -- our own pipelines


def test_gr6_a_copy_is_stored_once_without_a_policy() -> None:
    world = World()
    assert send(world, OURS, [copy(0), copy(1, 5)]) == [(0, 0, 0), (1 << 16, 1 << 16 | 4, 1)]
    assert send(world, OURS, [copy(0), copy(1, 5), copy(2)])[2] == (2 << 16, 2 << 16, 2)
    assert world.client.receipted[0][2] == world.client.receipted[1][2] == -1
    assert stored(world) == 3


def test_gr6_known_positions_survive_crashes_and_policies() -> None:
    world = World()
    send(world, OURS, [copy(entry) for entry in range(10)])
    for enabled in (True, False, True):
        deduplicate(world, enabled)
        world = world.restart()
        assert world.topic().last_sequence_id(OURS) == 9 << 16
        send(world, OURS, [copy(entry) for entry in range(10)])
        assert stored(world) == 10


def test_gr6_a_crash_before_the_commit_forgets_the_copy_and_its_number() -> None:
    world = World()
    send(world, OURS, [copy(0)])
    world.topic().publish(world.topic().producers.by_name[OURS], [copy(1)])
    again = world.restart()
    assert again.topic().last_sequence_id(OURS) == 0
    send(again, OURS, [copy(0), copy(1)])
    assert stored(again) == 2


def test_other_producers_are_unaffected() -> None:
    world = World()
    send(world, "p", [copy(0), copy(0)])
    assert stored(world) == 2
    assert world.topic().last_sequence_id("p") == -1


def test_chunks_are_entries_with_their_own_numbers() -> None:
    world = World()
    chunks = [(*copy(entry)[:5], True) for entry in range(3)]
    send(world, OURS, chunks[:2])
    send(world, OURS, chunks)
    assert stored(world) == 3


def test_nothing_is_forgotten_by_time_alone() -> None:
    """A pipeline may be stopped for days between a copy and its acknowledgement in the source."""
    world = World()
    send(world, OURS, [copy(0)])
    world.topic().producers.close_all()
    world.advance(hours=100)
    world = world.restart()
    send(world, OURS, [copy(0)])
    assert stored(world) == 1


def test_a_ledger_is_forgotten_when_its_source_is_hours_ahead() -> None:
    world = World()
    next_ledger = OURS[:-1] + "8"
    other_source = OURS.replace("east", "west")
    for name in (OURS, other_source, next_ledger):
        send(world, name, [copy(0)])
    world.topic().producers.close_all()
    world.advance(hours=5)
    send(world, next_ledger, [copy(1)])
    world.advance(hours=2)
    assert world.topic().last_sequence_id(OURS) == 0  # five hours are not enough
    send(world, next_ledger, [copy(2)])
    world.advance(minutes=11)
    known = {name: world.restart().topic().last_sequence_id(name) for name in (OURS, next_ledger, other_source)}
    assert known == {OURS: -1, next_ledger: 2 << 16, other_source: 0}


def test_the_number_of_known_ledgers_is_limited_like_producers() -> None:
    world = World(brokerDeduplicationMaxNumberOfProducers=3)
    for ledger in range(8):
        send(world, f"{OURS[:-1]}{ledger}", [copy(0)])
        world.advance(seconds=1)
    world.topic().producers.close_all()
    world.advance(minutes=11)
    known = [world.topic().last_sequence_id(f"{OURS[:-1]}{ledger}") for ledger in range(8)]
    assert known == [-1] * 5 + [0] * 3


def test_a_recreated_topic_knows_no_positions() -> None:
    world = World()
    for name in (OURS, THEIRS):
        send(world, name, [copy(0)] if name is OURS else [theirs(0, "1:1")], knows_positions=True)
    world.topic().producers.close_all()
    world.broker.delete_topic(TopicName.parse("t"))
    world.settle()
    send(world, OURS, [copy(0)])
    send(world, THEIRS, [theirs(0, "1:1")], knows_positions=True)
    assert stored(world) == 2


# -- replicators of Apache Pulsar


def test_gr7_a_replicator_receives_positions_of_the_source() -> None:
    world = World()
    receipts = send(world, THEIRS, [theirs(0, "5:8"), theirs(1, "5:9"), theirs(2, "6:0")], knows_positions=True)
    assert receipts == [(5, 8, 0), (5, 9, 1), (6, 0, 2)]
    again = send(world, THEIRS, [theirs(3, "5:9"), theirs(4, "6:0"), theirs(5, "6:1")])
    assert again == [(5, 9, -1), (6, 0, -1), (6, 1, 3)]
    assert stored(world) == 4


def test_gr7_a_replicators_positions_survive_crashes_and_policies() -> None:
    world = World()
    send(world, THEIRS, [theirs(0, "5:9"), theirs(1, "10:0")], knows_positions=True)
    for enabled in (True, False):
        deduplicate(world, enabled)
        world = world.restart()
        world.advance(hours=10)
        receipts = send(world, THEIRS, [theirs(0, "5:9"), theirs(0, "9:500"), theirs(0, "10:0")], knows_positions=True)
        assert [receipt[2] for receipt in receipts] == [-1] * 3
    assert stored(world) == 2


def test_gr7_clusters_are_tracked_separately() -> None:
    world = World()
    other = THEIRS.replace("east", "west")
    for name in (THEIRS, other):
        send(world, name, [theirs(0, "5:9")], knows_positions=True)
    assert stored(world) == 2


@pytest.mark.parametrize("knows_positions", [True, False])
def test_gr7_a_marker_gets_a_receipt_and_is_not_delivered(knows_positions: bool) -> None:
    world = World()
    world.consumer()
    markers = [theirs(4, "", marker=kind) for kind in (10, 11, 12, 13, 20, 21)]
    receipts = send(world, THEIRS, [*markers, theirs(5, "1:1")], knows_positions=knows_positions)
    assert receipts[:-1] == [(4, MARKER_STORED if knows_positions else 4, -1)] * 6
    assert receipts[-1] == ((1, 1, 0) if knows_positions else (5, 5, 0))
    assert world.client.take() == [0]


@pytest.mark.parametrize("position", ["", "x", "5", "5:", ":9", "5:9:1", "-5:9", "5:9x", "\u0665:9", "9" * 30 + ":1"])
def test_gr7_a_copy_without_a_position_is_rejected(position: str) -> None:
    world = World()
    assert send(world, THEIRS, [theirs(3, position), theirs(4, "5:9")], knows_positions=True) == [(5, 9, 0)]
    (error,) = world.client.errors
    assert isinstance(error, MetadataInvalid) and SOURCE_POSITION in str(error)


def test_gr7_an_older_replicator_uses_the_original_producers_sequence_ids() -> None:
    """Only with deduplication: otherwise a producer that restarts its sequence is unaffected."""
    world = World()
    first = [theirs(0, producer="a", original=5), theirs(1, producer="b", original=5)]
    send(world, THEIRS, first)
    send(world, THEIRS, first)
    assert stored(world) == 4
    deduplicate(world, True)
    send(world, THEIRS, first)
    assert stored(world) == 6
    world = world.restart()
    receipts = send(world, THEIRS, [*first, theirs(2, producer="a", original=6)])
    assert receipts == [(0, 0, -1), (1, 1, -1), (2, 2, 6)]
    assert world.topic().last_sequence_id("a") == 6


def test_gr7_stored_bytes_equal_sent_bytes() -> None:
    world = World()
    publish = theirs(0, "5:9")
    send(world, THEIRS, [publish], knows_positions=True)
    entry = world.topic().log.read_one(0)
    assert entry is not None and entry[3] == publish[3]
    assert metadata_of(entry[3]).producer_name == "someone"


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_positions_round_trip(ledger: int, entry: int) -> None:
    assert position_in(f"{ledger}:{entry}") == (ledger, entry)


@given(st.text(alphabet="0123456789:-x \u0665"))
def test_anything_else_is_no_position(text: str) -> None:
    assert (position_in(text) is not None) == bool(
        re.fullmatch("[0-9]{1,19}:[0-9]{1,19}", text) and max(map(int, text.split(":"))) < 2**63
    )


def test_gr6_the_hot_path_of_other_producers_is_unaffected() -> None:
    """Decided once per producer: ordinary producers carry no state."""
    world = World()
    assert isinstance(world.producer(), Producer)
    assert world.topic().producers.by_name["p"].replicated is None
    assert world.topic()._replicated is None and world.topic()._pulsar_replicated is None

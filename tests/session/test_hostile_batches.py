"""Batches made to cost much: many empty messages in few bytes, and metadata that disagrees with its command."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

from magnetar.bounds import BYTES_SPLIT, MESSAGES_READ, MESSAGES_SPLIT
from magnetar.broker.subscription.single_messages import single_blobs
from magnetar.wire import batch as wire_batch
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch, iter_batch, split_batch
from magnetar.wire.compression import compress
from magnetar.wire.metadata import MetadataError, build_blob
from tests.broker.dead_letters import fail, letters, with_policy
from tests.broker.world import World
from tests.session.test_repeated_dead_letters import Connection, stored

EMPTY = build_batch([(pb.SingleMessageMetadata(payload_size=0), b"")])


def empty_messages(count: int) -> tuple[pb.MessageMetadata, bytes]:
    content = EMPTY * count
    metadata = pb.MessageMetadata(num_messages_in_batch=count, compression=pb.ZLIB, uncompressed_size=len(content))
    metadata.properties.add(key="REAL_TOPIC", value="persistent://public/default/t")
    return metadata, compress(pb.ZLIB, content)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The indexes of the messages that were parsed."""
    indexes: list[int] = []
    original = wire_batch._single_metadata

    def counted(payload: bytes, position: int, index: int) -> tuple[pb.SingleMessageMetadata, int]:
        indexes.append(index)
        return original(payload, position, index)

    monkeypatch.setattr(wire_batch, "_single_metadata", counted)
    return indexes


def test_fault_batch_of_a_million_empty_messages_costs_little(parsed: list[int]) -> None:
    world = World()
    world.publish(1)
    client = Connection(world)
    metadata, payload = empty_messages(1_000_000)
    assert len(payload) < 30_000
    tracemalloc.start()
    client.send(metadata, payload, 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert parsed == [] and stored(world) == 1
    assert peak < 4 << 20


def test_bound_messages_split_on_publish(parsed: list[int]) -> None:
    """A batch that may hold repeated dead letters is only searched within the limit."""
    world = World()
    world.publish(1)
    client = Connection(world)
    count = MESSAGES_SPLIT.limit + 1
    client.send(*empty_messages(count), count)
    assert parsed == [] and stored(world) == 1
    client.send(*empty_messages(1000), 1000)
    assert len(parsed) == 1000


def test_a_batch_is_not_searched_while_no_consumer_holds_anything(parsed: list[int]) -> None:
    client = Connection(World())
    client.send(*empty_messages(1000), 1000)
    assert parsed == []


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_batch_that_disagrees_with_its_command_is_not_taken_apart(difference: int) -> None:
    """The log may have one from an earlier version: it is one dead letter, as it was."""
    world = World()
    consumer = world.consumer()
    with_policy(world, 1)
    producer = world.producer()
    metadata, payload = empty_messages(5)
    metadata.producer_name, metadata.sequence_id, metadata.publish_time = "p", 0, 1
    world.topic().publish(producer, [(0, 0, 5 + difference, build_blob(metadata, payload), False, False)])
    world.settle()
    for _ in range(3):
        fail(world, consumer, 0)
    ((_, properties, letter),) = letters(world)
    assert letter == payload
    assert f"it has 5 messages, and its producer announced {5 + difference}" in properties["DEATH_DESCRIPTION"]
    assert world.subscription().backlog == 0


def test_bound_messages_split_stays_whole_beyond(parsed: list[int]) -> None:
    world = World()
    consumer = world.consumer(permits=1_000_000)
    with_policy(world, 1)
    count = MESSAGES_SPLIT.limit + 1
    metadata, payload = empty_messages(count)
    metadata.producer_name, metadata.sequence_id, metadata.publish_time = "p", 0, 1
    world.topic().publish(world.producer(), [(0, 0, count, build_blob(metadata, payload), False, False)])
    world.settle()
    for _ in range(2):
        fail(world, consumer, 0)
    ((_, properties, letter),) = letters(world)
    assert parsed == [] and letter == payload
    assert f"its {count} messages exceed {MESSAGES_SPLIT.limit}" in properties["DEATH_DESCRIPTION"]


def test_only_the_messages_up_to_the_last_wanted_one_are_read(parsed: list[int]) -> None:
    metadata, payload = empty_messages(1000)
    found = single_blobs(0, build_blob(metadata, payload), 1000, 0b101, 1 << 20)
    assert [index for index, _ in found] == [0, 2]
    assert parsed == [0, 1, 2]


def test_bound_bytes_split() -> None:
    """Metadata that every message inherits is counted: a few kilobytes would become gigabytes."""
    metadata, payload = empty_messages(1000)
    metadata.schema_version = bytes(BYTES_SPLIT.limit // 900)
    assert single_blobs(0, build_blob(metadata, payload), 1000, None, 1 << 20) == []
    assert len(single_blobs(0, build_blob(metadata, payload), 1000, (1 << 800) - 1, 1 << 20)) == 800
    compressed = pb.MessageMetadata(num_messages_in_batch=1, compression=pb.ZLIB)
    compressed.uncompressed_size = BYTES_SPLIT.limit + 1
    assert single_blobs(0, build_blob(compressed, compress(pb.ZLIB, bytes(100))), 1, None, 1 << 20) == []


def test_bound_messages_read() -> None:
    metadata = pb.MessageMetadata(num_messages_in_batch=MESSAGES_READ.limit + 1)
    with pytest.raises(MetadataError, match=f"batch of {MESSAGES_READ.limit + 1} messages exceeds"):
        split_batch(metadata, EMPTY * (MESSAGES_READ.limit + 1))


def test_a_batch_is_read_one_by_one(parsed: list[int]) -> None:
    messages = iter_batch(pb.MessageMetadata(num_messages_in_batch=MESSAGES_READ.limit), EMPTY * MESSAGES_READ.limit)
    next(messages), next(messages)
    assert parsed == [0, 1]

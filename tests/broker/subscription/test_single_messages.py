"""A batch that failed is delivered again as single messages, so that only the bad ones die (DL9)."""

from __future__ import annotations

import pytest

from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.subscription.single_messages import SINGLE_ID_MIN, parse_id, single_blobs, single_id
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.metadata import build_blob, split_blob
from tests.broker.dead_letters import EXCLUSIVE, KEY_SHARED, configure, fail, letters, origins, publish, with_policy
from tests.broker.world import World

EVERYTHING = 1 << 30


def batch(world: World, size: int = 4, compression: pb.CompressionType.ValueType = pb.NONE) -> None:
    parts = []
    for index in range(size):
        single = pb.SingleMessageMetadata(
            payload_size=2, partition_key=f"k{index}", event_time=index, sequence_id=index
        )
        single.properties.add(key="number", value=str(index))
        parts.append((single, b"m%d" % index))
    content = build_batch(parts)
    metadata = pb.MessageMetadata(num_messages_in_batch=size, uncompressed_size=len(content), compression=compression)
    metadata.schema_version = b"\0\0\0\0\0\0\0\1"
    publish(world, metadata, compress(compression, content), size)


def ack(world: World, entry: int, index: int) -> None:
    """As the session decodes the id of a single message."""
    world.subscription().ack(entry, ~(1 << index))
    world.settle()


def nack(world: World, consumer: Consumer, entry: int, *indexes: int) -> None:
    fail(world, consumer, entry, indexes={entry: sum(1 << index for index in indexes)})


def delivered(world: World) -> list[tuple[int, int, int]]:
    """Entry, batch index and redelivery count of what was delivered since the last call."""
    found = [(*parse_id(delivery[0]), delivery[1]) for _, delivery in world.client.delivered]
    world.client.delivered.clear()
    return found


def started(limit: int = 2, **options: object) -> tuple[World, Consumer]:
    """A world in which a batch of four was delivered and nacked as a whole."""
    world = World()
    batch(world)
    consumer = world.consumer(**options)  # type: ignore[arg-type]
    with_policy(world, limit)
    assert delivered(world) == [(0, -1, 0)]
    fail(world, consumer, 0)
    return world, consumer


@pytest.mark.parametrize("type_", [None, KEY_SHARED])
def test_dl9_only_the_bad_message_of_a_nacked_batch_dies(type_: object) -> None:
    world, consumer = started(**({"type": type_} if type_ else {}))
    assert delivered(world) == [(0, index, 1) for index in range(4)]
    nack(world, consumer, 0, 2)
    for index in (0, 1):
        ack(world, 0, index)
    assert delivered(world) == []  # message 3 is still with the consumer
    ack(world, 0, 3)
    assert delivered(world) == [(0, 2, 2)]
    assert letters(world) == []
    nack(world, consumer, 0, 2)
    assert origins(world) == [f"{world.topic().ledger_id}:0:-1:2"]
    ((_, properties, payload),) = letters(world)
    assert payload == b"m2" and "DEATH_BATCH_SIZE" not in properties
    assert properties["DEATH_DESCRIPTION"] == "It failed 3 times, maxRedeliverCount is 2."
    assert world.subscription().backlog == 0 and delivered(world) == []
    assert (world.subscription().nacked_batches, world.subscription().deliveries.split_batches) == (1, 2)


def test_dl9_a_message_dies_while_its_neighbours_are_with_the_consumer() -> None:
    world, consumer = started(limit=1)
    nack(world, consumer, 0, 1)
    assert len(letters(world)) == 1
    assert consumer.pending == {0: 3} and consumer.unacked == 3
    nack(world, consumer, 0, 1)  # again: it is dead
    assert len(letters(world)) == 1
    for index in (0, 2, 3):
        ack(world, 0, index)
    assert world.subscription().backlog == 0 and consumer.pending == {}


def test_dl9_late_acks_and_nacks_of_the_whole_batch() -> None:
    world, consumer = started()
    fail(world, consumer, 0)  # of the first delivery: the client nacked another of its messages
    state = world.subscription().cursor.state_of(0)
    assert state is not None and state.count == 1 and not state.index_counts
    ack(world, 0, 0)
    ack(world, 0, 0)  # twice: acknowledges nothing else
    assert consumer.pending == {0: 3}
    world.subscription().ack(0)  # all messages of the first delivery are acknowledged after all
    world.settle()
    assert world.subscription().backlog == 0


def test_dl9_a_consumer_that_leaves_returns_the_messages_it_did_not_finish() -> None:
    world, consumer = started()
    delivered(world)
    nack(world, consumer, 0, 1)
    ack(world, 0, 0)
    world.subscription().remove_consumer(consumer)
    world.settle()
    after = world.restart()
    after.consumer()
    assert delivered(after) == [(0, 1, 2), (0, 2, 1), (0, 3, 1)]


def test_dl9_redelivery_of_everything_counts_each_message_once() -> None:
    world, consumer = started(limit=5)
    nack(world, consumer, 0, 1)
    ack(world, 0, 0)
    delivered(world)
    fail(world, consumer)
    assert delivered(world) == [(0, 1, 2), (0, 2, 2), (0, 3, 2)]


def test_dl9_the_back_off_begins_when_the_batch_comes_back() -> None:
    world, consumer = started()
    configure(world, backoff_ms=[1000])
    delivered(world)
    nack(world, consumer, 0, 1)
    for index in (0, 2, 3):
        ack(world, 0, index)
    assert delivered(world) == [] and world.subscription().redelivery.backing_off == 1
    world.advance(milliseconds=1050)
    assert delivered(world) == [(0, 1, 2)]


def test_dl9_without_a_policy_and_where_order_counts_batches_stay_whole() -> None:
    world = World()
    batch(world)
    consumer = world.consumer()
    delivered(world)
    fail(world, consumer, 0)
    assert delivered(world) == [(0, -1, 1)]
    world, consumer = started(limit=1, type=EXCLUSIVE)
    assert delivered(world) == [(0, -1, 1)]
    fail(world, consumer, 0)
    found = [properties for _, properties, _ in letters(world)]
    assert [one["DEATH_BATCH_SIZE"] for one in found] == ["4"] * 4
    assert found[0]["DEATH_DESCRIPTION"].endswith(
        "It failed together with its whole batch of 4, which the client nacks as one."
    )
    assert world.subscription().nacked_batches == 2


def test_dl9_acks_of_single_messages_count_without_acks_of_batch_indexes() -> None:
    world = World(acknowledgmentAtBatchIndexLevelEnabled=False)
    batch(world, 2)
    consumer = world.consumer()
    with_policy(world, 2)
    fail(world, consumer, 0)
    ack(world, 0, 0)
    ack(world, 0, 1)
    assert world.subscription().backlog == 0


class TestBlobs:
    def test_a_single_message_is_what_its_producer_would_have_sent(self) -> None:
        world = World()
        batch(world, compression=pb.ZLIB)
        entry = world.topic().log.read_one(0)
        assert entry is not None
        found = single_blobs(0, entry[3], 4, 0b1010, EVERYTHING)
        assert [index for index, _ in found] == [1, 3]
        metadata, payload = split_blob(found[1][1])
        assert payload == b"m3" and not metadata.HasField("num_messages_in_batch")
        assert (metadata.partition_key, metadata.event_time, metadata.sequence_id) == ("k3", 3, 3)
        assert (metadata.compression, metadata.producer_name) == (pb.NONE, "p")
        assert metadata.schema_version == b"\0\0\0\0\0\0\0\1"
        assert [(pair.key, pair.value) for pair in metadata.properties] == [("number", "3")]

    def test_what_cannot_be_split_stays_whole(self) -> None:
        encrypted = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=2)
        encrypted.encryption_keys.add(key="k", value=b"v")
        plain = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        for blob in (build_blob(encrypted, b"secret"), build_blob(plain, b"x"), b"\x0e\x01junk"):
            assert single_blobs(0, blob, 2, None, EVERYTHING) == []
            assert single_blobs(0, blob, 1, None, EVERYTHING) == []
        world = World()
        batch(world)
        entry = world.topic().log.read_one(0)
        assert entry is not None
        assert single_blobs(0, entry[3], 4, None, 1) == []  # a message larger than a client takes
        assert single_blobs(SINGLE_ID_MIN, entry[3], 4, None, EVERYTHING) == []

    @pytest.mark.parametrize(("entry", "index"), [(0, 0), (7, 99_999), (SINGLE_ID_MIN - 1, 3)])
    def test_ids_are_unambiguous_and_fit_a_signed_long(self, entry: int, index: int) -> None:
        made = single_id(entry, index)
        assert SINGLE_ID_MIN <= made < 1 << 63 and parse_id(made) == (entry, index)
        assert parse_id(entry) == (entry, -1)
        assert parse_id((1 << 64) - 1) == ((1 << 64) - 1, -1)  # of an entry that does not exist

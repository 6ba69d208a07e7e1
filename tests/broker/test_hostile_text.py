"""Keys, properties and names in messages that are not UTF-8: the messages beside them notice nothing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.subscription.consumer import SubscriptionType
from magnetar.wire.batch import build_batch
from magnetar.wire.metadata import build_blob, metadata_of, sticky_hash, sticky_key
from magnetar.wire.schema_pb2 import MessageMetadata, SingleMessageMetadata
from magnetar.wire.text import octets
from tests.broker.dead_letters import fail, letters, with_policy
from tests.broker.world import World
from tests.wire.hostile_text import hostile_metadata, hostile_single, metadata_texts, single_texts

TYPES = list(SubscriptionType)
ORDERED = (SubscriptionType.Exclusive, SubscriptionType.Failover)


def store(world: World, *blobs: tuple[int, bytes]) -> None:
    producer = world.topic().producers.by_name.get("p") or world.producer()
    world.topic().publish(producer, [(0, 0, messages, blob, False, False) for messages, blob in blobs])
    world.settle()


def blob(texts: dict[str, bytes], payload: bytes = b"x", **fields: int) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, **fields)
    return build_blob(hostile_metadata(metadata, texts), payload)


def batch(texts: dict[str, bytes], singles: list[dict[str, bytes]]) -> tuple[int, bytes]:
    content = build_batch([(hostile_single(SingleMessageMetadata(payload_size=1), one), b"y") for one in singles])
    return len(singles), blob(texts, content, num_messages_in_batch=len(singles))


def drain(world: World, type: SubscriptionType) -> None:
    """Nacks everything until all of it is dead."""
    consumer = world.consumer(type=type)
    with_policy(world, 1)
    for _ in range(20):
        if not world.subscription().backlog:
            return
        world.client.delivered.clear()
        fail(world, consumer)
    raise AssertionError(
        f"{world.subscription().backlog} messages never die: {world.subscription().dead_letters.problem}"
    )


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
@settings(max_examples=40)
@given(texts=metadata_texts, of_batch=metadata_texts, singles=st.lists(single_texts, min_size=1, max_size=3))
def test_any_bytes_are_delivered_and_become_dead_letters(
    type: SubscriptionType, texts: dict[str, bytes], of_batch: dict[str, bytes], singles: list[dict[str, bytes]]
) -> None:
    world = World()
    world.consumer(type=type)
    store(world, (1, blob({})), (1, blob(texts)), batch(of_batch, singles), (1, blob({})))
    assert world.client.take() == [0, 1, 2, 3]
    world = world.restart()
    drain(world, type)
    assert len(letters(world)) == 3 + len(singles)
    after = world.restart()
    assert after.subscription().backlog == 0
    assert len(letters(after)) == 3 + len(singles)


@settings(max_examples=40)
@given(texts=metadata_texts, singles=st.lists(single_texts, min_size=1, max_size=3))
def test_any_bytes_expire_to_dead_letters(texts: dict[str, bytes], singles: list[dict[str, bytes]]) -> None:
    world = World(ttlDurationDefaultInSeconds=60)
    world.consumer(permits=0)
    world.topic().policies = msgspec.structs.replace(world.topic().policies, dead_letter_expired=True)
    store(world, (1, blob(texts)), batch(texts, singles), (1, blob({})))
    world.clock.advance(hours=1)
    world.topic().expire(world.clock.now_ms())
    world.settle()
    assert world.subscription().backlog == 0
    assert len(letters(world)) == 2 + len(singles)


def test_fault_key_not_utf8_is_delivered_by_key_shared() -> None:
    world = World()
    consumer = world.consumer(type=SubscriptionType.Key_Shared)
    store(world, *((1, blob({"partition_key": b"\xff" if index == 3 else b"k"})) for index in range(40)))
    assert world.client.take() == list(range(40))
    world.subscription().redeliver(consumer, [3])
    world.settle()
    assert world.client.take() == [3]


def test_fault_key_not_utf8_of_a_batch_becomes_a_dead_letter_with_the_same_bytes() -> None:
    world = World()
    store(world, batch({"replicated_from": b"\xfd"}, [{"partition_key": b"\xff\xfe", "properties": b"\xfc"}]))
    drain(world, SubscriptionType.Shared)
    ((metadata, _, _),) = letters(world)
    assert octets(metadata.partition_key) == b"\xff\xfe"
    assert octets(metadata.replicated_from) == b"\xfd"
    assert octets(metadata.properties[0].key) == b"\xfc"


def test_a_key_is_hashed_by_its_bytes() -> None:
    key = sticky_key(metadata_of(blob({"partition_key": b"\xff\xfe"})))
    assert key == b"\xff\xfe"
    assert 0 < sticky_hash(key) < 1 << 16
    assert sticky_key(metadata_of(blob({"partition_key": b"\xff"}, partition_key_b64_encoded=True))) == b"NONE_KEY"
    assert sticky_key(metadata_of(blob({"producer_name": b"\xff"}))) == b"\xff-1"

"""Producers that move messages, on the in-memory world of the broker's tests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from magnetar.broker.moves.move import Move, MoveNames
from magnetar.broker.peer import Receipt
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.topic import Publish
from magnetar.names import TopicName
from magnetar.wire.metadata import build_blob
from magnetar.wire.moves import ALL_SUBSCRIPTIONS, MOVE_ONLY, MOVE_SUBSCRIPTION, MOVE_TOPIC, MOVED
from magnetar.wire.schema_pb2 import KeyValue, MessageMetadata
from tests.broker.world import World

_numbers = count()


def mover(
    world: World, source: str = "t", target: str = "out", subscription: str = "s", only: str = "", name: str = ""
) -> Producer:
    topic = world.topic(target)
    metadata = {MOVE_TOPIC: source, MOVE_SUBSCRIPTION: subscription, **({MOVE_ONLY: only} if only else {})}
    names = MoveNames.of(metadata)
    assert names is not None
    move = Move.open(topic, names, lambda name, subscription: True)
    return world.producer(target, name or f"mover-{next(_numbers)}", metadata=metadata, move=move)


def moving_all(world: World, source: str = "t", target: str = "out") -> Producer:
    return mover(world, source, target, ALL_SUBSCRIPTIONS)


def entry(
    positions: str | None, payload: bytes = b"moved", messages: int = 1, deliver_at_ms: int = 0, is_chunk: bool = False
) -> Publish:
    number = next(_numbers)
    metadata = MessageMetadata(producer_name="mover", sequence_id=number, publish_time=1)
    if positions is not None:
        metadata.properties.append(KeyValue(key=MOVED, value=positions))
    if messages > 1:
        metadata.num_messages_in_batch = messages
    if deliver_at_ms:
        metadata.deliver_at_time = deliver_at_ms
    return number, number, messages, build_blob(metadata, payload), bool(deliver_at_ms), is_chunk


def at(world: World, positions: str, topic: str = "t") -> str:
    return f"{world.topic(topic).ledger_id}:{positions}"


def send(world: World, producer: Producer, publishes: Sequence[Publish], target: str = "out") -> list[Receipt]:
    """Publishes, commits, and returns the receipts; errors are those of the world's client since the last call."""
    world.client.receipted.clear()
    world.client.errors.clear()
    topic = world.broker.topic(TopicName.parse(target))
    topic.publish(producer, publishes)
    world.settle()
    return list(world.client.receipted)


def move(world: World, producer: Producer, *positions: str, target: str = "out") -> list[int]:
    """The entry ids of the receipts."""
    receipts = send(world, producer, [entry(at(world, text)) for text in positions], target)
    return [entry_id for _, _, entry_id in receipts]


def stored(world: World, topic: str = "out") -> int:
    return world.topic(topic).log.confirmed + 1

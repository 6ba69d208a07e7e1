"""Letters of a dead letter topic and redrives inside the broker, on the in-memory world of its tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from magnetar.broker.moves.redrive import BrokerRedrive, Destination, RedriveFound, RedriveOrder
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.deadletter.properties import REAL_SUBSCRIPTION, REAL_TOPIC
from magnetar.deadletter.redriven import OriginKey
from magnetar.wire.metadata import build_blob, split_blob
from magnetar.wire.schema_pb2 import KeyValue, MessageMetadata
from tests.broker.world import START_MS, World

SOURCE = "t-s-DLQ"
TARGET = "persistent://public/default/t"
ORIGIN = OriginKey(TARGET, None, "s")
ONLY_S = Destination(TARGET, "s")


def letter(
    payload: bytes = b"x",
    properties: Mapping[str, str] | None = None,
    *,
    topic: str = TARGET,
    subscription: str = "s",
    **fields: Any,
) -> bytes:
    """An entry with one letter; `fields` are those of its metadata."""
    metadata = MessageMetadata(**{"producer_name": "p", "sequence_id": 7, "publish_time": START_MS} | fields)
    named = {REAL_TOPIC: topic, REAL_SUBSCRIPTION: subscription} | dict(properties or {})
    metadata.properties.extend(KeyValue(key=name, value=text) for name, text in named.items() if text)
    return build_blob(metadata, payload)


def subscribe(world: World, name: str, topic: str, *, earliest: bool = True) -> None:
    world.topic(topic).create_subscription(SubscribeRequest(name, from_earliest=earliest))
    world.settle()


def with_letters(*blobs: bytes, source: str = SOURCE, **settings: object) -> World:
    """Letters, of which a subscription `handled` remembers the acknowledged ones, and their origin with two
    subscriptions."""
    world = World(**settings)
    for name in ("s", "other"):
        subscribe(world, name, "t")
    subscribe(world, "handled", source)
    publish(world, *blobs, source=source)
    return world


def publish(world: World, *blobs: bytes, source: str = SOURCE, messages: int = 1) -> None:
    """Each letter in a run of its own."""
    producer = world.topic(source).producers.by_name.get("p") or world.producer(source)
    for blob in blobs:
        world.topic(source).publish(producer, [(0, 0, messages, blob, False, False)])
    world.settle()


def order_of(world: World, source: str = SOURCE, **changes: Any) -> RedriveOrder:
    """All letters, back to `ORIGIN` for the only subscription `s`."""
    values: dict[str, Any] = {
        "ledger_id": world.topic(source).ledger_id,
        "after": -1,
        "up_to": world.topic(source).log.confirmed,
        "letters": 50_000,
        "published_until_ms": 1 << 62,
        "generations_max": 3,
        "targets": {ORIGIN: ONLY_S},
    }
    return RedriveOrder(**values | changes)


def begin(
    world: World, source: str = SOURCE, may_use: Callable[[str], bool] = lambda name: True, **changes: Any
) -> BrokerRedrive:
    return BrokerRedrive(world.topic(source), order_of(world, source, **changes), may_use)


def redrive(world: World, source: str = SOURCE, **changes: Any) -> RedriveFound:
    """A request to its end."""
    run = begin(world, source, **changes)
    while run.turn():
        world.broker.invariants()
    world.settle()
    return run.found


def open_of(world: World, name: str, topic: str = "t") -> list[int]:
    cursor = world.subscription(name, topic).cursor
    return [entry for entry in range(world.topic(topic).log.confirmed + 1) if not cursor.is_acked(entry)]


def letters_left(world: World, source: str = SOURCE) -> list[int]:
    return open_of(world, "handled", source)


def stored(world: World, topic: str = "t") -> list[tuple[MessageMetadata, bytes]]:
    """Metadata and payload of all entries."""
    return [split_blob(blob) for _, _, _, blob in world.topic(topic).log.read(0, 1 << 20, 1 << 40)]


def payloads(world: World, topic: str = "t") -> list[bytes]:
    return [payload for _, payload in stored(world, topic)]


def texts(metadata: MessageMetadata) -> dict[str, str]:
    return {pair.key: pair.value for pair in metadata.properties}


def numbered(numbers: Sequence[int], **fields: Any) -> list[bytes]:
    return [letter(b"%d" % number, **fields) for number in numbers]

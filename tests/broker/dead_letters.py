"""Shared parts of the tests of failing messages: policies, failures, and the resulting dead letters."""

from __future__ import annotations

import msgspec

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import build_blob, split_blob
from tests.broker.world import World

DLQ = "t-s-DLQ"
EXCLUSIVE, FAILOVER, KEY_SHARED = SubscriptionType.Exclusive, SubscriptionType.Failover, SubscriptionType.Key_Shared


def with_policy(world: World, limit: int = 2, **fields: object) -> None:
    policy = DeadLetterPolicy(limit, **{key: str(value) for key, value in fields.items()})
    world.subscription().set_dead_letter_policy(policy, "test")
    world.settle()


def configure(world: World, **changes: object) -> None:
    subscription = world.subscription()
    world.topic().save_subscription(subscription, msgspec.structs.replace(subscription.record, **changes))
    world.settle()


def fail(world: World, consumer: Consumer, *entries: int, indexes: dict[int, int] | None = None) -> None:
    world.subscription().redeliver(consumer, list(entries) or None, indexes=indexes)
    world.settle()
    if not entries and consumer.type in (EXCLUSIVE, FAILOVER):
        world.advance(milliseconds=150)  # time for pending acks


def letters(world: World, topic: str = DLQ) -> list[tuple[pb.MessageMetadata, dict[str, str], bytes]]:
    if not world.broker.catalog.exists(TopicName.parse(topic)):
        return []
    found = []
    for entry in world.topic(topic).log.read(0, 10_000, 1 << 30):
        metadata, payload = split_blob(entry[3])
        found.append((metadata, {pair.key: pair.value for pair in metadata.properties}, payload))
    return found


def origins(world: World, topic: str = DLQ) -> list[str]:
    return [properties["ORIGIN_MESSAGE_ID"] for _, properties, _ in letters(world, topic)]


def publish(world: World, metadata: pb.MessageMetadata, payload: bytes, messages: int = 1) -> None:
    producer = world.topic().producers.by_name.get("p") or world.producer()
    metadata.producer_name, metadata.sequence_id, metadata.publish_time = "p", 0, world.clock.now_ms()
    world.topic().publish(producer, [(0, 0, messages, build_blob(metadata, payload), False, False)])
    world.settle()

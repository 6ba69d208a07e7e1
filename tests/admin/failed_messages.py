"""Failing messages, and dead letters written by clients: shared parts of the dead letter tests."""

from __future__ import annotations

from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.metadata import build_blob
from tests.admin.driver import NOW_MS, Admin

PATH = "/admin/v2/persistent/public/default"
FULL = "persistent://public/default"
NAMESPACE = "/admin/v2/namespaces/public/default"
SUBSCRIPTION = f"{PATH}/t/subscription/s"
POLICY, BACKOFF, BREAKER = (
    f"{SUBSCRIPTION}/{name}" for name in ("deadLetterPolicy", "redeliveryBackoff", "circuitBreaker")
)
DLQ = f"{PATH}/t-s-DLQ/deadLetters"


def topic_of(admin: Admin, name: str = "t") -> PersistentTopic:
    topic = admin.broker.topic(TopicName.parse(name), create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


def subscription_of(admin: Admin, topic: str = "t") -> Subscription:
    subscription = topic_of(admin, topic).subscriptions["s"]
    assert isinstance(subscription, Subscription)
    return subscription


def settle(admin: Admin) -> None:
    admin.commit()
    while admin.broker.has_work:
        admin.broker.pump()
        admin.commit()


def fail(admin: Admin, consumer: Consumer, *entries: int) -> None:
    assert isinstance(consumer.subscription, Subscription)
    consumer.subscription.redeliver(consumer, list(entries))
    settle(admin)


def kill(admin: Admin, *payloads: bytes) -> Consumer:
    """Turns these messages into dead letters: each fails twice, and once is allowed."""
    consumer = admin.subscribe("t", "s", permits=1000)
    first = topic_of(admin).log.confirmed + 1
    admin.publish("t", *payloads)
    settle(admin)
    admin.done("POST", POLICY, json={"maxRedeliverCount": 1})
    for _ in range(2):
        fail(admin, consumer, *range(first, first + len(payloads)))
    return consumer


def put(
    admin: Admin,
    payload: bytes = b"x",
    *,
    topic: str = "t-s-DLQ",
    metadata: pb.MessageMetadata | None = None,
    messages: int = 1,
    **properties: str,
) -> None:
    """A message that a client publishes to a dead letter topic."""
    producer = admin.publish(topic)
    metadata = metadata or pb.MessageMetadata()
    metadata.producer_name, metadata.sequence_id, metadata.publish_time = "client", 7, NOW_MS
    for key, value in properties.items():
        metadata.properties.add(key=key, value=value)
    topic_of(admin, topic).publish(producer, [(0, 0, messages, build_blob(metadata, payload), False, False)])
    admin.commit()


def batch(
    *singles: tuple[bytes, dict[str, str]], compression: pb.CompressionType.ValueType = pb.NONE
) -> tuple[pb.MessageMetadata, bytes]:
    parts = []
    for payload, properties in singles:
        single = pb.SingleMessageMetadata(payload_size=len(payload))
        for key, value in properties.items():
            single.properties.add(key=key, value=value)
        parts.append((single, payload))
    content = build_batch(parts)
    metadata = pb.MessageMetadata(compression=compression, uncompressed_size=len(content))
    metadata.num_messages_in_batch = len(singles)
    return metadata, compress(compression, content)

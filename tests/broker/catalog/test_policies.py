"""Effects of policies: of a namespace, of a topic, on open topics, and after a restart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from magnetar.broker.catalog import creation
from magnetar.broker.catalog.policies import (
    AutoTopicCreation,
    BacklogQuota,
    DelayedDelivery,
    Overrides,
    Policies,
    QuotaKind,
    QuotaPolicy,
    Retention,
)
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.errors import (
    ConsumerBusy,
    MagnetarError,
    NotAllowed,
    ProducerBusy,
    QuotaExceeded,
    QuotaHold,
    SubscriptionNotFound,
    TopicNotFound,
)
from magnetar.names import TopicName
from magnetar.settings.settings import Settings
from tests.broker.world import START_MS, Client, SubscriptionType, World

NAMESPACE = "public/default"
LEVELS = pytest.mark.parametrize("level", ["namespace", "topic"])
MB = 1 << 20


def at_namespace(world: World, **overrides: Any) -> None:
    record = world.broker.catalog.namespaces[NAMESPACE]
    changed = msgspec.structs.replace(record.overrides, **overrides)
    world.broker.catalog.save_namespace(NAMESPACE, msgspec.structs.replace(record, overrides=changed))
    world.settle()


def at_topic(world: World, topic: str = "t", **overrides: Any) -> None:
    name, catalog = TopicName.parse(topic), world.broker.catalog
    catalog.set_overrides(name, msgspec.structs.replace(catalog.overrides_of(name), **overrides))
    world.settle()


def put(world: World, level: str, **overrides: Any) -> None:
    """Sets policies for the topic t, which is open."""
    world.topic()
    if level == "namespace":
        at_namespace(world, **overrides)
    else:
        at_topic(world, **overrides)


def remaining(world: World) -> list[int]:
    log = world.topic().log
    return list(range(log.first, log.last + 1))


# -- retention and time to live


@LEVELS
def test_retention_keeps_acknowledged_messages(level: str) -> None:
    world = World(managedLedgerMinLedgerRolloverTimeMinutes=0)
    world.publish(3)
    put(world, level, retention=Retention(minutes=60, mb=-1))
    world.advance(minutes=50)
    assert remaining(world) == [0, 1, 2]
    world.advance(minutes=20)
    assert remaining(world) == []


@LEVELS
def test_retention_by_size_deletes_the_oldest(level: str) -> None:
    world = World(managedLedgerMinLedgerRolloverTimeMinutes=0)
    put(world, level, retention=Retention(minutes=-1, mb=1))
    world.publish(4, payload=b"x" * (MB // 3))
    world.advance(minutes=3)
    assert remaining(world) == [2, 3]
    put(world, level, retention=Retention(minutes=0, mb=0))
    world.advance(minutes=3)
    assert remaining(world) == []


def test_a_shorter_retention_of_the_topic_overrides_its_namespace() -> None:
    world = World(managedLedgerMinLedgerRolloverTimeMinutes=0)
    put(world, "namespace", retention=Retention(minutes=-1, mb=-1))
    world.publish(2)
    world.publish(2, topic="other")
    put(world, "topic", retention=Retention(minutes=0, mb=0))
    world.advance(days=3)
    assert remaining(world) == []
    assert world.topic("other").log.first == 0


@LEVELS
def test_a_time_to_live_expires_unread_messages(level: str) -> None:
    world = World(messageExpiryCheckIntervalInMinutes=1)
    world.topic()
    world.consumer(permits=0)
    world.publish(2)
    put(world, level, message_ttl_s=600)
    world.advance(minutes=9)
    assert world.subscription().backlog == 2
    world.publish(1)
    world.advance(minutes=2)
    assert world.subscription().backlog == 1
    put(world, level, message_ttl_s=0)
    world.advance(days=1)
    assert world.subscription().backlog == 1


# -- backlog quotas


def over_quota(level: str, kind: QuotaKind, policy: QuotaPolicy) -> World:
    """A topic with a backlog of three messages of 100 bytes from a minute ago; the quota allows two."""
    world = World(backlogQuotaCheckIntervalInSeconds=60)
    world.consumer(permits=0)
    if kind is QuotaKind.destination_storage:
        world.publish(3, payload=b"x" * 100)
        limit = world.topic().log.size_from(1)
    else:
        world.publish(1)
        world.advance(seconds=30)
        world.publish(2)
        limit = 80
    put(world, level, backlog_quotas={kind: BacklogQuota(limit, policy)})
    world.advance(seconds=60)
    return world


@LEVELS
@pytest.mark.parametrize("kind", QuotaKind)
@pytest.mark.parametrize(
    ("policy", "refusal"),
    [(QuotaPolicy.producer_request_hold, QuotaHold), (QuotaPolicy.producer_exception, QuotaExceeded)],
)
def test_a_backlog_over_its_quota_blocks_producers(
    level: str, kind: QuotaKind, policy: QuotaPolicy, refusal: type[MagnetarError]
) -> None:
    world = over_quota(level, kind, policy)
    assert world.client.closed == ["p"]
    with pytest.raises(refusal, match=r"persistent://public/default/t is over its backlog quota"):
        world.producer(name="again")
    assert world.subscription().backlog == 3
    world.subscription().ack(0)
    world.producer(name="again")


@LEVELS
@pytest.mark.parametrize("kind", QuotaKind)
def test_a_backlog_over_its_quota_evicts_the_oldest(level: str, kind: QuotaKind) -> None:
    world = over_quota(level, kind, QuotaPolicy.consumer_backlog_eviction)
    assert world.client.closed == []
    assert world.subscription().backlog == 2
    assert world.subscription().cursor.mark_delete == 0
    world.publish(1)


@LEVELS
@pytest.mark.parametrize("kind", QuotaKind)
def test_a_removed_quota_blocks_no_producer(level: str, kind: QuotaKind) -> None:
    world = over_quota(level, kind, QuotaPolicy.producer_exception)
    put(world, level, backlog_quotas=None)
    world.producer(name="again")
    put(world, level, backlog_quotas={kind: BacklogQuota(-1, QuotaPolicy.producer_exception)})
    world.producer(name="another")


def test_each_kind_of_quota_is_resolved_separately() -> None:
    world = World(backlogQuotaDefaultLimitBytes=7, backlogQuotaDefaultLimitSecond=9)
    hold, error = QuotaPolicy.producer_request_hold, QuotaPolicy.producer_exception
    put(world, "namespace", backlog_quotas={QuotaKind.destination_storage: BacklogQuota(5, error)})
    policies = world.topic().policies
    assert (policies.quota_bytes, policies.quota_bytes_policy) == (5, error)
    assert (policies.quota_ms, policies.quota_ms_policy) == (9000, hold)
    put(world, "topic", backlog_quotas={QuotaKind.message_age: BacklogQuota(3, error)})
    policies = world.topic().policies
    assert (policies.quota_bytes, policies.quota_ms) == (5, 3000)


# -- deduplication


@LEVELS
def test_deduplication_is_enabled_and_disabled(level: str) -> None:
    world = World()
    producer = world.producer()
    world.publish(2, producer=producer)
    world.publish(2, producer=producer)
    assert world.topic().log.last == 3
    put(world, level, deduplication=True)
    world.publish(2, producer=producer)  # messages from before do not count
    world.publish(3, producer=producer)
    assert world.topic().log.last == 6
    assert world.topic().last_sequence_id("p") == 2
    put(world, level, deduplication=False)
    world.publish(1, producer=producer)
    assert world.topic().log.last == 7
    put(world, level, deduplication=True)
    assert world.topic().last_sequence_id("p") == -1
    world.publish(1, producer=producer)
    assert world.topic().log.last == 8


def test_deduplication_forgets_uncommitted_sequences_when_disabled() -> None:
    world = World()
    put(world, "topic", deduplication=True)
    producer = world.producer()
    world.publish(3, producer=producer)
    name, catalog = TopicName.parse("t"), world.broker.catalog
    for enabled in (False, True):
        catalog.set_overrides(name, Overrides(deduplication=enabled))  # no commit in between
    assert world.topic().last_sequence_id("p") == -1
    world.settle()
    assert world.restart().topic().last_sequence_id("p") == -1


@LEVELS
def test_deduplication_stays_enabled_after_a_restart(level: str) -> None:
    world = World()
    put(world, level, deduplication=True)
    world.publish(3)
    again = world.restart()
    assert again.topic().policies.deduplication
    assert again.topic().last_sequence_id("p") == 2


# -- limits


@LEVELS
def test_the_number_of_producers_is_limited(level: str) -> None:
    world = World(maxProducersPerTopic=5)
    put(world, level, max_producers=1)
    world.producer(name="a")
    with pytest.raises(ProducerBusy, match="maxProducersPerTopic is 1"):
        world.producer(name="b")
    put(world, level, max_producers=0)
    for name in "bcdefgh":
        world.producer(name=name)


@LEVELS
def test_the_number_of_consumers_of_a_topic_is_limited(level: str) -> None:
    world = World()
    put(world, level, max_consumers=1)
    world.consumer("s", name="a")
    with pytest.raises(ConsumerBusy, match="maxConsumersPerTopic is 1"):
        world.consumer("r", name="b")
    put(world, level, max_consumers=None)
    world.consumer("r", name="b")


@LEVELS
def test_the_number_of_consumers_of_a_subscription_is_limited(level: str) -> None:
    world = World()
    put(world, level, max_consumers_per_subscription=1)
    world.consumer("s", name="a")
    world.consumer("r", name="b")
    with pytest.raises(ConsumerBusy, match="maxConsumersPerSubscription is 1"):
        world.consumer("s", name="c")


@LEVELS
def test_the_number_of_subscriptions_is_limited(level: str) -> None:
    world = World()
    put(world, level, max_subscriptions=1)
    world.consumer("s")
    with pytest.raises(NotAllowed, match="maxSubscriptionsPerTopic is 1"):
        world.consumer("r")
    world.consumer("s", name="another")


def test_the_number_of_topics_of_a_namespace_is_limited() -> None:
    world = World()
    at_namespace(world, max_topics=2)
    world.topic("a")
    world.topic("b")
    with pytest.raises(NotAllowed, match="maxTopicsPerNamespace 2"):
        world.topic("c")
    at_namespace(world, max_topics=0)
    world.topic("c")


@LEVELS
def test_unacknowledged_messages_of_a_consumer_are_limited(level: str) -> None:
    world = World(maxUnackedMessagesPerConsumer=1000)
    client = Client()
    world.consumer(client=client, permits=100)
    put(world, level, max_unacked_per_consumer=3)
    world.publish(10)
    assert client.take() == [0, 1, 2]
    put(world, level, max_unacked_per_consumer=5)
    assert client.take() == [3, 4]
    put(world, level, max_unacked_per_consumer=0)
    assert client.take() == [5, 6, 7, 8, 9]


@LEVELS
def test_ordered_types_have_no_limit_of_unacknowledged_messages(level: str) -> None:
    world = World()
    client = Client()
    world.consumer(client=client, type=SubscriptionType.Exclusive, permits=100)
    put(world, level, max_unacked_per_consumer=3, max_unacked_per_subscription=3)
    world.publish(10)
    assert client.take() == list(range(10))


@LEVELS
def test_unacknowledged_messages_of_a_subscription_are_limited(level: str) -> None:
    world = World(maxUnackedMessagesPerSubscription=0)
    client = Client()
    world.consumer(client=client, permits=100)
    put(world, level, max_unacked_per_subscription=4)
    world.publish(20)
    assert client.take() == [0, 1, 2, 3]
    world.subscription().ack(0)
    world.settle()
    assert client.take() == []  # not before half of them are acknowledged
    world.subscription().ack(1)
    world.settle()
    assert client.take() == [4, 5]
    put(world, level, max_unacked_per_subscription=6)
    assert client.take() == [6, 7]
    put(world, level, max_unacked_per_subscription=0)
    assert client.take() == list(range(8, 20))


# -- delayed delivery


@LEVELS
def test_delayed_delivery_is_disabled(level: str) -> None:
    world = World()
    client = Client()
    world.consumer(client=client)
    put(world, level, delayed_delivery=DelayedDelivery(active=False))
    world.publish(1, deliver_at_ms=START_MS + 60_000)
    assert client.take() == [0]
    put(world, level, delayed_delivery=DelayedDelivery(active=True, tick_ms=600_000))
    world.publish(1, deliver_at_ms=START_MS + 60_000)
    assert client.take() == []
    world.advance(seconds=60)
    assert client.take() == [1]  # on time, whatever the tick


@LEVELS
def test_delays_are_limited(level: str) -> None:
    world = World()
    client = Client()
    world.consumer(client=client)
    put(world, level, delayed_delivery=DelayedDelivery(active=True, max_ms=1000))
    world.publish(1, deliver_at_ms=START_MS + 1001)
    assert "exceeds delayedDeliveryMaxDelayInMillis 1000" in str(world.client.errors[0])
    world.publish(1, deliver_at_ms=START_MS + 1000)
    world.advance(seconds=1)
    assert client.take() == [0]


# -- creation


def test_ac1_a_namespace_controls_the_creation_of_its_topics() -> None:
    world = World(allowAutoTopicCreation=False)
    name = TopicName.parse("new")
    with pytest.raises(TopicNotFound):
        world.broker.topic(name, create=True)
    at_namespace(world, auto_topic_creation=AutoTopicCreation(allowed=True))
    world.broker.topic(name, create=True)
    at_namespace(world, auto_topic_creation=AutoTopicCreation(allowed=True, partitions=3))
    assert creation.partitions(world.broker.catalog, TopicName.parse("parted"), create=True) == 3
    at_namespace(world, auto_topic_creation=AutoTopicCreation(allowed=False))
    with pytest.raises(TopicNotFound):
        world.broker.topic(TopicName.parse("newer"), create=True)
    at_namespace(world, auto_topic_creation=None)
    with pytest.raises(TopicNotFound):
        world.restart(allowAutoTopicCreation=False).broker.topic(TopicName.parse("newer"), create=True)


@LEVELS
def test_ac1_subscriptions_are_auto_created_only_where_allowed(level: str) -> None:
    world = World()
    put(world, level, auto_subscription_creation=False)
    with pytest.raises(SubscriptionNotFound, match="'s' does not exist"):
        world.consumer("s")
    world.consumer("reader", durable=False)
    put(world, level, auto_subscription_creation=True)
    world.consumer("s")


# -- levels


@LEVELS
def test_policies_survive_a_restart(level: str) -> None:
    world = World()
    put(world, level, max_producers=1, retention=Retention(5, 6), subscription_types=["Shared"], max_topics=9)
    policies = world.restart(maxProducersPerTopic=7).topic().policies
    assert policies.max_producers == 1
    assert (policies.retention_ms, policies.retention_bytes) == (300_000, 6 * MB)
    assert policies.subscription_types == frozenset({"Shared"})


def test_partitions_use_the_policies_of_the_partitioned_topic() -> None:
    world = World()
    name = TopicName.parse("parted")
    world.broker.catalog.create_partitioned(name, 2, {})
    world.settle()
    at_topic(world, "parted", max_producers=1)
    for index in range(2):
        topic = world.broker.topic(name.with_partition(index))
        assert isinstance(topic, PersistentTopic) and topic.policies.max_producers == 1
    again = world.restart()
    assert again.broker.topic(name.with_partition(1)).policies.max_producers == 1


def test_changed_settings_reach_open_topics_without_a_policy() -> None:
    world = World()
    world.topic("a")
    world.topic("b")
    at_topic(world, "b", max_producers=4)
    world.broker.set_dynamic_setting("maxProducersPerTopic", "2")
    assert world.topic("a").policies.max_producers == 2
    assert world.topic("b").policies.max_producers == 4
    world.broker.remove_dynamic_setting("maxProducersPerTopic")
    assert world.topic("a").policies.max_producers == 0


def test_a_message_size_of_zero_means_the_brokers() -> None:
    world = World(maxMessageSize=2048)
    put(world, "topic", max_message_size=1024)
    assert world.topic().policies.max_message_size == 1024
    put(world, "topic", max_message_size=0)
    assert world.topic().policies.max_message_size == 2048


def test_effective_policies_can_be_set_as_they_are_shown() -> None:
    """Setting every policy to its effective value changes nothing."""
    for settings in (
        Settings(),
        Settings(
            defaultRetentionTimeInMinutes=-1,
            defaultRetentionSizeInMB=-1,
            ttlDurationDefaultInSeconds=5,
            backlogQuotaDefaultLimitBytes=6,
            backlogQuotaDefaultLimitSecond=7,
            allowAutoTopicCreationType="partitioned",
            subscriptionKeySharedEnable=False,
            delayedDeliveryMaxDelayInMillis=9,
            schemaCompatibilityStrategy="FORWARD",
        ),
    ):
        policies = Policies.of(settings)
        assert policies.with_overrides(policies.as_overrides()) == policies
        assert Policies.of(Settings()).with_overrides(policies.as_overrides()) == msgspec.structs.replace(
            policies, open_ms=Policies.of(Settings()).open_ms
        )

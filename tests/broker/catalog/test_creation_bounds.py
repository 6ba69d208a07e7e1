"""Topics, partitions, subscriptions and consumers have limits without any configuration."""

from __future__ import annotations

import pytest

from magnetar.bounds import PARTITIONS
from magnetar.broker.catalog import creation
from magnetar.broker.catalog.policies import AutoTopicCreation, Overrides
from magnetar.errors import ConsumerBusy, MagnetarError, NotAllowed, PartitionCountInvalid
from magnetar.names import TopicName
from magnetar.settings.settings import Settings
from tests.broker.world import World


def test_there_is_a_limit_without_configuration() -> None:
    settings = Settings()
    assert min(settings.maxTopicsPerNamespace, settings.maxSubscriptionsPerTopic) > 0
    assert settings.maxConsumersPerSubscription > 0


def test_bound_topics_of_namespace() -> None:
    world = World(maxTopicsPerNamespace=3)
    for number in range(3):
        world.topic(f"t{number}")
    with pytest.raises(NotAllowed, match="maxTopicsPerNamespace 3"):
        world.topic("another")
    with pytest.raises(NotAllowed, match="maxTopicsPerNamespace 3"):
        world.broker.catalog.create_partitioned(TopicName.parse("p"), 4, {})


def test_bound_subscriptions_of_topic() -> None:
    world = World(maxSubscriptionsPerTopic=3)
    for number in range(3):
        world.consumer(f"s{number}")
    with pytest.raises(NotAllowed, match="maxSubscriptionsPerTopic is 3"):
        world.consumer("another")


def test_bound_consumers_of_subscription() -> None:
    world = World(maxConsumersPerSubscription=3)
    for number in range(3):
        world.consumer(name=f"c{number}")
    with pytest.raises(ConsumerBusy, match="maxConsumersPerSubscription is 3"):
        world.consumer(name="another")


def test_bound_partitions_at_most_by_auto_creation() -> None:
    """Partitions are created in one transaction: a request for 65,536 held the loop for seconds."""
    world, name = World(), TopicName.parse("p")
    catalog = world.broker.catalog
    namespace = catalog.namespaces[name.namespace_full]
    namespace.overrides = Overrides(auto_topic_creation=AutoTopicCreation(True, PARTITIONS.limit + 1))
    catalog.settings_changed()
    with pytest.raises(PartitionCountInvalid, match=f"less than or equal to {PARTITIONS.limit}"):
        creation.partitions(catalog, name, create=True)
    with pytest.raises(MagnetarError):
        catalog.create_partitioned(name, PARTITIONS.limit + 1, {})
    assert name.full not in catalog.partitioned

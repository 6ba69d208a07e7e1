"""Non-persistent topics that no client uses are closed, and gone if a client created them."""

from __future__ import annotations

from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.topic.nonpersistent import NonPersistentTopic
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.names import TopicName
from tests.broker.world import Client, World

FULL = "non-persistent://public/default/t"


def opened(world: World, full: str = FULL) -> NonPersistentTopic:
    topic = world.broker.topic(TopicName.parse(full), create=True)
    assert isinstance(topic, NonPersistentTopic)
    return topic


def is_listed(world: World, full: str = FULL) -> bool:
    return world.broker.catalog.exists(TopicName.parse(full))


def consumer_of(topic: NonPersistentTopic) -> Consumer:
    consumer = Consumer(Client(), 1, "c", SubscriptionType.Shared)
    topic.subscribe(consumer, SubscribeRequest("s"))
    return consumer


def pass_rounds(world: World, count: int = 2) -> None:
    for _ in range(count):
        world.advance(seconds=60)


def test_fault_deserted_topics_are_closed_and_forgotten() -> None:
    world = World()
    for number in range(500):
        topic = opened(world, f"{FULL}{number}")
        topic.remove_consumer(consumer_of(topic))
    pass_rounds(world, 1)
    assert len(world.broker.topics) == 500, "a client may come back at once"
    pass_rounds(world)
    assert world.broker.topics == {}
    assert world.broker.catalog.non_persistent == {}
    assert world.broker.catalog.topics_of["public/default"] == {}
    assert opened(world, f"{FULL}1").subscriptions == {}


def test_a_topic_with_a_client_stays() -> None:
    for client in ("producer", "consumer"):
        world = World()
        topic = opened(world)
        producer = Producer(Client(), 1, "p")
        if client == "producer":
            topic.add_producer(producer)
        else:
            consumer = consumer_of(topic)
        pass_rounds(world, 5)
        assert world.broker.topics[FULL] is topic
        if client == "producer":
            topic.producers.remove(producer)
        else:
            topic.remove_consumer(consumer)
        pass_rounds(world)
        assert FULL not in world.broker.topics


def test_a_client_between_two_rounds_counts() -> None:
    world = World()
    topic = opened(world)
    for _ in range(5):
        topic.remove_consumer(consumer_of(topic))
        pass_rounds(world, 1)
        producer = Producer(Client(), 1, "p")
        topic.add_producer(producer)
        topic.producers.remove(producer)
        pass_rounds(world, 1)
    assert world.broker.topics[FULL] is topic


def test_a_topic_of_an_administrator_stays_listed() -> None:
    world = World()
    world.broker.catalog.create(TopicName.parse(FULL), {"a": "b"})
    topic = opened(world)
    topic.remove_consumer(consumer_of(topic))
    pass_rounds(world)
    assert FULL not in world.broker.topics and is_listed(world)
    assert world.broker.catalog.properties_of(TopicName.parse(FULL)) == {"a": "b"}
    assert opened(world).subscriptions == {}


def test_partitions_stay_listed_while_their_topic_exists() -> None:
    world = World()
    partition = f"{FULL}-partition-0"
    world.broker.catalog.create_partitioned(TopicName.parse(FULL), 2, {"wasAutoCreated": "true"})
    opened(world, partition)
    pass_rounds(world, 3)
    assert partition not in world.broker.topics and is_listed(world, partition)
    world.broker.delete_partitioned(TopicName.parse(FULL))
    assert not is_listed(world, partition)


def test_persistent_topics_stay_open() -> None:
    world = World()
    topic = world.topic("t")
    pass_rounds(world, 5)
    assert world.broker.topics[topic.name.full] is topic

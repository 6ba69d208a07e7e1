"""The limits on producers, consumers, subscriptions, topics and unacknowledged messages, by Pulsar's setting names."""

from __future__ import annotations

import contextlib

import pulsar
import pulsar.schema
import pytest

from tests.compat.stage import (
    connect,
    consume,
    data_of,
    numbered,
    send_batch,
    serving,
    take,
    take_all,
)

Type = pulsar.ConsumerType


def test_bound_producers_per_topic(topic: str) -> None:
    with serving(maxProducersPerTopic=2) as (_, client):
        producers = [client.create_producer(topic) for _ in range(2)]
        with pytest.raises(pulsar.ProducerBusy):
            client.create_producer(topic)
        client.create_producer(topic + "-other")
        producers[0].close()
        client.create_producer(topic).send(b"room again")


def test_bound_producers_per_address(topic: str) -> None:
    with serving(maxSameAddressProducersPerTopic=1) as (_, client):
        client.create_producer(topic)
        with pytest.raises(pulsar.ProducerBusy):
            client.create_producer(topic)


def test_bound_consumers_per_topic(topic: str) -> None:
    with serving(maxConsumersPerTopic=2) as (_, client):
        consumers = [client.subscribe(topic, name) for name in "ab"]
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "c")
        consumers[0].close()
        client.subscribe(topic, "c")


def test_bound_consumers_per_address(topic: str) -> None:
    with serving(maxSameAddressConsumersPerTopic=1) as (_, client):
        client.subscribe(topic, "a")
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "b")


def test_bound_consumers_per_subscription(topic: str) -> None:
    with serving(maxConsumersPerSubscription=2) as (_, client):
        consumers = [client.subscribe(topic, "s", Type.Shared) for _ in range(2)]
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "s", Type.Shared)
        client.subscribe(topic, "other", Type.Shared)
        consumers[0].close()
        client.subscribe(topic, "s", Type.Shared)


def test_max_subscriptions_per_topic(topic: str) -> None:
    with serving(maxSubscriptionsPerTopic=2) as (_, client):
        consumers = [client.subscribe(topic, name) for name in "ab"]
        with pytest.raises(pulsar.NotAllowedError):
            client.subscribe(topic, "c")
        consumers[0].close()
        client.subscribe(topic, "a").unsubscribe()
        client.subscribe(topic, "c")


def test_max_topics_per_namespace(topic: str) -> None:
    with serving(maxTopicsPerNamespace=2) as (_, client):
        for name in "ab":
            client.create_producer(f"{topic}-{name}")
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(f"{topic}-c")
        client.create_producer(f"{topic}-a")


def test_bound_unacked_per_consumer(topic: str) -> None:
    with serving(maxUnackedMessagesPerConsumer=10) as (_, client):
        blocked = client.subscribe(topic, "s", Type.Shared)
        send_batch(client.create_producer(topic), numbered(100))
        messages = take_all([blocked])[0]
        assert 10 <= len(messages) < 100
        other = client.subscribe(topic, "s", Type.Shared)
        assert len(take_all([other])[0]) >= 10
        for message in messages:
            blocked.acknowledge(message)
        assert len(take(blocked, 10)) == 10


def test_max_unacked_messages_does_not_apply_to_ordered_types(topic: str) -> None:
    with serving(maxUnackedMessagesPerConsumer=10) as (_, client):
        consumer = client.subscribe(topic, "s", Type.Exclusive)
        send_batch(client.create_producer(topic), numbered(100))
        assert data_of(take(consumer, 100)) == numbered(100)


def test_bound_unacked_per_subscription(topic: str) -> None:
    with serving(maxUnackedMessagesPerSubscription=60) as (_, client):
        consumers = [client.subscribe(topic, "s", Type.Shared) for _ in range(2)]
        send_batch(client.create_producer(topic), numbered(200))
        taken = take_all(consumers)
        held = sum(map(len, taken))
        assert 60 <= held < 200
        for consumer, messages in zip(consumers, taken, strict=True):
            for message in messages:
                consumer.acknowledge(message)
        while held < 200:  # each may wait for the other's acknowledgements, so they alternate
            fresh = take_all(consumers)
            assert any(fresh)
            held += sum(map(len, fresh))
            for consumer, messages in zip(consumers, fresh, strict=True):
                for message in messages:
                    consumer.acknowledge(message)
        assert held == 200


def test_a_blocked_subscription_resumes_after_its_consumers_left(topic: str) -> None:
    with serving(maxUnackedMessagesPerSubscription=10) as (_, client):
        consumer = client.subscribe(topic, "s", Type.Shared)
        send_batch(client.create_producer(topic), numbered(30))
        take(consumer, 10)
        consumer.close()
        assert sorted(consume(client.subscribe(topic, "s", Type.Shared), 10)) == sorted(numbered(10))


def test_topics_are_not_auto_created_when_disabled(topic: str) -> None:
    with serving(allowAutoTopicCreation=False) as (_, client):
        with pytest.raises(pulsar.TopicNotFound):
            client.create_producer(topic)
        with pytest.raises(pulsar.TopicNotFound):
            client.subscribe(topic, "s")


def test_subscriptions_are_not_auto_created_when_disabled(topic: str) -> None:
    with serving(allowAutoSubscriptionCreation=False, timeout_s=1) as (_, client):
        client.create_producer(topic)
        with pytest.raises(pulsar.Timeout):  # this client retries until the subscription is created
            client.subscribe(topic, "s")
        client.create_reader(topic, pulsar.MessageId.earliest)


def test_subscription_types_can_be_disabled(topic: str) -> None:
    with serving(subscriptionTypesEnabled=frozenset({"Exclusive", "Shared"})) as (_, client):
        client.subscribe(topic, "s", Type.Exclusive)
        with pytest.raises(pulsar.NotAllowedError):
            client.subscribe(topic, "t", Type.KeyShared)


def test_domains_can_be_disabled(topic: str) -> None:
    with serving(enableNonPersistentTopics=False) as (_, client):
        client.create_producer(topic)
        with pytest.raises(pulsar.NotAllowedError):
            client.create_producer(f"non-persistent://public/default/{topic}")


@pytest.mark.parametrize("name", ["a/b", "persistent://public/default/", "nowhere://public/default/x"])
def test_illegal_names_are_rejected(client: pulsar.Client, name: str) -> None:
    with pytest.raises((pulsar.InvalidTopicName, pulsar.PulsarException)):
        client.create_producer(name)


def test_unknown_namespaces_are_rejected(client: pulsar.Client) -> None:
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer("persistent://public/nowhere/x")


def test_a_limit_applies_across_clients(topic: str) -> None:
    with serving(maxProducersPerTopic=1) as (running, client), contextlib.closing(connect(running)) as other:
        first = client.create_producer(topic)
        with pytest.raises(pulsar.ProducerBusy):
            other.create_producer(topic)
        first.close()
        other.create_producer(topic)

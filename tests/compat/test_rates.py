"""Rate limits with an official client: everything arrives, later; the broker counts what had to wait."""

from __future__ import annotations

import contextlib
import time

import pulsar

from tests.compat.stage import connect, consume, numbered, send_batch, serving, topic_in

Type = pulsar.ConsumerType


def test_a_publish_rate_delays_and_loses_nothing(topic: str) -> None:
    with serving(maxPublishRatePerTopicInMessages=100) as (running, client):
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, batching_enabled=False)
        payloads = numbered(300)
        ids = send_batch(producer, payloads)  # every receipt, in order
        assert len(set(map(str, ids))) == 300
        assert consume(consumer, 300) == payloads
        limits = topic_in(running, topic).limits
        assert running.run(lambda: limits.publish_limited_times) > 0


def test_batches_are_limited_by_their_messages(topic: str) -> None:
    with serving(maxPublishRatePerTopicInMessages=200) as (running, client):
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=50)
        payloads = numbered(400)
        send_batch(producer, payloads)
        assert consume(consumer, 400) == payloads
        limits = topic_in(running, topic).limits
        assert running.run(lambda: limits.publish_limited_times) > 0


def test_a_dispatch_rate_delays_and_loses_nothing(topic: str) -> None:
    with serving(dispatchThrottlingRatePerSubscriptionInMsg=100) as (running, client):
        consumers = [client.subscribe(topic, type.name, type) for type in (Type.Exclusive, Type.Shared)]
        payloads = numbered(250)
        send_batch(client.create_producer(topic, batching_enabled=False), payloads)
        for consumer in consumers:
            assert consume(consumer, 250) == payloads
        for subscription in topic_in(running, topic).cursors:
            throttle = subscription.deliveries.throttle
            assert throttle is not None
            assert throttle.message_events.total() > 0


def test_a_client_subscribes_again_until_its_rate_allows_it(topic: str) -> None:
    """Three clients with the same consumer, as if one reconnected: the last two have to wait a second each."""
    with serving(subscribeThrottlingRatePerConsumer=1, subscribeRatePeriodPerConsumerInSecond=1) as (running, _):
        started_s = time.monotonic()
        for index in range(3):
            with contextlib.closing(connect(running, timeout_s=60)) as client:
                client.subscribe(topic, f"s{index}", consumer_name="same")
        assert time.monotonic() - started_s > 1.5
        assert len(topic_in(running, topic).subscriptions) == 3
        limit = topic_in(running, topic).limits.subscribe
        assert limit is not None and limit.consumers == 1

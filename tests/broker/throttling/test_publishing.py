"""Publish rates: connections wait, messages do not get lost, and changes take effect at once."""

from __future__ import annotations

import msgspec
import pytest

from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.rate_policy import PublishRate
from magnetar.broker.topic.producer import Producer
from magnetar.names import TopicName
from tests.broker.world import Client, World

T = TopicName.parse("t")


def limit(world: World, messages: int = -1, size: int = -1) -> None:
    overrides = msgspec.structs.replace(world.broker.catalog.overrides_of(T), publish_rate=PublishRate(messages, size))
    world.topic()
    world.broker.catalog.set_overrides(T, overrides)
    world.settle()


def sent_in(world: World, producer: Producer, ms: int, payload: bytes = b"x") -> int:
    """The messages that a producer sends from now until then if it sends whenever its connection is read."""
    sent = 0
    for passed_ms in range(ms + 1):
        world.advance(milliseconds=1 if passed_ms else 0)
        while not world.client.holds:
            world.publish(producer=producer, payload=payload)
            sent += 1
    return sent


def test_a_topic_without_a_rate_has_no_limit() -> None:
    world = World()
    world.publish(1000)
    assert world.topic().limits.publish is None and not world.client.holds


@pytest.mark.parametrize(("rate", "ms", "expected"), [(10, 3000, 40), (100, 2000, 300), (1, 10_000, 11)])
def test_a_producer_sends_its_rate_and_one_burst(rate: int, ms: int, expected: int) -> None:
    world = World()
    limit(world, rate)
    producer = world.producer()
    assert sent_in(world, producer, ms) == expected
    assert world.topic().log.last + 1 == expected == len(world.client.receipted)
    assert world.topic().limits.publish_limited_times > 0


def test_bytes_are_limited_like_messages() -> None:
    world = World()
    world.publish(1, payload=bytes(1000))
    size = world.topic().bytes_in
    limit(world, size=10 * size)
    producer = world.topic().producers.by_name["p"]
    assert sent_in(world, producer, 2000, bytes(1000)) == 30


def test_batches_count_their_messages_and_one_larger_than_the_rate_passes() -> None:
    world = World()
    limit(world, 10)
    producer = world.producer()
    world.publish(1, producer=producer, messages=60)
    assert world.topic().log.last == 0 and world.client.holds
    world.advance(milliseconds=5099)
    assert world.client.holds
    world.advance(milliseconds=1)
    assert not world.client.holds  # the debt of 50 and a token


def test_fault_producer_over_rate() -> None:
    """A producer faster than its limit waits; another topic and its receipts do not."""
    world = World()
    limit(world, 10)
    slow, other = world.producer(), Client("10.0.0.2:1")
    free = Producer(other, 99, "free")
    world.topic("free").add_producer(free)
    world.publish(500, producer=slow)
    assert world.client.holds and len(world.client.receipted) == 500  # receipts go out, nothing more is read
    world.publish(500, "free", producer=free)
    assert not other.holds and len(other.receipted) == 500


def test_removing_the_limit_releases_at_once_and_a_higher_one_soon() -> None:
    world = World()
    limit(world, 1)
    producer = world.producer()
    world.publish(100, producer=producer)
    assert world.client.holds
    limit(world, 50)
    assert world.client.holds
    world.advance(milliseconds=1100)
    assert not world.client.holds  # the debt is at most one period of the new rate
    world.publish(100, producer=producer)
    assert world.client.holds
    limit(world)
    assert not world.client.holds
    world.publish(1000, producer=producer)
    assert not world.client.holds


def test_connections_take_turns() -> None:
    world = World()
    limit(world, 10)
    clients = [Client(f"10.0.0.{index}:1") for index in range(4)]
    producers = [Producer(client, index, f"p{index}") for index, client in enumerate(clients)]
    for producer in producers:
        world.topic().add_producer(producer)
    sent = [0] * 4
    for _ in range(20_000):
        for index, client in enumerate(clients):
            if not client.holds:
                world.publish(1, producer=producers[index])
                sent[index] += 1
        world.advance(milliseconds=1)
    assert 205 <= sum(sent) <= 220
    assert max(sent) - min(sent) <= 10


def test_a_client_that_reconnects_does_not_evade_the_limit() -> None:
    world = World()
    limit(world, 10)
    world.publish(100, producer=world.producer())
    again = Client("10.0.0.2:1")
    world.topic().add_producer(Producer(again, 7, "again"))
    assert again.holds
    world.advance(milliseconds=9100)
    assert not world.client.holds and again.holds  # in turn
    world.advance(milliseconds=0)
    assert not again.holds


def test_the_limit_of_the_broker_is_for_all_topics_and_changes_while_it_runs() -> None:
    world = World()
    one, two = Client("10.0.0.1:1"), Client("10.0.0.2:1")
    first, second = Producer(one, 1, "one"), Producer(two, 2, "two")
    world.topic("a").add_producer(first)
    world.topic("b").add_producer(second)
    world.broker.set_dynamic_setting("brokerPublisherThrottlingMaxMessageRate", "10")
    world.publish(10, "a", producer=first)
    assert one.holds
    world.publish(1, "b", producer=second)
    assert two.holds
    world.broker.remove_dynamic_setting("brokerPublisherThrottlingMaxMessageRate")
    assert not one.holds and not two.holds


def test_a_non_persistent_topic_obeys_the_settings() -> None:
    world = World(maxPublishRatePerTopicInMessages=10)
    topic = world.broker.topic(TopicName.parse("non-persistent://public/default/n"), create=True)
    producer = Producer(world.client, 1, "p")
    topic.add_producer(producer)
    topic.publish(producer, [(index, index, 1, b"", False, False) for index in range(10)])
    assert world.client.holds
    world.advance(seconds=1)
    assert not world.client.holds


def test_a_closed_topic_holds_no_connection() -> None:
    world = World()
    limit(world, 1)
    world.publish(100, producer=world.producer())
    assert world.client.holds
    world.broker.unload(T)
    assert not world.client.holds


def test_a_connection_that_is_lost_is_forgotten() -> None:
    world = World()
    limit(world, 1)
    world.publish(100, producer=world.producer())
    (held_by,) = world.client.holds
    assert held_by.waiting == 1
    held_by.forget(world.client)
    assert held_by.waiting == 0
    world.advance(minutes=10)


def test_a_clock_that_is_set_back_does_not_hold_a_connection_for_long() -> None:
    world = World()
    limit(world, 10)
    world.publish(30, producer=world.producer())
    world.advance(days=-1)
    world.advance(milliseconds=2099)
    assert world.client.holds
    world.advance(milliseconds=1)
    assert not world.client.holds


def test_rates_survive_a_restart() -> None:
    world = World()
    limit(world, 10, 5000)
    world = world.restart()
    assert world.topic().policies.publish_rate == PublishRate(10, 5000)
    world.publish(11)
    assert world.client.holds


def test_a_rate_without_limits_leaves_that_of_the_namespace_in_force() -> None:
    world = World(maxPublishRatePerTopicInMessages=7)
    limit(world, -1, -1)
    assert world.topic().policies.publish_rate == PublishRate(7, 0)
    assert Overrides(publish_rate=PublishRate()).publish_rate is not None

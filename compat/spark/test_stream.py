"""SP1, streams: limits, ledgers, subscriptions, notifications, new partitions, restarts, and deleted messages."""

from __future__ import annotations

import time

import official
import pulsar
import pytest
from small_ledgers import ENTRIES_PER_LEDGER, FORGETS, Pulsar
from streams import Stream, error, eventually

MESSAGES = 4 * ENTRIES_PER_LEDGER + 10


def numbers(first: int, last: int) -> list[str]:
    return [f"m{number}" for number in range(first, last)]


@pytest.mark.parametrize("limit", [30, 50, 70, 1000])
def test_sp1_limited_batches_across_ledgers_move_the_subscription(
    stream: Stream, broker: Pulsar, client: pulsar.Client, topic: str, limit: int
) -> None:
    official.publish(client, topic, numbers(0, MESSAGES))
    assert len(broker.ledgers(topic)) > 4
    options = {"topic": topic, "startingOffsets": "earliest", "predefinedSubscription": "spark"}

    assert stream.run(**options, maxEntriesPerTrigger=str(limit)) == numbers(0, MESSAGES)
    assert max(stream.batches) <= limit
    assert broker.backlog(topic, "spark") == 0
    assert stream.run(**options, maxEntriesPerTrigger=str(limit)) == []
    assert broker.backlog(topic, "spark") == 0

    official.publish(client, topic, numbers(MESSAGES, 2 * MESSAGES))
    assert broker.backlog(topic, "spark") == MESSAGES
    assert stream.run(**options, maxEntriesPerTrigger=str(limit)) == numbers(MESSAGES, 2 * MESSAGES)
    assert broker.backlog(topic, "spark") == 0


def test_sp1_an_offset_after_the_last_entry_of_a_ledger(
    stream: Stream, broker: Pulsar, client: pulsar.Client, topic: str
) -> None:
    """A limited batch counts entries, and does not know the size of a full ledger."""
    official.publish(client, topic, numbers(0, MESSAGES))
    options = {"topic": topic, "startingOffsets": "earliest", "predefinedSubscription": "spark"}
    options["maxEntriesPerTrigger"] = "30"
    stream.fails_at = 2

    assert "this batch fails" in error(lambda: stream.run(**options))
    assert stream.batches == [30, 20]
    assert broker.backlog(topic, "spark") == MESSAGES - 50
    # Unloading the topic reloads it, and its cursor, from storage.
    broker.topic("PUT", topic, "/unload")
    assert broker.backlog(topic, "spark") == MESSAGES - 50
    stream.fails_at = None
    assert stream.run(**options) == numbers(50, MESSAGES)
    assert broker.backlog(topic, "spark") == 0


def test_sp1_a_topic_whose_current_ledger_is_empty(
    stream: Stream, broker: Pulsar, client: pulsar.Client, topic: str
) -> None:
    official.publish(client, topic, numbers(0, 60))
    broker.topic("PUT", topic, "/unload")
    options = {"topic": topic, "predefinedSubscription": "spark"}

    assert stream.run(**options, startingOffsets="earliest") == numbers(0, 60)
    broker.topic("PUT", topic, "/unload")
    assert stream.run(**options) == []
    assert broker.backlog(topic, "spark") == 0
    official.publish(client, topic, numbers(60, 70))
    assert stream.run(**options) == numbers(60, 70)


def test_sp1_a_chunked_message_is_one_row(stream: Stream, broker: Pulsar, client: pulsar.Client, topic: str) -> None:
    large = "x" * (11 << 20)
    official.publish(client, topic, ["before"])
    official.publish(client, topic, [large], chunking_enabled=True)
    official.publish(client, topic, ["after"])

    options = {"topic": topic, "startingOffsets": "earliest", "predefinedSubscription": "spark"}
    assert stream.run(**options) == ["before", large, "after"]
    assert broker.backlog(topic, "spark") == 0


def test_sp1_a_running_stream_discovers_topics_of_a_pattern(
    stream: Stream, broker: Pulsar, client: pulsar.Client, topic: str
) -> None:
    official.publish(client, f"{topic}-a", ["a"])
    pattern = f"{topic.partition('://')[2]}-[ab]"
    query = stream.start(topicsPattern=pattern, startingOffsets="earliest", pollTimeoutMs="60000")
    stream.wait(query, 1)
    official.publish(client, f"{topic}-b", numbers(0, 70))
    official.publish(client, f"{topic}-c", ["c"])
    stream.wait(query, 71)
    assert stream.values == {f"{topic}-a": ["a"], f"{topic}-b": numbers(0, 70)}


def test_sp1_batches_limited_by_bytes(stream: Stream, broker: Pulsar, client: pulsar.Client, topic: str) -> None:
    broker.create(topic, 2)
    texts = [value * 100 for value in numbers(0, MESSAGES)]
    official.publish(client, topic, texts, batching_enabled=True, batching_max_messages=5)

    found = stream.run(topic=topic, startingOffsets="earliest", maxBytesPerTrigger="4000")

    assert sorted(found) == sorted(texts)
    assert len(stream.batches) > 10 and max(stream.batches) <= 20


def test_sp1_a_running_stream_is_notified_of_messages_and_new_partitions(
    stream: Stream, broker: Pulsar, client: pulsar.Client, topic: str
) -> None:
    broker.create(topic, 2)
    query = stream.start(topic=topic, startingOffsets="earliest", predefinedSubscription="spark", pollTimeoutMs="60000")
    official.publish(client, topic, numbers(0, MESSAGES))
    stream.wait(query, MESSAGES)
    assert sorted(stream.all) == sorted(numbers(0, MESSAGES))

    # With a poll this long only the broker's notification is fast enough.
    count = MESSAGES
    for _ in range(3):
        time.sleep(0.5)
        began = time.monotonic()
        official.publish(client, f"{topic}-partition-1", [f"m{count}"])
        count += 1
        stream.wait(query, count)
        assert time.monotonic() - began < 10
    for index in range(2):
        broker.topic("PUT", f"{topic}-partition-{index}", "/unload")
    official.publish(client, f"{topic}-partition-0", [f"m{count}"])
    count += 1
    stream.wait(query, count)
    broker.topic("POST", topic, "/partitions", json=3)
    official.publish(client, f"{topic}-partition-2", numbers(count, count + 120))
    stream.wait(query, count + 120)

    assert sorted(stream.all) == sorted(numbers(0, count + 120))
    assert stream.values[f"{topic}-partition-2"] == numbers(count, count + 120)
    for index in range(3):
        eventually(lambda index=index: broker.backlog(f"{topic}-partition-{index}", "spark") == 0)  # type: ignore[misc]
    assert query.isActive


def test_sp1_a_stream_resumes_after_a_stop(stream: Stream, broker: Pulsar, client: pulsar.Client, topic: str) -> None:
    broker.create(topic, 2)
    query = stream.start(topic=topic, startingOffsets="earliest")
    official.publish(client, topic, numbers(0, 130))
    stream.wait(query, 130)
    query.stop()
    official.publish(client, topic, numbers(130, 300))
    broker.topic("POST", topic, "/partitions", json=3)
    official.publish(client, f"{topic}-partition-2", ["new"])
    broker.topic("PUT", f"{topic}-partition-0", "/unload")

    assert sorted(stream.run(topic=topic)) == sorted([*numbers(130, 300), "new"])
    assert stream.run(topic=topic) == []
    assert [broker.subscriptions(f"{topic}-partition-{index}") for index in range(3)] == [[]] * 3


def test_sp1_a_stream_starts_at_the_subscriptions_position(
    stream: Stream, broker: Pulsar, client: pulsar.Client, topic: str
) -> None:
    official.publish(client, topic, numbers(0, 10))
    consumer = client.subscribe(topic, "spark", initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(4):
        consumer.acknowledge(consumer.receive(official.SEND_S * 1000))
    consumer.close()
    eventually(lambda: broker.backlog(topic, "spark") == 6)

    assert stream.run(topic=topic, predefinedSubscription="spark") == numbers(4, 10)


# -- deleted messages


def forget(broker: Pulsar, topic: str, ledger_id: int) -> None:
    def is_gone() -> bool:
        broker.topic("POST", topic, "/trim")
        return ledger_id not in broker.ledgers(topic)

    eventually(is_gone)


def forget_the_first_ledger(broker: Pulsar, topic: str) -> None:
    """Deletes the first ledger: a full one, or one closed by an unload."""
    first = broker.ledgers(topic)[0]
    broker.topic("PUT", topic, "/unload")
    forget(broker, topic, first)


def test_sp1_retention_past_the_start_position(
    stream: Stream, broker: Pulsar, client: pulsar.Client, name: str
) -> None:
    topic = f"persistent://{FORGETS}/{name}"
    official.publish(client, topic, numbers(0, 30))
    assert stream.run(topic=topic, startingOffsets="earliest") == numbers(0, 30)
    first = broker.ledgers(topic)[0]
    official.publish(client, topic, numbers(30, 30 + MESSAGES))
    forget(broker, topic, first)
    left = official.values(client, topic)
    assert 0 < len(left) < MESSAGES

    text = error(lambda: stream.run(topic=topic))
    assert f"{topic} was read up to " in text and "failOnDataLoss=false" in text
    assert stream.run(topic=topic, failOnDataLoss="false") == left
    official.publish(client, topic, ["more"])
    assert stream.run(topic=topic) == ["more"]


def test_sp1_deletion_of_a_fully_read_ledger_is_no_loss(
    stream: Stream, broker: Pulsar, client: pulsar.Client, name: str
) -> None:
    topic = f"persistent://{FORGETS}/{name}"
    holding = client.subscribe(topic, "holding", initial_position=pulsar.InitialPosition.Earliest)
    official.publish(client, topic, numbers(0, MESSAGES))
    stream.fails_at = 2
    options = {"topic": topic, "startingOffsets": "earliest", "maxEntriesPerTrigger": "30"}
    error(lambda: stream.run(**options))
    assert stream.batches == [30, 20]
    first = broker.ledgers(topic)[0]
    for _ in range(51):
        message = holding.receive(official.SEND_S * 1000)
    holding.acknowledge_cumulative(message)
    forget(broker, topic, first)
    stream.fails_at = None

    assert stream.run(**options) == numbers(50, MESSAGES)
    holding.close()


@pytest.mark.parametrize("partitions", [0, 2])
def test_sp1_a_topic_deleted_and_recreated(
    stream: Stream, broker: Pulsar, client: pulsar.Client, topic: str, partitions: int
) -> None:
    def create() -> None:
        if partitions:
            broker.create(topic, partitions)

    create()
    official.publish(client, topic, numbers(0, 120))
    assert sorted(stream.run(topic=topic, startingOffsets="earliest")) == sorted(numbers(0, 120))
    broker.topic("DELETE", topic, "/partitions" if partitions else "", params={"force": "true"})
    assert f"topic {topic} does not exist" in error(lambda: stream.run(topic=topic))
    assert stream.run(topic=topic, failOnDataLoss="false") == []
    create()
    official.publish(client, topic, numbers(120, 150))

    assert f"{topic}{'-partition-' if partitions else ' '}" in error(lambda: stream.run(topic=topic))
    assert sorted(stream.run(topic=topic, failOnDataLoss="false")) == sorted(numbers(120, 150))
    official.publish(client, topic, ["more"])
    assert stream.run(topic=topic) == ["more"]


def test_sp1_with_a_subscription_a_recreated_topic_is_read_from_its_first_message(
    stream: Stream, broker: Pulsar, client: pulsar.Client, topic: str
) -> None:
    """New ledgers are normal, and the subscription keeps unread messages: nothing looks lost."""
    options = {"topic": topic, "startingOffsets": "earliest", "predefinedSubscription": "spark"}
    official.publish(client, topic, numbers(0, 70))
    assert stream.run(**options) == numbers(0, 70)
    broker.topic("DELETE", topic, params={"force": "true"})
    official.publish(client, topic, numbers(70, 130))

    assert stream.run(**options) == numbers(70, 130)
    assert broker.backlog(topic, "spark") == 0


def test_sp1_messages_already_read_may_be_deleted(
    stream: Stream, broker: Pulsar, client: pulsar.Client, name: str
) -> None:
    topic = f"persistent://{FORGETS}/{name}"
    options = {"topic": topic, "startingOffsets": "earliest", "predefinedSubscription": "spark"}
    official.publish(client, topic, numbers(0, 30))
    assert stream.run(**options) == numbers(0, 30)
    for first in (30, 150, 270):
        official.publish(client, topic, numbers(first, first + 120))
        assert stream.run(**options) == numbers(first, first + 120)
        forget_the_first_ledger(broker, topic)
    assert stream.run(**options) == []
    stream.values.clear()
    query = stream.start(**options)
    for first in (390, 510):
        official.publish(client, topic, numbers(first, first + 120))
        stream.wait(query, first + 120 - 390)
        eventually(lambda: broker.backlog(topic, "spark") == 0)
        forget_the_first_ledger(broker, topic)
    assert stream.all == numbers(390, 630)
    assert query.isActive

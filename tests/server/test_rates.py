"""A publish rate over a real socket: the broker stops reading, and goes on when the limit is lifted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import msgspec

from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.rate_policy import PublishRate
from magnetar.names import TopicName
from magnetar.testing import broker

from .raw_client import Command, RawClient, send_frame

T = TopicName.parse("t")
COUNT = 2000


def test_a_connection_is_not_read_until_its_rate_allows_it() -> None:
    with broker() as running, contextlib.ExitStack() as closing:
        catalog = running.server.broker.catalog

        def limit(rate: PublishRate | None) -> None:
            catalog.set_overrides(T, msgspec.structs.replace(Overrides(), publish_rate=rate))

        client = RawClient(running)
        RawClient.opened.remove(client)
        closing.callback(client.close)
        client.produce_to("t")
        running.run(lambda: limit(PublishRate(1)))
        topic = running.server.broker.topics[T.full]
        started_s = time.monotonic()
        client.send(0)
        assert client.receive().type == Command.SEND_RECEIPT
        client.send_bytes(b"".join(send_frame(number) for number in range(1, COUNT)))
        _until(lambda: running.run(lambda: topic.limits.publish_limited_times) >= 2)
        published = running.run(lambda: topic.messages_in)
        assert published <= 1 + (time.monotonic() - started_s) + 8
        assert running.run(lambda: len(running.server.paused)) == 1
        running.run(lambda: limit(None))
        numbers = [client.receive().send_receipt.sequence_id for _ in range(1, COUNT)]
        assert numbers == list(range(1, COUNT))
        assert running.run(lambda: topic.messages_in) == COUNT
        assert running.run(lambda: len(running.server.paused)) == 0


def test_fault_client_that_leaves_while_it_is_held() -> None:
    """Its producer and consumer would otherwise stay as long as the hold: the consumer with its messages."""
    with broker(maxPublishRatePerTopicInMessages=1) as running:
        client = RawClient(running)
        RawClient.opened.remove(client)
        client.subscribe_to("t")
        client.produce_to("t")
        client.send_bytes(b"".join(send_frame(number, bytes(1000), messages=100) for number in range(1000)))
        topic = running.server.broker.topics[T.full]
        (connection,) = running.run(lambda: list(running.server.connections))
        _until(lambda: running.run(lambda: topic.limits.publish_limited_times) > 0)
        running.run(connection.keep_alive)
        assert running.run(lambda: len(topic.producers)) == 1  # still there: it only waits
        client.close()
        _until(lambda: running.run(lambda: (connection.keep_alive(), len(topic.producers))[1]) == 0)
        _until(lambda: running.run(lambda: len(running.server.connections)) == 0)
        assert running.run(lambda: topic.consumer_count) == 0


def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s, "the condition never held"
        time.sleep(0.02)

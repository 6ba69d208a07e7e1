"""A publish rate over a real socket: the broker stops reading, and goes on when the limit is lifted."""

from __future__ import annotations

import contextlib
import time

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
        deadline_s = time.monotonic() + 30
        while running.run(lambda: topic.limits.publish_limited_times) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.05)
        published = running.run(lambda: topic.messages_in)
        assert published <= 1 + (time.monotonic() - started_s) + 8
        assert running.run(lambda: len(running.server.paused)) == 1
        running.run(lambda: limit(None))
        numbers = [client.receive().send_receipt.sequence_id for _ in range(1, COUNT)]
        assert numbers == list(range(1, COUNT))
        assert running.run(lambda: topic.messages_in) == COUNT
        assert running.run(lambda: len(running.server.paused)) == 0

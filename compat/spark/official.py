"""The official client: publishes the input of reads, and reads the output of writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pulsar

SEND_S = 30


@contextmanager
def producer(client: pulsar.Client, topic: str, **options: Any) -> Iterator[pulsar.Producer]:
    settings = {"batching_enabled": False, "block_if_queue_full": True, **options}
    opened = client.create_producer(topic, **settings)
    try:
        yield opened
        opened.flush()
    finally:
        opened.close()


def publish(client: pulsar.Client, topic: str, values: Sequence[str], **options: Any) -> None:
    with producer(client, topic, **options) as opened:
        for value in values:
            opened.send_async(value.encode(), None)


def read(client: pulsar.Client, topic: str) -> list[pulsar.Message]:
    """All messages of one partition, or of a topic without partitions."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    try:
        messages = []
        while reader.has_message_available():
            messages.append(reader.read_next(SEND_S * 1000))
        return messages
    finally:
        reader.close()


def values(client: pulsar.Client, topic: str) -> list[str]:
    return [message.data().decode() for message in read(client, topic)]

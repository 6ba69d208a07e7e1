"""The loop that a redrive replaces, with the official Python client: consumes dead letters, and publishes them again.

Also publishes the letters, as clients do by their own policy. Prints results as lines of JSON. Knows neither the broker
nor Spark.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence

import pulsar  # type: ignore[import-untyped]
from official_client import LoadFailed, connected, payloads

SUBSCRIPTION = "billing"
KEYS = 1000

BATCHING = {
    "off": {"batching_enabled": False},
    "default": {"batching_enabled": True},
    "key-based": {"batching_enabled": True, "batching_type": pulsar.BatchingType.KeyBased},
}

_DROPPED = ("REAL_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUMETIMES")
_PENDING_MAX = 10_000
_QUEUE_SIZE = 10_000
_RECEIVED_AT_ONCE = 1000
_BATCH_TIMEOUT_MS = 100
_SILENCE_MAX_S = 30.0


def letters(client: pulsar.Client, origin: str, messages: int, size: int) -> dict[str, object]:
    """Publishes dead letters one by one."""
    producer = client.create_producer(
        dead_letter_topic(origin), batching_enabled=False, block_if_queue_full=True, max_pending_messages=_PENDING_MAX
    )
    began = time.perf_counter()
    for number, payload in zip(range(messages), payloads(size), strict=False):
        properties = {
            "REAL_TOPIC": origin,
            "ORIGIN_MESSAGE_ID": f"7:{number}:-1",
            "RECONSUMETIMES": "3",
            "number": str(number),
        }
        producer.send_async(payload, None, partition_key=f"k{number % KEYS}", properties=properties)
    producer.flush()
    return {"messages": messages, "seconds": time.perf_counter() - began}


def loop(client: pulsar.Client, origin: str, messages: int, batching: str) -> dict[str, object]:
    """Sends each letter back and acknowledges it when the origin has it; timed from before the clients are created."""
    began = time.perf_counter()
    consumer = client.subscribe(
        dead_letter_topic(origin),
        "loop",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=_QUEUE_SIZE,
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(_RECEIVED_AT_ONCE, -1, _BATCH_TIMEOUT_MS),
    )
    producer = client.create_producer(
        origin, block_if_queue_full=True, max_pending_messages=_PENDING_MAX, **BATCHING[batching]
    )
    sent = _Sent(consumer, messages)
    received = 0
    heard_s = time.monotonic()
    while received < messages:
        batch = consumer.batch_receive()
        if not batch and time.monotonic() - heard_s > _SILENCE_MAX_S:
            raise LoadFailed(f"{received} of {messages} letters arrived")
        for message in batch:
            heard_s = time.monotonic()
            properties = {name: text for name, text in message.properties().items() if name not in _DROPPED}
            properties["REDRIVE_GENERATION"] = "1"
            on_stored = sent.callback(message)
            producer.send_async(message.data(), on_stored, properties=properties, partition_key=message.partition_key())
        received += len(batch)
    producer.flush()
    sent.wait(_SILENCE_MAX_S)
    return {"messages": messages, "seconds": time.perf_counter() - began}


class _Sent:
    """Acknowledges what the origin has."""

    def __init__(self, consumer: pulsar.Consumer, messages: int) -> None:
        self._consumer = consumer
        self._left = messages
        self._refused: list[object] = []
        self._all = threading.Event()

    def callback(self, message: pulsar.Message) -> Callable[[object, object], None]:
        def on_stored(result: object, message_id: object) -> None:
            if result == pulsar.Result.Ok:
                self._consumer.acknowledge(message)
            else:
                self._refused.append(result)
            self._left -= 1
            if not self._left:
                self._all.set()

        return on_stored

    def wait(self, seconds: float) -> None:
        if not self._all.wait(seconds) or self._refused:
            raise LoadFailed(f"{self._left} letters have no receipt, and {len(self._refused)} were refused")


def dead_letter_topic(origin: str) -> str:
    return f"{origin}-{SUBSCRIPTION}-DLQ"


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="dead letters, and a loop that sends them back")
    parser.add_argument("load", choices=("letters", "loop"))
    parser.add_argument("url")
    parser.add_argument("origin")
    parser.add_argument("messages", type=int)
    parser.add_argument("how", help=f"the size of a letter, or one of {', '.join(BATCHING)}")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    given = argument_parser().parse_args(arguments)
    with contextlib.closing(connected(given.url)) as client:
        if given.load == "letters":
            found = letters(client, given.origin, given.messages, int(given.how))
        else:
            found = loop(client, given.origin, given.messages, given.how)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

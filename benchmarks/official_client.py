"""Loads with the official Python client, each in its own process: the baseline of Spark's source and sink.

Reads a backlog into the columns of the source, publishes in a loop, or publishes into one topic and times arrivals in
another. Knows neither the broker nor Spark.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pulsar  # type: ignore[import-untyped]
import pyarrow as pa

SUBSCRIPTION = "official-client"
TABLE_ROWS = 1000
TIMED_SIZE = 1024

_QUEUE_SIZE = 2 * TABLE_ROWS  # per partition; larger ones were slower
_SILENCE_MAX_S = 30.0
_BATCH_TIMEOUT_MS = 1000
_PENDING_MAX = 10_000
_POOL_SIZE = 1 << 18  # far above LZ4's window, so that storage cannot compress a repeated payload
_DIFFERENT_PAYLOADS = 256
_NUMBER_SIZE = 8

SCHEMA = pa.schema(
    {
        "value": pa.binary(),
        "__key": pa.binary(),
        "__topic": pa.string(),
        "__messageId": pa.binary(),
        "__publishTime": pa.timestamp("ms", "UTC"),
        "__eventTime": pa.timestamp("ms", "UTC"),
        "__messageProperties": pa.map_(pa.string(), pa.string()),
        "__batchIndex": pa.int32(),
        "__redeliveryCount": pa.int32(),
        "__error": pa.string(),
    }
)

Outcome = dict[str, object]


class LoadFailed(Exception):
    """A message did not arrive, or arrived twice."""


def read(client: pulsar.Client, topic: str, messages: int) -> Outcome:
    """Reads the first messages of a backlog; timed from before the consumer is created to the last table."""
    began, count = time.perf_counter(), 0
    consumer = client.subscribe(
        topic,
        SUBSCRIPTION,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=_QUEUE_SIZE,
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(TABLE_ROWS, -1, _BATCH_TIMEOUT_MS),
    )
    for table in tables(consumer):
        count += table.num_rows
        if count >= messages:
            break
    return {"messages": count, "seconds": time.perf_counter() - began}


def tables(consumer: pulsar.Consumer) -> Iterator[pa.Table]:
    """Yields up to 1,000 messages at a time. `batch_receive` is up to twice as fast as `receive` in a loop."""
    received_at = time.monotonic()
    while time.monotonic() - received_at < _SILENCE_MAX_S:
        if batch := consumer.batch_receive():
            received_at = time.monotonic()
            yield table_of(batch)
    raise LoadFailed(f"no message arrived for {_SILENCE_MAX_S:.0f} s")


def table_of(batch: Sequence[pulsar.Message]) -> pa.Table:
    """The columns of Spark's source."""
    ids = [message.message_id() for message in batch]
    columns = (
        [message.data() for message in batch],
        [message.partition_key() or None for message in batch],
        [message.topic_name() for message in batch],
        [each.serialize() for each in ids],
        [message.publish_timestamp() for message in batch],
        [message.event_timestamp() or None for message in batch],
        [list(message.properties().items()) for message in batch],
        [None if index < 0 else index for index in [each.batch_index() for each in ids]],
        [message.redelivery_count() for message in batch],
        [None] * len(batch),
    )
    return pa.table([pa.array(each, kind) for each, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def payloads(size: int) -> Iterator[bytes]:
    """Endless payloads, cheap to create and incompressible."""
    pool = random.Random(size).randbytes(_POOL_SIZE)
    step = (_POOL_SIZE - size) // _DIFFERENT_PAYLOADS
    return itertools.cycle([pool[start : start + size] for start in range(0, step * _DIFFERENT_PAYLOADS, step)])


def send(client: pulsar.Client, topic: str, messages: int, size: int, limit_s: float) -> Outcome:
    """Sends one message after the other, each after the receipt of the last, until the time is up."""
    producer = client.create_producer(topic)
    began, count = time.perf_counter(), 0
    for payload in itertools.islice(payloads(size), messages):
        producer.send(payload)
        count += 1
        if time.perf_counter() - began > limit_s:
            break
    return {"messages": count, "seconds": time.perf_counter() - began}


def send_async(client: pulsar.Client, topic: str, messages: int, size: int) -> Outcome:
    """Sends in batches without waiting, until all are stored."""
    producer = client.create_producer(
        topic, batching_enabled=True, block_if_queue_full=True, max_pending_messages=_PENDING_MAX
    )
    refused: list[object] = []

    def on_stored(result: object, message_id: object) -> None:
        if result != pulsar.Result.Ok:
            refused.append(result)

    began = time.perf_counter()
    for payload in itertools.islice(payloads(size), messages):
        producer.send_async(payload, on_stored)
    producer.flush()
    seconds = time.perf_counter() - began
    if refused:
        raise LoadFailed(f"{len(refused)} of {messages} messages were not stored, first error: {refused[0]}")
    return {"messages": messages, "seconds": seconds}


def time_arrivals(
    client: pulsar.Client, source: str, target: str, rate: float, messages: int, target_url: str
) -> Outcome:
    """Publishes into one topic and waits for each message in another; returns the latencies in order.

    Latency counts from before the send. The first message is sent alone, the others after its arrival: until then a
    query may still be starting.
    """
    with contextlib.closing(connected(target_url)) as receiving:
        arrivals = _Arrivals(
            client.create_producer(source, block_if_queue_full=True),
            receiving.subscribe(target, SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest),
            messages,
        )
        arrivals.publish(0)
        arrivals.receive(1)
        publishing = threading.Thread(target=arrivals.publish_at, args=(rate, range(1, messages)), daemon=True)
        publishing.start()
        arrivals.receive(messages)
        publishing.join()
    return {"latencies_ms": arrivals.latencies_ms()}


class _Arrivals:
    def __init__(self, producer: pulsar.Producer, consumer: pulsar.Consumer, messages: int) -> None:
        self._producer, self._consumer = producer, consumer
        self._padding = random.Random(messages).randbytes(TIMED_SIZE - _NUMBER_SIZE)
        self._published_s = [0.0] * messages
        self._arrived_s = [0.0] * messages
        self._count = 0

    def publish(self, number: int) -> None:
        self._published_s[number] = time.perf_counter()
        # Does not wait for the receipt: an unstored message does not arrive.
        self._producer.send_async(number.to_bytes(_NUMBER_SIZE, "big") + self._padding, None)

    def publish_at(self, rate: float, numbers: range) -> None:
        began = time.perf_counter()
        for place, number in enumerate(numbers):
            time.sleep(max(0.0, began + place / rate - time.perf_counter()))
            self.publish(number)

    def receive(self, count: int) -> None:
        """Waits for `count` arrivals."""
        while self._count < count:
            try:
                message = self._consumer.receive(int(_SILENCE_MAX_S * 2 * 1000))
            except pulsar.Timeout:
                raise LoadFailed(f"{self._count} of {count} messages arrived") from None
            arrived_s = time.perf_counter()
            number = int.from_bytes(message.data()[:_NUMBER_SIZE], "big")
            if self._arrived_s[number]:
                raise LoadFailed(f"message {number} arrived twice")
            self._arrived_s[number] = arrived_s
            self._count += 1

    def latencies_ms(self) -> list[float]:
        return [
            round((arrived - published) * 1000, 3)
            for published, arrived in zip(self._published_s, self._arrived_s, strict=True)
        ]


def connected(url: str) -> pulsar.Client:
    return pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="a load with the official Python client")
    loads = parser.add_subparsers(dest="load", required=True)

    def add(load: Callable[..., Outcome], **arguments: type) -> None:
        added = loads.add_parser(load.__name__.replace("_", "-"), description=load.__doc__)
        added.set_defaults(run=load)
        added.add_argument("url")
        for name, kind in arguments.items():
            added.add_argument(name, type=kind)

    add(read, topic=str, messages=int)
    add(send, topic=str, messages=int, size=int, limit_s=float)
    add(send_async, topic=str, messages=int, size=int)
    add(time_arrivals, source=str, target=str, rate=float, messages=int, target_url=str)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    given = vars(argument_parser().parse_args(arguments))
    run, url = given.pop("run"), given.pop("url")
    del given["load"]
    with contextlib.closing(connected(url)) as client:
        print(json.dumps(run(client, **given)), flush=True)


if __name__ == "__main__":
    main()

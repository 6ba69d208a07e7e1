"""Both sides of `processing.py`, each in its own process: `process` with a trivial function, and loops of the official
Python client that receive, send and acknowledge.

Prints a line of JSON: messages, and the seconds for them once both sides are warm. Knows nothing about brokers.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Sequence
from typing import Any

import pulsar  # type: ignore[import-untyped]

_SILENCE_MS = 3000  # after which the topic is empty
_PENDING_MAX = 20_000
_BATCH_DELAY_MS = 5


def same(message: Any) -> bytes:
    value: bytes = message.value
    return value


def same_batch(batch: Any) -> Any:
    return batch.select(["value", "__row"])


async def same_soon(message: Any) -> bytes:
    value: bytes = message.value
    return value


FUNCTIONS = {"row": same, "arrow": same_batch, "async": same_soon}


def process(options: argparse.Namespace) -> None:
    """The rounds after the first: that one starts the workers."""
    from magnetar.pipelines import process

    marks: list[tuple[float, int]] = []
    job = process(
        options.topic,
        subscription=options.subscription,
        into=options.target,
        kind=options.kind,
        service_url=options.url,
        admin_url=options.admin_url,
    )(FUNCTIONS[options.kind])
    found = job.run(until="caught-up", show=lambda progress: marks.append((time.perf_counter(), progress.done)))
    (began_s, first), (ended_s, last) = marks[0], marks[-1]
    report(messages=last - first, seconds=ended_s - began_s, total=found.counts["produced"])


def consume(options: argparse.Namespace) -> None:
    """Several loops share the subscription."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.loops) as pool:
        found = [each for each in pool.map(_loop, [options] * options.loops, chunksize=1) if each[0]]
    total = sum(count for count, _, _ in found)
    seconds = max(ended_s for _, _, ended_s in found) - min(began_s for _, began_s, _ in found)
    report(messages=total, seconds=seconds, total=total)


def _loop(options: argparse.Namespace) -> tuple[int, float, float]:
    client = pulsar.Client(options.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(options.topic, options.subscription, consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(
        options.target,
        batching_enabled=True,
        batching_max_messages=1000,
        batching_max_publish_delay_ms=_BATCH_DELAY_MS,
        max_pending_messages=_PENDING_MAX,
        block_if_queue_full=True,
    )
    count, began_s, ended_s = 0, 0.0, 0.0
    try:
        while True:
            message = consumer.receive(_SILENCE_MS)
            began_s = began_s or time.monotonic()
            producer.send_async(message.data(), lambda *_, message=message: consumer.acknowledge(message))
            count, ended_s = count + 1, time.monotonic()
    except pulsar.Timeout:
        producer.flush()
    client.close()
    return count, began_s, ended_s


def report(**found: float) -> None:
    print(json.dumps(found), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    sides = parser.add_subparsers(required=True)
    processing = sides.add_parser("process", description=process.__doc__)
    processing.set_defaults(run=process)
    consuming = sides.add_parser("consume", description=consume.__doc__)
    consuming.set_defaults(run=consume)
    for side in (processing, consuming):
        for name in ("url", "admin_url", "topic", "subscription", "target"):
            side.add_argument(name)
    processing.add_argument("kind", choices=FUNCTIONS)
    consuming.add_argument("loops", type=int)
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()

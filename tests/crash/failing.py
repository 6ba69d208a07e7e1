"""`python -m tests.crash.failing URL RESULT`: produces and consumes until stdin ends, and nacks some messages.

The broker's dead letter policy applies: the consumers only declare it in their properties. RESULT is JSON: the messages
sent by each producer, the failed ones, and the acknowledged ones.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pulsar

TOPIC, SUBSCRIPTION, DEAD_LETTERS = "failing", "workers", "failing-workers-DLQ"
LIMIT = 2
PRODUCERS = {"single": False, "batching": True}
_BURST = 5
_PAUSE_S = 0.02
_CONSUMERS = 2


def always_fails(name: str) -> bool:
    return name.endswith("3")


def fails_once(name: str) -> bool:
    return name.endswith("7")


def subscribe(client: pulsar.Client) -> pulsar.Consumer:
    return client.subscribe(
        TOPIC,
        SUBSCRIPTION,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=100,
        batch_index_ack_enabled=True,
        properties={"deadLetterPolicy.maxRedeliverCount": str(LIMIT)},
    )


def work(consumer: pulsar.Consumer, is_over: Callable[[], bool], acked: set[str]) -> None:
    """Acknowledges or nacks each message until the load ends."""
    while not is_over():
        with contextlib.suppress(pulsar.Timeout):
            message = consumer.receive(100)
            name = message.data().decode()
            if always_fails(name) or (fails_once(name) and message.redelivery_count() == 0):
                consumer.negative_acknowledge(message)
            else:
                acked.add(name)
                consumer.acknowledge(message)


class Load:
    def __init__(self, client: pulsar.Client) -> None:
        self._client = client
        self._is_over = False
        self._sent = dict.fromkeys(PRODUCERS, 0)
        self._failures: list[str] = []
        self._acked: set[str] = set()

    def run(self) -> None:
        consumers = [subscribe(self._client) for _ in range(_CONSUMERS)]
        threads = [threading.Thread(target=self._produce, args=item) for item in PRODUCERS.items()]
        threads += [threading.Thread(target=work, args=(c, lambda: self._is_over, self._acked)) for c in consumers]
        for thread in threads:
            thread.start()
        print("running", flush=True)
        sys.stdin.read()
        self._is_over = True
        for thread in threads:
            thread.join()

    def _produce(self, name: str, batches: bool) -> None:
        producer = self._client.create_producer(
            TOPIC,
            producer_name=name,
            batching_enabled=batches,
            batching_max_publish_delay_ms=3,
            send_timeout_millis=0,
            block_if_queue_full=True,
        )
        number = 0
        while not self._is_over:
            for _ in range(_BURST):
                producer.send_async(
                    f"{name}:{number}".encode(), lambda *outcome, n=number: self._on_receipt(name, n, *outcome)
                )
                number += 1
            time.sleep(_PAUSE_S)
        producer.flush()
        self._sent[name] = number

    def _on_receipt(self, name: str, number: int, result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            self._failures.append(f"{name}:{number}: {result}")

    def result(self) -> dict[str, object]:
        return {"sent": self._sent, "failures": self._failures, "acked": sorted(self._acked)}


def main() -> None:
    service_url, path = sys.argv[1:]
    client = pulsar.Client(service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, f"{path}.log"))
    load = Load(client)
    load.run()
    Path(path).write_text(json.dumps(load.result()))
    client.close()


if __name__ == "__main__":
    main()

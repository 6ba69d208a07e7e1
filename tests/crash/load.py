"""`python -m tests.crash.load URL RESULT`: produces and consumes until stdin ends, then writes its results.

Runs in its own process, like real clients. RESULT is JSON: for each producer the sequence numbers with the message ids
of their receipts, for each subscription the received and acknowledged messages.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from pathlib import Path

import pulsar

TOPIC = "crash"
SHARED, EXCLUSIVE = "shared", "exclusive"
PRODUCERS = {"single": False, "batching": True}
_BURST = 10
_PAUSE_S = 0.006


def content(producer: str, number: int) -> bytes:
    return f"{producer}:{number}".encode()


def never_acknowledged(payload: bytes) -> bool:
    """One in ten messages, which the shared consumers ignore, so that they are redelivered again and again."""
    return payload.endswith(b"3")


class Load:
    def __init__(self, client: pulsar.Client) -> None:
        self._client = client
        self.is_over = False
        self.sent = dict.fromkeys(PRODUCERS, 0)
        self.receipts: dict[str, list[tuple[int, int, int, int]]] = {name: [] for name in PRODUCERS}
        self.failures: list[str] = []
        self.shared_acked: set[str] = set()
        self.exclusive_received: list[str] = []
        self.exclusive_acked = ""

    def run(self) -> None:
        # Subscriptions first: they must receive everything.
        consumers = [self._subscribe(SHARED, pulsar.ConsumerType.Shared) for _ in range(2)]
        exclusive = self._subscribe(EXCLUSIVE, pulsar.ConsumerType.Exclusive)
        producing = [threading.Thread(target=self._produce, args=item) for item in PRODUCERS.items()]
        consuming = [threading.Thread(target=self._consume_shared, args=(consumer,)) for consumer in consumers]
        consuming.append(threading.Thread(target=self._consume_exclusive, args=(exclusive,)))
        for thread in (*producing, *consuming):
            thread.start()
        print("running", flush=True)
        sys.stdin.read()
        self.is_over = True
        for thread in (*producing, *consuming):
            thread.join()

    def _subscribe(self, name: str, type: pulsar.ConsumerType) -> pulsar.Consumer:
        return self._client.subscribe(TOPIC, name, consumer_type=type, initial_position=pulsar.InitialPosition.Earliest)

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
        while not self.is_over:
            for _ in range(_BURST):
                producer.send_async(
                    content(name, number), lambda *outcome, n=number: self._on_receipt(name, n, *outcome)
                )
                number += 1
            time.sleep(_PAUSE_S)  # a rate that consumers sustain
        producer.flush()
        self.sent[name] = number

    def _on_receipt(self, name: str, number: int, result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            self.failures.append(f"{name}:{number}: {result}")
            return
        self.receipts[name].append((number, message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()))

    def _consume_shared(self, consumer: pulsar.Consumer) -> None:
        for message in self._messages(consumer):
            if not never_acknowledged(message.data()):
                self.shared_acked.add(message.data().decode())
                consumer.acknowledge(message)

    def _consume_exclusive(self, consumer: pulsar.Consumer) -> None:
        for number, message in enumerate(self._messages(consumer)):
            self.exclusive_received.append(message.data().decode())
            if number % 50 == 49:
                self.exclusive_acked = message.data().decode()
                consumer.acknowledge_cumulative(message)

    def _messages(self, consumer: pulsar.Consumer):  # type: ignore[no-untyped-def]
        while not self.is_over:
            with contextlib.suppress(pulsar.Timeout):
                yield consumer.receive(100)

    def result(self) -> dict[str, object]:
        return {
            "sent": self.sent,
            "receipts": self.receipts,
            "failures": self.failures,
            "shared_acked": sorted(self.shared_acked),
            "exclusive_received": self.exclusive_received,
            "exclusive_acked": self.exclusive_acked,
        }


def main() -> None:
    service_url, path = sys.argv[1:]
    client = pulsar.Client(service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, f"{path}.log"))
    load = Load(client)
    load.run()
    Path(path).write_text(json.dumps(load.result()))
    client.close()


if __name__ == "__main__":
    main()

"""A load with the official client that runs until stopped: named producers, some with batches.

The topics have deduplication, so messages resent after a kill are not stored twice. Every message contains the name of
its producer, which is also that of its topic, and its number there.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

import pulsar

_TICK_S = 0.04
_BURST_MAX = 6
_SIZE_MAX = 1500
_SELDOM = 20  # ticks, for a topic with few messages
_PENDING_MAX = 500


@dataclass
class Named:
    """A producer, and its number of sent messages."""

    name: str
    producer: pulsar.Producer
    every: int  # ticks
    sent: int = 0
    failures: list[str] = field(default_factory=list)

    def send(self, size: int) -> None:
        content = f"{self.name}:{self.sent}:".encode()
        self.sent += 1
        self.producer.send_async(content.ljust(size, b"."), self._on_receipt)

    def _on_receipt(self, result: pulsar.Result, _: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            self.failures.append(f"{self.name}: {result}")


def parsed(payload: bytes) -> tuple[str, int]:
    name, number, _ = payload.decode().split(":")
    return name, int(number)


class Publisher:
    """Publishes in one cluster from `start` until `end`."""

    def __init__(self, cluster: str, client: pulsar.Client, sizes: random.Random) -> None:
        self._cluster = cluster
        self._client = client
        self._sizes = sizes
        self._producers: list[Named] = []
        self._is_enough = threading.Event()
        self._thread = threading.Thread(target=self._publish)

    def add(self, topic: str, full_name: str, *, seldom: bool = False) -> None:
        """Adds two producers for a topic, which is auto-created if missing."""
        for kind, options in _KINDS.items():
            name = f"{self._cluster} {topic} {kind}"
            producer = self._client.create_producer(
                full_name,
                producer_name=name,
                send_timeout_millis=0,
                block_if_queue_full=True,
                max_pending_messages=_PENDING_MAX,
                message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
                **options,
            )
            self._producers.append(Named(name, producer, _SELDOM if seldom else 1))

    def start(self) -> None:
        self._thread.start()

    def _publish(self) -> None:
        tick = 0
        while not self._is_enough.wait(_TICK_S):
            tick += 1
            for named in [each for each in self._producers if tick % each.every == 0]:
                for _ in range(self._sizes.randint(1, _BURST_MAX) if named.every == 1 else 1):
                    named.send(self._sizes.randint(60, _SIZE_MAX))

    def end(self) -> dict[str, int]:
        """The number of published messages of each producer, once all are stored."""
        self._is_enough.set()
        self._thread.join()
        for each in self._producers:
            each.producer.flush()
        failures = [failure for each in self._producers for failure in each.failures]
        assert failures == []
        return {each.name: each.sent for each in self._producers}

    def abandon(self) -> None:
        self._is_enough.set()


_KINDS: dict[str, dict[str, object]] = {
    "single": {"batching_enabled": False},
    "batched": {
        "batching_enabled": True,
        "batching_max_messages": 20,
        "batching_max_publish_delay_ms": 20,
        "compression_type": pulsar.CompressionType.LZ4,
    },
}

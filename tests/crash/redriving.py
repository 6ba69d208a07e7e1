"""Dead letters of a topic with two subscriptions, to be redriven while processes are killed."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass

import httpx
import pulsar

from magnetar.client import EARLIEST, Client
from tests.crash.killable import KillableBroker

KEYS = 97
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Origin:
    """The letters are those of `subscription`; the `other` one must not receive them again."""

    broker: KillableBroker
    topic: str
    subscription: str = "billing"
    other: str = "shipping"

    @property
    def letters(self) -> str:
        return f"{self.topic}-{self.subscription}-DLQ"

    def prepare(self, count: int) -> None:
        """Creates the topic, and publishes letters whose contents are their numbers."""
        with self._http() as http:
            http.put(self.topic).raise_for_status()
            for name in (self.subscription, self.other):
                start = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
                http.put(f"{self.topic}/subscription/{name}", json=start).raise_for_status()
        client = pulsar.Client(self.broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(self.letters, block_if_queue_full=True, batching_enabled=False)
        for number in range(count):
            properties = {
                "REAL_TOPIC": f"persistent://public/default/{self.topic}",
                "ORIGIN_MESSAGE_ID": f"7:{number}:-1",
            }
            producer.send_async(str(number).encode(), None, partition_key=f"k{number % KEYS}", properties=properties)
        producer.flush()
        client.close()

    def _http(self) -> httpx.Client:
        base = f"{self.broker.http_url}/admin/v2/persistent/public/default/"
        return httpx.Client(base_url=base, timeout=10, trust_env=False)

    def waiting(self) -> int | None:
        """The letters that wait; None while the broker is away."""
        with self._http() as http, suppress(httpx.HTTPError):
            stats = http.get(f"{self.letters}/deadLetters/stats").raise_for_status().json()
            return int(stats["deadLetters"])
        return None

    def check(self, count: int, seed: int) -> None:
        """Each letter is in the topic once, in order per key, and only for the subscription that failed."""
        found = self._stored()
        assert sorted(number for _, number in found) == list(range(count)), f"seed {seed}"
        by_key: dict[str, list[int]] = defaultdict(list)
        for key, number in found:
            by_key[key].append(number)
        assert all(numbers == sorted(numbers) for numbers in by_key.values()), f"seed {seed}"
        assert self._received(count) == found, f"seed {seed}"
        with self._http() as http:
            subscriptions = http.get(f"{self.topic}/stats").raise_for_status().json()["subscriptions"]
        assert {name: one["msgBacklog"] for name, one in subscriptions.items()} == {
            self.subscription: 0,
            self.other: 0,
        }, f"seed {seed}"
        assert self.waiting() == 0, f"seed {seed}"

    def _stored(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        with Client(self.broker.service_url) as client, client.reader(self.topic, EARLIEST) as reader:
            while reader.has_next():
                message = reader.read(_PATIENCE_S)
                found.append((str(message.key), int(message.value or b"")))
        return found

    def _received(self, count: int) -> list[tuple[str, int]]:
        """As many messages of the subscription, which are acknowledged."""
        found: list[tuple[str, int]] = []
        with Client(self.broker.service_url) as client, client.consumer(self.topic, self.subscription) as consumer:
            for _ in range(count):
                message = consumer.receive(_PATIENCE_S)
                found.append((str(message.key), int(message.value or b"")))
                consumer.acknowledge(message)
        return found

"""A broker with a movable clock, and processes on it in the tests' one Spark session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import magnetar.testing
from magnetar.client import EARLIEST, Client, Message
from magnetar.pipelines import process
from magnetar.pipelines.processing.api import Processor
from magnetar.pipelines.run import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECK = "check"
"""A subscription that keeps what is published."""


class Orders:
    """One broker with topics of orders, and what a test sees of them."""

    def __init__(self, broker: magnetar.testing.TestBroker) -> None:
        self.broker = broker
        self.client = Client(broker.service_url)
        self._http = httpx.Client(base_url=f"{broker.http_url}/admin/v2/", timeout=10, trust_env=False)

    def publish(self, topic: str, values: list[bytes], **message: Any) -> None:
        """In one batch."""
        with self.client.producer(topic, batch_delay_s=0.05) as producer:
            sent = [producer.send_async(value, **message) for value in values]
            for each in sent:
                each.result()

    def process(self, topic: str = "orders", **options: Any) -> Processor:
        given = {"subscription": "s", "service_url": self.broker.service_url, "admin_url": self.broker.http_url}
        return process(topic, **{**given, **options})

    def run(self, processor: Processor) -> Progress:
        """Until everything that is due is processed, on the broker's clock."""
        return processor.run(until="caught-up", clock=self.broker.clock)

    def messages(self, topic: str) -> list[Message]:
        """All that are stored, partition by partition."""
        with self.client.reader(topic, EARLIEST) as reader:
            found = []
            while reader.has_next():
                found.append(reader.read(10))
            return found

    def values(self, topic: str) -> list[bytes]:
        return [message.value for message in self.messages(topic)]

    def keep(self, topic: str, partitions: int = 0) -> None:
        if partitions:
            self.ask("PUT", f"persistent/public/default/{topic}/partitions", partitions)
        self.client.consumer(topic, CHECK, initial_position=EARLIEST).close()

    def backlog(self, topic: str, subscription: str = "s") -> int:
        found = self.ask("GET", f"persistent/public/default/{topic}/stats")
        return int(found["subscriptions"][subscription]["msgBacklog"])

    def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = self._http.request(method, path, json=body, headers={"Content-Type": "application/json"})
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def close(self) -> None:
        self.client.close()
        self._http.close()


@pytest.fixture
def orders(spark: SparkSession) -> Iterator[Orders]:
    with magnetar.testing.broker() as broker:
        found = Orders(broker)
        try:
            yield found
        finally:
            found.close()


@pytest.fixture
def later() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Runs a function in a thread, whose error is that of the test."""
    errors: list[BaseException] = []
    threads: list[threading.Thread] = []

    def start(function: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                function()
            except BaseException as error:
                errors.append(error)

        threads.append(threading.Thread(target=guarded))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(60)
    assert not errors

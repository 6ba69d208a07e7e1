"""A broker with dead letters, and redrives in the tests' Spark session."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

import magnetar.testing
from magnetar.client import EARLIEST, Client, Message
from magnetar.client.errors import Timeout
from magnetar.declared.redrive import RedriveSpec
from magnetar.pipelines.redrive.redrive import Redrive, RedriveOptions, RedriveOutcome, Sample
from magnetar.pipelines.run import Progress
from magnetar.replication.cluster import ClusterEndpoint

_names = count()


class Context:
    """A run in the foreground."""

    def __init__(self, spark: SparkSession, endpoint: ClusterEndpoint) -> None:
        self.spark = spark
        self.endpoint = endpoint
        self.reports: list[Progress] = []
        self.reports_max = 1 << 30  # then it stops

    def report(self, progress: Progress) -> None:
        self.reports.append(progress)

    @property
    def is_stopping(self) -> bool:
        return len(self.reports) >= self.reports_max

    def wait(self, seconds: float) -> bool:
        time.sleep(min(seconds, 0.1))
        return self.is_stopping


class Site:
    """A topic with two subscriptions, and the dead letters of one of them."""

    def __init__(self, running: magnetar.testing.TestBroker, spark: SparkSession) -> None:
        self.running = running
        self.endpoint = ClusterEndpoint("standalone", running.service_url, running.http_url)
        self.context = Context(spark, self.endpoint)
        self.client = Client(running.service_url)
        self.http = httpx.Client(base_url=f"{running.http_url}/admin/v2/", timeout=10, trust_env=False)
        self.orders = f"orders-{next(_names)}"
        self.letters = f"{self.orders}-billing-DLQ"

    def close(self) -> None:
        self.client.close()
        self.http.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = self.http.request(method, path, json=body, headers={"Content-Type": "application/json"})
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def create(self, topic: str, *subscriptions: str, partitions: int = 0) -> None:
        path = f"persistent/public/default/{topic}"
        if partitions:
            self.ask("PUT", f"{path}/partitions", partitions)
        else:
            self.ask("PUT", path)
        for name in subscriptions:
            self.ask("PUT", f"{path}/subscription/{name}", {"ledgerId": -1, "entryId": -1, "partitionIndex": -1})

    def publish_letters(self, values: list[Any], topic: str | None = None, **properties: str) -> None:
        """As a client writes them by its own policy."""
        own = {"REAL_TOPIC": f"persistent://public/default/{self.orders}", "ORIGIN_MESSAGE_ID": "7:3:-1"} | properties
        with self.client.producer(topic or self.letters) as producer:
            for number, value in enumerate(values):
                body = value if isinstance(value, bytes) else json.dumps(value).encode()
                kept = {name: text for name, text in own.items() if text}
                producer.send(body, key=f"k{number % 3}", properties=kept | {"n": str(number)})

    def redrive(self, *sources: str, call: Any = None, **spec: Any) -> RedriveOutcome:
        """`call` is a function itself, `function` the name of one."""
        found = RedriveSpec(sources=list(sources or [self.letters]), **spec)
        with Redrive(self.context, found, RedriveOptions(function=call)) as redrive:
            return redrive.run()

    def preview(self, *sources: str, call: Any = None, **spec: Any) -> tuple[RedriveOutcome, list[Sample]]:
        found = RedriveSpec(sources=list(sources or [self.letters]), **spec)
        with Redrive(self.context, found, RedriveOptions(function=call)) as redrive:
            return redrive.preview()

    def received(self, topic: str, subscription: str) -> list[Message]:
        found: list[Message] = []
        with self.client.consumer(topic, subscription, initial_position=EARLIEST) as consumer:
            while True:
                try:
                    found.append(consumer.receive(timeout_s=0.5))
                except Timeout:
                    return found
                consumer.acknowledge(found[-1])

    def waiting(self, topic: str | None = None) -> int:
        stats = self.ask("GET", f"persistent/public/default/{topic or self.letters}/deadLetters/stats")
        return int(stats["deadLetters"])


@pytest.fixture(scope="module")
def running() -> Iterator[magnetar.testing.TestBroker]:
    with magnetar.testing.broker() as started:
        yield started


@pytest.fixture
def site(running: magnetar.testing.TestBroker, spark: SparkSession) -> Iterator[Site]:
    opened = Site(running, spark)
    yield opened
    opened.close()

"""Dead letters as the official client publishes them by its own policy, and redrives of them in a Spark session.

Owns a topic, its subscription that fails, and its dead letter topic. Knows nothing of what a redrive does.
"""

from __future__ import annotations

import json
import time
from typing import Any

import official
import pulsar
from pyspark.sql import SparkSession
from small_ledgers import Pulsar

from magnetar.declared.redrive import RedriveSpec
from magnetar.names import TopicName
from magnetar.pipelines.redrive.edit import LetterFunction
from magnetar.pipelines.redrive.redrive import Redrive, RedriveOptions, RedriveOutcome, Sample
from magnetar.pipelines.run import Progress
from magnetar.replication.cluster import ClusterEndpoint

SUBSCRIPTION = "billing"
REVIEW, AUDIT = "review", "audit"
"""The subscriptions of the dead letter topic."""

KEYS = 7
_PATIENCE_S = 90


class Context:
    """A run in the foreground, which stops after some reports."""

    def __init__(self, spark: SparkSession, endpoint: ClusterEndpoint) -> None:
        self.spark = spark
        self.endpoint = endpoint
        self.reports: list[Progress] = []
        self.reports_max = 1 << 30

    def report(self, progress: Progress) -> None:
        self.reports.append(progress)

    @property
    def is_stopping(self) -> bool:
        return len(self.reports) >= self.reports_max

    def wait(self, seconds: float) -> bool:
        time.sleep(min(seconds, 0.2))
        return self.is_stopping


class Site:
    """A topic whose messages all failed. `through` is the address that redrives are given."""

    def __init__(self, spark: SparkSession, broker: Pulsar, client: pulsar.Client, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.letters = f"{topic}-{SUBSCRIPTION}-DLQ"
        self.context = Context(spark, ClusterEndpoint("standalone", broker.service_url, broker.http_url))
        self._client = client

    def fail(self, count: int, partitions: int = 0) -> None:
        """Publishes messages, and rejects each until the client gives it up."""
        if partitions:
            self.broker.create(self.topic, partitions)
        else:
            self.broker.topic("PUT", self.topic)
        self.broker.topic("PUT", self.letters)
        for name in (REVIEW, AUDIT):
            self.broker.topic("PUT", self.letters, f"/subscription/{name}", json=EARLIEST)
        consumer = self._client.subscribe(
            self.topic,
            SUBSCRIPTION,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=50,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, self.letters),
        )
        with official.producer(self._client, self.topic) as producer:
            for number in range(count):
                body = json.dumps({"n": number, "amount": number - 10}).encode()
                producer.send_async(body, None, partition_key=f"k{number % KEYS}", properties={"own": str(number)})
        deadline_s = time.monotonic() + _PATIENCE_S
        while self.waiting(REVIEW) < count:
            assert time.monotonic() < deadline_s, f"{self.waiting(REVIEW)} of {count} messages became dead letters"
            try:
                while True:
                    consumer.negative_acknowledge(consumer.receive(200))
            except pulsar.Timeout:
                continue
        consumer.close()

    # -- redrives

    def redrive(self, name: str = "fix", *, at_least_once: bool = False, **spec: Any) -> RedriveOutcome:
        with self._opened(RedriveOptions(name=name, at_least_once=at_least_once), spec) as redrive:
            return redrive.run()

    def call(self, function: LetterFunction, *, at_least_once: bool = False) -> RedriveOutcome:
        with self._opened(RedriveOptions(name="call", at_least_once=at_least_once, function=function), {}) as redrive:
            return redrive.run()

    def preview(self, **spec: Any) -> tuple[RedriveOutcome, list[Sample]]:
        with self._opened(RedriveOptions(), spec) as redrive:
            return redrive.preview()

    def _opened(self, options: RedriveOptions, spec: dict[str, Any]) -> Redrive:
        sources = spec.pop("sources", [self.letters])
        return Redrive(self.context, RedriveSpec(sources=sources, **spec), options)

    # -- what is there

    def waiting(self, subscription: str) -> int:
        return self.broker.backlog(self.letters, subscription)

    def read(self) -> list[pulsar.Message]:
        """Everything in the letters' topic."""
        return official.read(self._client, self.letters)

    def again(self) -> list[pulsar.Message]:
        """What was redriven to the origin, in the order of each partition."""
        partitions = self._client.get_topic_partitions(self.topic)
        messages = [message for partition in partitions for message in official.read(self._client, partition)]
        return [message for message in messages if "REDRIVE_GENERATION" in message.properties()]

    @property
    def words(self) -> tuple[str, ...]:
        """For commands."""
        return ("--url", self.broker.http_url, "--service-url", self.broker.service_url)

    @property
    def namespace(self) -> str:
        return str(TopicName.parse(self.topic).namespace_full)


EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


def numbers(messages: list[pulsar.Message]) -> list[int]:
    return [json.loads(message.data())["n"] for message in messages]


def in_order(messages: list[pulsar.Message]) -> bool:
    """For each key."""
    found = {key: numbers([m for m in messages if m.partition_key() == key]) for key in map(key_of, messages)}
    return all(one == sorted(one) for one in found.values())


def key_of(message: pulsar.Message) -> str:
    return str(message.partition_key())

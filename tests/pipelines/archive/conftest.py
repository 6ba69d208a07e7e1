"""A broker that deduplicates, and runs of archives without a pipelines process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from magnetar.client import EARLIEST, Client, Message
from magnetar.client.errors import UnreadableMessage
from magnetar.client.inline import InlineClient
from magnetar.declared.topic_set import TopicSet, parse_topic_set
from magnetar.pipelines.archive.archive import ArchiveResult, archive
from magnetar.pipelines.run import Progress
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import build_blob

NAMESPACE = "public/default"
DAY_MS = 86_400_000
_topics = count()


class Context:
    """A run in the foreground, which stops after `reports_max` reports."""

    def __init__(self, spark: SparkSession, endpoint: ClusterEndpoint, reports_max: int = 1 << 30) -> None:
        self.spark = spark
        self.endpoint = endpoint
        self.reports: list[Progress] = []
        self.waited: list[float] = []
        self._reports_max = reports_max

    def report(self, progress: Progress) -> None:
        self.reports.append(progress)

    @property
    def is_stopping(self) -> bool:
        return len(self.reports) >= self._reports_max

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        return len(self.waited) > 1


def sets_of(*words: str) -> list[TopicSet]:
    return [parse_topic_set(word, NAMESPACE) for word in words]


class Site:
    """A broker, a Spark session and an archive."""

    def __init__(self, running: TestBroker, spark: SparkSession, path: Path) -> None:
        self.running = running
        self.spark = spark
        self.path = str(path / "archive")
        self.endpoint = ClusterEndpoint("standalone", running.service_url, running.http_url)

    def topic(self, partitions: int = 0) -> str:
        name = f"sp5-{next(_topics)}"
        path = f"{self.running.http_url}/admin/v2/persistent/public/default/{name}"
        if partitions:
            httpx.put(f"{path}/partitions", json=partitions).raise_for_status()
        else:
            httpx.put(path).raise_for_status()
        return name

    def context(self, reports_max: int = 1 << 30) -> Context:
        return Context(self.spark, self.endpoint, reports_max)

    def archive(self, *words: str, **options: Any) -> ArchiveResult:
        return archive(self.context(), sets_of(*words), options.pop("path", self.path), **options)

    def rows(self) -> list[Any]:
        """By a plain reader, which knows nothing of archives."""
        if not list(Path(self.path).glob("topic=*/date=*/part-*")):
            return []
        return self.spark.read.parquet(self.path).orderBy("topic", "__partition", "__ledgerId", "__entryId").collect()

    def publish(self, topic: str, *values: str, **options: Any) -> None:
        with Client(self.running.service_url) as client, client.producer(topic, batching=False) as producer:
            for value in values:
                producer.send(value.encode(), **options)

    def publish_entry(self, topic: str, payload: bytes, **fields: Any) -> None:
        """One entry with this metadata."""
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=time.time_ns() // 1_000_000)
        for name, value in fields.items():
            if name == "encryption_keys":
                metadata.encryption_keys.add(key=value, value=b"sealed")
            else:
                setattr(metadata, name, value)

        async def publish() -> None:
            producer = await client.client.entry_producer(topic)
            await producer.send(build_blob(metadata, payload), sequence_id=0, highest_sequence_id=0, messages=1)
            await producer.flush()

        with InlineClient(self.running.service_url) as client:
            client.run(publish())

    def read(self, topic: str) -> list[Message]:
        messages: list[Message] = []
        with Client(self.running.service_url) as client, client.reader(topic, EARLIEST) as reader:
            while reader.has_next():
                with suppress(UnreadableMessage):
                    messages.append(reader.read(10))
        return messages

    def keep(self, topic: str) -> None:
        """Keeps messages that are archived in the topic too."""
        with Client(self.running.service_url) as client:
            client.cursor(topic, "keep", initial_position=EARLIEST).position()

    def backlog(self, topic: str, subscription: str = "magnetar.archive") -> int:
        path = f"{self.running.http_url}/admin/v2/persistent/public/default/{topic}/stats"
        stats: Mapping[str, Any] = httpx.get(path).raise_for_status().json()
        return int(stats["subscriptions"][subscription]["msgBacklog"])


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(brokerDeduplicationEnabled=True) as running:
        yield running


@pytest.fixture
def site(running: TestBroker, spark: SparkSession, tmp_path: Path) -> Site:
    return Site(running, spark, tmp_path)

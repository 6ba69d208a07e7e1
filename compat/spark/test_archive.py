"""SP5 on Apache Pulsar: archives of runs that follow each other, checked, and replayed once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import official
import pulsar
import pytest
from letters import Context
from pyspark.sql import SparkSession
from small_ledgers import ENTRIES_PER_LEDGER, KEEPS, ONCE, Pulsar

from magnetar.client import EARLIEST, Client
from magnetar.client.inline import InlineClient
from magnetar.declared.topic_set import TopicSet
from magnetar.pipelines.archive.archive import ArchiveResult, archive
from magnetar.pipelines.archive.check import check
from magnetar.pipelines.archive.replay import ReplayResult, ReplaySpec, replay
from magnetar.pipelines.run import RunFailed
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import build_blob

COUNT = 2 * ENTRIES_PER_LEDGER + 20
SUBSCRIPTION = "magnetar.archive"


class Site:
    """A topic, another one with partitions, and their archive."""

    def __init__(self, spark: SparkSession, broker: Pulsar, name: str, path: Path) -> None:
        self.broker = broker
        self.names = (name, f"{name}-parts")
        self.one, self.several = (f"persistent://{KEEPS}/{each}" for each in self.names)
        broker.topic("PUT", self.one)
        self.partitions = broker.create(self.several, 2)
        self.path = str(path / "archive")
        self.context = Context(spark, ClusterEndpoint("standalone", broker.service_url, broker.http_url))
        self._spark = spark

    def archive(self) -> ArchiveResult:
        return archive(self.context, [TopicSet(KEEPS, name) for name in self.names], self.path)

    def rows(self, name: str) -> list[Any]:
        """By a plain reader, in the order of the topic."""
        rows = self._spark.read.parquet(self.path).where(f"topic = '{KEEPS}/{name}'")
        return rows.orderBy("__partition", "__ledgerId", "__entryId", "__batchIndex").collect()

    def check(self) -> tuple[int, int]:
        """The messages that are in both, and those in the archive."""
        checks = check(self.context, self.path)
        assert all(one.agrees for one in checks), checks
        return sum(one.compared for one in checks), sum(one.rows for one in checks)

    def replay(self, **options: Any) -> ReplayResult:
        return replay(self.context, ReplaySpec(path=self.path, **options))

    def backlog(self) -> int:
        return sum(self.broker.backlog(topic, SUBSCRIPTION) for topic in (self.one, *self.partitions))

    def publish_tombstone(self, key: str) -> None:
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=time.time_ns() // 1_000_000)
        metadata.null_value, metadata.partition_key = True, key

        async def publish() -> None:
            producer = await client.client.entry_producer(self.one)
            await producer.send(build_blob(metadata, b""), sequence_id=0, highest_sequence_id=0, messages=1)
            await producer.flush()

        with InlineClient(self.broker.service_url) as client:
            client.run(publish())


@pytest.fixture
def site(spark: SparkSession, broker: Pulsar, name: str, tmp_path: Path) -> Site:
    return Site(spark, broker, name, tmp_path)


def texts(count: int, start: int = 0) -> list[str]:
    return [f"v{number}" for number in range(start, start + count)]


def publish(client: pulsar.Client, topic: str, values: list[str], **options: Any) -> None:
    """With keys, and properties of every kind."""
    with official.producer(client, topic, **options) as producer:
        for number, value in enumerate(values):
            properties = {"n": str(number), "empty": "", "ü": "ß"}
            producer.send_async(
                value.encode(),
                None,
                properties=properties,
                partition_key=f"k{number % 3}",
                event_timestamp=1000 + number,
            )


def test_sp5_two_runs_a_check_and_a_replay(site: Site, client: pulsar.Client) -> None:
    batching = {"batching_enabled": True, "batching_max_messages": 7, "batching_max_publish_delay_ms": 1000}
    publish(client, site.one, texts(50), compression_type=pulsar.CompressionType.ZLib, **batching)
    site.publish_tombstone("gone")
    publish(client, site.one, texts(COUNT, 50))
    for partition in site.partitions:
        publish(client, partition, texts(COUNT))
    first = site.archive()
    assert (first.rows, first.unreadable, first.is_complete) == (50 + 1 + 3 * COUNT, 0, True)
    assert site.backlog() == 0 and site.archive().rounds == 0

    publish(client, site.one, texts(COUNT, 50 + COUNT))
    publish(client, site.partitions[1], texts(5, COUNT), **batching)
    assert site.backlog() > 0
    second = site.archive()
    assert second.topics == {f"{KEEPS}/{site.names[0]}": COUNT, f"{KEEPS}/{site.names[1]}": 5}
    assert site.backlog() == 0 and len(site.broker.ledgers(site.one)) > 4
    total = first.rows + second.rows
    assert site.check() == (total, total)

    rows = site.rows(site.names[0])
    values = [None if row["value"] is None else bytes(row["value"]).decode() for row in rows]
    assert values == [*texts(50), None, *texts(2 * COUNT, 50)]
    assert (bytes(rows[50]["__key"]), rows[50]["__error"]) == (b"gone", None)
    assert rows[8]["__messageProperties"] == {"n": "8", "empty": "", "ü": "ß"}
    assert [row["__batchIndex"] for row in rows[:8]] == [0, 1, 2, 3, 4, 5, 6, 0]
    values = [bytes(row["value"]).decode() for row in site.rows(site.names[1])]
    assert values == [*texts(COUNT), *texts(COUNT + 5)]

    target = f"persistent://{ONCE}/{site.names[0]}-again"
    site.broker.topic("PUT", target)
    chosen = {"to": target, "topics": (TopicSet(KEEPS, site.names[0]),), "exactly_once": "required"}
    sent = site.replay(**chosen)
    count = 50 + 1 + 2 * COUNT
    assert (sent.read, sent.sent, sent.known, sent.notes) == (count, count, 0, [])
    again = site.replay(**chosen)
    assert (again.sent, again.known, again.is_exactly_once) == (0, count, True)
    check_replayed(site, target)


def check_replayed(site: Site, target: str) -> None:
    with Client(site.broker.service_url) as client, client.reader(target, EARLIEST) as reader:
        messages = []
        while reader.has_next():
            messages.append(reader.read(10))
    assert [message.value.decode() for message in messages] == [*texts(50), "", *texts(2 * COUNT, 50)]
    assert (messages[50].is_null, messages[50].key) == (True, "gone")
    assert (messages[8].key, messages[8].event_time_ms) == ("k2", 1008)
    assert messages[8].properties == {"n": "8", "empty": "", "ü": "ß"}


def test_sp5_partitions_are_kept_and_targets_without_deduplication_are_named(site: Site, client: pulsar.Client) -> None:
    for index, partition in enumerate(site.partitions):
        publish(client, partition, texts(60, 100 * index))
    site.archive()
    target = f"persistent://{KEEPS}/{site.names[0]}-again"
    copies = site.broker.create(target, 2)
    with pytest.raises(RunFailed, match="does not deduplicate, so messages cannot be replayed exactly once"):
        site.replay(to=target, exactly_once="required")
    result = site.replay(to=target)
    assert (result.sent, result.is_exactly_once) == (120, False)
    assert "does not deduplicate" in result.notes[0]
    for index, copy in enumerate(copies):
        assert official.values(client, copy) == texts(60, 100 * index)


def test_sp5_a_subscription_in_use_is_refused(site: Site, client: pulsar.Client) -> None:
    publish(client, site.one, texts(3))
    consumer = client.subscribe(site.one, SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest)
    with pytest.raises(RunFailed, match="one run at a time archives a topic"):
        site.archive()
    consumer.close()
    assert site.archive().rows == 3

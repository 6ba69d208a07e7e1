"""SP2 on Apache Pulsar: one stream to a typed topic, dead letters and an archive, each row once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import official
import pulsar
import pytest
from pulsar.schema import Double, JsonSchema, Long, Record, String
from pyspark.sql import DataFrame, SparkSession
from small_ledgers import ENTRIES_PER_LEDGER, KEEPS, ONCE, Pulsar
from streams import error

import magnetar.spark
from magnetar.spark.routing.targets import TopicTarget

COUNT = 4 * ENTRIES_PER_LEDGER
SUBSCRIPTION = "etl"
RULES = {"AmountNotPositive": "amount <= 0"}


class Order(Record):  # type: ignore[misc]
    id = Long()
    customer = String()
    amount = Double()


class Site:
    """A topic with two partitions, and a pipeline with everything that a row can go to."""

    def __init__(self, spark: SparkSession, broker: Pulsar, client: pulsar.Client, topic: str, folder: Path) -> None:
        self.broker = broker
        self.topic = topic
        self.good = f"{topic}-good"
        self.letters = f"{topic}-{SUBSCRIPTION}-DLQ"
        self.archive = str(folder / "archive")
        self.partitions = broker.create(topic, 2)
        self._checkpoint = str(folder / "checkpoint")
        self._spark = spark
        self._client = client

    def publish(self, numbers: range) -> None:
        """Every tenth has no positive amount; one is no JSON."""
        with official.producer(self._client, self.topic, schema=JsonSchema(Order)) as producer:
            for number in numbers:
                order = Order(id=number, customer=f"c{number % 3}", amount=-1.0 if number % 10 == 0 else 1.5)
                producer.send_async(order, None, partition_key=f"k{number % 7}", event_timestamp=1000 + number)
        with official.producer(self._client, self.topic) as producer:
            producer.send(b"not json", properties={"n": str(numbers[0])})

    def run(self) -> None:
        good, bad = magnetar.spark.split(self._stream(), RULES)
        (
            magnetar.spark.pipeline(self._spark, checkpoint=self._checkpoint)
            .to(self.good, good.drop("__payload"), schema="json")
            .dead_letters(self.letters, bad)
            .archive(self.archive)
            .run_available_now()
        )

    def _stream(self) -> DataFrame:
        options = {"service.url": self.broker.service_url, "admin.url": self.broker.http_url, "topic": self.topic}
        options |= {"startingOffsets": "earliest", "onUnreadable": "row", "predefinedSubscription": SUBSCRIPTION}
        options |= {"columns": "*,__payload,__messageIdText", "maxEntriesPerTrigger": "150"}
        return self._spark.readStream.format("pulsar").options(**options).load()

    def written(self) -> list[int]:
        return sorted(json.loads(value)["id"] for value in official.values(self._client, self.good))

    def dead(self) -> list[pulsar.Message]:
        return official.read(self._client, self.letters)

    def backlog(self) -> int:
        return sum(self.broker.backlog(partition, SUBSCRIPTION) for partition in self.partitions)

    def archived(self) -> tuple[int, int]:
        """Rows, and distinct ones."""
        rows = self._spark.read.parquet(self.archive)
        return rows.count(), rows.select("__topic", "__messageId").distinct().count()


def test_sp2_each_row_is_once_at_every_target(
    spark: SparkSession,
    broker: Pulsar,
    client: pulsar.Client,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(spark, broker, client, f"persistent://{ONCE}/{name}", tmp_path)
    site.publish(range(COUNT))
    write = TopicTarget.write

    def broken(target: TopicTarget, rows: DataFrame, *arguments: Any) -> None:
        if target.topic == site.letters:
            raise ValueError("between two targets")
        write(target, rows, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TopicTarget, "write", broken)
        assert "between two targets" in error(site.run)
    assert site.written() and site.backlog() == COUNT + 1
    site.run()
    check(site, COUNT, unreadable=1)
    site.publish(range(COUNT, 2 * COUNT))
    site.run()
    check(site, 2 * COUNT, unreadable=2)


def check(site: Site, count: int, unreadable: int) -> None:
    assert site.written() == [number for number in range(count) if number % 10]
    letters = site.dead()
    reasons = Counter(letter.properties()["DEATH_REASON"] for letter in letters)
    assert reasons == {"AmountNotPositive": count // 10, "Unreadable": unreadable}
    for letter in letters:
        properties = letter.properties()
        assert properties["REAL_TOPIC"] in site.partitions and properties["REAL_SUBSCRIPTION"] == SUBSCRIPTION
        if properties["DEATH_REASON"] == "Unreadable":
            assert letter.data() == b"not json" and properties["n"] in ("0", str(COUNT))
        else:
            number = json.loads(letter.data())["id"]
            assert (letter.partition_key(), letter.event_timestamp()) == (f"k{number % 7}", 1000 + number)
    assert site.archived() == (count + unreadable,) * 2
    assert site.backlog() == 0
    assert site.broker.backlog(site.letters, "magnetar.handled") == len(letters)


def test_sp2_without_deduplication_nothing_is_written(
    spark: SparkSession, broker: Pulsar, client: pulsar.Client, name: str, tmp_path: Path
) -> None:
    site = Site(spark, broker, client, f"persistent://{KEEPS}/{name}", tmp_path)
    site.publish(range(20))
    broker.topic("PUT", site.good)
    assert "does not deduplicate" in error(site.run)
    assert site.written() == [] and site.backlog() == 21

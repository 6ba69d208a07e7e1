"""The pipeline: every row once at every target, whatever happens between the targets."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pyarrow as pa
import pytest
from pulsar.schema import AvroSchema, Double, JsonSchema, Long, Record, String
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import magnetar.spark
from magnetar.client import EARLIEST, Client, Message, MessageId
from magnetar.client.errors import NotFound
from magnetar.clock import ManualClock
from magnetar.deadletter.properties import read_history, read_info
from magnetar.names import TopicName
from magnetar.spark.errors import InvalidOption
from magnetar.spark.routing.archive import ArchiveTarget
from magnetar.spark.routing.delays import delays_ms
from magnetar.spark.routing.folder import CheckpointFiles
from magnetar.spark.routing.pipeline import PipelineBuilder
from magnetar.spark.routing.stored_batches import StoredBatches
from magnetar.spark.routing.targets import TopicTarget, position_keys
from magnetar.testing import TestBroker, broker

ON_REQUEST = "*,__payload,__messageIdText"
_numbers = count()


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(brokerDeduplicationEnabled=True) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"orders{next(_numbers)}"


class Order(Record):
    id = Long()
    customer = String()
    amount = Double()


RULES = {"AmountNotPositive": "amount <= 0", "UnknownCustomer": "name is null"}


def publish(running: TestBroker, topic: str, numbers: range, unreadable: frozenset[int] = frozenset()) -> None:
    """Every tenth has no positive amount, every seventh an unknown customer."""
    client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    typed, plain = client.create_producer(topic, schema=JsonSchema(Order)), client.create_producer(topic)
    for number in numbers:
        if number in unreadable:
            plain.send_async(b"not json", None, partition_key=f"k{number}", properties={"n": str(number)})
            continue
        amount, customer = (-1.0 if number % 10 == 0 else 1.5), ("who" if number % 7 == 0 else f"c{number % 3}")
        order = Order(id=number, customer=customer, amount=amount)
        typed.send_async(order, None, partition_key=f"k{number}", event_timestamp=1000 + number)
    typed.flush()
    plain.flush()
    client.close()


def read_stream(spark: SparkSession, running: TestBroker, topic: str, **options: str) -> DataFrame:
    given = {"service.url": running.http_url, "topic": topic, "startingOffsets": "earliest", "onUnreadable": "row"}
    given |= {"columns": ON_REQUEST, "predefinedSubscription": "etl", "pollTimeoutMs": "100"}
    given |= options
    return spark.readStream.format("pulsar").options(**{k: v for k, v in given.items() if v}).load()


def joined(spark: SparkSession, orders: DataFrame) -> DataFrame:
    customers = spark.createDataFrame([(f"c{n}", f"name {n}") for n in range(3)], "customer string, name string")
    return orders.join(F.broadcast(customers), "customer", "left")


def messages(running: TestBroker, topic: str) -> list[Message]:
    found: list[Message] = []
    try:
        with Client(running.service_url) as client, client.reader(topic, EARLIEST) as reader:
            while reader.has_next():
                found.append(reader.read(10))
    except NotFound:
        pass
    return found


def numbers_in(running: TestBroker, topic: str) -> list[int]:
    """The ids of enriched orders, sorted."""
    return sorted(json.loads(message.value or b"")["id"] for message in messages(running, topic))


def is_amount_bad(number: int) -> bool:
    return number % 10 == 0


def is_bad(number: int) -> bool:
    return number % 10 == 0 or number % 7 == 0


def test_sp2_a_pipeline_from_one_read_to_every_target(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path
) -> None:
    httpx.put(f"{running.http_url}/admin/v2/persistent/public/default/{topic}/partitions", json=2).raise_for_status()
    publish(running, topic, range(100), frozenset({4, 5}))
    good, bad = magnetar.spark.split(joined(spark, read_stream(spark, running, topic)), RULES, unreadable="Garbled")
    query = (
        magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / "checkpoint"), subscription="etl")
        .to(f"{topic}-enriched", good.drop("__payload"), schema="avro", **{"schema.name": "Enriched"})
        .dead_letters(f"{topic}-etl-DLQ", bad)
        .archive(str(tmp_path / "archive"), partition_by="day")
        .run_available_now()
    )
    assert query.exception() is None
    assert not query.isActive
    assert query.lastProgress["sources"][0]["numInputRows"] == 100, "one read"
    assert all(lag.messages == 0 for lag in magnetar.spark.lag(query, {"service.url": running.http_url}).values())
    expected = [number for number in range(100) if not is_bad(number) and number not in (4, 5)]
    assert enriched(running, f"{topic}-enriched", len(expected)) == [
        (number, f"name {number % 3}", f"k{number}") for number in expected
    ]
    check_letters(running, topic)
    check_archive(spark, tmp_path / "archive")


class Enriched(Record):
    customer = String()
    id = Long()
    amount = Double()
    name = String()


def enriched(running: TestBroker, topic: str, expected: int) -> list[tuple[int, str, str]]:
    """As the official client reads them, by the schema that the pipeline has registered."""
    client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        topic, "look", schema=AvroSchema(Enriched), initial_position=pulsar.InitialPosition.Earliest
    )
    found = []
    for _ in range(expected):
        message = consumer.receive(10_000)
        value = message.value()
        found.append((value.id, value.name, message.partition_key()))
    with pytest.raises(pulsar.Timeout):
        consumer.receive(100)
    client.close()
    return sorted(found)


def check_letters(running: TestBroker, topic: str) -> None:
    name = TopicName.parse(f"{topic}-etl-DLQ")
    letters = messages(running, name.full)
    by_reason = Counter(read_info(letter.properties, name).reason for letter in letters)
    assert by_reason == {"AmountNotPositive": 10, "UnknownCustomer": 13, "Garbled": 2}
    assert len({letter.id.position for letter in letters}) == 25, "one letter per entry"
    for letter in letters:
        info = read_info(letter.properties, name)
        assert (info.origin_topic or "").startswith(f"persistent://public/default/{topic}-partition-")
        assert info.origin_subscription == "etl"
        assert [failure.reason for failure in read_history(letter.properties)] == [info.reason]
        assert len(letter.properties["DEATH_FINGERPRINT"]) == 12
        assert origin(running, info.origin_topic or "", info.origin_message_id or "") == (
            letter.value,
            letter.key,
            letter.event_time_ms,
        )
        if info.reason == "Garbled":
            assert letter.value == b"not json"
            assert letter.properties["n"] in ("4", "5"), "its own properties"
            assert info.error
            assert info.error == info.description
        elif info.reason == "AmountNotPositive":
            assert info.description == "rule AmountNotPositive: amount <= 0"
            assert info.error is None
    path = f"/admin/v2/persistent/public/default/{topic}-etl-DLQ/deadLetters"
    answer = httpx.get(running.http_url + path).raise_for_status().text
    assert answer.count('"Garbled"') >= 1, answer


def origin(running: TestBroker, topic: str, message_id: str) -> tuple[Any, ...]:
    """The message that a letter names."""
    (found,) = [message for message in messages(running, topic) if _is(message, message_id)]
    return found.value, found.key, found.event_time_ms


def _is(message: Message, text: str) -> bool:
    parts = [int(part) for part in text.split(":")]
    own = [message.id.ledger_id, message.id.entry_id, message.id.partition, message.id.batch_index]
    return own[: len(parts)] == parts and (len(parts) == 4 or message.id.batch_index < 0)


def check_archive(spark: SparkSession, path: Path) -> None:
    rows = spark.read.parquet(str(path))
    assert rows.count() == rows.select("__messageId", "__topic").distinct().count() == 100
    assert rows.where("__reason is null").count() == 75
    assert sorted(folder.name for folder in path.iterdir())[0].startswith("day=20")
    assert not (path / "_staging").exists()
    (payload,) = rows.where("__messageProperties['n'] = '4'").select("__payload").collect()
    assert payload[0] == b"not json"


# -- failures


class Broken(Exception):
    """What a test makes of a step."""


Break = Callable[[pytest.MonkeyPatch, str], None]


def before_letters(patch: pytest.MonkeyPatch, topic: str) -> None:
    write = TopicTarget.write

    def broken(target: TopicTarget, *arguments: Any) -> None:
        if target.topic.endswith("-DLQ"):
            raise Broken("before the letters")
        write(target, *arguments)

    patch.setattr(TopicTarget, "write", broken)


def half_of_the_letters(patch: pytest.MonkeyPatch, topic: str) -> None:
    write = TopicTarget.write

    def broken(target: TopicTarget, rows: DataFrame, *arguments: Any) -> None:
        if target.topic.endswith("-DLQ"):
            first = rows.select(F.min("__messageId")).first()
            assert first is not None
            write(target, rows.where(F.col("__messageId") == first[0]), *arguments)
            raise Broken("in the letters")
        write(target, rows, *arguments)

    patch.setattr(TopicTarget, "write", broken)


def before_the_archive(patch: pytest.MonkeyPatch, topic: str) -> None:
    patch.setattr(ArchiveTarget, "append", _raise)


def in_the_archive(patch: pytest.MonkeyPatch, topic: str) -> None:
    move = CheckpointFiles.move

    def broken(folder: CheckpointFiles, name: str, target: str) -> None:
        move(folder, name, target)
        raise Broken("one file is moved")

    patch.setattr(CheckpointFiles, "move", broken)


def after_the_archive(patch: pytest.MonkeyPatch, topic: str) -> None:
    patch.setattr(StoredBatches, "set_done", _raise)


def after_everything(patch: pytest.MonkeyPatch, topic: str) -> None:
    patch.setattr(ArchiveTarget, "clean", _raise)


def _raise(*_: Any) -> None:
    raise Broken("here")


BREAKS: list[Break] = [
    before_letters,
    half_of_the_letters,
    before_the_archive,
    in_the_archive,
    after_the_archive,
    after_everything,
]


def test_sp2_sp8_a_failure_between_targets_changes_nothing(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule decides by chance, and a frame too: a micro-batch that fails again and again keeps what was decided."""
    publish(running, topic, range(10))
    orders = read_stream(spark, running, topic)
    good, bad = magnetar.spark.split(orders, {"Unlucky": F.rand() < 0.5})
    lucky = good.selectExpr("__messageId", "__topic", "id", "rand() as chance", "array(1, 2) as two")
    lucky = lucky.withColumn("half", F.explode("two")).where("chance < 0.8")
    enriched = f"{topic}-enriched"

    def build() -> PipelineBuilder:
        return (
            magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / "checkpoint"))
            .to(enriched, good.select("__messageId", "__topic", "id"), schema="json")
            .to(f"{topic}-lucky", lucky, schema="json")
            .dead_letters(f"{topic}-etl-DLQ", bad)
            .archive(str(tmp_path / "archive"), good.select("id", "__messageId"))
        )

    for index, break_it in enumerate(BREAKS):
        publish(running, topic, range(10 + 10 * index, 20 + 10 * index))
        with monkeypatch.context() as patch:
            break_it(patch, topic)
            with pytest.raises(StreamingQueryException, match="Broken"):
                build().run_available_now()
    build().run_available_now()

    everything = list(range(10 + 10 * len(BREAKS)))
    kept = numbers_in(running, enriched)
    letters = sorted(json.loads(letter.value or b"")["id"] for letter in messages(running, f"{topic}-etl-DLQ"))
    assert 10 < len(kept) < 60
    assert sorted(kept + letters) == everything, "each row at one of them, once"
    archived = spark.read.parquet(str(tmp_path / "archive")).select("id").collect()
    assert sorted(row.id for row in archived) == kept
    halves = Counter(json.loads(message.value or b"")["id"] for message in messages(running, f"{topic}-lucky"))
    assert set(halves.values()) == {2}
    assert set(halves) <= set(kept)
    assert [folder.name for folder in (tmp_path / "checkpoint" / "batches").iterdir()] == ["1"], "only the last one"


def test_sp2_a_changed_program_is_found(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(running, topic, range(10))
    orders = read_stream(spark, running, topic)

    def build(orders: DataFrame) -> PipelineBuilder:
        good, bad = magnetar.spark.split(orders, {"Cheap": "amount <= 0"})
        pipeline = magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / "checkpoint"))
        return pipeline.to(f"{topic}-out", good, schema="json").dead_letters(f"{topic}-etl-DLQ", bad)

    with monkeypatch.context() as patch:
        before_letters(patch, topic)
        with pytest.raises(StreamingQueryException, match="Broken"):
            build(orders).run_available_now()
    with pytest.raises(StreamingQueryException, match=r"micro-batch 0 was stored with other columns \(more differ\)"):
        build(orders.withColumn("more", F.lit(1))).run_available_now()
    build(orders).run_available_now()
    assert numbers_in(running, f"{topic}-out") == list(range(1, 10))
    assert len(messages(running, f"{topic}-etl-DLQ")) == 1


# -- frames and targets


def test_sp2_frames_without_a_split_meet_at_the_read(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path
) -> None:
    publish(running, topic, range(30))
    orders = read_stream(spark, running, topic, columns="*,__payload")
    raw = orders.where("id % 3 = 0").selectExpr("__payload as value", "__key", "__topic", "__messageId")
    good, bad = magnetar.spark.split(orders.where("id >= 10"), {"Odd": "id % 2 = 1"})
    better, _ = magnetar.spark.split(good, {"Large": "id > 20"})
    query = (
        magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / "checkpoint"))
        .to(f"{topic}-thirds", raw)
        .to(f"{topic}-odd", bad.drop("__payload"), schema="json")
        .to(f"{topic}-better", better.drop("__payload"), schema="json")
        .run_available_now()
    )
    assert query.lastProgress["sources"][0]["numInputRows"] == 30, "one read"
    assert numbers_in(running, f"{topic}-thirds") == list(range(0, 30, 3))
    assert numbers_in(running, f"{topic}-odd") == list(range(11, 30, 2))
    assert numbers_in(running, f"{topic}-better") == list(range(10, 21, 2))


def test_sp2_a_running_pipeline_is_like_a_query(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path
) -> None:
    publish(running, topic, range(5))
    orders = read_stream(spark, running, topic)
    query = (
        magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / "checkpoint"))
        .to(f"{topic}-out", orders, schema="json")
        .start(processingTime="10 milliseconds")
    )
    try:
        query.processAllAvailable()
        publish(running, topic, range(5, 9))
        query.processAllAvailable()
        assert query.isActive
        assert query.awaitTermination(timeout=1) is False
        assert numbers_in(running, f"{topic}-out") == list(range(9))
    finally:
        query.stop()
    assert not query.isActive
    assert query.exception() is None


def test_sp2_wrong_pipelines_are_refused(spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path) -> None:
    publish(running, topic, range(3))
    orders = read_stream(spark, running, topic)
    good, bad = magnetar.spark.split(orders, {"Cheap": "amount <= 0"})
    unsubscribed = read_stream(spark, running, topic, predefinedSubscription="")
    patterned = read_stream(spark, running, "", topicsPattern=f"{topic}.*", columns="*")

    def new(**arguments: Any) -> PipelineBuilder:
        return magnetar.spark.pipeline(spark, **{"checkpoint": str(tmp_path / "checkpoint"), **arguments})

    def refused(text: str, build: Callable[[], Any]) -> None:
        with pytest.raises(InvalidOption, match=text):
            build()

    refused("no target topic", lambda: new().start())
    refused("no target topic", lambda: new().archive(str(tmp_path)).start())
    refused("checkpoint is ''", lambda: new(checkpoint=""))
    refused("is read by the pipeline itself", lambda: new().to(topic, good, schema="json").start())
    refused("is read by the pipeline itself", lambda: new().to(f"{topic}-out", patterned, schema="json").start())
    refused("is there already", lambda: new().to("out", good, schema="json").to("out", bad, schema="json"))
    refused("dead letters go to", lambda: new().dead_letters("a-DLQ", bad).dead_letters("b-DLQ", bad))
    refused(
        "have no column __payload: read the stream with", lambda: new().dead_letters("a-DLQ", bad.drop("__payload"))
    )
    refused("have no column __reason: rows of", lambda: new().dead_letters("a-DLQ", good))
    refused("column __reason is int", lambda: new().dead_letters("a-DLQ", good.withColumn("__reason", F.lit(1))))
    refused("have no column __messageId|no column __messageId", lambda: new().to("out", good.select("id", "__topic")))
    refused("nothing to write", lambda: new().to("out", good.select("__messageId", "__topic")))
    refused(
        "option pulsar.producer.producerName cannot be set",
        lambda: new().to("out", good, **{"pulsar.producer.producerName": "me"}),
    )
    refused("out: unknown option sendTimeout", lambda: new().to("out", good, sendTimeout=1).start())
    refused("out: option schema is", lambda: new().to("out", good, schema="{").start())
    refused("target 'a/b'", lambda: new().to("a/b", good))
    refused("the subscription is other, but", lambda: new(subscription="other").to("out", good, schema="json").start())
    refused("has no subscription", lambda: new().to("out", unsubscribed, schema="json").start())
    refused(
        "are not a stream",
        lambda: (
            new()
            .to(
                "out",
                joined(
                    spark,
                    spark.range(1).selectExpr("'c' as customer", "cast('' as binary) as __messageId", "'t' as __topic"),
                ),
            )
            .start()
        ),
    )
    refused(
        "come from another load",
        lambda: new().to("out", good, schema="json").to("more", unsubscribed, schema="json").start(),
    )
    refused("come from 2 streams", lambda: new().to("out", good.union(good), schema="json").start())
    refused("Deduplicate after the split", lambda: new().to("out", good.dropDuplicates(["id"]), schema="json").start())
    refused(
        "Aggregate in its frame is not",
        lambda: new().to("out", orders.groupBy("__messageId", "__topic").count(), schema="json").start(),
    )
    rate = spark.readStream.format("rate").load().selectExpr("value", "cast('' as binary) __messageId", "'t' __topic")
    refused("come from a stream of format rate", lambda: new().to("out", rate, schema="json").start())
    refused("the format of archive", lambda: new().archive("a", format="csv"))
    refused("the path of the archive", lambda: new().archive(" "))
    refused("there is an archive already", lambda: new().archive("a").archive("b"))
    refused("no column 'week'", lambda: new().to("out", good, schema="json").archive("a", partition_by="week").start())
    refused("by a column twice", lambda: new().archive("a", partition_by=["day", "day"]))
    refused(
        "name its rows", lambda: new().to("a", good, schema="json").to("b", good, schema="json").archive("c").start()
    )
    refused(
        "exceeds the limit of 20",
        lambda: [pipeline := new(), *(pipeline.to(f"out-{number}", good, schema="json") for number in range(21))],
    )
    assert not (tmp_path / "checkpoint").exists()


# -- the retry ladder


class NewOrder(Record):
    id = Long()
    customer = String()
    amount = Double()
    currency = String(required_default=True)


def publish_versions(running: TestBroker, topic: str) -> None:
    """Orders 0 to 3 by the first version of an Avro schema, 4 to 7 by the second."""
    client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    first = client.create_producer(topic, schema=AvroSchema(Order))
    for number in range(4):
        first.send(Order(id=number, customer=f"c{number}", amount=1.5), {"n": str(number)}, f"k{number}")
    second = client.create_producer(topic, schema=AvroSchema(NewOrder))
    for number in range(4, 8):
        order = NewOrder(id=number, customer=f"c{number}", amount=1.5, currency="CHF")
        second.send(order, {"n": str(number)}, f"k{number}")
    client.create_producer(topic).send(b"\xff", {"n": "8"})
    client.close()


def test_sp2_the_retry_ladder(spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path) -> None:
    """Orders 0, 1 and 4, 5 are bad at first; 1 and 5 become good with the second retry, 0 and 4 never."""
    publish_versions(running, topic)
    clock = ManualClock(1_000_000_000)
    customers = tmp_path / "customers"

    def know(*names: str) -> None:
        frame = spark.createDataFrame([(name, f"name of {name}") for name in names], "customer string, name string")
        frame.coalesce(1).write.mode("append").json(str(customers))

    know("c2", "c3", "c6", "c7")

    def run() -> None:
        orders = read_stream(spark, running, topic, columns=f"{ON_REQUEST},__schemaVersion")
        known = spark.read.schema("customer string, name string").json(str(customers))
        rows = orders.join(F.broadcast(known), "customer", "left")
        good, bad = magnetar.spark.split(rows, {"UnknownCustomer": "name is null"})
        query = (
            magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / "checkpoint"), clock=clock)
            .to(f"{topic}-out", good.drop("__payload"), schema="json")
            .dead_letters(f"{topic}-etl-DLQ", bad, retry=["10s", "1m"])
            .archive(str(tmp_path / "archive"))
            .run_available_now()
        )
        assert query.exception() is None

    out, dead, retry = f"{topic}-out", f"{topic}-etl-DLQ", f"{topic}-etl-RETRY"
    run()
    assert numbers_in(running, out) == [2, 3, 6, 7]
    assert [letter.value for letter in messages(running, dead)] == [b"\xff"], "unreadable rows are not retried"
    waiting = messages(running, retry)
    assert [message.deliver_at_ms for message in waiting] == [1_000_010_000] * 4
    assert {message.properties["n"] for message in waiting} == {"0", "1", "4", "5"}
    assert {name: waiting[0].properties[name] for name in ("RECONSUMETIMES", "DELAY_TIME", "REAL_SUBSCRIPTION")} == {
        "RECONSUMETIMES": "1",
        "DELAY_TIME": "10000",
        "REAL_SUBSCRIPTION": "etl",
    }
    clock.advance(milliseconds=9_999)
    run()
    assert len(messages(running, retry)) == 4, "not early"
    clock.advance(milliseconds=1)
    run()
    assert [message.deliver_at_ms for message in messages(running, retry)[4:]] == [1_000_070_000] * 4
    know("c1", "c5")
    clock.advance(milliseconds=59_999)
    run()
    assert numbers_in(running, out) == [2, 3, 6, 7]
    clock.advance(milliseconds=1)
    run()
    assert numbers_in(running, out) == [1, 2, 3, 5, 6, 7]
    currencies = {
        json.loads(message.value)["id"]: json.loads(message.value).get("currency") for message in messages(running, out)
    }
    assert currencies == {1: None, 2: None, 3: None, 5: "CHF", 6: "CHF", 7: "CHF"}, "by its own version"
    assert all(set(message.properties) == {"n"} for message in messages(running, out))
    letters = messages(running, dead)[1:]
    assert {letter.properties["n"] for letter in letters} == {"0", "4"}
    for letter in letters:
        info = read_info(letter.properties, TopicName.parse(dead))
        assert (info.reason, info.count, info.origin_topic) == (
            "UnknownCustomer",
            3,
            f"persistent://public/default/{topic}",
        )
        value, key, _ = origin(running, topic, info.origin_message_id or "")
        assert (letter.value, letter.key) == (value, key)
    archived = spark.read.parquet(str(tmp_path / "archive"))
    assert archived.count() == 9, "each row when it is good or dead"
    assert archived.where("__reason is null").count() == 6
    run()
    assert (len(messages(running, out)), len(messages(running, dead)), len(messages(running, retry))) == (6, 3, 8)
    stats = httpx.get(f"{running.http_url}/admin/v2/persistent/public/default/{retry}/stats").json()
    assert stats["subscriptions"]["etl"]["msgBacklog"] == 0


def test_sp2_a_batch_of_retries_that_is_interrupted(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule decides by chance: what it has decided holds, for rows that become due meanwhile too."""
    publish(running, topic, range(20))
    clock = ManualClock(1_000_000_000)
    out, dead, retry = f"{topic}-out", f"{topic}-etl-DLQ", f"{topic}-etl-RETRY"

    def build() -> PipelineBuilder:
        orders = read_stream(spark, running, topic, columns=f"{ON_REQUEST},__schemaVersion")
        good, bad = magnetar.spark.split(orders, {"Unlucky": F.rand() < 0.5})
        pipeline = magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / "checkpoint"), clock=clock)
        return pipeline.to(out, good, schema="json").dead_letters(dead, bad, retry=["1s"])

    build().run_available_now()
    publish(running, topic, range(20, 40))
    clock.advance(milliseconds=500)
    build().run_available_now()
    clock.advance(milliseconds=500)
    with monkeypatch.context() as patch:
        half_of_the_letters(patch, topic)
        with pytest.raises(Exception, match="in the letters"):
            build().run_available_now()
    clock.advance(milliseconds=500)
    build().run_available_now()
    letters = sorted(json.loads(letter.value or b"")["id"] for letter in messages(running, dead))
    assert 0 < len(letters) < 40
    assert sorted(numbers_in(running, out) + letters) == list(range(40))
    assert len(messages(running, retry)) > len(letters)


def test_sp2_an_archive_has_the_retries_that_follow_an_interrupted_micro_batch(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Micro-batches and batches of retries are numbered from 0 each."""
    publish(running, topic, range(10))
    clock = ManualClock(1_000_000_000)
    archive = tmp_path / "archive"

    def run() -> None:
        orders = read_stream(spark, running, topic, columns=f"{ON_REQUEST},__schemaVersion")
        good, bad = magnetar.spark.split(orders, {"Odd": "id % 2 = 1"})
        (
            magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / "checkpoint"), clock=clock)
            .to(f"{topic}-out", good, schema="json")
            .dead_letters(f"{topic}-etl-DLQ", bad, retry=["1s"])
            .archive(str(archive))
            .run_available_now()
        )

    with monkeypatch.context() as patch:
        after_everything(patch, topic)
        with pytest.raises(StreamingQueryException, match="Broken"):
            run()
    run()
    assert not (archive / "_staging").exists()
    clock.advance(seconds=1)
    run()
    assert sorted(row.id for row in spark.read.parquet(str(archive)).collect()) == list(range(10))


def test_sp2_micro_batches_and_retries_are_archived_one_after_the_other(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is through removes the folder in which the other one would write its files."""
    publish(running, topic, range(3))
    clock = ManualClock(1_000_000_000)
    orders = read_stream(spark, running, topic, columns=f"{ON_REQUEST},__schemaVersion")
    _, bad = magnetar.spark.split(orders, {"First": "id < 3"})
    append, clean = ArchiveTarget.append, ArchiveTarget.clean
    begun, cleaning = Counter[str](), threading.Event()
    met: list[str] = []

    def begin(archive: ArchiveTarget, spark: SparkSession, rows: DataFrame, name: str, batch: int) -> None:
        begun[name] += 1
        if cleaning.is_set():
            met.append(name)
        append(archive, spark, rows, name, batch)

    def end(archive: ArchiveTarget, spark: SparkSession, name: str, batch: int) -> None:
        if "/" in name:  # a retry: the micro-batch comes meanwhile
            cleaning.set()
            publish(running, topic, range(1, 3))
            wait(lambda: bool(met), seconds=3)
            cleaning.clear()
        clean(archive, spark, name, batch)

    monkeypatch.setattr(ArchiveTarget, "append", begin)
    monkeypatch.setattr(ArchiveTarget, "clean", end)
    query = (
        magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / "checkpoint"), clock=clock)
        .dead_letters(f"{topic}-etl-DLQ", bad, retry=["1s"])
        .archive(str(tmp_path / "archive"))
        .start()
    )
    try:
        query.processAllAvailable()
        clock.advance(seconds=1)
        wait(lambda: sum(begun.values()) >= 3, seconds=60)
        assert {name.partition("/")[2] for name in begun} == {"", "retry-1"}
        query.processAllAvailable()
    finally:
        query.stop()
    assert met == []


def wait(is_so: Callable[[], bool], *, seconds: float) -> None:
    deadline_s = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline_s:
        time.sleep(0.01)


def test_sp2_a_running_pipeline_retries_what_is_due(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(running, topic, range(3))
    clock = ManualClock(1_000_000_000)
    orders = read_stream(spark, running, topic, columns=f"{ON_REQUEST},__schemaVersion")
    _, bad = magnetar.spark.split(orders, {"Bad": "true"})
    dead = f"{topic}-etl-DLQ"
    query = (
        magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / "checkpoint"), clock=clock)
        .dead_letters(dead, bad, retry=["1h"])
        .start()
    )
    try:
        query.processAllAvailable()
        assert messages(running, dead) == []
        clock.advance(hours=1)
        with Client(running.service_url) as client, client.reader(dead, EARLIEST, create_topic=True) as reader:
            assert {json.loads(reader.read(60).value)["id"] for _ in range(3)} == {0, 1, 2}
        assert query.isActive
        publish(running, topic, range(3, 4))
        query.processAllAvailable()
        before_letters(monkeypatch, topic)
        clock.advance(hours=1)
        with pytest.raises(Broken):
            query.awaitTermination()
        assert isinstance(query.exception(), Broken)
        assert not query.isActive
    finally:
        query.stop()


def test_sp2_wrong_retries_are_refused(spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path) -> None:
    publish(running, topic, range(3))

    def refused(text: str, retry: Any, orders: DataFrame) -> None:
        _, bad = magnetar.spark.split(orders, {"Bad": "true"})
        with pytest.raises(InvalidOption, match=text):
            magnetar.spark.pipeline(spark, checkpoint=str(tmp_path)).dead_letters("a-DLQ", bad, retry=retry).start()

    orders = read_stream(spark, running, topic)
    refused("retry is '10s': it must be a list of delays", "10s", orders)
    refused("delay '10' is not of the form", ["10s", "10"], orders)
    refused("delay '31d' is not", ["31d"], orders)
    refused("retry has 21 delays, more than 20", ["1s"] * 21, orders)
    refused("retry needs the column __schemaVersion", ["1s"], orders)
    refused("Deduplicate in its frame is not possible", ["1s"], orders.dropDuplicates(["id"]))
    assert delays_ms(["250ms", "10s", "1m", "2h", "1d"]) == (250, 10_000, 60_000, 7_200_000, 86_400_000)
    with Client(running.service_url) as client:
        client.producer(f"{topic}-b").close()
    several = read_stream(spark, running, "", topics=f"{topic},{topic}-b", decode="raw")
    refused("retry needs a stream of one topic", ["1s"], several)


# -- the archive


class Delta(DataSource):
    """Writes the options that it was given, because Delta Lake is not installed."""

    @classmethod
    def name(cls) -> str:
        return "delta"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return DeltaWriter(dict(self.options))


class DeltaWriter(DataSourceWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        rows = sum(1 for _ in iterator)
        with Path(self._options["path"]).open("a") as file:
            file.write(json.dumps([rows, self._options["txnappid"], self._options["txnversion"]]) + "\n")
        return WriterCommitMessage()


def test_sp2_delta_lake_gets_a_version_to_know_a_repeated_batch_by(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path
) -> None:
    spark.dataSource.register(Delta)
    table = tmp_path / "table"
    for batch in range(2):
        publish(running, topic, range(5))
        orders = read_stream(spark, running, topic)
        pipeline = magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / "checkpoint"))
        query = pipeline.to(f"{topic}-out", orders, schema="json").archive(str(table), format="delta")
        identity = query.run_available_now().id
        written = [json.loads(line) for line in table.read_text().splitlines()]
        assert sum(rows for rows, *_ in written) == 5 * (batch + 1)
        assert written[-1][1:] == [identity, str(batch)]


def test_sp2_archives_in_other_formats(spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path) -> None:
    publish(running, topic, range(6))
    orders = read_stream(spark, running, topic).withColumn("kind", F.expr("id % 2"))
    for format in ("orc", "json"):
        path = str(tmp_path / format)
        (
            magnetar.spark.pipeline(spark, checkpoint=str(tmp_path / f"checkpoint-{format}"))
            .to(f"{topic}-{format}", orders, schema="json")
            .archive(path, format=format, partition_by=["day", "kind"])
            .run_available_now()
        )
        assert sorted(row.id for row in spark.read.format(format).load(path).where("kind = 1").collect()) == [1, 3, 5]


def test_sp8_positions_sort_as_bytes() -> None:
    ids = [MessageId(2, 300, 1, 7), MessageId(2, 300), MessageId(2, 5), MessageId(1, 900, -1, 40), MessageId(256, 0)]
    keys = position_keys(pa.array([each.to_bytes() for each in ids])).to_pylist()
    assert sorted(ids, key=lambda each: keys[ids.index(each)]) == [ids[3], ids[2], ids[1], ids[0], ids[4]]
    assert position_keys(pa.array([], pa.binary())).to_pylist() == []

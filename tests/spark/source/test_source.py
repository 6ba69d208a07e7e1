"""`format("pulsar")` on a broker: batch reads and streams, while topics change."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from magnetar.client import Client
from magnetar.client.errors import WrongPort
from magnetar.client.message import MessageId
from magnetar.spark.errors import InvalidOption
from magnetar.spark.source.source import PulsarSource, StreamReader
from magnetar.testing import TestBroker, broker
from tests.spark.inline_clients import close_inline_clients
from tests.spark.source.json_topics import put_schema

PATIENCE_S = 60


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as running:
        yield running


@pytest.fixture(scope="module")
def client(running: TestBroker) -> Iterator[Client]:
    with Client(running.service_url) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return request.node.name.partition("[")[0]


def publish(client: Client, topic: str, values: Sequence[str]) -> list[MessageId]:
    with client.producer(topic) as producer:
        sent = [producer.send_async(value.encode(), key=value, properties={"p": value}) for value in values]
        return [each.result() for each in sent]


def numbers(first: int, last: int) -> list[str]:
    return [f"m{number}" for number in range(first, last)]


def admin(running: TestBroker, method: str, path: str, **arguments: object) -> None:
    url = f"{running.http_url}/admin/v2/persistent/public/default/{path}"
    httpx.request(method, url, **arguments).raise_for_status()  # type: ignore[arg-type]


def delete(running: TestBroker, topic: str) -> None:
    admin(running, "DELETE", topic, params={"force": "true"})


def table(spark: SparkSession, running: TestBroker, **options: str) -> DataFrame:
    return spark.read.format("pulsar").option("service.url", running.service_url).options(**options).load()


def values(rows: Sequence[Row]) -> list[str]:
    return [bytes(row.value).decode() for row in rows]


class Stream:
    """A stream into a list of values; the same `name` resumes."""

    def __init__(self, spark: SparkSession, running: TestBroker, folder: Path) -> None:
        self.values: list[str] = []
        self.batches: list[int] = []
        self.fails = False
        self._spark = spark
        self._running = running
        self._folder = folder

    def start(self, *, available_now: bool = False, **options: str) -> StreamingQuery:
        source = self._spark.readStream.format("pulsar").option("service.url", self._running.service_url)
        writer = source.options(**options).load().writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, **options: str) -> list[str]:
        """Processes all available messages once."""
        self.values.clear()
        self.batches.clear()
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(PATIENCE_S)
        return self.values

    def _take(self, rows: DataFrame, _: int) -> None:
        if self.fails:
            raise ValueError("this batch fails")
        found = values(rows.collect())
        self.batches.append(len(found))
        self.values.extend(found)

    def wait(self, query: StreamingQuery, count: int) -> list[str]:
        eventually(lambda: len(self.values) >= count or not query.isActive)
        assert query.exception() is None
        return self.values


def eventually(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.fixture
def stream(spark: SparkSession, running: TestBroker, tmp_path: Path) -> Iterator[Stream]:
    yield Stream(spark, running, tmp_path)
    for query in spark.streams.active:
        query.stop()


def error(action: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as raised:
        action()
    return str(raised.value)


# -- batch


def test_sp1_a_topic_is_a_table(spark: SparkSession, running: TestBroker, client: Client, topic: str) -> None:
    ids = publish(client, topic, numbers(0, 3000))

    frame = table(spark, running, topic=topic)

    assert frame.columns == [
        "value",
        "__key",
        "__topic",
        "__messageId",
        "__publishTime",
        "__eventTime",
        "__messageProperties",
        "__batchIndex",
        "__redeliveryCount",
        "__error",
    ]
    rows = frame.collect()
    assert values(rows) == numbers(0, 3000)
    assert [MessageId.from_bytes(bytes(row["__messageId"])).position for row in rows] == [each.position for each in ids]
    assert (bytes(rows[7]["__key"]), rows[7]["__messageProperties"]) == (b"m7", {"p": "m7"})
    assert {row["__topic"] for row in rows} == {f"persistent://public/default/{topic}"}


def test_sp1_a_part_of_a_partitioned_topic(
    spark: SparkSession, running: TestBroker, client: Client, topic: str
) -> None:
    admin(running, "PUT", f"{topic}/partitions", json=3)
    publish(client, topic, numbers(0, 100))

    everything = table(spark, running, topic=topic, columns="value,__partition").collect()
    assert sorted(values(everything)) == sorted(numbers(0, 100))
    assert {row["__partition"] for row in everything} == {0, 1, 2}
    assert table(spark, running, topic=topic, startingOffsets="latest").count() == 0
    pattern = table(spark, running, topicsPattern=f"{topic[:-1]}.", endingOffsets="earliest")
    assert pattern.count() == 0


def test_sp1_entries_are_rows(spark: SparkSession, running: TestBroker, client: Client, topic: str) -> None:
    ids = publish(client, topic, numbers(0, 100))

    rows = table(spark, running, topic=topic, includeEntries="true").collect()

    assert len(rows) == len({each.position for each in ids})
    assert sum(row["__messages"] for row in rows) == 100


def test_sp1_a_schema_yields_typed_columns(running: TestBroker, client: Client, topic: str) -> None:
    """Without Spark: its calls, in one process."""
    put_schema(running, topic, a="int")
    publish(client, topic, ['{"a": 1}'])
    put_schema(running, topic, a="int", b="string")
    publish(client, topic, ['{"a": 2, "b": "x"}'])
    options = {"service.url": running.service_url, "topic": topic, "columns": "a,b,__topic"}
    source = PulsarSource(options)

    schema = source.schema()
    reader = source.reader(schema)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    close_inline_clients()

    assert schema.simpleString() == "struct<a:int,b:string,__topic:string>"
    name = f"persistent://public/default/{topic}"
    assert rows == [{"a": 1, "b": None, "__topic": name}, {"a": 2, "b": "x", "__topic": name}]
    assert (
        PulsarSource(options | {"columns": "value", "decode": "raw"}).schema().simpleString() == "struct<value:binary>"
    )


def test_sp8_a_row_that_cannot_be_read_keeps_its_payload_and_its_reason(
    running: TestBroker, client: Client, topic: str
) -> None:
    """Without Spark: its calls, in one process."""
    put_schema(running, topic, a="int", b="string")
    payloads = [b'{"a": 1, "b": "x"}', b'{"a": "one", "b": "y"}', b"not json"]
    ids = publish(client, topic, [payload.decode() for payload in payloads])
    options = {"service.url": running.service_url, "topic": topic, "onUnreadable": "row"}
    source = PulsarSource(options | {"columns": "*,__payload,__messageIdText"})
    defaults = PulsarSource(options).schema().fieldNames()
    assert source.schema().fieldNames() == [*defaults, "__payload", "__messageIdText"]

    reader = source.reader(source.schema())
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    close_inline_clients()

    assert [(row["a"], row["b"], row["__payload"]) for row in rows] == [
        (1, "x", payloads[0]),
        (None, "y", payloads[1]),
        (None, None, payloads[2]),
    ]
    assert rows[0]["__error"] is None
    assert rows[1]["__error"].startswith("field a: Expected `int | null`")
    assert rows[2]["__error"].startswith("not JSON")
    assert [row["__messageIdText"] for row in rows] == [str(each) for each in ids]
    after = {"startingOffsets": json.dumps({topic: rows[1]["__messageIdText"]}), "columns": "__payload"}
    reader = PulsarSource(options | after).reader(StructType().add("__payload", "binary"))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    close_inline_clients()
    assert rows == [{"__payload": payloads[2]}]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("value", "the topic has a schema, whose fields are the columns a, .*: name some of them"),
        ("a,value,__error", "or __payload for the bytes"),
        ("*,a", "a occurs twice; \\* has the default columns"),
        ("b", "unknown column 'b', known are \\*, a, __key"),
    ],
)
def test_columns_that_a_typed_topic_does_not_have(
    running: TestBroker, client: Client, topic: str, columns: str, words: str
) -> None:
    put_schema(running, topic, a="int")
    publish(client, topic, ["{}"])
    source = PulsarSource({"service.url": running.service_url, "topic": topic, "columns": columns})
    with pytest.raises(InvalidOption, match=words):
        source.schema()


def test_columns_can_be_selected_in_one_way_only(running: TestBroker, client: Client, topic: str) -> None:
    publish(client, topic, ["x"])
    source = PulsarSource({"service.url": running.service_url, "topic": topic, "columns": "__key"})

    with pytest.raises(InvalidOption, match="option columns has __key, but the given schema has value"):
        source.reader(StructType().add("value", "binary"))


def test_a_topic_is_a_table_of_the_catalog(
    spark: SparkSession, running: TestBroker, client: Client, topic: str
) -> None:
    publish(client, topic, ["a", "b"])
    options = f"`service.url` '{running.service_url}', topic '{topic}'"
    spark.sql(f"create table sp_orders using pulsar options ({options}, columns 'value,__key')")
    try:
        spark.sql("create or replace temp view sp_view as select cast(value as string) as v from sp_orders")
        assert [row.v for row in spark.sql("select v from sp_view order by v").collect()] == ["a", "b"]
        spark.sql("insert into sp_orders values (cast('c' as binary), cast('k' as binary))")
        rows = spark.sql("select value, __key from sp_orders where __key = cast('k' as binary)").collect()
        assert [(bytes(row.value), bytes(row["__key"])) for row in rows] == [(b"c", b"k")]
    finally:
        spark.sql("drop table sp_orders")
    with pytest.raises(InvalidOption, match="give the token as file:///path"):
        PulsarSource({"provider": "pulsar", "option.pulsar.client.authparams": "token:x"}).schema()
    with pytest.raises(InvalidOption, match="created without a list of columns"):
        PulsarSource({}).reader(StructType().add("value", "binary"))


# -- streams


def test_sp1_a_stream_finds_new_partitions_and_stops_at_once(
    stream: Stream, running: TestBroker, client: Client, topic: str
) -> None:
    admin(running, "PUT", f"{topic}/partitions", json=1)
    publish(client, topic, numbers(0, 50))
    query = stream.start(topic=topic, startingOffsets="earliest", maxEntriesPerTrigger="1000")
    assert sorted(stream.wait(query, 50)) == sorted(numbers(0, 50))

    admin(running, "POST", f"{topic}/partitions", json=2)
    publish(client, f"{topic}-partition-1", numbers(50, 60))
    assert stream.wait(query, 60)[50:] == numbers(50, 60)

    progress = next(each for each in reversed(query.recentProgress) if each.numInputRows)
    assert progress.sources[0].endOffset == progress.sources[0].latestOffset
    began_s = time.monotonic()
    query.stop()
    assert time.monotonic() - began_s < 5


def test_sp1_available_now_reads_limited_batches_and_resumes_later(
    stream: Stream, running: TestBroker, client: Client, topic: str
) -> None:
    admin(running, "PUT", f"{topic}/partitions", json=1)
    for value in numbers(0, 7):
        publish(client, topic, [value])
    options = {"topic": topic, "startingOffsets": "earliest", "maxEntriesPerTrigger": "3"}

    assert stream.run(**options) == numbers(0, 7)
    assert stream.batches == [3, 3, 1]

    admin(running, "POST", f"{topic}/partitions", json=2)
    publish(client, f"{topic}-partition-0", numbers(7, 9))
    publish(client, f"{topic}-partition-1", numbers(9, 12))
    assert sorted(stream.run(**options)) == sorted(numbers(7, 12))
    assert stream.run(**options) == []


def test_sp1_a_topic_deleted_and_recreated(stream: Stream, running: TestBroker, client: Client, topic: str) -> None:
    publish(client, topic, numbers(0, 5))
    options = {"topic": topic, "startingOffsets": "earliest"}
    assert stream.run(**options) == numbers(0, 5)
    delete(running, topic)
    publish(client, topic, numbers(5, 8))

    text = error(lambda: stream.run(**options))
    assert "was then deleted and created again" in text
    assert f"public/default/{topic} was read up to" in text
    assert stream.run(**options, failOnDataLoss="false") == numbers(5, 8)
    publish(client, topic, numbers(8, 9))
    assert stream.run(**options) == numbers(8, 9)


def test_sp1_retention_past_the_start_position(stream: Stream, running: TestBroker, client: Client, topic: str) -> None:
    publish(client, topic, numbers(0, 5))
    options = {"topic": topic, "startingOffsets": "earliest"}
    assert stream.run(**options) == numbers(0, 5)
    publish(client, topic, numbers(5, 8))
    admin(running, "DELETE", f"{topic}/truncate")
    publish(client, topic, numbers(8, 10))

    assert "were deleted before they were read" in error(lambda: stream.run(**options))
    assert stream.run(**options, failOnDataLoss="false") == numbers(8, 10)


def test_sp1_a_topic_deleted_while_the_stream_runs(
    stream: Stream, running: TestBroker, client: Client, topic: str
) -> None:
    publish(client, topic, numbers(0, 5))
    query = stream.start(topic=topic, startingOffsets="earliest")
    stream.wait(query, 5)

    delete(running, topic)

    eventually(lambda: not query.isActive)
    assert "no longer exists" in str(query.exception())


# -- subscriptions


def backlog(running: TestBroker, topic: str, subscription: str) -> int:
    stats = httpx.get(f"{running.http_url}/admin/v2/persistent/public/default/{topic}/stats").json()
    return int(stats["subscriptions"].get(subscription, {"msgBacklog": -1})["msgBacklog"])


def test_sp1_the_subscription_follows_an_idle_stream_too(
    stream: Stream, running: TestBroker, client: Client, topic: str
) -> None:
    publish(client, topic, numbers(0, 5))
    query = stream.start(topic=topic, startingOffsets="earliest", predefinedSubscription="spark")
    stream.wait(query, 5)

    eventually(lambda: backlog(running, topic, "spark") == 0)


def test_sp1_failed_batches_are_not_acknowledged(
    stream: Stream, running: TestBroker, client: Client, topic: str
) -> None:
    options = {"topic": topic, "predefinedSubscription": "spark"}
    with client.consumer(topic, "spark"):
        pass
    publish(client, topic, numbers(0, 5))
    assert stream.run(**options) == numbers(0, 5), "it begins where the subscription is"
    for value in numbers(5, 8):
        publish(client, topic, [value])
    stream.fails = True

    assert "this batch fails" in error(lambda: stream.run(**options))
    assert backlog(running, topic, "spark") == 3
    stream.fails = False
    assert stream.run(**options) == numbers(5, 8)
    assert backlog(running, topic, "spark") == 0


def test_a_repeated_micro_batch_has_the_same_tasks(running: TestBroker, client: Client, topic: str) -> None:
    for value in numbers(0, 8):
        publish(client, topic, [value])

    def reader(**options: str) -> StreamReader:
        given = {"service.url": running.service_url, "topic": topic, "startingOffsets": "earliest", **options}
        source = PulsarSource(given)
        made = source.streamReader(source.schema())
        assert isinstance(made, StreamReader)
        return made

    two, four, one = reader(minPartitions="2"), reader(minPartitions="4"), reader()
    start = two.initialOffset()
    end = two.latestOffset(start, ReadAllAvailable())
    assert len(two.partitions(start, end)) == 2
    assert four.partitions(start, end) == one.partitions(start, end) == two.partitions(start, end)
    assert four.latestOffset(end, ReadAllAvailable()) == end, "another number is no new data"
    publish(client, topic, numbers(8, 9))
    assert len(two.partitions(start, four.latestOffset(start, ReadAllAvailable()))) == 4
    for each in (two, four, one):
        each.stop()


# -- bad input


def test_an_http_port_is_named(running: TestBroker) -> None:
    address = running.http_url.replace("http://", "pulsar://")
    with pytest.raises(WrongPort, match="this is an HTTP port"):
        PulsarSource({"service.url": address, "topic": "t"}).schema()


def test_an_unreachable_broker_is_named(spark: SparkSession) -> None:
    began_s = time.monotonic()
    options = {"service.url": "pulsar://127.0.0.1:1", "topic": "t", "pulsar.client.connectionTimeoutMs": "1000"}

    text = error(lambda: spark.read.format("pulsar").options(**options).load())

    assert "127.0.0.1:1" in text
    assert time.monotonic() - began_s < 30


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "never-was"}, "persistent://public/default/never-was does not exist"),
        ({"topic": "t", "startingOfsets": "latest"}, "did you mean startingOffsets?"),
        ({"topic": "t", "startingOffsets": '{"t": "x"}'}, "option startingOffsets: the offset of"),
        ({"topic": "t", "columns": "valu"}, "unknown column 'valu'"),
        ({"topic": "t", "maxEntriesPerTrigger": "5"}, "option maxEntriesPerTrigger applies to streams only"),
    ],
)
def test_invalid_options_are_reported(
    spark: SparkSession, running: TestBroker, client: Client, options: dict[str, str], words: str
) -> None:
    publish(client, "t", ["x"])

    assert words in error(lambda: table(spark, running, **options).collect())

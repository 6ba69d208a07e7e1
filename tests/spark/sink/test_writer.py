"""The sink: validation, written messages, and exactly once despite failures."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pulsar
import pyarrow as pa
import pytest
from pulsar.schema import Array, AvroSchema, Integer, JsonSchema, Long, Map, Record, String
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from magnetar.client import EARLIEST, Client, Message, MessageId
from magnetar.client.errors import ClientError, ConnectionLost, NotFound
from magnetar.client.inline import InlineClient
from magnetar.client.produce.entry_producers import ProducerKey
from magnetar.client.produce.routing import HASHES
from magnetar.spark.codec.frame_schema import schema_of
from magnetar.spark.errors import InvalidOption, SparkSourceError
from magnetar.spark.sink import write_task
from magnetar.spark.sink.columns import NOT_WRITTEN, WRITTEN, SinkColumns
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.sink.values import parse_schema
from magnetar.spark.sink.write_task import WriteResult, WriteScope, WriteTask
from magnetar.spark.sink.writer import TaskCommit, batch_writer, check_commits, stream_writer
from magnetar.testing import TestBroker, broker
from magnetar.wire.metadata import metadata_of
from tests.crash.killable import KillableBroker

SOURCE = "persistent://public/default/source"
_topics = count()


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(brokerDeduplicationEnabled=True) as running:
        yield running


@pytest.fixture(scope="module")
def client(running: TestBroker) -> Iterator[InlineClient]:
    with InlineClient(running.service_url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"sink-{next(_topics)}"


TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "map<string,int>": MapType(StringType(), IntegerType()),
}


def struct(text: str) -> StructType:
    """A struct from `name type, name type`."""
    fields = [field.split(" ") for field in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def table(columns: dict[str, tuple[str, list[Any]]]) -> tuple[StructType, pa.RecordBatch]:
    """A frame: Spark types, cells by column."""
    schema = struct(", ".join(f"{name} {kind}" for name, (kind, _) in columns.items()))
    arrow = to_arrow_schema(schema, timezone="UTC")
    return schema, pa.record_batch([cells for _, cells in columns.values()], schema=arrow)


def task(
    client: InlineClient, url: str, columns: StructType, /, *, number: int = 0, name: str = "query", **options: str
) -> WriteTask:
    given = {key.replace("_", "."): value for key, value in options.items()}
    sink = SinkOptions.of({"service.url": url, **given})
    shared = sink.producer_name is not None
    scope = WriteScope(sink.producer_name or name, number, is_shared=shared, is_sorted=sink.sort_by_position)
    return WriteTask(client, sink, SinkColumns.of(columns), scope)


def read(url: str, topic: str) -> list[Message]:
    messages: list[Message] = []
    with contextlib.suppress(NotFound), Client(url) as client, client.reader(topic, EARLIEST) as reader:
        while reader.has_next():
            messages.append(reader.read(10))
    return messages


def values(url: str, topic: str) -> list[bytes]:
    return [message.value for message in read(url, topic)]


def create_partitions(running: TestBroker, topic: str, partitions: int) -> list[str]:
    path = f"/admin/v2/persistent/public/default/{topic}/partitions"
    httpx.put(running.http_url + path, json=partitions).raise_for_status()
    return [f"persistent://public/default/{topic}-partition-{index}" for index in range(partitions)]


# -- validation

EVERY_COLUMN = ", ".join(
    f"{name} {kinds[0]}" for name, (kinds, _) in WRITTEN.items() if name not in ("__entry", "__sourceTopic")
)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("value binary, __keys string", r"unknown column __keys: columns that begin with __ are value, __key,"),
        ("value binary, __key int", "column __key is int: it must be binary or string"),
        ("value binary, __topic binary", "column __topic is binary: it must be string"),
        ("value binary, __eventTime string", "column __eventTime is string: it must be timestamp or bigint"),
        (
            "value binary, __messageProperties map<string,int>",
            "column __messageProperties is map<string,int>: it must be map<string,string>",
        ),
        ("value binary, other int", "column value is the whole value: it cannot be combined with column other"),
        ("__entry binary, value binary", "column __entry is a whole entry: it cannot be combined with column value"),
        ("__entry binary, other int", "cannot be combined with column other"),
        ("__key binary", "nothing to write: add a column value, typed columns or __entry"),
        ("value binary, __key binary, __key string", "column __key occurs 2 times"),
    ],
)
def test_sp1_an_invalid_column_is_named(columns: str, text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        batch_writer({"service.url": "pulsar://localhost:1", "topic": "t"}, struct(columns), False)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "a b"}, "option topic is 'a b'"),
        ({"topic": "a/b"}, "option topic: "),
        ({}, "no target topic: set option `topic` or add a column `__topic`"),
        ({"topic": "t", "exactlyOnce": "yes"}, "option exactlyOnce is 'yes': it must be one of auto, required, off"),
        (
            {"topic": "t", "exactlyOnce": "required"},
            "exactlyOnce=required needs the source position of rows",
        ),
        (
            {"topic": "t", "pulsar.producer.compressionType": "GZIP"},
            "it must be one of NONE, LZ4, ZLIB, ZSTD, SNAPPY",
        ),
        ({"topic": "t", "pulsar.producer.batchingMaxMessages": "0"}, "batchingMaxMessages is '0'"),
        ({"topic": "t", "pulsar.producer.batchingMaxMessage": "1"}, "did you mean pulsar.producer.batchingMaxMessages"),
        (
            {"topic": "t", "startingOffsets": "earliest"},
            "option startingOffsets applies to batch reads and streams only",
        ),
        ({"topic": "t", "schema": "AVRO"}, "option schema is 'AVRO': it must be json, avro, a definition"),
        ({"topic": "t", "schema": "{}"}, "option schema needs typed columns, and there are none"),
    ],
)
def test_sp1_an_invalid_option_is_named(options: dict[str, str], text: str) -> None:
    for writer in (batch_writer, stream_writer):
        with pytest.raises(InvalidOption, match=text):
            writer({"service.url": "pulsar://localhost:1", **options}, struct("value binary"), False)


def test_overwrite_is_rejected_with_an_alternative() -> None:
    options = {"service.url": "pulsar://localhost:1", "topic": "t"}
    with pytest.raises(InvalidOption, match=r"mode overwrite is not supported: .* use mode append"):
        batch_writer(options, struct("value binary"), True)
    with pytest.raises(InvalidOption, match="output mode complete is not supported"):
        stream_writer(options, struct("value binary"), True)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"type": "AVRO", "definition": ""}', "option schema is not JSON as in the admin API"),
        ('{"type": "XML", "schema": ""}', "option schema: unknown type 'XML'"),
    ],
)
def test_an_invalid_schema_is_rejected(text: str, error: str) -> None:
    options = {"service.url": "pulsar://localhost:1", "topic": "t", "schema": text}
    with pytest.raises(InvalidOption, match=error):
        batch_writer(options, struct("a int"), False)


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_a_schema_is_derived_from_the_columns(kind: str) -> None:
    options = {"service.url": "pulsar://localhost:1", "topic": "t", "schema": kind}
    columns = struct("a int, b string, __key string")
    made = batch_writer(options, columns, False)._options.schema
    assert made is not None
    parsed, wanted = parse_schema(made), schema_of(columns, kind)  # type: ignore[arg-type]
    assert (parsed.type, parsed.data, parsed.properties) == (wanted.type, wanted.data, wanted.properties)
    with pytest.raises(SparkSourceError, match=r"column 'a' is interval.* no Avro type"):
        batch_writer(options, StructType([StructField("a", YearMonthIntervalType())]), False)


def test_a_derived_schema_keeps_nullability_and_names() -> None:
    columns = StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField("tags", ArrayType(StringType(), containsNull=False)),
            StructField("counts", MapType(StringType(), IntegerType(), valueContainsNull=False), nullable=False),
        ]
    )
    names = {"schema.name": "Order", "schema.namespace": "shop.v1"}
    options = {"service.url": "pulsar://localhost:1", "topic": "t", "schema": "avro", **names}
    made = batch_writer(options, columns, False)._options.schema
    assert made is not None
    definition = json.loads(parse_schema(made).data)
    assert (definition["name"], definition["namespace"]) == ("Order", "shop.v1")
    assert [each["type"] for each in definition["fields"]] == [
        "long",
        ["null", {"type": "array", "items": "string"}],
        {"type": "map", "values": "int"},
    ]


class Address(Record):
    city = String()


class Order(Record):
    id = Long()
    tags = Array(String())
    counts = Map(Integer())
    address = Address()


@pytest.mark.parametrize(("kind", "official"), [("avro", AvroSchema), ("json", JsonSchema)])
def test_the_schema_of_a_record_class_serves_both_sides(
    running: TestBroker, client: InlineClient, topic: str, kind: str, official: Any
) -> None:
    address = StructType([StructField("city", StringType())])
    kinds = [LongType(), ArrayType(StringType()), MapType(StringType(), IntegerType()), address]
    columns = StructType([StructField(*each) for each in zip(("id", "tags", "counts", "address"), kinds, strict=True)])
    row = {"id": 7, "tags": ["a", "b"], "counts": [("x", 1)], "address": {"city": "Zug"}}
    rows = pa.RecordBatch.from_pylist([row], schema=to_arrow_schema(columns, timezone="UTC"))
    given = f"{kind}:{json.dumps(Order.schema())}"
    assert task(client, running.service_url, columns, topic=topic, schema=given).write([rows]).messages == 1
    with contextlib.closing(pulsar.Client(running.service_url)) as python:
        reader = python.create_reader(topic, pulsar.MessageId.earliest, schema=official(Order))
        order = reader.read_next(10_000).value()
    assert (order.id, order.tags, order.counts, order.address.city) == (7, ["a", "b"], {"x": 1}, "Zug")


def test_writers_can_be_pickled() -> None:
    options = {"service.url": "pulsar://localhost:1", "topic": "t", "checkpointLocation": "there"}
    for writer in (batch_writer, stream_writer):
        pickle.loads(pickle.dumps(writer(options, struct(f"value string, {EVERY_COLUMN}"), False)))


# -- written messages


def test_sp1_every_column_arrives(running: TestBroker, client: InlineClient, topic: str) -> None:
    schema, rows = table(
        {
            "value": ("string", ["a", None, "", "é"]),
            "__key": ("binary", [b"text", None, b"\xff", b""]),
            "__eventTime": ("bigint", [5, None, 0, 1_700_000_000_123]),
            "__messageProperties": ("map<string,string>", [[("k", "v")], None, [], [("a", ""), ("b", "2")]]),
            "__orderingKey": ("string", ["o", None, None, "p"]),
        }
    )
    written = task(client, running.service_url, schema, topic=topic).write([rows])
    assert (written.messages, written.skipped, written.entries) == (4, 0, 1)
    got = read(running.service_url, topic)
    assert [message.value for message in got] == [b"a", b"", b"", "é".encode()]
    assert [message.is_null for message in got] == [False, True, False, False]
    assert [(message.key, message.key_is_base64) for message in got] == [
        *(("text", False), (None, False), ("/w==", True), ("", False))
    ]
    assert [message.event_time_ms for message in got] == [5, None, None, 1_700_000_000_123]
    assert [message.properties for message in got] == [{"k": "v"}, {}, {}, {"a": "", "b": "2"}]
    assert [message.ordering_key for message in got] == [b"o", None, None, b"p"]


def test_sparks_times_are_written_in_milliseconds(running: TestBroker, client: InlineClient, topic: str) -> None:
    schema, rows = table({"value": ("binary", [b"x"]), "__eventTime": ("timestamp", [1_700_000_000_123_456])})
    task(client, running.service_url, schema, topic=topic).write([rows])
    assert read(running.service_url, topic)[0].event_time_ms == 1_700_000_000_123
    schema, rows = table({"value": ("binary", [b"x", b"y"]), "__eventTime": ("bigint", [1, -1])})
    with pytest.raises(SparkSourceError, match="column __eventTime of row 1 is -1 ms since 1970"):
        task(client, running.service_url, schema, topic=topic).write([rows])


def test_a_delayed_row_is_a_separate_message(running: TestBroker, client: InlineClient, topic: str) -> None:
    later = 4_000_000_000_000
    schema, rows = table(
        {"value": ("binary", [b"a", b"b", b"c", b"d"]), "__deliverAt": ("bigint", [None, later, None, None])}
    )
    written = task(client, running.service_url, schema, topic=topic).write([rows])
    assert written.entries == 3
    got = read(running.service_url, topic)
    assert [message.value for message in got] == [b"a", b"b", b"c", b"d"]
    assert [message.deliver_at_ms for message in got] == [None, later, None, None]


def test_a_property_without_a_value_is_rejected(running: TestBroker, client: InlineClient, topic: str) -> None:
    schema, rows = table(
        {"value": ("binary", [b"a", b"b"]), "__messageProperties": ("map<string,string>", [[], [("k", None)]])}
    )
    with pytest.raises(SparkSourceError, match="column __messageProperties of row 1: property 'k' has no value"):
        task(client, running.service_url, schema, topic=topic).write([rows])


def test_rows_go_to_the_topic_of_their_column(running: TestBroker, client: InlineClient, topic: str) -> None:
    names = [f"{topic}-{number % 2}" for number in range(10)]
    schema, rows = table({"value": ("binary", [b"%d" % n for n in range(10)]), "__topic": ("string", names)})
    task(client, running.service_url, schema).write([rows])
    assert values(running.service_url, f"{topic}-0") == [b"0", b"2", b"4", b"6", b"8"]
    assert values(running.service_url, f"{topic}-1") == [b"1", b"3", b"5", b"7", b"9"]
    for cell, text in ((None, "column __topic is null in row 0"), ("a/b", "column __topic: ")):
        schema, rows = table({"value": ("binary", [b"x"]), "__topic": ("string", [cell])})
        with pytest.raises(SparkSourceError, match=text):
            task(client, running.service_url, schema).write([rows])


@pytest.mark.parametrize("scheme", HASHES)
def test_keys_are_routed_as_by_clients(running: TestBroker, client: InlineClient, topic: str, scheme: str) -> None:
    partitions = create_partitions(running, topic, 3)
    keys = [*(f"key-{number}" for number in range(50)), "é", ""]
    schema, rows = table({"value": ("string", keys), "__key": ("string", keys)})
    options = {"topic": topic, "pulsar_producer_hashingScheme": scheme}
    task(client, running.service_url, schema, **options).write([rows])
    for index, partition in enumerate(partitions):
        mine = [key.encode() for key in keys if HASHES[scheme](key) % 3 == index]
        assert values(running.service_url, partition) == mine


def test_an_unreadable_message_is_not_written_as_empty(running: TestBroker, client: InlineClient, topic: str) -> None:
    schema, rows = table({"value": ("binary", [b"x", None]), "__error": ("string", [None, "1:2 is encrypted"])})
    with pytest.raises(SparkSourceError, match="column __error of row 1: 1:2 is encrypted"):
        task(client, running.service_url, schema, topic=topic).write([rows])
    assert values(running.service_url, topic) == []


# -- typed columns

FIELDS = [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}]
RECORD = json.dumps({"type": "record", "name": "R", "fields": FIELDS})


def schema_option(kind: str, definition: str = "") -> str:
    return json.dumps({"type": kind, "schema": definition})


def test_sp1_typed_columns_are_written_with_a_schema(running: TestBroker, client: InlineClient, topic: str) -> None:
    """The first write registers the schema, the second uses the topic's; the official client reads both."""
    schema, rows = table({"a": ("int", [1, 2]), "b": ("string", ["x", None])})
    task(client, running.service_url, schema, topic=topic, schema=schema_option("JSON", RECORD)).write([rows])
    task(client, running.service_url, schema, topic=topic).write([rows])

    class R(pulsar.schema.Record):  # type: ignore[misc]
        a = pulsar.schema.Integer(required=True)
        b = pulsar.schema.String()

    with contextlib.closing(pulsar.Client(running.service_url)) as official:
        reader = official.create_reader(topic, pulsar.MessageId.earliest, schema=pulsar.schema.JsonSchema(R))
        got = [reader.read_next(10_000).value() for _ in range(4)]
    assert [(record.a, record.b) for record in got] == [(1, "x"), (2, None)] * 2
    assert {message.schema_version for message in read(running.service_url, topic)} == {bytes(8)}


def test_a_number_is_written_with_the_type_of_its_schema(running: TestBroker, client: InlineClient, topic: str) -> None:
    schema, rows = table({"value": ("int", [1, -1])})
    task(client, running.service_url, schema, topic=topic, schema=schema_option("INT32")).write([rows])
    assert values(running.service_url, topic) == [b"\x00\x00\x00\x01", b"\xff\xff\xff\xff"]


def test_typed_columns_without_a_schema_or_of_another_type_are_named(
    running: TestBroker, client: InlineClient, topic: str
) -> None:
    schema, rows = table({"a": ("int", [1]), "b": ("string", ["x"])})
    with pytest.raises(InvalidOption, match=rf"{topic} has no schema to encode columns a, b: set option schema"):
        task(client, running.service_url, schema, topic=topic).write([rows])
    schema, rows = table({"a": ("string", ["1"]), "b": ("string", ["x"])})
    with pytest.raises(SparkSourceError, match=r"column 'a' is string, but the topic's schema has int"):
        task(client, running.service_url, schema, topic=topic, schema=schema_option("JSON", RECORD)).write([rows])


# -- exactly once

POSITIONS = "value binary, __topic string, __messageId binary"


def positioned(first: int, end: int, source: str = SOURCE, ledger: int = 7, **more: Any) -> pa.RecordBatch:
    """Rows as from the source, ten per entry."""
    numbers = range(first, end)
    ids = [MessageId(ledger, number // 10, -1, number % 10, 10).to_bytes() for number in numbers]
    cells = {"value": [b"%d" % number for number in numbers], "__topic": [source] * len(numbers), "__messageId": ids}
    return pa.record_batch({**cells, **more})


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_sp1_existing_rows_are_skipped(running: TestBroker, client: InlineClient, topic: str) -> None:
    """Wherever a task stopped, and however its rows were split, repeating it completes it."""
    schema = struct(POSITIONS)

    def write(*batches: pa.RecordBatch) -> WriteResult:
        return task(client, running.service_url, schema, topic=topic).write(batches)

    assert write(positioned(0, 1234)).messages == 1234
    again = write(positioned(0, 100), positioned(100, 2000), positioned(2000, 2001))
    assert (again.messages, again.skipped) == (2001 - 1234, 1234)
    assert write(positioned(1500, 2001)).skipped == 501
    assert write(positioned(0, 50, ledger=8)).messages == 50  # another ledger is another source
    assert values(running.service_url, topic) == numbers(0, 2001) + numbers(0, 50)


def test_a_task_that_failed_halfway_is_completed(running: TestBroker, client: InlineClient, topic: str) -> None:
    schema = struct(POSITIONS)

    def failing() -> Iterator[pa.RecordBatch]:
        for first in range(0, 50_000, 5000):
            yield positioned(first, first + 5000)
        raise RuntimeError("the rows end here")

    with pytest.raises(RuntimeError, match="the rows end here"):
        task(client, running.service_url, schema, topic=topic).write(failing())
    there = len(values(running.service_url, topic))
    assert 0 < there <= 50_000
    written = task(client, running.service_url, schema, topic=topic).write([positioned(0, 60_000)])
    assert written.skipped >= there
    assert values(running.service_url, topic) == numbers(0, 60_000)


def test_order_of_each_source_partition_is_kept(running: TestBroker, client: InlineClient, topic: str) -> None:
    partitions = create_partitions(running, topic, 2)
    batches = [
        positioned(first, first + 100, f"{SOURCE}-partition-{index}", ledger=index)
        for first in range(0, 1000, 100)
        for index in range(4)
    ]
    written = task(client, running.service_url, struct(POSITIONS), topic=topic).write(batches)
    assert len(written.producer_keys) == 4
    for index, partition in enumerate(partitions):
        got = read(running.service_url, partition)
        for source in (index, index + 2):
            of_source = [message.value for message in got if f"partition-{source}/" in message.producer_name]
            assert of_source == numbers(0, 1000)


def test_rows_of_one_source_may_go_to_several_topics(running: TestBroker, client: InlineClient, topic: str) -> None:
    rows = positioned(0, 100)
    names = pa.array([f"{topic}-{number % 3}" for number in range(100)])
    frame = pa.record_batch(
        {"value": rows["value"], "__messageId": rows["__messageId"], "__topic": names}
    ).append_column("__sourceTopic", rows["__topic"])
    schema = struct(f"{POSITIONS}, __sourceTopic string")
    for skipped in (0, 100):
        assert task(client, running.service_url, schema).write([frame]).skipped == skipped
    for number in range(3):
        assert values(running.service_url, f"{topic}-{number}") == [b"%d" % each for each in range(number, 100, 3)]


def test_rows_out_of_order_are_rejected_or_sorted(running: TestBroker, client: InlineClient, topic: str) -> None:
    schema, batches = struct(POSITIONS), [positioned(50, 100), positioned(0, 50)]
    with pytest.raises(
        SparkSourceError, match=r"7:0 \(batch index 0\) comes after 7:9 \(batch index 9\).*sortByPosition=true"
    ):
        task(client, running.service_url, schema, topic=topic).write(batches)
    there = values(running.service_url, topic)
    written = task(client, running.service_url, schema, topic=topic, sortByPosition="true").write(batches)
    assert (written.messages, written.skipped) == (100, 0)
    assert values(running.service_url, topic) == there + numbers(0, 100)
    again = task(client, running.service_url, schema, topic=topic, sortByPosition="true").write(batches)
    assert (again.messages, again.skipped) == (0, 100)


def test_rows_derived_from_one_message_are_written_once(
    running: TestBroker, client: InlineClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `explode`: they have the same position, and are stored together or not at all."""
    many = positioned(0, 100).take(pa.array([row for row in range(100) for _ in range(3)]))
    options = {"topic": topic, "pulsar_producer_batchingMaxMessages": "10"}

    def failing(end: int) -> Iterator[pa.RecordBatch]:
        yield many.slice(0, end)
        raise RuntimeError("the rows end here")

    monkeypatch.setattr(write_task, "_PIECE_ROWS", 1)
    for end in (151, 200, 250):  # two of three, two of three, one of three
        with pytest.raises(RuntimeError):
            task(client, running.service_url, struct(POSITIONS), **options).write(failing(end))
        assert 0 < len(values(running.service_url, topic)) < end
    written = task(client, running.service_url, struct(POSITIONS), **options).write([many])
    assert written.messages + written.skipped == 300
    assert values(running.service_url, topic) == [b"%d" % number for number in range(100) for _ in range(3)]


def test_each_task_has_its_own_producer_name_unless_given(
    running: TestBroker, client: InlineClient, topic: str
) -> None:
    schema, url = struct(POSITIONS), running.service_url
    task(client, url, schema, topic=topic, number=0).write([positioned(0, 10)])
    assert task(client, url, schema, topic=topic, number=1).write([positioned(0, 10)]).skipped == 0
    assert task(client, url, schema, topic=topic, name="other").write([positioned(0, 10)]).skipped == 0
    given = {"topic": topic, "pulsar_producer_producerName": "mine"}
    assert task(client, url, schema, number=0, **given).write([positioned(0, 10)]).skipped == 0
    assert task(client, url, schema, number=1, **given).write([positioned(0, 10)]).skipped == 10


def test_a_producer_name_used_by_two_tasks_is_reported() -> None:
    """One of them may have taken the other's rows for its own."""
    mine = TaskCommit(WriteResult(producer_keys=(ProducerKey("t", "mine"),)), True)
    other = TaskCommit(WriteResult(producer_keys=(ProducerKey("t-2", "mine"),)), True)
    check_commits([mine, None, other])
    with pytest.raises(SparkSourceError, match=r"2 tasks wrote to t as producer 'mine'.*coalesce\(1\)"):
        check_commits([mine, other, mine])


def test_a_topic_without_deduplication_is_rejected(topic: str) -> None:
    schema = struct(POSITIONS)
    with broker() as plain:
        url = plain.service_url
        with InlineClient(url, admin_url=plain.http_url) as asking, InlineClient(url) as unsure:
            for exactly_once in ("auto", "required"):
                options = {"topic": topic, "admin_url": plain.http_url, "exactlyOnce": exactly_once}
                with pytest.raises(SparkSourceError, match=rf"{topic} does not deduplicate.*exactlyOnce=off"):
                    task(asking, url, schema, **options).write([positioned(0, 10)])
            with pytest.raises(SparkSourceError, match=rf"does not report whether .*{topic} deduplicates"):
                task(unsure, url, schema, topic=topic, exactlyOnce="required").write([positioned(0, 10)])
            assert values(url, topic) == []  # nothing was written before that was decided
            assert task(unsure, url, schema, topic=topic).write([positioned(0, 10)]).messages == 10
            assert task(asking, url, schema, topic=topic, exactlyOnce="off").write([positioned(0, 10)]).messages == 10
            assert len(values(url, topic)) == 20


def test_sp8_required_exactly_once_needs_the_admin_api() -> None:
    options = {"service.url": "pulsar://h:1", "topic": "t", "exactlyOnce": "required"}
    with pytest.raises(InvalidOption, match=r"exactlyOnce=required needs option admin\.url"):
        stream_writer(options, struct(POSITIONS), overwrite=False)
    stream_writer({**options, "admin.url": "http://h:2"}, struct(POSITIONS), overwrite=False)
    stream_writer({**options, "service.url": "http://h:2"}, struct(POSITIONS), overwrite=False)


def test_sp8_rows_without_a_target_do_not_go_back_to_their_source() -> None:
    columns = struct("value binary, __topic string, __messageId binary")
    for writer in (batch_writer, stream_writer):
        with pytest.raises(InvalidOption, match="rows would go back to the topics they come from: set option `topic`"):
            writer({"service.url": "pulsar://h:1"}, columns, False)
    routed = struct("value binary, __topic string, __sourceTopic string, __messageId binary")
    stream_writer({"service.url": "pulsar://h:1"}, routed, False)


def test_sp8_a_stream_does_not_feed_itself(running: TestBroker, client: InlineClient, topic: str) -> None:
    ids = [MessageId(1, number).to_bytes() for number in range(2)]
    sources = {"topic": topic, "other": f"{topic}-partition-1"}
    for source in sources.values():
        columns = {
            "value": ("binary", [b"1", b"2"]),
            "__topic": ("string", [source] * 2),
            "__messageId": ("binary", ids),
        }
        schema, rows = table(columns)
        options = SinkOptions.of({"service.url": running.service_url, "topic": topic})
        stream = WriteTask(client, options, SinkColumns.of(schema), WriteScope("query", 0, False, is_stream=True))
        with pytest.raises(InvalidOption, match=rf"rows of .*{topic} would go back to it, and the stream"):
            stream.write([rows])
    assert values(running.service_url, topic) == []
    named = {**columns, "__sourceTopic": ("string", [topic] * 2)}
    schema, rows = table(named)
    wanted = WriteTask(client, options, SinkColumns.of(schema), WriteScope("query", 0, False, is_stream=True))
    assert wanted.write([rows]).messages == 2


def test_required_exactly_once_is_enforced(running: TestBroker, client: InlineClient, topic: str) -> None:
    schema, url = struct(POSITIONS), running.service_url
    with InlineClient(url, admin_url=running.http_url) as asking:
        options = {"topic": topic, "admin_url": running.http_url, "exactlyOnce": "required"}
        assert task(asking, url, schema, **options).write([positioned(0, 10)]).messages == 10
        assert task(asking, url, schema, **options).write([positioned(0, 20)]).messages == 10
    assert values(url, topic) == numbers(0, 20)


def test_without_positions_every_write_appends(running: TestBroker, client: InlineClient, topic: str) -> None:
    schema, rows = table({"value": ("binary", numbers(0, 5))})
    for options in ({}, {}, {"pulsar_producer_producerName": "me"}, {"pulsar_producer_producerName": "me"}):
        assert task(client, running.service_url, schema, topic=topic, **options).write([rows, rows]).messages == 10
    got = read(running.service_url, topic)
    assert [message.value for message in got] == numbers(0, 5) * 8
    assert [message.producer_name for message in got[-20:]] == ["me/0"] * 20


# -- whole entries


def entries_of(running: TestBroker, topic: str) -> list[bytes]:
    async def entries(client: InlineClient) -> list[bytes]:
        reader = await client.client.entries(topic, EARLIEST, last)
        blobs: list[bytes] = []
        while got := await reader.next():
            blobs += [entry.blob for entry in got]
        await reader.close()
        return blobs

    with Client(running.service_url) as blocking:
        last = blocking.tail(topic).bounds().last
    with InlineClient(running.service_url) as client:
        return client.run(entries(client))


def test_entries_are_copied_with_their_payload(running: TestBroker, client: InlineClient, topic: str) -> None:
    with contextlib.closing(pulsar.Client(running.service_url)) as official:
        producer = official.create_producer(
            topic, compression_type=pulsar.CompressionType.LZ4, batching_enabled=True, producer_name="official"
        )
        for number in range(100):
            producer.send_async(b"%d" % number, None, partition_key=f"k{number}", properties={"n": str(number)})
        producer.flush()
    source = entries_of(running, topic)
    schema, rows = table(
        {
            "__topic": ("string", [SOURCE] * len(source)),
            "__messageId": ("binary", [MessageId(3, number).to_bytes() for number in range(len(source))]),
            "__entry": ("binary", source),
            "__messages": ("int", [1] * len(source)),
        }
    )
    for target, options in ((f"{topic}-once", {}), (f"{topic}-raw", {"exactlyOnce": "off"})):
        for _ in range(2):
            task(client, running.service_url, schema, topic=target, **options).write([rows])
    once, raw = entries_of(running, f"{topic}-once"), entries_of(running, f"{topic}-raw")
    assert raw == source + source
    assert len(once) == len(source)
    original, copied = read(running.service_url, topic), read(running.service_url, f"{topic}-once")
    assert [(m.value, m.key, m.properties, m.publish_time_ms) for m in original] == [
        (m.value, m.key, m.properties, m.publish_time_ms) for m in copied
    ]
    assert [metadata_of(blob).sequence_id for blob in once] == [number << 16 for number in range(len(source))]


# -- errors


def test_an_unreachable_broker_is_named(topic: str) -> None:
    with broker() as gone:
        url = gone.service_url
    schema, rows = table({"value": ("binary", [b"x"])})
    with InlineClient(url) as client, pytest.raises(ConnectionLost, match=f"cannot connect to {url[9:]}"):
        task(client, url, schema, topic=topic, pulsar_client_operationTimeoutMs="300").write([rows])


def test_a_batch_write_finds_a_wrong_address_in_the_driver(topic: str) -> None:
    with broker() as gone:
        url = gone.service_url
    limits = {"pulsar.client.connectionTimeoutMs": "300", "pulsar.client.operationTimeoutMs": "86400000"}
    writer = batch_writer({"service.url": url, "topic": topic, **limits}, struct("value binary"), False)
    with pytest.raises(ConnectionLost, match=f"cannot connect to {url[9:]}"):
        writer.reach()


def test_an_oversized_message_is_reported(running: TestBroker, client: InlineClient, topic: str) -> None:
    schema, rows = table({"value": ("binary", [bytes(6 << 20)])})
    with pytest.raises(ClientError, match="exceeds the broker's limit"):
        task(client, running.service_url, schema, topic=topic).write([rows])
    # Name and connection are free again.
    schema, rows = table({"value": ("binary", [b"x"])})
    assert task(client, running.service_url, schema, topic=topic).write([rows]).messages == 1


def test_a_rejected_delay_does_not_hide_its_row_permanently(topic: str) -> None:
    """Later rows must not be stored: the rejected one would count as written."""
    with broker(brokerDeduplicationEnabled=True, delayedDeliveryMaxDelayInMillis=1000) as running:
        later = [None] * 50 + [4_000_000_000_000] + [None] * 49
        rows = positioned(0, 100, __deliverAt=pa.array(later, pa.int64()))
        schema = struct(f"{POSITIONS}, __deliverAt bigint")
        with InlineClient(running.service_url) as client:
            with pytest.raises(ClientError, match="the broker rejected sequence id"):
                task(client, running.service_url, schema, topic=topic).write([rows])
            assert values(running.service_url, topic) == numbers(0, 50)
            task(client, running.service_url, struct(POSITIONS), topic=topic).write([positioned(0, 100)])
        assert values(running.service_url, topic) == numbers(0, 100)


def test_sp1_a_broker_killed_during_a_write_causes_no_loss_and_no_duplicates(tmp_path: Path, topic: str) -> None:
    killable = KillableBroker(tmp_path, ("brokerDeduplicationEnabled=true",))
    killable.start()

    def rows() -> Iterator[pa.RecordBatch]:
        for first in range(0, 200_000, 10_000):
            if first in (50_000, 120_000):
                killable.kill()
                killable.start()
            yield positioned(first, first + 10_000)

    try:
        with InlineClient(killable.service_url) as client:
            written = task(client, killable.service_url, struct(POSITIONS), topic=topic).write(rows())
        assert written.messages == 200_000
        assert values(killable.service_url, topic) == numbers(0, 200_000)
    finally:
        killable.kill()


# -- in Spark


def save(frame: DataFrame, running: TestBroker, topic: str, **options: str) -> None:
    frame.write.format("pulsar").mode("append").options(
        **{"service.url": running.service_url, "topic": topic, **options}
    ).save()


def fill(running: TestBroker, topic: str, first: int, end: int) -> None:
    """Numbers, even ones in partition 0 and odd ones in partition 1, with a key."""
    with Client(running.service_url) as client:
        producers = [client.producer(f"{topic}-partition-{index}", batch_messages_max=50) for index in range(2)]
        for number in range(first, end):
            producers[number % 2].send_async(b"%d" % number, key=f"key-{number % 10}")
        for producer in producers:
            producer.flush()


@pytest.mark.timeout(300)
def test_sp1_a_batch_write(spark: SparkSession, running: TestBroker, topic: str) -> None:
    frame = spark.range(0, 5000, numPartitions=3).selectExpr(
        "cast(id as string) as value",
        "cast(id % 7 as string) as __key",
        "timestamp_millis(1700000000000 + id) as __eventTime",
        "map('id', cast(id as string)) as __messageProperties",
    )
    save(frame, running, topic, **{"pulsar.producer.compressionType": "LZ4"})
    got = read(running.service_url, topic)
    assert sorted(int(message.value) for message in got) == list(range(5000))
    for message in got:
        number = int(message.value)
        assert (message.key, message.properties) == (str(number % 7), {"id": str(number)})
        assert message.event_time_ms == 1_700_000_000_000 + number


@pytest.mark.timeout(300)
def test_sp1_errors_reach_the_user(spark: SparkSession, running: TestBroker, topic: str) -> None:
    frame = spark.range(3).selectExpr("cast(id as string) as value", "id as __key")
    with pytest.raises(Exception, match="column __key is bigint: it must be binary or string"):
        save(frame, running, topic)
    frame = spark.range(3).selectExpr("cast(id as string) as value", "cast(null as string) as __topic")
    with pytest.raises(Exception, match="column __topic is null in row 0"):
        frame.write.format("pulsar").mode("append").option("service.url", running.service_url).save()


def run_stream(
    spark: SparkSession,
    running: TestBroker,
    source: str,
    target: str,
    checkpoint: Path,
    change: Callable[[DataFrame], DataFrame],
    reading: Mapping[str, str] = MappingProxyType({}),
    **options: str,
) -> None:
    frame = (
        spark.readStream.format("pulsar")
        .options(**{"service.url": running.service_url, "topic": source, "startingOffsets": "earliest", **reading})
        .load()
    )
    query = (
        change(frame)
        .writeStream.format("pulsar")
        .options(
            **{"service.url": running.service_url, "topic": target, "checkpointLocation": str(checkpoint), **options}
        )
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


def failing_once(marker: Path, at: int) -> Callable[[DataFrame], DataFrame]:
    """Raises at a value while the marker exists, and removes it."""
    there = str(marker)

    def pass_on(value: bytearray) -> bytes:
        if int(value) == at and os.path.exists(there):
            os.unlink(there)
            raise RuntimeError("killed in the middle")
        return bytes(value)

    return lambda frame: frame.withColumn("value", udf(pass_on, "binary", useArrow=False)("value"))


@pytest.mark.timeout(300)
def test_sp1_a_killed_stream_resumes_with_exactly_the_rest(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path
) -> None:
    partitions = create_partitions(running, f"{topic}-out", 2)
    create_partitions(running, topic, 2)
    fill(running, topic, 0, 24_000)
    marker = tmp_path / "marker"
    fail = failing_once(marker, 20_001)

    def no_keys(frame: DataFrame) -> DataFrame:
        return fail(frame.drop("__key"))

    marker.touch()
    with pytest.raises(Exception, match="killed in the middle"):
        run_stream(spark, running, topic, f"{topic}-out", tmp_path / "checkpoint", no_keys)
    partly = sum(len(values(running.service_url, partition)) for partition in partitions)
    assert 0 < partly < 24_000
    run_stream(spark, running, topic, f"{topic}-out", tmp_path / "checkpoint", no_keys)
    fill(running, topic, 24_000, 25_000)
    run_stream(spark, running, topic, f"{topic}-out", tmp_path / "checkpoint", no_keys)
    for index, partition in enumerate(partitions):
        assert values(running.service_url, partition) == [b"%d" % number for number in range(index, 25_000, 2)]


def failing_after_others(marker: Path, url: str, target: str) -> Callable[[DataFrame], DataFrame]:
    """The task with value 0 fails once another one has written."""
    there = str(marker)

    def pass_on(value: bytearray) -> bytes:
        if int(value) == 0 and os.path.exists(there):
            with Client(url) as client, client.reader(target, EARLIEST) as reader:
                reader.read(timeout_s=120)
            os.unlink(there)
            raise RuntimeError("killed in the middle")
        return bytes(value)

    return lambda frame: frame.withColumn("value", udf(pass_on, "binary", useArrow=False)("value"))


@pytest.mark.timeout(300)
def test_sp8_a_partition_read_by_several_tasks_is_written_exactly_once(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path
) -> None:
    """A micro-batch that failed with two tasks is repeated with two, whatever minPartitions is by then."""
    target, marker = f"{topic}-out", tmp_path / "marker"
    with Client(running.service_url) as client, client.producer(topic, batching=False) as producer:
        for value in numbers(0, 4000):
            producer.send_async(value)
        client.producer(target).close()
    fail = failing_after_others(marker, running.service_url, target)

    def run(tasks: int) -> None:
        options = {"exactlyOnce": "required", "admin.url": running.http_url}
        run_stream(
            spark, running, topic, target, tmp_path / "checkpoint", fail, {"minPartitions": str(tasks)}, **options
        )

    marker.touch()
    with pytest.raises(Exception, match="killed in the middle"):
        run(2)
    assert 0 < len(values(running.service_url, target)) <= 2000
    run(4)
    assert sorted(values(running.service_url, target), key=int) == numbers(0, 4000)


@pytest.mark.timeout(300)
def test_sp1_two_tasks_after_a_shuffle_write_every_row_once(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path
) -> None:
    create_partitions(running, topic, 2)
    fill(running, topic, 0, 4000)

    def by_key(frame: DataFrame) -> DataFrame:
        return frame.repartition(2, "__key")

    def dealt(frame: DataFrame) -> DataFrame:
        """One by one; Spark would sort rows by their hash."""
        return frame.repartition(2)

    run_stream(spark, running, topic, f"{topic}-out", tmp_path / "by-key", by_key)
    got = read(running.service_url, f"{topic}-out")
    assert sorted(int(message.value) for message in got) == list(range(4000))
    assert {message.producer_name.rpartition("/")[2] for message in got} == {"0", "1"}
    for key in range(10):  # in order per key
        of_key = [int(message.value) for message in got if message.key == f"key-{key}"]
        assert of_key == list(range(key, 4000, 10))
    with pytest.raises(Exception, match="are out of order"):
        run_stream(spark, running, topic, f"{topic}-dealt", tmp_path / "dealt", dealt)
    run_stream(spark, running, topic, f"{topic}-sorted", tmp_path / "sorted", dealt, sortByPosition="true")
    assert sorted(map(int, values(running.service_url, f"{topic}-sorted"))) == list(range(4000))
    with pytest.raises(Exception, match="2 tasks wrote to"):
        run_stream(
            spark,
            running,
            topic,
            f"{topic}-named",
            tmp_path / "named",
            by_key,
            **{"pulsar.producer.producerName": "me"},
        )


@pytest.mark.timeout(300)
def test_rows_of_the_source_can_be_written_unchanged(
    spark: SparkSession, running: TestBroker, topic: str, tmp_path: Path
) -> None:
    create_partitions(running, topic, 2)
    fill(running, topic, 0, 1000)
    frame = spark.read.format("pulsar").options(**{"service.url": running.service_url, "topic": topic}).load()
    assert NOT_WRITTEN & set(frame.columns)
    save(frame, running, f"{topic}-out", exactlyOnce="required", **{"admin.url": running.http_url})
    got = read(running.service_url, f"{topic}-out")
    assert sorted(int(message.value) for message in got) == list(range(1000))
    assert {message.key for message in got} == {f"key-{number}" for number in range(10)}

"""SP1, batch reads across ledgers: every column as the official client reads it, and start and end positions."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import official
import pulsar
import pytest
from pulsar.schema import AvroSchema, Double, Integer, JsonSchema, Record, Schema, String
from pyspark.sql import Row, SparkSession
from small_ledgers import ENTRIES_PER_LEDGER, KEEPS, Pulsar
from streams import error, read_values, table

from magnetar.client import MessageId

MESSAGES = 3 * ENTRIES_PER_LEDGER + 20


def numbers(first: int, last: int) -> list[str]:
    return [f"m{number}" for number in range(first, last)]


# Kinds of producers, in turn.
KINDS: dict[str, dict[str, Any]] = {
    "single": {},
    "batched": {"batching_enabled": True, "batching_max_messages": 7, "batching_max_publish_delay_ms": 50},
    "lz4": {"compression_type": pulsar.CompressionType.LZ4},
    "zstd": {
        "compression_type": pulsar.CompressionType.ZSTD,
        "batching_enabled": True,
        "batching_max_messages": 5,
        "batching_max_publish_delay_ms": 50,
    },
    "zlib": {"compression_type": pulsar.CompressionType.ZLib},
    "snappy": {"compression_type": pulsar.CompressionType.SNAPPY, "batching_enabled": True},
}


def publish_all_kinds(client: pulsar.Client, topic: str) -> None:
    for kind, options in KINDS.items():
        with official.producer(client, topic, **options) as producer:
            for number in range(MESSAGES):
                producer.send_async(
                    f"{kind}-{number}".encode() * (1 + number % 40),
                    None,
                    partition_key=f"k{number}" if number % 3 else None,
                    properties={"number": str(number), "kind": kind} if number % 5 else {},
                    event_timestamp=1_700_000_000_000 + number if number % 2 else None,
                )


def milliseconds(time: datetime | None) -> int:
    return 0 if time is None else round(time.timestamp() * 1000)


def of_row(row: Row) -> tuple[object, ...]:
    message_id = MessageId.from_bytes(bytes(row["__messageId"]))
    return (
        bytes(row.value),
        (row["__key"] or b"").decode(),
        row["__topic"],
        (message_id.ledger_id, message_id.entry_id, message_id.partition, message_id.batch_index),
        milliseconds(row["__publishTime"]),
        milliseconds(row["__eventTime"]),
        row["__messageProperties"],
        -1 if row["__batchIndex"] is None else row["__batchIndex"],
        row["__redeliveryCount"],
        row["__error"],
        row["__producerName"],
    )


def of_message(message: pulsar.Message) -> tuple[object, ...]:
    message_id = message.message_id()
    return (
        message.data(),
        message.partition_key(),
        message.topic_name(),
        (message_id.ledger_id(), message_id.entry_id(), message_id.partition(), message_id.batch_index()),
        message.publish_timestamp(),
        message.event_timestamp(),
        message.properties(),
        message_id.batch_index(),
        message.redelivery_count(),
        None,
        message.producer_name(),
    )


COLUMNS = (
    "value,__key,__topic,__messageId,__publishTime,__eventTime,__messageProperties,__batchIndex,__redeliveryCount,"
    "__error,__producerName"
)


@pytest.mark.parametrize("through", ["service.url", "admin.url"])
def test_sp1_all_columns_equal_what_the_official_client_reads(
    spark: SparkSession, broker: Pulsar, client: pulsar.Client, topic: str, through: str
) -> None:
    partitions = broker.create(topic, 3)
    publish_all_kinds(client, topic)
    assert all(len(broker.ledgers(partition)) > 2 for partition in partitions)

    options = {"admin.url": broker.http_url} if through == "admin.url" else {}
    rows = table(spark, broker, topic=topic, columns=COLUMNS, **options).collect()

    expected = [of_message(message) for partition in partitions for message in official.read(client, partition)]
    assert len(expected) == MESSAGES * len(KINDS)
    assert sorted(map(of_row, rows), key=lambda row: row[2:4]) == sorted(expected, key=lambda row: row[2:4])
    for partition in partitions:
        places = [of_row(row)[3] for row in rows if row["__topic"] == partition]
        assert places == sorted(places)  # type: ignore[type-var]
    # A message id of ours means the same to the official client.
    ids = {bytes(row["__messageId"]) for row in rows}
    assert {str(pulsar.MessageId.deserialize(each)) for each in ids} == {
        str(message.message_id()) for partition in partitions for message in official.read(client, partition)
    }
    assert [broker.subscriptions(partition) for partition in partitions] == [[]] * 3


@pytest.mark.parametrize("batched", [False, True])
def test_sp1_start_and_end_positions(
    spark: SparkSession, broker: Pulsar, client: pulsar.Client, topic: str, batched: bool
) -> None:
    options = {"batching_enabled": True, "batching_max_messages": 3} if batched else {}
    official.publish(client, topic, numbers(0, MESSAGES), **options)
    time.sleep(0.05)
    between_ms = int(time.time() * 1000)
    time.sleep(0.05)
    official.publish(client, topic, numbers(MESSAGES, 2 * MESSAGES), **options)
    messages = official.read(client, topic)
    everything = numbers(0, 2 * MESSAGES)
    assert [message.data().decode() for message in messages] == everything

    def read(**bounds: str) -> list[str]:
        return read_values(spark, broker, topic=topic, **bounds)

    assert read(startingOffsets="earliest", endingOffsets="latest") == everything
    assert read(startingOffsets="latest") == []
    assert read(endingOffsets="earliest") == []
    # A time, in both spellings.
    moment = datetime.fromtimestamp(between_ms / 1000, UTC).isoformat()
    assert read(startingOffsets=str(between_ms)) == everything[MESSAGES:]
    assert read(endingOffsets=moment) == everything[:MESSAGES]
    assert read(startingTime=str(between_ms)) == everything[MESSAGES:]
    assert read(endingTime=json.dumps({topic: between_ms})) == everything[:MESSAGES]
    assert read(startingOffsets=moment, endingOffsets=str(between_ms)) == []
    assert read(startingOffsets="2020-01-01T00:00:00Z", endingOffsets="2100-01-01T00:00:00Z") == everything
    # Message ids, in several ledgers and inside batches.
    for first, last in ((0, 1), (4, 60), (49, 50), (50, 2 * MESSAGES - 1), (99, 101), (7, 7)):
        begin, end = (str(MessageId.from_bytes(messages[place].message_id().serialize())) for place in (first, last))
        bounds = {"startingOffsets": json.dumps({topic: begin}), "endingOffsets": json.dumps({topic: end})}
        assert read(**bounds) == everything[first + 1 : last + 1]
        # The Scala connector writes an id as bytes, and starts with that message.
        data = list(messages[first].message_id().serialize())
        assert (
            read(startingOffsets=json.dumps({topic: data}), endingOffsets=bounds["endingOffsets"])
            == (everything[first : last + 1])
        )
    # An entry beyond the end of its ledger means the last one.
    begin_id = messages[0].message_id()
    beyond = json.dumps({topic: f"{begin_id.ledger_id()}:{10 * ENTRIES_PER_LEDGER}:-1"})
    here = [m.data().decode() for m in messages if m.message_id().ledger_id() == begin_id.ledger_id()]
    assert read(endingOffsets=beyond) == here
    assert read(startingOffsets=beyond) == everything[len(here) :]
    assert broker.subscriptions(topic) == []


def test_sp1_topics_by_pattern(spark: SparkSession, broker: Pulsar, client: pulsar.Client, topic: str) -> None:
    broker.create(f"{topic}-orders", 2)
    for suffix in ("orders", "refunds", "other"):
        official.publish(client, f"{topic}-{suffix}", [f"{suffix}-{number}" for number in range(120)])
    own = topic.rpartition("/")[2]
    pattern = f"{KEEPS}/{own}-(orders|refunds)"

    for more in ({}, {"admin.url": broker.http_url}):
        rows = table(spark, broker, topicsPattern=pattern, columns="__topic,value", **more).collect()
        assert sorted(bytes(row.value).decode() for row in rows) == sorted(
            f"{suffix}-{number}" for suffix in ("orders", "refunds") for number in range(120)
        )
        assert {row["__topic"] for row in rows} == {
            f"{topic}-refunds",
            *(f"{topic}-orders-partition-{index}" for index in range(2)),
        }


class OrderV1(Record):  # type: ignore[misc]
    customer = String()
    pieces = Integer()


class OrderV2(Record):  # type: ignore[misc]
    customer = String()
    pieces = Integer()
    price = Double(default=None, required_default=True)


@pytest.mark.parametrize("kind", [JsonSchema, AvroSchema])
def test_sp1_two_versions_of_a_schema_become_one_table(
    spark: SparkSession, broker: Pulsar, client: pulsar.Client, topic: str, kind: type[Schema]
) -> None:
    # Both versions need one record name, or Avro takes them for different records.
    OrderV2.__name__ = OrderV1.__name__
    with official.producer(client, topic, schema=kind(OrderV1)) as producer:
        for number in range(70):
            producer.send_async(OrderV1(customer=f"c{number}", pieces=number), None)
    with official.producer(client, topic, schema=kind(OrderV2), batching_enabled=True) as producer:
        for number in range(70, 140):
            producer.send_async(OrderV2(customer=f"c{number}", pieces=number, price=number / 2), None)

    for more in ({}, {"admin.url": broker.http_url}):
        frame = table(spark, broker, topic=topic, columns="customer,pieces,price,__schemaVersion", **more)
        rows = frame.collect()
        assert [(row.customer, row.pieces, row.price) for row in rows] == [
            (f"c{number}", number, number / 2 if number >= 70 else None) for number in range(140)
        ]
        assert len({row["__schemaVersion"] for row in rows}) == 2
    raw = table(spark, broker, topic=topic, decode="raw").select("value").collect()
    assert [bytes(row.value) for row in raw] == [message.data() for message in official.read(client, topic)]


def test_sp1_a_topic_that_does_not_exist(spark: SparkSession, broker: Pulsar, name: str) -> None:
    for more in ({}, {"admin.url": broker.http_url}):
        text = error(lambda more=more: table(spark, broker, topic=name, **more).collect())  # type: ignore[misc]
        assert f"topic persistent://public/default/{name} does not exist" in text
    found = broker.ask("GET", f"persistent/{KEEPS}").json()
    assert f"persistent://{KEEPS}/{name}" not in found

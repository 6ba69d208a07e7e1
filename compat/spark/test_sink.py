"""SP1, the sink: keys are routed as by the official client, and rows arrive once despite failures."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import official
import pulsar
import pytest
from java import find_java
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import BinaryType
from small_ledgers import ENTRIES_PER_LEDGER, KEEPS, ONCE, Pulsar
from streams import PATIENCE_S, error, table

MESSAGES = 3 * ENTRIES_PER_LEDGER + 40
PARTITIONS = 3


def in_once(name: str) -> str:
    return f"persistent://{ONCE}/{name}"


def save(frame: DataFrame, broker: Pulsar, **options: str) -> None:
    frame.write.format("pulsar").mode("append").option("service.url", broker.service_url).options(**options).save()


def contents(client: pulsar.Client, partitions: list[str]) -> list[list[tuple[object, ...]]]:
    return [
        [
            (message.data(), message.partition_key(), message.properties(), message.event_timestamp())
            for message in official.read(client, partition)
        ]
        for partition in partitions
    ]


@pytest.mark.parametrize("scheme", ["Murmur3_32Hash", "JavaStringHash"])
def test_sp1_keys_are_routed_as_by_the_official_client(
    spark: SparkSession, broker: Pulsar, client: pulsar.Client, topic: str, scheme: str
) -> None:
    """Compares with the Java client: the Python client's hash cannot be selected elsewhere."""
    ours, theirs = (broker.create(f"{topic}-{side}", 5) for side in ("ours", "theirs"))
    keys = [f"schlüssel-{number}" for number in range(200)]
    program = str(Path(__file__).parent / "Keys.java")
    command = find_java().command((), program, broker.service_url, f"{topic}-theirs", scheme, *keys)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    frame = spark.createDataFrame([(key, key) for key in keys], "value string, __key string").coalesce(1)
    save(
        frame,
        broker,
        topic=f"{topic}-ours",
        **{"pulsar.producer.hashingScheme": scheme, "pulsar.producer.compressionType": "ZSTD"},
    )

    assert contents(client, ours) == contents(client, theirs)
    assert all(contents(client, ours))


def test_sp1_rows_are_messages(spark: SparkSession, broker: Pulsar, client: pulsar.Client, topic: str) -> None:
    rows = [(f"v{number}", f"k{number}", {"n": str(number)}, 1000 + number) for number in range(200)]
    types = "value string, __key string, __messageProperties map<string,string>, __eventTime bigint"
    save(spark.createDataFrame(rows, types).coalesce(1), broker, topic=topic)
    assert contents(client, [topic]) == [[(value.encode(), *others) for value, *others in rows]]


def test_sp1_typed_columns_are_written_with_a_schema(
    spark: SparkSession, broker: Pulsar, client: pulsar.Client, topic: str
) -> None:
    from magnetar.spark.codec.frame_schema import schema_of

    people = spark.createDataFrame([(f"p{number}", number) for number in range(100)], "name string, age int")
    for kind in ("avro", "json"):
        made = schema_of(people.schema, kind)  # type: ignore[arg-type]
        schema = json.dumps({"type": made.type, "schema": made.data.decode()})
        save(people.coalesce(1), broker, topic=f"{topic}-{kind}", schema=schema)
        # The schema exists now, so the second write need not name it.
        save(people.coalesce(1), broker, topic=f"{topic}-{kind}")
        rows = table(spark, broker, topic=f"{topic}-{kind}", columns="name,age").collect()
        assert rows == people.collect() * 2
        assert broker.ask("GET", f"schemas/{KEEPS}/{topic.rpartition('/')[2]}-{kind}/schema").json()["version"] == 0


class Copy:
    """A stream from topic to topic; while `flag` exists, a task raises at the given value."""

    def __init__(self, spark: SparkSession, broker: Pulsar, folder: Path, source: str, target: str) -> None:
        self._spark = spark
        self._broker = broker
        self._folder = folder
        self._source = source
        self._target = target
        self.flag = folder / "fails"

    def start(self, fails_at: bytes = b"", **options: Any) -> StreamingQuery:
        flag = str(self.flag)

        def checked(value: bytes) -> bytes:
            import os

            if bytes(value) == fails_at and os.path.exists(flag):
                raise ValueError("this task fails")
            return value

        source = self._spark.readStream.format("pulsar").option("service.url", self._broker.service_url)
        rows = source.options(topic=self._source, startingOffsets="earliest", maxEntriesPerTrigger="150").load()
        if fails_at:
            rows = rows.withColumn("value", udf(checked, BinaryType(), useArrow=False)("value"))
        writer = rows.writeStream.format("pulsar").options(
            **{
                "service.url": self._broker.service_url,
                "admin.url": self._broker.http_url,
                "topic": self._target,
                "checkpointLocation": str(self._folder / "checkpoint"),
                "pulsar.producer.batchingMaxMessages": "4",
                **options,
            }
        )
        return writer.trigger(availableNow=True).start()

    def run(self, fails_at: bytes = b"", **options: Any) -> None:
        query = self.start(fails_at, **options)
        assert query.awaitTermination(PATIENCE_S)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("unloaded", [False, True])
def test_sp1_exactly_once_despite_a_failed_task(
    spark: SparkSession, broker: Pulsar, client: pulsar.Client, name: str, tmp_path: Path, unloaded: bool, keyed: bool
) -> None:
    source, target = in_once(f"{name}-source"), in_once(f"{name}-target")
    sources, targets = broker.create(source, PARTITIONS), broker.create(target, PARTITIONS)
    for index, partition in enumerate(sources):
        options = {"batching_enabled": True, "batching_max_messages": 3} if index == 1 else {}
        with official.producer(client, partition, **options) as producer:
            for number in range(MESSAGES):
                key = f"k{number % 17}" if keyed else None
                producer.send_async(f"{index}-{number}".encode(), None, partition_key=key)
    copy = Copy(spark, broker, tmp_path, source, target)
    copy.flag.touch()

    for fails_at in (b"0-30", b"1-100", b"2-131"):
        assert "this task fails" in error(lambda fails_at=fails_at: copy.run(fails_at, exactlyOnce="required"))  # type: ignore[misc]
        if unloaded:
            for partition in targets:
                broker.topic("PUT", partition, "/unload")
    assert any(official.read(client, partition) for partition in targets)
    copy.flag.unlink()
    copy.run(b"none", exactlyOnce="required")

    found = [[message.data().decode() for message in official.read(client, partition)] for partition in targets]
    assert sorted(value for values in found for value in values) == sorted(
        f"{index}-{number}" for index in range(PARTITIONS) for number in range(MESSAGES)
    )
    for index, values in enumerate(found):
        if not keyed:
            assert values == [f"{index}-{number}" for number in range(MESSAGES)]
        for source_index in range(PARTITIONS):
            own = [int(value.partition("-")[2]) for value in values if value.startswith(f"{source_index}-")]
            assert own == sorted(own)


def test_sp1_a_topic_without_deduplication_is_rejected(
    spark: SparkSession, broker: Pulsar, client: pulsar.Client, topic: str, name: str, tmp_path: Path
) -> None:
    official.publish(client, topic, ["a", "b"])
    target = f"{topic}-target"
    text = error(lambda: Copy(spark, broker, tmp_path / "refused", topic, target).run(exactlyOnce="required"))
    assert target in text and "dedupli" in text
    # At least once is allowed on request; with deduplication the topic is written exactly once.
    Copy(spark, broker, tmp_path / "off", topic, target).run(exactlyOnce="off")
    assert official.values(client, target) == ["a", "b"]
    Copy(spark, broker, tmp_path / "once", topic, in_once(name)).run(exactlyOnce="required")
    assert official.values(client, in_once(name)) == ["a", "b"]


def test_sp1_entries_are_copied_byte_for_byte(
    spark: SparkSession, broker: Pulsar, client: pulsar.Client, name: str, tmp_path: Path
) -> None:
    source, target = in_once(f"{name}-source"), in_once(f"{name}-target")
    sources, targets = broker.create(source, 2), broker.create(target, 2)
    for kind in (
        {},
        {"batching_enabled": True, "batching_max_messages": 5, "compression_type": pulsar.CompressionType.LZ4},
    ):
        with official.producer(client, source, **kind) as producer:
            for number in range(MESSAGES):
                producer.send_async(
                    b"%d" % number, None, partition_key=f"k{number}", properties={"n": str(number)}, event_timestamp=7
                )
    reader = spark.readStream.format("pulsar").option("service.url", broker.service_url)
    options = {"startingOffsets": "earliest", "includeEntries": "true", "maxEntriesPerTrigger": "60"}
    entries = reader.options(topic=source, **options).load()
    writer = entries.writeStream.format("pulsar").options(
        **{
            "service.url": broker.service_url,
            "admin.url": broker.http_url,
            "topic": target,
            "exactlyOnce": "required",
            "checkpointLocation": str(tmp_path / "checkpoint"),
        }
    )
    for _ in range(2):
        assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
        assert contents(client, targets) == contents(client, sources)
        # Spark repeats the last batch if its completion was not recorded.
        commits = tmp_path / "checkpoint" / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
        for file in (str(last), f".{last}.crc"):
            (commits / file).unlink(missing_ok=True)
        for partition in targets:
            broker.topic("PUT", partition, "/unload")
    for there, here in zip(targets, sources, strict=True):
        copied, original = official.read(client, there), official.read(client, here)
        assert [m.publish_timestamp() for m in copied] == [m.publish_timestamp() for m in original]
        assert [m.message_id().batch_index() for m in copied] == [m.message_id().batch_index() for m in original]

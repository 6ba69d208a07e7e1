"""A DataFrame used several times gives the same rows each time, whatever Spark pushes down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from magnetar.client import Client
from magnetar.spark.runtime.settings import REQUIRED, TUNED
from magnetar.testing import TestBroker, broker
from tests.spark.source.json_topics import put_schema

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ROWS = 8
PATIENCE_S = 60


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as running, Client(running.service_url) as client:
        put_schema(running, "typed", n="int")
        for topic in ("raw", "typed"):
            with client.producer(topic, batch_messages_max=1) as producer:
                for number in range(ROWS):
                    producer.send(b'{"n": %d}' % number)
        yield running


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the switch on, as a program may set it."""
    spark.conf.set(PUSHDOWN, "true")
    yield spark
    spark.conf.unset(PUSHDOWN)


def options(running: TestBroker, kind: str) -> dict[str, str]:
    options = {"service.url": running.service_url, "topic": "typed" if kind == "typed" else "raw"}
    return options | ({"includeEntries": "true"} if kind == "entries" else {})


def halves(frame: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The first three rows and the others, by filters that Spark pushes down."""
    third = sorted(row["__publishTime"] for row in frame.select("__publishTime").collect())[2]
    is_old = frame["__publishTime"] <= third
    return frame.where(is_old), frame.where(~is_old)


def test_sp8_sessions_do_not_switch_pushdown_on() -> None:
    assert PUSHDOWN not in {setting.name for setting in (*REQUIRED, *TUNED)}


@pytest.mark.parametrize("kind", ["raw", "typed", "entries"])
def test_sp8_a_dataframe_used_three_times_gives_the_same_rows(
    pushing: SparkSession, running: TestBroker, kind: str
) -> None:
    frame = pushing.read.format("pulsar").options(**options(running, kind)).load()
    old, new = halves(frame)
    split = (old.count(), new.count())

    assert sum(split) == ROWS
    assert split[0] >= 3
    assert frame.count() == ROWS, "after two filtered queries"
    assert old.union(new).union(frame).count() == 2 * ROWS, "three uses in one query"
    assert old.crossJoin(new.select("__messageId")).count() == split[0] * split[1]
    frame.createOrReplaceTempView("sp8")
    assert pushing.sql("select * from sp8 where __topic = 'nope'").count() == 0
    assert pushing.sql("select * from sp8").count() == ROWS


@pytest.mark.parametrize("kind", ["raw", "typed", "entries"])
def test_sp8_a_stream_used_three_times_gives_the_same_rows(
    pushing: SparkSession, running: TestBroker, tmp_path: Path, kind: str
) -> None:
    source = pushing.readStream.format("pulsar").options(**options(running, kind), startingOffsets="earliest")
    frame = source.load().select("__topic", "__messageId")
    is_here = frame["__topic"] == f"persistent://public/default/{'typed' if kind == 'typed' else 'raw'}"
    counts: list[int] = []
    query = (
        frame.where(~is_here)
        .union(frame.where(is_here))
        .union(frame)
        .writeStream.foreachBatch(lambda rows, _: counts.append(rows.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    assert sum(counts) == 2 * ROWS

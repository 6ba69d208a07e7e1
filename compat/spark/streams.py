"""Batch and streaming reads of the broker, shared by the tests of this folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery
from small_ledgers import Pulsar

PATIENCE_S = 90


def table(spark: SparkSession, broker: Pulsar, **options: str) -> DataFrame:
    return spark.read.format("pulsar").option("service.url", broker.service_url).options(**options).load()


def values(rows: Sequence[Row]) -> list[str]:
    return [bytes(row.value).decode() for row in rows]


def read_values(spark: SparkSession, broker: Pulsar, **options: str) -> list[str]:
    return values(table(spark, broker, columns="value", **options).collect())


class Stream:
    """A stream into lists of values by topic, resumable; the batch `fails_at` raises."""

    def __init__(self, spark: SparkSession, broker: Pulsar, folder: Path) -> None:
        self.values: dict[str, list[str]] = {}
        self.batches: list[int] = []
        self.fails_at: int | None = None
        self._spark = spark
        self._broker = broker
        self._folder = folder

    def start(self, *, available_now: bool = False, **options: str) -> StreamingQuery:
        source = self._spark.readStream.format("pulsar").option("service.url", self._broker.service_url)
        writer = source.options(**options).load().writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, **options: str) -> list[str]:
        """Processes all available messages once."""
        self.values.clear()
        self.batches.clear()
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(PATIENCE_S)
        return self.all

    @property
    def all(self) -> list[str]:
        return [value for values in self.values.values() for value in values]

    def _take(self, rows: DataFrame, _: int) -> None:
        if len(self.batches) == self.fails_at:
            raise ValueError("this batch fails")
        found = rows.select("__topic", "value").collect()
        self.batches.append(len(found))
        for row in found:
            self.values.setdefault(row["__topic"], []).append(bytes(row.value).decode())

    def wait(self, query: StreamingQuery, count: int) -> None:
        eventually(lambda: len(self.all) >= count or not query.isActive)
        assert query.exception() is None


def eventually(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def error(action: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as raised:
        action()
    return str(raised.value)

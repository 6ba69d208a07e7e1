"""One Spark session with Delta Lake for the tests of this folder, and a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import magnetar.spark
from magnetar.testing import TestBroker, broker
from tests.pipelines.archive.conftest import Site

SETTINGS = {
    "spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = magnetar.spark.session("local[2]", **SETTINGS)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(brokerDeduplicationEnabled=True) as running:
        yield running


@pytest.fixture
def site(running: TestBroker, spark: SparkSession, tmp_path: Path) -> Site:
    return Site(running, spark, tmp_path)

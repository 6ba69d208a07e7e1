"""One Apache Pulsar and one Spark session for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pulsar
import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent))

from small_ledgers import KEEPS, Pulsar, SmallLedgers, prepared
from streams import Stream

import magnetar.spark

_numbers = count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pulsar]:
    import java

    try:
        runtime = java.find_java()
    except java.JavaMissing as missing:
        pytest.skip(str(missing))
    with SmallLedgers(tmp_path_factory.mktemp("spark"), runtime, journal_sync=False).started() as running:
        yield prepared(running)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = magnetar.spark.session("local[2]", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def client(broker: Pulsar) -> Iterator[pulsar.Client]:
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    return f"spark-{next(_numbers)}"


@pytest.fixture
def topic(name: str) -> str:
    return f"persistent://{KEEPS}/{name}"


@pytest.fixture
def stream(spark: SparkSession, broker: Pulsar, tmp_path: Path) -> Iterator[Stream]:
    yield Stream(spark, broker, tmp_path)
    for query in spark.streams.active:
        query.stop()

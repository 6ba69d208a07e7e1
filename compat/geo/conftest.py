"""One Apache Pulsar, one broker of ours and one Spark session for all tests of this folder."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent))

from clusters import Apache, Ours, new_namespace
from routes import Routes

import magnetar.spark


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    import java

    try:
        runtime = java.find_java()
    except java.JavaMissing as missing:
        pytest.skip(str(missing))
    cluster = Apache("apache", tmp_path_factory.mktemp("apache"), runtime)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def new_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Ours]]:
    """Starts another broker of ours, for broker-wide settings."""
    with contextlib.ExitStack() as stack:

        def start(name: str, **settings: object) -> Ours:
            cluster = Ours(name, tmp_path_factory.mktemp(name), **settings)
            stack.callback(cluster.close)
            cluster.start()
            return cluster

        yield start


@pytest.fixture(scope="session")
def ours(new_ours: Callable[..., Ours]) -> Ours:
    return new_ours("ours")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.scheduler.mode": "FAIR"}
    session = magnetar.spark.session("local[4]", **settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def routes(spark: SparkSession) -> Iterator[Routes]:
    """Our pipelines, each kept for all tests."""
    with contextlib.ExitStack() as stack:
        yield Routes(spark, stack)


@pytest.fixture
def namespace(ours: Ours, apache: Apache) -> str:
    """A namespace in both clusters: empty, with deduplication, not yet replicated."""
    return new_namespace(ours, apache)

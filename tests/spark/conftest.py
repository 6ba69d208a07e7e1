"""One Spark session for all tests that need one: starting it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import magnetar.spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # The quick compiler alone: what a test runs is over before the thorough one pays.
    session = magnetar.spark.session("local[2]", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    yield session
    session.stop()

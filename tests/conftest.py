"""One Spark session for all tests that need one, since its start takes seconds; property tests without deadlines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# On a busy machine an example may take a hundred times as long.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With parallel tests, one process runs all tests that need the session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_runtest_setup() -> None:
    """A broker makes what its process creates private, for as long as the process lives: here, until the next test."""
    os.umask(0o022)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import magnetar.spark  # most tests need no Spark, and its import is slow

    # Only the quick compiler: a test ends before the optimizing one pays off.
    session = magnetar.spark.session("local[2]", **{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    yield session
    session.stop()

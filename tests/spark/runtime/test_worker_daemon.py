"""The worker daemon in a real session: imported modules and frozen objects in its workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import magnetar.pipelines.worker_daemon
from magnetar.spark.runtime import worker_daemon

Seen = tuple[int, bool, bool, int]


def look_around(_: Iterator[int]) -> Iterator[Seen]:
    import gc
    import os
    import sys

    yield os.getpid(), "magnetar.spark.source.source" in sys.modules, "pyarrow" in sys.modules, gc.get_freeze_count()


def look(spark: SparkSession) -> list[Seen]:
    return spark.sparkContext.parallelize(range(1), 1).mapPartitions(look_around).collect()


def test_preloaded_modules_exist() -> None:
    names = (*worker_daemon._PRELOADED, *magnetar.pipelines.worker_daemon.PRELOADED)
    assert [name for name in names if find_spec(name) is None] == []


def test_pyspark_is_not_compiled_again_from_its_archive() -> None:
    library = Path(pyspark.__file__).parent / "python" / "lib"
    places = ["", str(library / "pyspark.zip"), str(library / "py4j-0.10.9.9-src.zip"), *sys.path, "/a/shipped.zip"]
    assert worker_daemon.without_archives(places) == ["", *sys.path, "/a/shipped.zip"]


def test_the_archive_of_another_spark_is_kept() -> None:
    """On a cluster it is the one that the executor belongs to."""
    places = ["/opt/spark/python/lib/pyspark.zip", *sys.path]
    assert worker_daemon.without_archives(places) == places
    alone = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10.9.9-src.zip"]
    assert worker_daemon.without_archives(alone) == alone


def test_a_worker_has_everything_imported_and_frozen_and_runs_many_tasks(spark: SparkSession) -> None:
    seen = [seen for _ in range(5) for seen in look(spark)]
    assert all(source and arrow for _, source, arrow, _ in seen)
    # More objects than a bare Python has in total.
    assert all(frozen > 20_000 for *_, frozen in seen)
    assert len({pid for pid, *_ in seen}) < len(seen)


def test_a_failed_task_does_not_end_the_parent(spark: SparkSession) -> None:
    def fail(_: Iterator[int]) -> Iterator[int]:
        raise ValueError("as planned")

    try:
        spark.sparkContext.parallelize(range(1), 1).mapPartitions(fail).collect()
    except Exception as error:
        assert "as planned" in str(error)
    else:
        raise AssertionError("the task did not fail")
    assert look(spark)

"""A condition that ends Spark, with real processes: others are copied again, and it is stopped the second time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import magnetar.testing
from magnetar.pipelines.filter import suspects
from tests.pipelines.conftest import Cluster, until

TOO_MUCH = "regexp_replace(repeat(CAST(value AS STRING), 4), '', 'yyyy') = 'x'"
"""It is allowed: for most messages there is enough memory."""

LARGE = b"x" * (5_000_000)
HEAP = "--driver-memory 480m pyspark-shell"
WAIT_S = 120.0


@contextmanager
def pipelines(cluster: Cluster, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = ["-m", "magnetar.pipelines", "--url", cluster.broker.http_url, "--spark-log", str(folder / "spark.log")]
    process = subprocess.Popen(
        [sys.executable, *words, "--master", "local[2]", "--retry-max", "1"],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": HEAP, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(WAIT_S)


@pytest.mark.timeout(400)
def test_a_condition_that_ends_spark_is_stopped_and_others_are_copied(tmp_path: Path) -> None:
    with (
        magnetar.testing.broker(clusterName="a", pipelinesEnabled=False) as one,
        magnetar.testing.broker(clusterName="b", pipelinesEnabled=False) as other,
    ):
        a, b = Cluster("a", one), Cluster("b", other)
        a.know(b)
        for namespace in ("public/good", "public/evil"):
            b.replicate(namespace=namespace)
            a.replicate(b, namespace=namespace)
            a.create(f"{namespace}/t")
        a.set_route(b, "public/good", where="length(value) > 0")
        a.set_route(b, "public/evil", where=TOO_MUCH)
        a.publish("public/evil/t", LARGE)
        for number in range(2):
            a.publish("public/good/t", str(number).encode())
            with pipelines(a, tmp_path) as process:
                assert process.wait(WAIT_S) == 1, "Spark ended"
        with pipelines(a, tmp_path):
            assert b.values("public/good/t", 2) == [b"0", b"1"]
            until(lambda: a.states("public/evil/t", b) == ["stopped"], "stopped")
            until(lambda: "again while it alone was" in a.status("public/evil/t", b)[0]["reason"], "the reason")
            (row,) = a.status("public/evil/t", b)
            assert (row["problem"], TOO_MUCH in row["reason"]) == ("filter", True)
            a.set_route(b, "public/evil", where="length(value) > 0")
            assert b.values("public/evil/t", 1) == [LARGE]
        assert "yyyy" not in (tmp_path / suspects.FILE).read_text()
        for cluster in (a, b):
            cluster.close()

"""The pipelines process on a real standalone Spark cluster, whose Python has none of our packages."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import magnetar.testing
from tests.pipelines.conftest import NAMESPACE, Cluster, full, until
from tests.pipelines.copy.test_in_transit import OVER_ONE, person, sha
from tests.spark.standalone import bare_python, environment_without_spark, standalone_cluster

START_S = 120


@contextlib.contextmanager
def pipelines(cluster: Cluster, master: str, python: Path, log: Path) -> Iterator[None]:
    """`magnetar pipelines` on a Spark cluster."""
    command = ["-m", "magnetar", "pipelines", "--url", cluster.broker.http_url, "--master", master]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *command], env=on_cluster(python), stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(30) == 0, log.read_text()


def on_cluster(python: Path) -> dict[str, str]:
    return {**environment_without_spark(), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.mark.timeout(600)
def test_gr6_sp6_sp7_a_spark_cluster_replicates_filters_and_verifies(tmp_path: Path) -> None:
    python, log = bare_python(tmp_path), tmp_path / "pipelines.log"
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(standalone_cluster(tmp_path))
        a, b = (Cluster(name, stack.enter_context(magnetar.testing.broker(clusterName=name))) for name in ("a", "b"))
        for cluster in (a, b):
            stack.callback(cluster.close)
        a.know(b)
        b.replicate(b)
        a.replicate(b)
        a.create("plain", partitions=2)
        a.create("some")
        a.set_route(b, f"{NAMESPACE}/some", where=OVER_ONE, masks=[{"field": "email"}])
        values = [b"%d" % number for number in range(200)]
        a.publish("plain", *values)
        a.publish("some", *(person(number, f"{number}@x") for number in range(5)))
        with pipelines(a, master, python, log):
            until(lambda: a.states("plain", b) == ["running"] * 2, f"running; {log.read_text()}", START_S)
            assert sorted(b.values("plain", 200)) == sorted(values)
            assert b.values("some", 3) == [person(number, sha(f"{number}@x")) for number in (2, 3, 4)]
        told = subprocess.run(
            [
                *(sys.executable, "-m", "magnetar", "replication", "verify", "--master", master, "--json"),
                *(a.broker.http_url, b.broker.http_url, "--topics", full("plain")),
            ],
            env=on_cluster(python),
            capture_output=True,
            text=True,
        )
        assert told.returncode == 0, told.stderr
        compared = json.loads(told.stdout)["topics"]
        assert [sum(topic[side] for topic in compared) for side in ("originals", "copies")] == [200, 200], compared

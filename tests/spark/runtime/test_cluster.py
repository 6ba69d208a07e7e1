"""A standalone cluster on loopback: a master and two workers, whose Python has Spark and Arrow but not Magnetar."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import magnetar.testing
from tests.spark.standalone import bare_python, environment_without_spark, standalone_cluster


@pytest.mark.timeout(600)
def test_sp7_a_cluster_without_our_package_reads_and_writes(tmp_path: Path) -> None:
    python = bare_python(tmp_path)
    absent = subprocess.run([python, "-c", "import magnetar"], capture_output=True, text=True)
    assert "No module named 'magnetar'" in absent.stderr
    with standalone_cluster(tmp_path) as master, magnetar.testing.broker() as broker:
        httpx.put(f"{broker.http_url}/admin/v2/persistent/public/default/numbers/partitions", json=2).raise_for_status()
        job = Path(__file__).parents[1] / "cluster_job.py"
        ran = subprocess.run(
            [sys.executable, job, master, broker.service_url, "numbers", "1000"],
            env={**environment_without_spark(), "PYSPARK_PYTHON": str(python)},
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert sorted(told["values"], key=int) == [str(number) for number in range(1000)]
    assert len(told["packages"]) == 2, "the package is in the folder of each executor"
    assert all("magnetar_shipped" in package for package in told["packages"])
    assert len(told["written_by"]) == 2 and all(told["written_by"].values())
    assert all(told["read_by"][executor] > tasks for executor, tasks in told["written_by"].items())

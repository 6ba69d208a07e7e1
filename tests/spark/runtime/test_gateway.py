"""The command line of a small JVM, and its end with a driver that does not wait for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from magnetar.spark.runtime import gateway
from magnetar.spark.runtime.gateway import with_flags
from magnetar.spark.runtime.settings import SMALL_JVM

LINE = ["java", "-Xmx1g", "org.apache.spark.deploy.SparkSubmit"]


def test_flags_come_before_those_of_the_user_which_win() -> None:
    assert with_flags(LINE, SMALL_JVM, {}) == ["java", *SMALL_JVM, *LINE[1:]]


def test_a_garbage_collector_of_the_user_is_the_only_one() -> None:
    """A JVM with two of them does not start."""
    without = [flag for flag in SMALL_JVM if flag != "-XX:+UseSerialGC"]
    assert len(without) < len(SMALL_JVM)
    users = ["java", "-XX:+UseZGC", *LINE[1:]]
    assert with_flags(users, SMALL_JVM, {}) == ["java", *without, *users[1:]]
    assert with_flags(LINE, SMALL_JVM, {"JDK_JAVA_OPTIONS": "-Da=b -XX:+UseG1GC"}) == ["java", *without, *LINE[1:]]


ENDS_EARLY = """
import threading, time
from magnetar.spark.runtime import gateway, start
threading.Thread(target=start.context, args=("local[1]",), daemon=True).start()
while not gateway._launching:
    time.sleep(0.01)
print(gateway._launching[0].pid)
"""


def test_a_jvm_that_is_not_up_yet_ends_with_its_driver() -> None:
    """It has the same output, so that the end of the output is the end of both."""
    said = subprocess.run([sys.executable, "-c", ENDS_EARLY], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    assert int(said.stdout) > 0


def test_folders_of_processes_that_were_killed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, age_s in (("magnetar-gateway-old", 7200), ("magnetar-gateway-new", 60), ("another", 7200)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "connection").write_bytes(b"x")
        then_s = folder.stat().st_mtime - age_s
        os.utime(folder, (then_s, then_s))
    gateway._remove_leftovers()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["another", "magnetar-gateway-new"]

"""The class archive: one for each Java and class path, private, whole or absent, and never needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.spark.runtime import archiving, class_archive, gateway, java, start
from magnetar.spark.runtime.archiving import Archiving
from magnetar.spark.runtime.class_archive import KEPT, ClassArchive
from magnetar.spark.runtime.java import Java
from magnetar.spark.runtime.settings import SMALL_JVM

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of archives."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / f"magnetar-class-archives-{os.getuid()}"


@pytest.fixture
def some_java(tmp_path: Path) -> Java:
    shared = tmp_path / "java" / "lib" / "server" / "classes.jsa"
    shared.parent.mkdir(parents=True)
    shared.touch()
    return Java(tmp_path / "java", (17, 0, 1), frozenset())


def archive_of(some_java: Java) -> ClassArchive:
    found = class_archive.of(some_java)
    assert found is not None
    return found


def write(archive: ClassArchive) -> Path:
    with archive.written() as path:
        path.write_bytes(b"classes")
    found = archive.find()
    assert found is not None
    return found


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_it_is_used_once_it_is_complete_and_until_it_is_discarded(some_java: Java, cache: Path) -> None:
    with archive_of(some_java).written() as path:
        path.write_bytes(b"classes")
        assert class_archive.flags(some_java) == ()
    (archive,) = cache.iterdir()
    assert class_archive.flags(some_java)[:2] == (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto")
    assert cache.stat().st_mode & 0o777 == 0o700
    class_archive.discard(some_java)
    assert class_archive.flags(some_java) == ()


@pytest.mark.parametrize("contents", [b"", b"class", b"classez"])
def test_a_damaged_one_is_removed(some_java: Java, cache: Path, contents: bytes) -> None:
    """A JVM would crash with it."""
    write(archive_of(some_java)).write_bytes(contents)
    assert class_archive.flags(some_java) == ()
    assert list(cache.iterdir()) == []


def test_a_failure_while_it_is_written_leaves_nothing(some_java: Java, cache: Path) -> None:
    with pytest.raises(gateway.GatewayFailed), archive_of(some_java).written() as path:
        path.write_bytes(b"half")
        raise gateway.GatewayFailed("killed")
    with pytest.raises(FileNotFoundError), archive_of(some_java).written():
        pass  # a JVM that wrote nothing
    assert list(cache.iterdir()) == []


def test_another_java_or_class_path_has_another_one(some_java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [archive_of(some_java)]
    found.append(archive_of(Java(some_java.home, (17, 0, 2), frozenset())))
    (some_java.home / "lib" / "modules").touch()  # reinstalled
    found.append(archive_of(some_java))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars more.jar pyspark-shell")
    found.append(archive_of(some_java))
    monkeypatch.setattr(class_archive.pyspark, "__version__", "1.0")  # type: ignore[attr-defined]
    found.append(archive_of(some_java))
    assert len(set(found)) == len(found)


def test_old_ones_and_leftovers_are_removed(some_java: Java, cache: Path) -> None:
    archive_of(some_java)
    others = [cache / f"{index}.jsa" for index in range(KEPT + 1)]
    for index, path in enumerate(others):
        path.touch()
        os.utime(path, (1000 + index, 1000 + index))
    (leftover := cache / "unfinished-1").mkdir()
    (leftover / "archive").touch()
    os.utime(leftover, (1000, 1000))
    archive = write(archive_of(some_java))
    assert sorted(cache.iterdir()) == sorted([archive, *others[-(KEPT - 1) :]])


@pytest.mark.parametrize("spoil", ["link", "open to others", "file"])
def test_a_folder_that_others_may_write_to_is_not_used(some_java: Java, cache: Path, spoil: str) -> None:
    if spoil == "link":
        (cache.parent / "elsewhere").mkdir()
        cache.symlink_to(cache.parent / "elsewhere")
    elif spoil == "file":
        cache.touch()
    else:
        cache.mkdir()
        cache.chmod(0o777)
    assert class_archive.of(some_java) is None
    assert class_archive.flags(some_java) == ()


def test_a_java_without_an_archive_of_its_own_classes_gets_none(tmp_path: Path) -> None:
    assert class_archive.of(Java(tmp_path, (17,), frozenset())) is None


def test_a_start_that_fails_discards_it(some_java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the cause was, the next start is a plain one."""
    archive = write(archive_of(some_java))
    given: list[str] = []

    def launched(java: Java, settings: object, variables: object, flags: tuple[str, ...]) -> None:
        given.extend(flags)
        raise gateway.GatewayFailed("the JVM of Spark exited with -11")

    monkeypatch.setattr(java, "find", lambda: some_java)
    monkeypatch.setattr(gateway, "is_needed", lambda _: True)
    monkeypatch.setattr(gateway, "launched", launched)
    with pytest.raises(gateway.GatewayFailed):
        start.context("local[1]")
    assert f"-XX:SharedArchiveFile={archive}" in given
    assert not archive.exists()


# -- creation


def test_it_is_created_in_the_background_unless_it_exists_and_ends_with_the_program(
    some_java: Java, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    program = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"
    monkeypatch.setattr(java, "find", lambda: some_java)
    monkeypatch.setattr(archiving, "command", lambda settings: [sys.executable, "-c", program])
    one = Archiving({}, after_s=0)
    one.begin()
    wait_for(begun.exists)
    one.end()
    one._timer.join(WAIT_S)
    assert not one._timer.is_alive(), "its process ended"
    begun.unlink()
    write(archive_of(some_java))
    other = Archiving({}, after_s=0)
    other.begin()
    other._timer.join(WAIT_S)
    assert not begun.exists()
    other.end()


@pytest.mark.timeout(300)
def test_a_jvm_uses_it_and_starts_without_a_word_if_it_does_not_fit(tmp_path: Path) -> None:
    found = java.find()
    if class_archive.of(found) is None:
        pytest.skip(f"{found} has no archive of its own classes")
    loaded = tmp_path / "loaded"
    line = gateway.command(found, "org.apache.spark.deploy.SparkSubmit", ["pyspark-shell"])
    line[line.index("org.apache.spark.deploy.SparkSubmit") :] = ["org.apache.spark.deploy.SparkSubmit", "--version"]

    def run() -> tuple[int, str, bool]:
        flags = (*SMALL_JVM, *class_archive.flags(found), f"-Xlog:class+load:file={loaded}")
        done = subprocess.run(gateway.with_flags(line, flags), capture_output=True, text=True)
        said = re.sub(r"\d\d[:/]\d\d[:/]\d\d", "", done.stdout + done.stderr)  # dates and times
        return done.returncode, said, "shared objects file (top)" in loaded.read_text()

    plain = run()
    assert (plain[0], plain[2]) == (0, False)
    subprocess.run(archiving.command({"spark.log.level": "ERROR"}), check=True, stderr=subprocess.DEVNULL)
    assert run() == (0, plain[1], True)
    line[line.index("-cp") + 1] = line[line.index("-cp") + 1].rpartition(":")[2]
    assert run() == plain, "another class path"

"""The local file system of the JVM sets the same permissions, without starting a process."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from magnetar.spark.runtime import local_filesystem


@pytest.fixture
def files(spark: SparkSession) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.hadoop.fs.FileSystem.get(
        jvm.java.net.URI("file:///"), jvm.org.apache.hadoop.conf.Configuration()
    )


def path_of(spark: SparkSession, path: Path) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.hadoop.fs.Path(str(path))


def test_spark_uses_it(files: Any) -> None:
    assert files.getClass().getName() == "magnetar.LocalFiles"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o750, 0o777, 0o1777, 0o000])
def test_permissions_are_set_as_requested(spark: SparkSession, files: Any, tmp_path: Path, mode: int) -> None:
    jvm: Any = spark.sparkContext._jvm
    made = tmp_path / "made"
    files.create(path_of(spark, made), True).close()
    files.setPermission(path_of(spark, made), jvm.org.apache.hadoop.fs.permission.FsPermission(oct(mode)[2:].zfill(4)))
    assert stat.S_IMODE(made.stat().st_mode) == mode


def test_files_are_written_and_renamed_as_before(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    out = files.create(path_of(spark, tmp_path / "a" / "b"), True)
    out.writeBytes("what is written")
    out.close()
    assert files.rename(path_of(spark, tmp_path / "a" / "b"), path_of(spark, tmp_path / "c"))
    assert (tmp_path / "c").read_text() == "what is written"
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o644


def test_a_jvm_without_it_works_too(caplog: pytest.LogCaptureFixture) -> None:
    assert not local_filesystem.install(object_without_classes())
    assert "Spark's local file system stays slow" in caplog.text


def object_without_classes() -> Any:
    class Package:
        def __getattr__(self, name: str) -> Package:
            return Package()

        def __call__(self) -> None:
            raise TypeError("'JavaPackage' object is not callable")

    return Package()

"""The archive for executors: its contents, that it is self-contained, and that it is cached."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.spark.runtime import shipping
from magnetar.spark.runtime.shipping import Shipment


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_archive_has_the_imports_of_the_spark_part_without_broker_and_spark() -> None:
    names = set(shipping.distributions())
    assert names >= {"cramjam", "fastavro", "google-crc32c", "httpx", "mmh3", "msgspec", "protobuf", "uvloop"}
    assert "h11" in names, "what httpx needs goes along"
    assert not names & (
        shipping.PROVIDED | {"magnetar", "rocksdict", "starlette", "typer", "uvicorn", "pytest", "mypy"}
    )


def test_the_archive_works_in_a_bare_python(cache: Path) -> None:
    shipment = shipping.build()
    with zipfile.ZipFile(shipment.archive) as archive:
        archive.extractall(cache / "unpacked")
    code = (
        "import cramjam, fastavro, google_crc32c, httpx, mmh3, msgspec, uvloop, magnetar.client, magnetar.wire.batch\n"
        "print(magnetar.client.__file__)"
    )
    ran = subprocess.run(
        [os.path.realpath(sys.executable), "-S", "-c", code],
        env={"PYTHONPATH": str(cache / "unpacked")},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.strip() == str(cache / "unpacked" / "magnetar" / "client" / "__init__.py"), ran.stderr
    assert (cache / "unpacked" / "pyspark_pulsar" / "__init__.py").is_file()


def test_an_archive_is_built_once_and_rebuilt_when_a_file_changes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = cache / "module.py"
    source.write_text("ONE = 1")
    monkeypatch.setattr(shipping, "_files", lambda: iter([("module.py", source)]))
    first = shipping.build().archive
    made_at = first.stat().st_mtime_ns
    assert shipping.build().archive == first
    assert first.stat().st_mtime_ns == made_at
    source.write_text("ONE = 2")
    second = shipping.build().archive
    assert second != first
    assert zipfile.ZipFile(second).read("module.py") == b"ONE = 2"
    assert [path.name for path in second.parent.glob("unfinished-*")] == []


def test_a_folder_of_another_user_is_not_trusted(cache: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (cache / f"magnetar-shipping-{os.getuid()}").symlink_to(elsewhere)
    assert shipping._cache().resolve() != elsewhere.resolve()


def test_other_archives_are_kept() -> None:
    shipment = Shipment(Path("/a/magnetar.zip"))
    ours = f"/a/magnetar.zip#{shipping.FOLDER}"
    assert shipment.settings({"spark.x": "1"}) == {"spark.x": "1", "spark.archives": ours}
    assert shipment.settings({"spark.archives": "b.zip#b"}) == {"spark.archives": f"b.zip#b,{ours}"}


def test_workers_keep_their_pythonpath() -> None:
    context = SimpleNamespace(environment={"PYTHONPATH": "theirs"})
    Shipment(Path("/a/magnetar.zip")).add_to_python_path(cast(Any, context))
    assert context.environment["PYTHONPATH"] == f"{shipping.FOLDER}:theirs"

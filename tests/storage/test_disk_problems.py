"""Disks that are full, read-only, broken or forbidden: the error names the folder and the kind of problem."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from magnetar.storage.api import Space, StorageBusy, StorageError, StorageFull
from magnetar.storage.ballast import Ballast, open_with
from magnetar.storage.problem import problem_of
from magnetar.storage.rocks import RocksStorage

MB = 1 << 20


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Callable[[str], None]]:
    """A small disk in memory; the function mounts it again with other options. Skips where that is not allowed."""
    folder.mkdir()
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("mounting needs root")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield lambda options: subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True) and None
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> None:
    """Until nothing fits."""
    with (folder / "filling").open("wb", buffering=0) as file:
        for size in (MB, 4096, 1):
            while True:
                try:
                    file.write(bytes(size))
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    break


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.ENOSPC, "no space left on the disk of data folder /d (ENOSPC)"),
        (errno.EDQUOT, "the disk quota of data folder /d is used up (EDQUOT)"),
        (errno.EROFS, "the disk of data folder /d is read-only (EROFS)"),
        (errno.EACCES, "no permission to use data folder /d (EACCES)"),
        (errno.EIO, "the disk of data folder /d fails (EIO)"),
        (errno.EMFILE, "too many open files to use data folder /d (EMFILE)"),
    ],
)
@pytest.mark.parametrize("is_native", [True, False])
def test_fault_failing_disk_is_named(number: int, text: str, is_native: bool) -> None:
    error = Exception(f"IO error: {os.strerror(number)}: While appending to file: /d/7.log") if is_native else None
    problem = problem_of(error or OSError(number, os.strerror(number)), Path("/d"))
    assert str(problem).startswith(text)
    assert isinstance(problem, StorageFull) == (number in (errno.ENOSPC, errno.EDQUOT))


def test_a_folder_in_use_is_no_problem_of_the_disk() -> None:
    text = "IO error: While lock file: /d/LOCK: Resource temporarily unavailable"
    assert isinstance(problem_of(Exception(text), Path("/d")), StorageBusy)


def test_fault_read_only_disk_is_named_at_the_start(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=16m") as remount:
        data = tmp_path / "disk" / "data"
        RocksStorage(data).close()
        remount("ro")
        with pytest.raises(StorageError, match=f"the disk of data folder {data} is read-only"):
            RocksStorage(data)


def test_fault_start_on_full_disk_gives_up_the_ballast(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=24m"):
        data = tmp_path / "disk" / "data"
        storage = RocksStorage(data)
        batch = storage.batch()
        batch.put_entry(b"k", b"v" * MB)
        storage.write(batch)
        storage.close()
        ballast = Ballast(data, 8 * MB)
        assert ballast.make()
        fill(tmp_path / "disk")
        with pytest.raises(StorageFull):
            RocksStorage(data)
        storage, is_given_up = open_with(ballast, lambda: RocksStorage(data))
        assert is_given_up and not ballast.exists
        assert storage.get(Space.ENTRIES, b"k") == b"v" * MB
        batch = storage.batch()
        batch.delete_range(Space.ENTRIES, b"k", b"l")
        storage.write(batch)
        storage.sync()
        storage.close()
        assert not ballast.make() or ballast.path.stat().st_size == 8 * MB


def test_a_full_disk_without_a_ballast_is_named(tmp_path: Path) -> None:
    def full() -> None:
        raise StorageFull("no space left")

    with pytest.raises(StorageFull):
        open_with(Ballast(tmp_path, MB), full)


def test_a_ballast_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=4m"):
        assert not Ballast(tmp_path / "disk", 8 * MB).make()
        assert os.listdir(tmp_path / "disk") == []


def test_failed_reads_are_counted_and_end_nothing(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    batch = storage.batch()
    for number in range(2000):
        batch.put_entry(number.to_bytes(8, "big"), os.urandom(1000))
    storage.write(batch)
    storage.close()
    file = max(tmp_path.glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 100] = bytes(100)
    file.write_bytes(content)
    storage = RocksStorage(tmp_path)
    for failures in (1, 2):
        with pytest.raises(StorageError, match="corrupted"):
            storage.scan(Space.ENTRIES, b"", b"\xff" * 9)
        assert storage.read_failures == failures
    storage.write(storage.batch())
    storage.sync()
    storage.close()


def test_fault_start_on_full_disk_serves(tmp_path: Path) -> None:
    """The whole process: full disk, restart, and something can be deleted."""
    with mounted(tmp_path / "disk", "size=64m"):
        data = tmp_path / "disk" / "data"
        RocksStorage(data).close()
        assert Ballast(data, 24 * MB).make()
        fill(tmp_path / "disk")
        command = [sys.executable, "-m", "magnetar", "standalone", "--data", data, "--port", "0", "--http-port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stderr is not None
            started = [line for line in process.stdout if line.startswith("ready") and process.terminate() is None]
            errors = process.stderr.read()
            assert started, errors
            assert process.wait(60) == 0
        assert "the disk is full" in errors
        assert not (data / "ballast").exists()

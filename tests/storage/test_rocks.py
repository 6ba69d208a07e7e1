"""Properties of a folder on disk: other processes, crashes, foreign files, corruption, a full disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from magnetar.storage.api import Space, StorageBusy, StorageError
from magnetar.storage.rocks import RocksStorage

EVERYTHING = (b"", b"\xff" * 9)


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def fill(storage: RocksStorage, numbers: range, value: bytes = b"x" * 1000) -> None:
    batch = storage.batch()
    for number in numbers:
        batch.put_entry(key(number), value)
    storage.write(batch)


@contextmanager
def python(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Runs the program in another process, and kills it at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_writes_survive_a_clean_restart(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    fill(storage, range(100))
    batch = storage.batch()
    batch.put(b"cursor", b"42")
    storage.write(batch)
    storage.close()
    storage = RocksStorage(tmp_path)
    assert [row[0] for row in storage.scan(Space.ENTRIES, *EVERYTHING)] == [key(n) for n in range(100)]
    assert storage.get(Space.STATE, b"cursor") == b"42"
    storage.close()


def test_everything_synced_survives_sigkill(tmp_path: Path) -> None:
    program = """
        import sys
        from pathlib import Path
        from magnetar.storage.rocks import RocksStorage
        storage = RocksStorage(Path(sys.argv[1]))
        group = 0
        while True:
            batch = storage.batch()
            for number in range(group * 10, group * 10 + 10):
                batch.put_entry(number.to_bytes(8, "big"), b"x" * 5000)
            batch.put(b"cursor", str(group).encode())
            storage.write(batch)
            storage.sync()
            print(group, flush=True)
            group += 1
    """
    with python(program, tmp_path) as process:
        while int(line_of(process)) < 200:
            pass
        process.kill()
        assert process.stdout is not None
        rest = process.stdout.read().split("\n")
    synced = max([200, *(int(line) for line in rest[:-1] if line)])
    storage = RocksStorage(tmp_path)
    rows = storage.scan(Space.ENTRIES, *EVERYTHING)
    cursor = storage.get(Space.STATE, b"cursor")
    storage.close()
    assert len(rows) >= (synced + 1) * 10
    assert rows == [(key(n), b"x" * 5000) for n in range(len(rows))]
    assert cursor == str(len(rows) // 10 - 1).encode()  # both spaces recovered to the same batch


def test_fault_data_in_use_by_another_process_is_rejected_by_name(tmp_path: Path) -> None:
    program = """
        import sys
        from pathlib import Path
        from magnetar.storage.rocks import RocksStorage
        storage = RocksStorage(Path(sys.argv[1]))
        print("open", flush=True)
        sys.stdin.readline()
        storage.close()
        print("closed", flush=True)
        sys.stdin.readline()
    """
    with python(program, tmp_path) as process:
        assert line_of(process) == "open"
        with pytest.raises(StorageBusy, match=f"data folder {tmp_path} is in use"):
            RocksStorage(tmp_path)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert line_of(process) == "closed"
        RocksStorage(tmp_path).close()  # unlocked as soon as it is closed, although that process still runs


def test_a_second_storage_on_the_same_folder_in_one_process_is_rejected(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    with pytest.raises(StorageBusy):
        RocksStorage(tmp_path)
    fill(storage, range(1))
    storage.close()


def test_an_abandoned_batch_does_not_keep_a_closed_folder_locked(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    batch = storage.batch()
    batch.put(b"k", b"v")
    storage.close()
    RocksStorage(tmp_path).close()
    assert len(batch) == 1


def test_a_foreign_folder_is_rejected_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StorageError, match="not a magnetar data folder"):
        RocksStorage(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_an_empty_folder_with_file_system_metadata_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    RocksStorage(tmp_path).close()


def test_a_path_that_cannot_be_a_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used"):
        RocksStorage(tmp_path / "file")
    with pytest.raises(StorageError, match="cannot be used"):
        RocksStorage(tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o500)
    with pytest.raises(StorageError, match="cannot be used"):
        RocksStorage(folder)


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.sst"), key=lambda path: path.stat().st_size)


def test_a_missing_data_file_is_reported_at_open(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    fill(storage, range(1000))
    storage.close()
    data_files(tmp_path)[-1].unlink()
    with pytest.raises(StorageError, match="corrupted"):
        RocksStorage(tmp_path)


def test_data_without_its_index_file_is_not_mistaken_for_an_empty_folder(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    fill(storage, range(1000))
    storage.close()
    (tmp_path / "CURRENT").unlink()
    with pytest.raises(StorageError, match="corrupted"):
        RocksStorage(tmp_path)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_corrupt_block_raises_instead_of_ending_the_scan(tmp_path: Path, reverse: bool) -> None:
    storage = RocksStorage(tmp_path)
    fill(storage, range(2000), os.urandom(1000))
    storage.close()
    file = data_files(tmp_path)[-1]
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 100] = bytes(100)
    file.write_bytes(content)
    storage = RocksStorage(tmp_path)
    with pytest.raises(StorageError, match="corrupted"):
        storage.scan(Space.ENTRIES, *EVERYTHING, reverse=reverse)
    storage.close()


def test_a_full_disk_fails_the_write_and_every_later_one(tmp_path: Path) -> None:
    # A limit on file sizes makes writes fail like a full disk.
    program = """
        import resource, sys
        from pathlib import Path
        from magnetar.storage.api import StorageError
        from magnetar.storage.rocks import RocksStorage
        storage = RocksStorage(Path(sys.argv[1]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))
        synced = 0
        try:
            while True:
                batch = storage.batch()
                for number in range(synced, synced + 100):
                    batch.put_entry(number.to_bytes(8, "big"), b"x" * 1000)
                storage.write(batch)
                storage.sync()
                synced += 100
        except StorageError as error:
            print(synced, flush=True)
            print(error, flush=True)
        for operation in (lambda: storage.write(storage.batch()), storage.sync):
            try:
                operation()
                print("pretended", flush=True)
            except StorageError:
                print("rejected", flush=True)
        storage.close()
        print("end", flush=True)
    """
    with python(program, tmp_path) as process:
        synced = int(line_of(process))
        assert str(tmp_path) in line_of(process)
        assert [line_of(process) for _ in range(3)] == ["rejected", "rejected", "end"]
        assert process.wait(30) == 0
    assert 0 < synced <= 3000
    storage = RocksStorage(tmp_path)
    rows = storage.scan(Space.ENTRIES, *EVERYTHING)
    storage.close()
    assert [row[0] for row in rows] == [key(n) for n in range(len(rows))]
    assert len(rows) >= synced


def log_holding(folder: Path, needle: bytes) -> tuple[Path, int]:
    """The write-ahead log that contains these bytes, and their offset."""
    for file in folder.glob("*.log"):
        if (at := file.read_bytes().find(needle)) >= 0:
            return file, at
    raise AssertionError("no log contains the bytes")


@pytest.mark.parametrize("damage", ["zeros", "garbage", "old content", "cut off"])
def test_a_torn_log_loses_only_the_unsynced_batch(tmp_path: Path, damage: str) -> None:
    # Given a storage that reuses its old logs, with a synced batch and an unsynced one
    storage = RocksStorage(tmp_path / "live")
    for round in range(6):
        fill(storage, range(round * 300, round * 300 + 300), os.urandom(1000))
        storage.sync()
        storage.compact(Space.ENTRIES, *EVERYTHING)  # flushes, so that the log can be reused
    fill(storage, range(1800, 1810), b"synced")
    storage.sync()
    torn = os.urandom(64)
    batch = storage.batch()
    for number in range(1810, 1820):
        batch.put_entry(key(number), torn)
    batch.put(b"cursor", b"too far")
    storage.write(batch)
    # When only a part of the last batch reached the disk
    shutil.copytree(tmp_path / "live", tmp_path / "image")
    storage.close()
    log, at = log_holding(tmp_path / "image", torn)
    content = bytearray(log.read_bytes())
    assert len(content) > at + 100_000  # old content follows the batch: the log was reused
    if damage == "cut off":
        del content[at + 100 :]
    else:
        old = bytes(content[at + 50_000 : at + 50_400])
        content[at + 100 : at + 500] = {"zeros": bytes(400), "garbage": os.urandom(400), "old content": old}[damage]
    log.write_bytes(content)
    # Then the storage opens with everything before it
    storage = RocksStorage(tmp_path / "image")
    rows = storage.scan(Space.ENTRIES, *EVERYTHING)
    assert [row[0] for row in rows] == [key(n) for n in range(1810)]
    assert rows[-1][1] == b"synced"
    assert storage.get(Space.STATE, b"cursor") is None
    storage.close()


def test_closing_ends_a_compaction_and_keeps_what_was_written(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    for first in range(0, 4000, 100):
        fill(storage, range(first, first + 100), os.urandom(50_000))
    batch = storage.batch()
    batch.delete_range(Space.ENTRIES, key(0), key(3000))
    batch.put(b"cursor", b"unsynced")
    storage.write(batch)
    with ThreadPoolExecutor(1) as threads:
        compaction = threads.submit(storage.compact, Space.ENTRIES, *EVERYTHING)
        while not storage._compacting.locked() and not compaction.done():
            time.sleep(0)
        storage.close()  # would fail, and leave the folder locked, while the compaction uses the database
        compaction.exception()
    reopened = RocksStorage(tmp_path)
    assert reopened.get(Space.STATE, b"cursor") == b"unsynced"
    assert len(reopened.scan(Space.ENTRIES, *EVERYTHING)) == 1000
    reopened.close()


def test_disk_use_falls_after_a_compaction(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    for first in range(0, 6000, 100):
        fill(storage, range(first, first + 100), os.urandom(50_000))
    before = storage.disk_use()
    batch = storage.batch()
    batch.delete_range(Space.ENTRIES, *EVERYTHING)
    storage.write(batch)
    storage.compact(Space.ENTRIES, *EVERYTHING)
    storage.release_log()
    after = storage.disk_use()
    storage.close()
    assert before.used > 250_000_000 and after.used < 200_000_000  # up to four logs are left: they are used again
    assert before.path == str(tmp_path) and 0 < after.free < after.total

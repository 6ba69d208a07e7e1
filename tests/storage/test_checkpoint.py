"""Checkpoints: both spaces as they were after one write, whatever is written and compacted meanwhile."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from magnetar.storage import checkpoint
from magnetar.storage.api import Space, StorageError
from magnetar.storage.read_only import ReadOnlyStorage
from magnetar.storage.rocks import RocksStorage

EVERYTHING = (b"", b"\xff" * 9)


def fill(storage: RocksStorage, number: int) -> None:
    """One write to both spaces, which deletes older entries."""
    batch = storage.batch()
    for index in range(20):
        batch.put_entry((number * 20 + index).to_bytes(8, "big"), b"x" * 5000)
    batch.put(b"last", str(number).encode())
    batch.delete_range(Space.ENTRIES, b"", max(0, number - 300).to_bytes(8, "big"))
    storage.write(batch)


class Writing:
    def __init__(self, storage: RocksStorage) -> None:
        self._storage = storage
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self.synced = -1

    def _run(self) -> None:
        number = 0
        while not self._is_over:
            fill(self._storage, number)
            self._storage.sync()
            self.synced = number
            number += 1
            if number % 200 == 0:
                self._storage.compact(Space.ENTRIES, *EVERYTHING)

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._is_over = True
        self._thread.join()


def test_a_checkpoint_is_one_moment_of_both_spaces(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path / "data")
    with Writing(storage) as writing:
        for number in range(6):
            while writing.synced < number * 150:
                time.sleep(0.001)
            before = writing.synced
            made = storage.checkpoint()
            copy = tmp_path / f"copy{number}"
            shutil.copytree(made.path, copy)
            assert storage.discard_checkpoint()
            found = RocksStorage(copy)
            last = int(found.get(Space.STATE, b"last") or b"-1")
            (newest,) = found.scan(Space.ENTRIES, *EVERYTHING, limit=1, reverse=True)
            assert last >= before
            assert int.from_bytes(newest[0], "big") == last * 20 + 19
            found.close()
            shutil.rmtree(copy)
    storage.close()


def test_a_file_that_goes_away_starts_the_collection_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = RocksStorage(tmp_path)
    fill(storage, 1)
    outcomes = iter((False, False))
    collect = checkpoint._is_collected
    monkeypatch.setattr(checkpoint, "_is_collected", lambda *folders: next(outcomes, True) and collect(*folders))
    assert storage.checkpoint().files > 4
    storage.discard_checkpoint()
    monkeypatch.setattr(checkpoint, "_is_collected", lambda *folders: False)
    with pytest.raises(StorageError, match="changed 100 times"):
        storage.checkpoint()
    assert not storage.discard_checkpoint()
    storage.close()


def test_the_disk_of_a_checkpoint_may_be_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = RocksStorage(tmp_path)
    fill(storage, 1)

    def link(*names: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.os, "link", link)
        with pytest.raises(StorageError, match=f"no checkpoint in data folder {tmp_path}: No space left"):
            storage.checkpoint()
    storage.discard_checkpoint()
    assert storage.checkpoint().files > 4
    fill(storage, 2)  # the storage itself goes on
    storage.close()


def test_a_checkpoint_does_not_keep_the_folder_from_being_opened(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    fill(storage, 1)
    storage.checkpoint()
    storage.close()
    storage = RocksStorage(tmp_path)
    assert storage.discard_checkpoint()
    assert len(storage.scan(Space.ENTRIES, *EVERYTHING)) == 20
    storage.close()


def test_a_closed_storage_makes_no_checkpoint(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    storage.close()
    with pytest.raises(StorageError):
        storage.checkpoint()


def test_a_checkpoint_needs_no_log(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path / "data")
    for number in range(3):
        fill(storage, number)
    made = storage.checkpoint()
    assert not list(Path(made.path).glob("*.log"))
    storage.close()
    found = ReadOnlyStorage(Path(made.path))
    assert len(found.scan(Space.ENTRIES, *EVERYTHING)) == 60
    found.close()

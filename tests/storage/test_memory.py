"""Extras of the in-memory storage: crashes that lose unsynced writes, and failures on demand."""

from __future__ import annotations

import pytest

from magnetar.storage.api import Space, StorageError
from magnetar.storage.memory import MemoryStorage

EVERYTHING = (b"", b"\xff" * 9)


def put(storage: MemoryStorage, key: bytes, value: bytes) -> None:
    batch = storage.batch()
    batch.put(key, value)
    storage.write(batch)


def rows(storage: MemoryStorage) -> list[tuple[bytes, bytes]]:
    return storage.scan(Space.STATE, *EVERYTHING)


def test_a_crash_loses_unsynced_writes() -> None:
    storage = MemoryStorage()
    put(storage, b"a", b"1")
    storage.sync()
    put(storage, b"a", b"2")
    put(storage, b"b", b"3")
    assert storage.unsynced_writes == 2
    assert rows(storage.crash()) == [(b"a", b"1")]


def test_a_crash_keeps_a_prefix_of_the_unsynced_writes() -> None:
    storage = MemoryStorage()
    put(storage, b"a", b"1")
    storage.sync()
    batch = storage.batch()
    batch.delete_range(Space.STATE, b"a", b"b")
    batch.put(b"b", b"2")
    storage.write(batch)
    put(storage, b"a", b"3")
    outcomes = [rows(storage.crash(keep_unsynced_writes=kept)) for kept in range(4)]
    assert outcomes == [
        [(b"a", b"1")],
        [(b"b", b"2")],
        [(b"a", b"3"), (b"b", b"2")],
        [(b"a", b"3"), (b"b", b"2")],
    ]
    assert rows(storage) == outcomes[2]  # looking at outcomes does not change the original


def test_a_survivor_is_independent_and_its_writes_are_durable() -> None:
    storage = MemoryStorage()
    put(storage, b"a", b"1")
    survivor = storage.crash(keep_unsynced_writes=1)
    put(survivor, b"b", b"2")
    assert rows(storage) == [(b"a", b"1")]
    assert rows(survivor.crash()) == [(b"a", b"1")]


def test_closing_syncs() -> None:
    storage = MemoryStorage()
    put(storage, b"a", b"1")
    storage.close()
    assert rows(storage.crash()) == [(b"a", b"1")]


def test_a_failed_write_has_no_effect_and_the_storage_stays_failed() -> None:
    storage = MemoryStorage()
    error = StorageError("no space left on the disk")
    storage.fail_next(error, on="write")
    storage.sync()  # only the write fails
    for _ in range(2):
        with pytest.raises(StorageError, match="no space left"):
            put(storage, b"a", b"1")
    with pytest.raises(StorageError, match="no space left"):
        storage.sync()
    assert rows(storage) == []


def test_a_failed_sync_makes_nothing_durable() -> None:
    storage = MemoryStorage()
    put(storage, b"a", b"1")
    storage.fail_next(StorageError("fsync failed"))
    with pytest.raises(StorageError, match="fsync failed"):
        storage.sync()
    storage.close()
    assert rows(storage.crash()) == []
    assert rows(storage.crash(keep_unsynced_writes=1)) == [(b"a", b"1")]

"""A damaged block that a compaction meets: noted, so that the next start does not meet it again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from magnetar.storage.api import Space, StorageDamaged
from magnetar.storage.damage import FILE_NAME, noted_damage
from magnetar.storage.rocks import RocksStorage

TOPICS = 3
ENTRIES = 2000


def key(topic: int, entry: int = 0) -> bytes:
    return topic.to_bytes(8, "big") + entry.to_bytes(8, "big")


def put(storage: RocksStorage, name: bytes) -> None:
    batch = storage.batch()
    batch.put(name, b"v")
    batch.put_entry(key(TOPICS) + name, b"v")
    storage.write(batch)
    storage.sync()


def damaged_folder(folder: Path) -> Path:
    """Three topics in one file, with a damaged block in the middle one; returns the file."""
    storage = RocksStorage(folder)
    for topic in range(TOPICS):
        batch = storage.batch()
        for entry in range(ENTRIES):
            batch.put_entry(key(topic, entry), os.urandom(1000))
        storage.write(batch)
    storage.close()
    file = max(folder.glob("*.sst"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 100] = bytes(100)
    file.write_bytes(content)
    return file


def meet_damage(storage: RocksStorage) -> None:
    """Delete the middle topic and compact its range; then no write is accepted."""
    batch = storage.batch()
    batch.delete_range(Space.ENTRIES, key(1), key(2))
    storage.write(batch)
    storage.compact(Space.ENTRIES, key(1), key(2))
    deadline_s = time.monotonic() + 60
    with pytest.raises(StorageDamaged, match="corrupted"):
        while time.monotonic() < deadline_s:
            put(storage, b"k")
    storage.close()


def test_fault_damaged_block_is_met_once(tmp_path: Path) -> None:
    file = damaged_folder(tmp_path)
    meet_damage(RocksStorage(tmp_path))
    storage = RocksStorage(tmp_path)
    assert file.name in storage.damage
    for number in range(20):
        put(storage, b"%d" % number)
        storage.release_log()  # a new file each time: enough for a compaction, were it not off
    with pytest.raises(StorageDamaged, match="nothing is compacted"):
        storage.compact(Space.ENTRIES, key(0), key(3))
    assert (
        len(storage.scan(Space.ENTRIES, key(0), key(1))) == len(storage.scan(Space.ENTRIES, key(2), key(3))) == ENTRIES
    )
    storage.close()
    storage = RocksStorage(tmp_path)
    assert [storage.get(Space.STATE, b"%d" % number) for number in range(20)] == [b"v"] * 20
    storage.close()


def test_the_note_goes_with_the_damaged_file(tmp_path: Path) -> None:
    note = tmp_path / FILE_NAME
    assert noted_damage(tmp_path) == ""
    note.write_text("Corruption: block checksum mismatch in /data/000009.sst offset 1")
    assert noted_damage(tmp_path) == ""
    assert not note.exists()
    note.write_text("Corruption without a file")
    assert noted_damage(tmp_path) == "Corruption without a file"


def test_failed_reads_alone_are_not_noted(tmp_path: Path) -> None:
    damaged_folder(tmp_path)
    storage = RocksStorage(tmp_path)
    with pytest.raises(StorageDamaged):
        storage.scan(Space.ENTRIES, key(0), key(3))
    put(storage, b"k")
    storage.close()
    assert noted_damage(tmp_path) == ""

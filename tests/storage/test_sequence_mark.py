"""The sequence mark: a start that finds less than was synced refuses, and one that finds all of it never does."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.storage.api import Space, StorageBusy, StorageError, StorageLoss
from magnetar.storage.memory import MemoryStorage
from magnetar.storage.rocks import RocksStorage
from magnetar.storage.sequence_mark import FILE_NAME, SequenceMark

EVERYTHING = (b"", b"\xff" * 9)
SLOT = 4096


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def put(storage: RocksStorage, number: int, value: bytes = b"x" * 1000) -> None:
    batch = storage.batch()
    batch.put_entry(key(number), value)
    storage.write(batch)


def mark_of(storage: RocksStorage) -> SequenceMark:
    assert storage.mark is not None
    return storage.mark


def image_of(storage: RocksStorage, folder: Path) -> Path:
    """The folder as a crash would leave it now."""
    shutil.copytree(storage.path, folder)
    return folder


def crashed(tmp_path: Path, *, synced: int = 300, unsynced: int = 0) -> Path:
    """A folder with synced and marked writes, and later ones that are not synced, after a crash."""
    storage = RocksStorage(tmp_path / "live")
    for number in range(synced):
        put(storage, number)
        storage.sync()
    storage.mark_synced()
    for number in range(synced, synced + unsynced):
        put(storage, number, b"unsynced")
    image = image_of(storage, tmp_path / "image")
    storage.close()
    return image


def log_of(folder: Path) -> Path:
    return max(folder.glob("*.log"), key=lambda path: path.stat().st_size)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def contents(folder: Path) -> dict[str, bytes]:
    """What a start could lose; RocksDB's own LOG is none of it."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "LOG"}


# -- the file


def test_the_newest_slot_counts_even_if_it_is_lower(tmp_path: Path) -> None:
    mark = SequenceMark(tmp_path)
    assert mark.sequence is None and not mark.is_damaged
    for sequence in (5, 9, 7):
        mark.write(sequence)
        mark.close()
        mark = SequenceMark(tmp_path)
        assert mark.sequence == sequence
    mark.close()


@pytest.mark.parametrize("kept", [0, 1, 10, 27])
def test_fault_torn_mark_leaves_the_one_before(tmp_path: Path, kept: int) -> None:
    mark = SequenceMark(tmp_path)
    for sequence in (10, 20, 30):
        mark.write(sequence)
    mark.close()
    file = tmp_path / FILE_NAME
    content = file.read_bytes()
    newest = SLOT  # the third write is in the second slot
    file.write_bytes(content[: newest + kept] + os.urandom(28 - kept) + content[newest + 28 :])
    mark = SequenceMark(tmp_path)
    assert mark.sequence == 20
    mark.write(40)
    mark.close()
    mark = SequenceMark(tmp_path)
    assert mark.sequence == 40
    mark.close()


@pytest.mark.parametrize("content", [b"\xff" * 2 * SLOT, b"short", b"x" * 100_000])
def test_fault_torn_mark_without_a_whole_slot_is_reported_and_replaced(tmp_path: Path, content: bytes) -> None:
    storage = RocksStorage(tmp_path)
    put(storage, 1)
    storage.close()
    (tmp_path / FILE_NAME).write_bytes(content)
    storage = RocksStorage(tmp_path)
    assert mark_of(storage).is_damaged
    assert storage.get(Space.ENTRIES, key(1)) is not None
    storage.close()
    storage = RocksStorage(tmp_path)
    assert not mark_of(storage).is_damaged and mark_of(storage).sequence == storage.sequence
    storage.close()


def test_a_folder_from_before_there_was_a_mark_gets_one(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    put(storage, 1)
    storage.close()
    (tmp_path / FILE_NAME).unlink()
    storage = RocksStorage(tmp_path)
    assert not mark_of(storage).is_damaged
    storage.sync()
    storage.mark_synced()
    assert mark_of(storage).sequence == storage.sequence == 1
    storage.close()


def test_a_folder_in_use_is_not_read(tmp_path: Path) -> None:
    mark = SequenceMark(tmp_path)
    with pytest.raises(StorageBusy, match="in use by another process"):
        SequenceMark(tmp_path)
    mark.close()
    SequenceMark(tmp_path).close()


def test_a_mark_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(StorageError, match=f"{FILE_NAME}"):
        SequenceMark(tmp_path)


# -- a start


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_fault_flipped_log_byte_is_found_before_anything_is_changed(tmp_path: Path, part: float) -> None:
    image = crashed(tmp_path)
    log = log_of(image)
    flip(log, int(log.stat().st_size * part))
    before = contents(image)
    for _ in range(2):  # it refuses as long as it is not decided
        with pytest.raises(StorageLoss, match=rf"data folder {image} has lost \d+ changes or more") as found:
            RocksStorage(image)
        assert 300 * (1 - part) - 2 <= found.value.missing <= 300
        assert contents(image) == before


def test_fault_flipped_log_byte_of_the_last_record_is_found(tmp_path: Path) -> None:
    image = crashed(tmp_path)
    log = log_of(image)
    flip(log, log.read_bytes().rindex(b"xxxx"))
    with pytest.raises(StorageLoss) as found:
        RocksStorage(image)
    assert found.value.missing == 1


def test_an_accepted_loss_keeps_the_damaged_log(tmp_path: Path) -> None:
    image = crashed(tmp_path)
    log = log_of(image)
    flip(log, log.stat().st_size // 2)
    damaged = log.read_bytes()
    storage = RocksStorage(image, accept_loss=True)
    assert storage.lost_writes == 300 - storage.sequence > 100
    assert storage.kept_log == image / "damaged-log-1"
    for number in range(1000, 1200):  # enough for several logs
        put(storage, number, os.urandom(1 << 20))
    assert (storage.kept_log / log.name).read_bytes() == damaged
    storage.sync()
    storage.mark_synced()
    storage.close()
    storage = RocksStorage(image)
    assert storage.lost_writes == 0
    storage.close()


def test_a_loss_is_known_until_something_is_synced_after_it(tmp_path: Path) -> None:
    image = crashed(tmp_path)
    flip(log_of(image), log_of(image).stat().st_size // 2)
    RocksStorage(image, accept_loss=True).close()  # without the changes that keep ids from being given again
    with pytest.raises(StorageLoss):
        RocksStorage(image)


def _cut_off(content: bytes, at: int) -> bytes:
    return content[:at]


def _zeros(content: bytes, at: int) -> bytes:
    return content[:at] + bytes(len(content) - at)


def _garbage(content: bytes, at: int) -> bytes:
    return content[:at] + os.urandom(len(content) - at)


@pytest.mark.parametrize("damage", [_cut_off, _zeros, _garbage])
def test_fault_lost_tail_of_unsynced_writes_is_no_loss(tmp_path: Path, damage: Callable[[bytes, int], bytes]) -> None:
    image = crashed(tmp_path, unsynced=50)
    log = log_of(image)
    content = log.read_bytes()
    log.write_bytes(damage(content, content.index(b"unsynced")))
    storage = RocksStorage(image)
    assert storage.lost_writes == 0
    assert len(storage.scan(Space.ENTRIES, *EVERYTHING)) == 300
    storage.close()


def test_the_mark_is_never_ahead_of_what_is_synced(tmp_path: Path) -> None:
    storage = RocksStorage(tmp_path)
    put(storage, 1)
    storage.mark_synced()
    assert mark_of(storage).sequence is None
    storage.sync()
    put(storage, 2)
    storage.mark_synced()
    assert mark_of(storage).sequence == 1
    storage.close()


KILLED = """
    import sys, threading
    from pathlib import Path
    from magnetar.storage.rocks import RocksStorage

    storage = RocksStorage(Path(sys.argv[1]))

    def mark():
        while True:
            storage.mark_synced()

    threading.Thread(target=mark, daemon=True).start()
    print("running", flush=True)
    number = storage.sequence
    while True:
        batch = storage.batch()
        for _ in range(number % 7 + 1):
            batch.put_entry(number.to_bytes(8, "big"), b"x" * (number % 50_000))
            number += 1
        if number % 5 == 0:
            batch.delete(b"k")
        storage.write(batch)
        if number % 3:
            storage.sync()
        if number % 1000 < 7:
            storage.release_log()
"""


def test_fault_sigkill_at_any_moment_is_no_loss(tmp_path: Path) -> None:
    moments = random.Random()
    for _ in range(8):
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "data")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"  # the start refused otherwise
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(moments.uniform(0.01, 0.4))
            process.kill()
    storage = RocksStorage(tmp_path / "data")
    assert mark_of(storage).sequence is not None and storage.sequence >= mark_of(storage).sequence
    storage.close()


def test_the_twin_in_memory_counts_alike() -> None:
    storage = MemoryStorage()
    for number in range(3):
        batch = storage.batch()
        batch.put(key(number), b"v")
        batch.delete_range(Space.STATE, b"a", b"z")
        storage.write(batch)
        if number == 1:
            storage.sync()
            storage.mark_synced()
    assert (storage.sequence, storage.marked) == (6, 4)
    survivor = storage.crash()
    assert (survivor.sequence, survivor.marked) == (4, 4)
    assert storage.crash(keep_unsynced_writes=1).sequence == 6


def test_fault_flipped_log_byte_behind_the_files_of_a_family_is_found(tmp_path: Path) -> None:
    """RocksDB opens no folder where one family would be at a later moment than the other."""
    storage = RocksStorage(tmp_path / "live")
    for number in range(120):
        batch = storage.batch()
        batch.put_entry(key(number), os.urandom(500_000))
        batch.put(key(number), b"state")
        storage.write(batch)
        storage.sync()
    storage.mark_synced()
    storage._spaces[Space.ENTRIES].flush(True)  # a file has all entries now, and the log alone the state
    put(storage, 120)
    storage.sync()
    image = image_of(storage, tmp_path / "image")
    storage.close()
    log = min(image.glob("*.log"))
    flip(log, log.stat().st_size // 2)
    before = contents(image)
    with pytest.raises(StorageLoss):
        RocksStorage(image)
    assert contents(image) == before
    storage = RocksStorage(image, accept_loss=True)
    assert storage.has_gaps and storage.lost_writes
    assert (image / "damaged-log-1" / log.name).exists()
    assert len(storage.scan(Space.ENTRIES, *EVERYTHING)) == 121
    assert 110 < len(storage.scan(Space.STATE, *EVERYTHING)) < 120  # nothing but what was in the damaged record
    storage.sync()
    storage.close()
    storage = RocksStorage(image)
    assert not storage.has_gaps and not storage.lost_writes
    storage.close()

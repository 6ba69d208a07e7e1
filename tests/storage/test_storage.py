"""The contract of storage: the same tests run on RocksDB and on its in-memory twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from magnetar.storage.api import Space, Storage, StorageError
from magnetar.storage.memory import MemoryStorage
from magnetar.storage.rocks import RocksStorage

BOTH_SPACES = list(Space)


@pytest.fixture(params=["rocks", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    opened: Storage = RocksStorage(tmp_path / "data") if request.param == "rocks" else MemoryStorage()
    yield opened
    opened.close()


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def fill(storage: Storage, space: Space, keys: list[bytes], value: bytes = b"v") -> None:
    batch = storage.batch()
    put = batch.put_entry if space is Space.ENTRIES else batch.put
    for each in keys:
        put(each, value)
    storage.write(batch)


def keys_of(storage: Storage, space: Space, start: bytes = b"", end: bytes = b"\xff" * 9) -> list[bytes]:
    return [row[0] for row in storage.scan(space, start, end)]


def test_a_written_batch_is_visible_at_once_in_its_space_only(storage: Storage) -> None:
    batch = storage.batch()
    batch.put_entry(b"a", b"entry")
    batch.put(b"a", b"state")
    assert storage.get(Space.ENTRIES, b"a") is None
    storage.write(batch)
    assert storage.get(Space.ENTRIES, b"a") == b"entry"
    assert storage.get(Space.STATE, b"a") == b"state"
    storage.sync()
    assert storage.get(Space.ENTRIES, b"b") is None


def test_operations_of_a_batch_apply_in_order(storage: Storage) -> None:
    batch = storage.batch()
    batch.put(b"a", b"1")
    batch.delete_range(Space.STATE, b"a", b"b")
    batch.put(b"a", b"2")
    batch.put(b"c", b"3")
    batch.delete(b"c")
    storage.write(batch)
    assert storage.scan(Space.STATE, b"", b"z") == [(b"a", b"2")]


def test_empty_keys_and_values_are_kept(storage: Storage) -> None:
    batch = storage.batch()
    batch.put_entry(b"", b"no key")
    batch.put(b"k", b"")
    storage.write(batch)
    assert storage.get(Space.STATE, b"k") == b""
    assert storage.scan(Space.ENTRIES, b"", b"a") == [(b"", b"no key")]


def test_deleting_an_absent_key_is_allowed(storage: Storage) -> None:
    batch = storage.batch()
    batch.delete(b"never")
    storage.write(batch)
    assert storage.get(Space.STATE, b"never") is None


@pytest.mark.parametrize("space", BOTH_SPACES)
def test_delete_range_includes_start_and_excludes_end(storage: Storage, space: Space) -> None:
    fill(storage, space, [key(n) for n in range(10)])
    batch = storage.batch()
    batch.delete_range(space, key(3), key(6))
    storage.write(batch)
    assert keys_of(storage, space) == [key(n) for n in (0, 1, 2, 6, 7, 8, 9)]


@pytest.mark.parametrize(("start", "end"), [(5, 5), (7, 2)])
def test_an_empty_or_reversed_range_deletes_nothing(storage: Storage, start: int, end: int) -> None:
    fill(storage, Space.ENTRIES, [key(n) for n in range(10)])
    batch = storage.batch()
    batch.delete_range(Space.ENTRIES, key(start), key(end))
    storage.write(batch)
    assert len(keys_of(storage, Space.ENTRIES)) == 10


def test_a_batch_counts_its_operations_and_its_size(storage: Storage) -> None:
    batch = storage.batch()
    assert len(batch) == 0
    batch.put_entry(b"k", b"x" * 1000)
    batch.put(b"k", b"y" * 500)
    batch.delete(b"k")
    assert len(batch) == 3
    assert 1500 <= batch.size_bytes() <= 1600


def test_a_batch_can_be_written_once(storage: Storage) -> None:
    batch = storage.batch()
    batch.put(b"k", b"1")
    storage.write(batch)
    with pytest.raises(StorageError, match="already written"):
        storage.write(batch)
    fill(storage, Space.STATE, [b"later"])  # the mistake does not fail the storage
    assert storage.get(Space.STATE, b"later") == b"v"


@pytest.mark.parametrize("value", [bytearray(b"v"), memoryview(b"v"), "v", None])
def test_values_must_be_bytes(storage: Storage, value: object) -> None:
    batch = storage.batch()
    with pytest.raises((TypeError, ValueError)):
        batch.put_entry(b"k", value)  # type: ignore[arg-type]


def test_a_batch_of_the_other_twin_is_rejected(storage: Storage, tmp_path: Path) -> None:
    other: Storage = MemoryStorage() if isinstance(storage, RocksStorage) else RocksStorage(tmp_path / "other")
    with pytest.raises(TypeError):
        storage.write(other.batch())
    other.close()


@pytest.mark.parametrize("space", BOTH_SPACES)
def test_scan_is_ordered_and_half_open(storage: Storage, space: Space) -> None:
    fill(storage, space, [key(n) for n in (5, 1, 9, 3, 7)])
    assert keys_of(storage, space, key(3), key(9)) == [key(3), key(5), key(7)]
    assert keys_of(storage, space, key(2), key(10)) == [key(3), key(5), key(7), key(9)]
    assert keys_of(storage, space, key(9), key(9)) == []
    assert keys_of(storage, space, key(9), key(1)) == []
    assert keys_of(storage, space, key(10), key(20)) == []


@pytest.mark.parametrize("space", BOTH_SPACES)
def test_scan_in_reverse_starts_below_the_end(storage: Storage, space: Space) -> None:
    fill(storage, space, [key(n) for n in range(10)])
    rows = storage.scan(space, key(2), key(7), reverse=True)
    assert [row[0] for row in rows] == [key(n) for n in (6, 5, 4, 3, 2)]
    assert [row[0] for row in storage.scan(space, key(2), key(700), reverse=True, limit=2)] == [key(9), key(8)]


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_stops_at_the_limit(storage: Storage, reverse: bool) -> None:
    fill(storage, Space.ENTRIES, [key(n) for n in range(300)])
    for limit in (0, 1, 2, 255, 300, 1000):
        assert len(storage.scan(Space.ENTRIES, key(0), key(300), limit=limit, reverse=reverse)) == min(limit, 300)


def test_scan_stops_after_about_size_max_with_at_least_one_row(
    storage: Storage,
) -> None:
    fill(storage, Space.ENTRIES, [key(n) for n in range(300)], b"x" * 1000)
    for size_max, rows in ((1, 1), (1000, 1), (1001, 2), (10_000, 10), (100_000, 100)):
        assert len(storage.scan(Space.ENTRIES, key(0), key(300), size_max=size_max)) == rows
    assert len(storage.scan(Space.ENTRIES, key(0), key(300), size_max=100_000, limit=7)) == 7
    assert len(storage.scan(Space.ENTRIES, key(0), key(300), size_max=10_000_000)) == 300


def test_scan_does_not_overshoot_when_large_values_follow_small_ones(
    storage: Storage,
) -> None:
    fill(storage, Space.ENTRIES, [key(n) for n in range(200)], b"x")
    fill(storage, Space.ENTRIES, [key(n) for n in range(200, 300)], b"x" * 100_000)
    rows = storage.scan(Space.ENTRIES, key(0), key(300), size_max=300_000)
    assert len(rows) == 203


def test_a_scan_is_a_copy_unaffected_by_later_writes(storage: Storage) -> None:
    fill(storage, Space.STATE, [b"a", b"b"])
    rows = storage.scan(Space.STATE, b"", b"z")
    fill(storage, Space.STATE, [b"a", b"c"], b"new")
    assert rows == [(b"a", b"v"), (b"b", b"v")]


@pytest.mark.parametrize("space", BOTH_SPACES)
def test_compacting_changes_no_row(storage: Storage, space: Space) -> None:
    fill(storage, space, [key(n) for n in range(1000)])
    batch = storage.batch()
    batch.delete_range(space, key(0), key(900))
    storage.write(batch)
    storage.compact(space, key(0), key(900))
    assert keys_of(storage, space) == [key(n) for n in range(900, 1000)]


USES: list[Callable[[Storage], object]] = [
    lambda storage: storage.write(storage.batch()),
    lambda storage: storage.sync(),
    lambda storage: storage.get(Space.STATE, b"k"),
    lambda storage: storage.scan(Space.STATE, b"a", b"b"),
    lambda storage: storage.compact(Space.STATE, b"a", b"b"),
    lambda storage: storage.release_log(),
]


@pytest.mark.parametrize("use", USES)
def test_a_closed_storage_rejects_everything_but_a_second_close(
    storage: Storage, use: Callable[[Storage], object]
) -> None:
    storage.close()
    with pytest.raises(StorageError, match="closed"):
        use(storage)
    storage.close()


def test_one_thread_commits_while_another_builds_and_scans(storage: Storage) -> None:
    groups, group_size = 60, 40

    def commit() -> None:
        for group in range(groups):
            batch = storage.batch()
            for number in range(group * group_size, (group + 1) * group_size):
                batch.put_entry(key(number), b"x" * 1000)
            batch.put(b"cursor", key(group))
            storage.write(batch)
            storage.sync()

    with ThreadPoolExecutor(1) as committer:
        committed = committer.submit(commit)
        while not committed.done():
            unwritten = storage.batch()
            unwritten.put_entry(key(0), b"never seen")
            rows = storage.scan(Space.ENTRIES, b"", b"\xff" * 9)
            assert [row[0] for row in rows] == [key(n) for n in range(len(rows))]  # no holes
            assert len(rows) % group_size == 0  # whole batches
            assert all(row[1] == b"x" * 1000 for row in rows)
            storage.get(Space.STATE, b"cursor")
        committed.result()
    assert len(keys_of(storage, Space.ENTRIES)) == groups * group_size

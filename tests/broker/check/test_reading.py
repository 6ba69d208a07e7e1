"""Reading around what cannot be read: every other row is found, and the extent of the damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.check.reading import Hole, rows
from magnetar.storage.api import Space, StorageError
from magnetar.storage.memory import MemoryStorage


class HoledStorage(MemoryStorage):
    """Reads of some keys fail, as those of a damaged block do, whatever the direction."""

    def __init__(self, bad: set[bytes]) -> None:
        super().__init__()
        self._bad = bad

    __slots__ = ("_bad",)

    def scan(
        self,
        space: Space,
        start: bytes,
        end: bytes,
        *,
        limit: int | None = None,
        size_max: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        found = super().scan(space, start, end, limit=limit, size_max=size_max, reverse=reverse)
        if any(key in self._bad for key, _ in found):
            raise StorageError("a block is damaged")
        return found


def holed(all_keys: set[bytes], bad: set[bytes]) -> HoledStorage:
    storage = HoledStorage(bad)
    batch = storage.batch()
    for key in all_keys:
        batch.put(key, b"value of " + key)
    storage.write(batch)
    return storage


def read(storage: HoledStorage) -> tuple[list[bytes], list[Hole]]:
    found = list(rows(storage, Space.STATE, b"", b"\xff" * 9))
    return [row[0] for row in found if not isinstance(row, Hole)], [row for row in found if isinstance(row, Hole)]


KEYS = st.sets(st.binary(min_size=1, max_size=4).filter(lambda key: key < b"\xff" * 4), min_size=1, max_size=60)


@given(KEYS, st.data())
def test_all_but_the_damaged_rows_are_read(all_keys: set[bytes], data: st.DataObject) -> None:
    ordered = sorted(all_keys)
    first = data.draw(st.integers(0, len(ordered) - 1))
    last = data.draw(st.integers(first, len(ordered) - 1))
    bad = set(ordered[first : last + 1])
    found, holes = read(holed(all_keys, bad))
    assert found == [key for key in ordered if key not in bad]
    (hole,) = holes
    assert all(hole.start <= key < hole.end for key in bad)
    assert not any(hole.start <= key < hole.end for key in found)


def test_several_holes_are_told_apart() -> None:
    all_keys = {number.to_bytes(8, "big") for number in range(3000)}
    bad = {number.to_bytes(8, "big") for number in (0, 1, 700, 701, 702, 2999)}
    found, holes = read(holed(all_keys, bad))
    assert found == sorted(all_keys - bad)
    assert len(holes) == 3


@pytest.mark.parametrize("count", [1, 600])
def test_a_storage_of_which_nothing_can_be_read_is_one_hole(count: int) -> None:
    all_keys = {number.to_bytes(4, "big") for number in range(count)}
    found, holes = read(holed(all_keys, all_keys))
    assert found == []
    assert len(holes) == 1

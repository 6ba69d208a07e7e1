"""Deleted bytes are freed at once when they are many, after a while when they are few, and neighbours together."""

from __future__ import annotations

from magnetar.broker import keys
from magnetar.broker.deleted_space import AT_ONCE_BYTES, DeletedSpace


def ledgers(*ranges: tuple[int, int]) -> list[tuple[bytes, bytes]]:
    return [(keys.ID.pack(first), keys.ID.pack(last + 1)) for first, last in ranges]


def test_few_bytes_wait_and_many_do_not() -> None:
    space = DeletedSpace(patience_ms=1000)
    assert not space.is_due(10_000)
    space.add(1, 10, now_ms=500)
    space.add(2, 10, now_ms=1400)
    assert not space.is_due(1499) and space.is_due(1500)
    space.add(1, AT_ONCE_BYTES, now_ms=1400)
    assert space.is_due(1400) and space.size == AT_ONCE_BYTES + 20
    assert space.take([]) == ledgers((1, 2))
    assert space.size == 0 and not space.is_due(99_999) and space.take([]) == []


def test_ranges_end_where_another_living_ledger_is() -> None:
    space = DeletedSpace(patience_ms=0)
    for ledger in (9, 2, 4, 30, 5, 20):
        space.add(ledger, 1, now_ms=0)
    assert space.take([1, 5, 12, 40]) == ledgers((2, 9), (20, 30))

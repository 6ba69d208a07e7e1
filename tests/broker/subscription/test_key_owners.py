"""Owners of keys: fixed ranges that must not overlap, and rings that consumers join and leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.subscription.key_owners import HASH_SPACE, ConsistentHashing, StickyRanges
from magnetar.errors import ConsumerAssignFailed
from tests.broker.work import is_linear
from tests.broker.world import Client

Ranges = list[tuple[int, int]]


def consumer(name: str, ranges: Ranges | None = None) -> Consumer:
    return Consumer(Client(), 1, name, SubscriptionType.Key_Shared, hash_ranges=ranges)


def overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


some_ranges = st.lists(
    st.tuples(st.integers(0, 99), st.integers(0, 5)).map(lambda found: (found[0], found[0] + found[1])), max_size=4
)


@given(st.lists(some_ranges.filter(bool), min_size=1, max_size=5))
def test_ranges_are_taken_unless_they_overlap(requests: list[Ranges]) -> None:
    owners, taken = StickyRanges(), dict[str, Ranges]()
    for index, ranges in enumerate(requests):
        others = [one for group in taken.values() for one in group]
        is_free = not any(overlap(one, other) for one in ranges for other in others)
        is_free &= not any(overlap(one, other) for i, one in enumerate(ranges) for other in ranges[:i])
        try:
            owners.add(consumer(f"c{index}", ranges))
        except ConsumerAssignFailed:
            assert not is_free
        else:
            assert is_free
            taken[f"c{index}"] = ranges
    for key_hash in range(110):
        names = [name for name, ranges in taken.items() if any(start <= key_hash <= end for start, end in ranges)]
        owner = owners.owner(key_hash)
        assert [owner.name] == names if owner else names == []


def test_an_overlap_names_both_ranges_and_the_one_who_has_it() -> None:
    owners = StickyRanges()
    owners.add(consumer("first", [(10, 20)]))
    for wanted in ((5, 10), (20, 30), (12, 13), (0, 65535)):
        reason = rf"\[{wanted[0]}, {wanted[1]}\] overlaps \[10, 20\] of consumer 'first'"
        with pytest.raises(ConsumerAssignFailed, match=reason):
            owners.add(consumer("second", [(40, 50), wanted]))
    owners.add(consumer("second", [(40, 50)]))
    with pytest.raises(ConsumerAssignFailed, match=r"\[1, 65536\] is not within"):
        owners.add(consumer("third", [(1, HASH_SPACE)]))


def test_fault_many_sticky_ranges_are_checked_in_linear_work() -> None:
    def work(size: int) -> Callable[[], None]:
        one = consumer("c", [(start, start) for start in reversed(range(size))])
        return lambda: StickyRanges().add(one)

    assert is_linear(work, 500)


def test_fault_many_sticky_ranges_find_the_owner_of_a_key_without_a_walk() -> None:
    def work(size: int) -> Callable[[], None]:
        owners = StickyRanges()
        owners.add(consumer("c", [(start, start) for start in range(size)]))
        return lambda: [owners.owner(size - 1) for _ in range(100)]  # type: ignore[func-returns-value, return-value]

    assert is_linear(work, 500)


def test_a_ring_forgets_the_points_of_those_who_left() -> None:
    ring = ConsistentHashing(100)
    consumers = [consumer(f"c{index}") for index in range(20)]
    for one in consumers:
        ring.add(one)
    for one in consumers[1:]:
        ring.remove(one)
    assert {ring.owner(key_hash) for key_hash in range(0, HASH_SPACE, 100)} == {consumers[0]}
    ring.remove(consumers[0])
    assert ring.owner(1) is None and not ring._points

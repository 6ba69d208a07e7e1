"""Bits to indexes and back, without a shift for each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.bits import bits_at, indexes_in
from magnetar.broker.subscription.entry_state import EntryState


@given(st.sets(st.integers(0, 300)))
def test_there_and_back(indexes: set[int]) -> None:
    bits = sum(1 << index for index in indexes)
    assert list(indexes_in(bits)) == sorted(indexes)
    assert bits_at(indexes) == bits


@given(st.dictionaries(st.integers(0, 40), st.integers(1, 9), max_size=8), st.none() | st.integers(1, 1 << 30))
def test_the_highest_count_is_that_of_the_open_message_that_failed_most(
    counts: dict[int, int], bits: int | None
) -> None:
    state = EntryState(count=2, index_counts=counts)
    if bits is not None:
        state.set_open_bits(bits)
    is_open = [count for index, count in counts.items() if bits is None or bits >> index & 1]
    assert state.highest_count == max(is_open, default=2)


def test_nacked_messages_of_a_batch_are_counted_without_a_shift_for_each() -> None:
    """Shifting a number of n bits n times is quadratic work."""
    shifts = 0

    class Counted(int):
        def __rshift__(self, places: int) -> int:
            nonlocal shifts
            shifts += 1
            return int(self) >> places

    state = EntryState()
    state.fail(1, Counted((1 << 1000) - 1))
    assert len(state.index_counts) == 1000
    assert shifts == 0

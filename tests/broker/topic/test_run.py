"""Runs: records of entries that are stored together."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.topic import run
from magnetar.broker.topic.run import NewEntry

new_entries = st.lists(
    st.tuples(st.integers(1, 2**32 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=40)), min_size=1, max_size=200
)


class TestCodec:
    @given(new_entries, st.integers(0, 2**40), st.integers(0, 2**60), st.integers(0, 2**50))
    def test_round_trip(self, new: list[NewEntry], first: int, now_ms: int, bytes_before: int) -> None:
        value = run.encode(new, now_ms, bytes_before)
        last = first + len(new) - 1
        assert run.decode(last, value) == [(first + i, *entry) for i, entry in enumerate(new)]
        for index, (messages, deliver_at_ms, blob) in enumerate(new):
            assert run.header(last, value, first + index) == (messages, now_ms, bytes_before, deliver_at_ms)
            bytes_before += len(blob)
        assert run.bytes_after(value) == bytes_before

    @given(new_entries)
    def test_has_no_entry_before_or_after_it(self, new: list[NewEntry]) -> None:
        value = run.encode(new, 1, 0)
        assert run.header(500, value, 501) is None
        assert run.header(500, value, 500 - len(new)) is None


class TestCut:
    @given(new_entries)
    def test_keeps_all_entries_in_order(self, new: list[NewEntry]) -> None:
        runs = list(run.cut(new))
        assert [entry for entries in runs for entry in entries] == new
        assert all(0 < len(entries) <= run.COUNT_MAX for entries in runs)

    def test_bound_run_bytes_end_with_the_entry_that_fills_it(self) -> None:
        large, small = (1, 0, bytes(run.SIZE_MAX // 2)), (1, 0, b"x")
        assert [len(entries) for entries in run.cut([large, small, large, small, small])] == [3, 2]

    def test_one_entry_may_be_larger_than_a_run(self) -> None:
        huge = (1, 0, bytes(run.SIZE_MAX * 3))
        assert [len(entries) for entries in run.cut([huge, huge])] == [1, 1]

    def test_bound_run_entries(self) -> None:
        small = (1, 0, b"x")
        sizes = [len(entries) for entries in run.cut([small] * (run.COUNT_MAX * 2 + 1))]
        assert sizes == [run.COUNT_MAX, run.COUNT_MAX, 1]

    def test_no_entries_make_no_run(self) -> None:
        assert list(run.cut([])) == []

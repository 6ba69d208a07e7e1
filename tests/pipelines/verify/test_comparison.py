"""GR6: findings of `verify` for wrong copies, without a broker and Spark."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.message import Position
from magnetar.pipelines.verify import comparison
from magnetar.pipelines.verify.comparison import Compared, Comparison, Copy, PositionSet, SourceEntry

NEVER = (-1, -1)


def original(entry: int, ledger: int = 1) -> SourceEntry:
    return SourceEntry((ledger, entry), str((ledger, entry)).encode())


def copy(entry: int, ledger: int = 1, *, text: str = "", is_repair: bool = False) -> Copy:
    return Copy((ledger, entry), (text or str((ledger, entry))).encode(), is_repair)


def compared(
    originals: list[SourceEntry],
    copies: list[Copy],
    *,
    mark: Position | None = None,
    before_first: Position = NEVER,
    is_trimmed: bool = False,
    is_filtered: bool = False,
    compares_payloads: bool = True,
    from_first_copy: bool = False,
) -> Compared:
    merged = Comparison(originals, compares_payloads=compares_payloads)
    for one in copies:
        merged.add(one)
    result, _ = merged.finish(
        mark=mark,
        before_first=before_first,
        is_trimmed=is_trimmed,
        is_filtered=is_filtered,
        from_first_copy=from_first_copy,
    )
    return result


def ranges(result: Compared) -> dict[str, list[str]]:
    return {kind: [str(one) for one in found.ranges] for kind, found in result.found.items()}


def test_gr6_a_faithful_copy_has_no_findings() -> None:
    result = compared([original(entry) for entry in range(5)], [copy(entry) for entry in range(5)])
    assert (result.found, result.originals, result.copies) == ({}, 5, 5)


def test_gr6_missing_entries_are_reported_as_ranges() -> None:
    """2, 4 and 6 are not meant for the target and do not split a range; existing copies do."""
    originals = [original(entry) for entry in (0, 1, 3, 5, 7, 8)] + [original(0, 4), original(1, 4)]
    result = compared(originals, [copy(0), copy(7)])
    assert ranges(result) == {"missing": ["1:1 to 1:5", "1:8 to 4:1"]}
    assert [one.entries for one in result.missing.ranges] == [3, 3]


def test_gr6_extra_and_older_copies_are_distinguished() -> None:
    result = compared([original(5), original(7)], [copy(2), copy(5), copy(6), copy(7), copy(9)], before_first=(1, 4))
    assert ranges(result) == {"extra": ["1:6", "1:9"]}
    assert result.older == 1


def test_gr6_duplicates_are_found_wherever_they_are() -> None:
    copies = [copy(0), copy(0), copy(1), copy(2), copy(1), copy(3), copy(0)]
    assert ranges(compared([original(entry) for entry in range(4)], copies)) == {"duplicated": ["1:0 to 1:1"]}


def test_gr6_a_different_payload_is_found_unless_it_was_transformed() -> None:
    originals, copies = [original(0), original(1)], [copy(0), copy(1, text="other")]
    assert ranges(compared(originals, copies)) == {"different": ["1:1"]}
    assert compared(originals, copies, compares_payloads=False).found == {}


def test_gr6_a_late_copy_breaks_the_order_and_is_not_missing() -> None:
    originals = [original(entry) for entry in range(4)]
    assert ranges(compared(originals, [copy(0), copy(3), copy(1), copy(2, text="x")])) == {
        "different": ["1:2"],
        "late": ["1:1 to 1:2"],
    }


def test_gr6_repaired_entries_are_late_for_a_reason() -> None:
    result = compared([original(entry) for entry in range(3)], [copy(0), copy(2), copy(1, is_repair=True)])
    assert (result.found, result.repaired) == ({}, 1)


def test_gr6_entries_not_reached_yet_are_not_missing() -> None:
    result = compared([original(entry) for entry in range(6)], [copy(0), copy(2)], mark=(1, 2))
    assert ranges(result) == {"missing": ["1:1"]}
    assert result.not_yet == 3


def test_gr6_entries_deleted_in_the_target_are_not_missing() -> None:
    originals = [original(entry) for entry in range(6)]
    result = compared(originals, [copy(3), copy(5)], is_trimmed=True)
    assert (ranges(result), result.trimmed) == ({"missing": ["1:4"]}, 3)
    result = compared(originals, [], is_trimmed=True, mark=(1, 3))
    assert (result.found, result.trimmed, result.not_yet) == ({}, 4, 2)
    result = compared(originals, [copy(1, is_repair=True), copy(5)], is_trimmed=True)
    assert (result.trimmed, result.missing.entries) == (4, 0)


def test_gr6_entries_older_than_the_first_copy_are_left_out_on_request() -> None:
    originals = [original(entry) for entry in range(5)]
    assert ranges(compared(originals, [copy(2), copy(4)])) == {"missing": ["1:0 to 1:1", "1:3"]}
    result = compared(originals, [copy(2), copy(4)], from_first_copy=True)
    assert (ranges(result), result.earlier) == ({"missing": ["1:3"]}, 2)


def test_gr6_a_filter_may_be_the_reason() -> None:
    result = compared([original(0), original(1)], [copy(1)], is_filtered=True)
    assert (result.found, result.filtered) == ({}, 1)


def test_gr6_ranges_and_memory_are_bounded(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(comparison, "RANGES_MAX", 3)
    monkeypatch.setattr(comparison, "DIGESTS_MAX", 2)
    originals = [original(entry) for entry in range(20)]
    result = compared(originals, [copy(entry) for entry in range(1, 20, 2)])
    assert (result.missing.entries, len(result.missing.ranges)) == (10, 3)
    result = compared(originals, [copy(19), *(copy(entry) for entry in range(19))])
    assert (result.late.entries, result.unchecked, result.different.entries) == (19, 17, 0)


def test_positions_between_ledgers() -> None:
    positions = PositionSet()
    for position in ((1, 5), (3, 2)):
        positions.add(position)
    assert positions.is_any_between((1, 4), (2, 0))
    assert not positions.is_any_between((1, 5), (3, 2))
    assert positions.is_any_between((1, 9), (4, 0))
    assert positions.is_any_between((2, 0), (3, 3))
    assert not positions.is_any_between((3, 2), (9, 9))
    positions.discard((3, 2))
    assert list(positions) == [(1, 5)]
    assert len(positions) == 1


@given(
    st.sets(st.tuples(st.integers(0, 2), st.integers(0, 6))), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6)))
)
def test_gr6_every_entry_is_counted_exactly_once(source: set[Position], target: list[Position]) -> None:
    result = compared(
        [original(entry, ledger) for ledger, entry in sorted(source)], [copy(entry, ledger) for ledger, entry in target]
    )
    assert result.missing.entries == len(source - set(target))
    assert result.extra.entries == len(set(target) - source)
    assert result.duplicated.entries == sum(count > 1 for count in Counter(target).values())
    seen: list[Position] = []
    late = set()
    for position in target:
        if position in source and position not in seen and any(position < other for other in seen):
            late.add(position)
        seen.append(position)
    assert result.late.entries == len(late)
    assert sum(one.entries for one in result.missing.ranges) == result.missing.entries
    assert result.originals == len(source)

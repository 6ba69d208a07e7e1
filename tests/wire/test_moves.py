"""Positions of moved messages, as text and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.moves import NO_INDEX, PositionRange, parse_positions, positions_of

messages = st.dictionaries(
    st.integers(0, 40),
    st.one_of(st.just([NO_INDEX]), st.lists(st.integers(0, 20), min_size=1, unique=True)),
    min_size=1,
).map(lambda entries: [(entry, index) for entry, indexes in entries.items() for index in indexes])


@given(st.integers(0, 1 << 50), messages)
def test_sp2_positions_are_the_messages_they_were_made_of(ledger_id: int, moved: list[tuple[int, int]]) -> None:
    positions = positions_of(ledger_id, moved)
    assert parse_positions(positions.text) == positions
    found = [
        (entry, index)
        for part in positions.ranges
        for entry in range(part.first, part.last + 1)
        for index in range(part.first_index, part.last_index + 1)
    ]
    assert found == sorted(moved)


def test_sp2_positions_are_short() -> None:
    assert positions_of(12, [(5, -1), (7, -1), (8, -1), (9, -1)]).text == "12:5,7-9"
    assert parse_positions("12:11.0-3,14.2").ranges == (PositionRange(11, 11, 0, 3), PositionRange(14, 14, 2, 2))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("5", "do not begin with a ledger"),
        ("x:5", "do not begin with a ledger"),
        ("12:", "position ''"),
        ("12:5,", "position ''"),
        ("12:5-", "position '5-'"),
        ("12:9-7", "ends before it begins"),
        ("12:9.4-2", "ends before it begins"),
        ("12:5,5", "position 5 does not come after 5"),
        ("12:7-9,8", "position 8 does not come after 7-9"),
        ("12:5.3,5.3", "position 5.3 does not come after 5.3"),
        ("12:5,5.3", "position 5.3 does not come after 5"),
        ("12:٣", "position"),
        ("12:" + "9" * 30, "position"),
    ],
)
def test_sp2_wrong_positions_are_named(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_positions(text)

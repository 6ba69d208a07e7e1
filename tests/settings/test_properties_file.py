"""The syntax of Pulsar's configuration files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.settings.properties_file import parse_properties, property_line


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("# a comment\n! another\n\n  # indented\n", {}),
        ("a=1\nb = 2 \n c:3\nd 4\ne\n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}),
        ("a=\n", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a=x # no comment here", {"a": "x # no comment here"}),
        ("a=1\na=2\n", {"a": "2"}),
        ("a=one,\\\n   two,\\\n   three\nb=1", {"a": "one,two,three", "b": "1"}),
        ("a=1\\\n# not a comment\n", {"a": "1# not a comment"}),
        ("a=even\\\\\nb=1", {"a": "even\\", "b": "1"}),
        ("a=last\\", {"a": "last"}),
        (r"a=\ud83e\ude90", {"a": "🪐"}),
        (r"a\=b\:c\ d=\tx\u00e9\q", {"a=b:c d": "\txéq"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
    ],
)
def test_the_syntax(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


@given(st.text(max_size=80))
def test_any_text_is_read(text: str) -> None:
    parse_properties(text)


plain = st.text(st.characters(categories=("Lu", "Ll", "Nd")), min_size=1, max_size=10)


@given(st.dictionaries(plain, plain))
def test_plain_pairs_round_trip(pairs: dict[str, str]) -> None:
    assert parse_properties("".join(f"{key}={value}\n" for key, value in pairs.items())) == pairs


@given(st.text())
def test_a_line_is_ascii_and_read_as_it_was_meant(value: str) -> None:
    line = property_line("a", value)
    assert line.isascii() and len(line.splitlines()) == 1
    assert parse_properties(f"{line}\nb=2\n") == {"a": value.rstrip(), "b": "2"}

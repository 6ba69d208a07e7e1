"""Hashes of keys: the values that Pulsar's clients have for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.key_hash import boost_hash, java_string_hash, murmur3_hash


@pytest.mark.parametrize(
    ("key", "expected"),
    [("", 0), ("a", 97), ("ab", 97 * 31 + 98), ("polygenelubricants", 0), ("\U0001f600", 31 * 0xD83D + 0xDE00)],
)
def test_java_string_hash_is_that_of_java_without_the_sign(key: str, expected: int) -> None:
    """`"polygenelubricants".hashCode()` is -2147483648."""
    assert java_string_hash(key) == expected


@pytest.mark.parametrize(("key", "expected"), [("key1", 462881061), ("key2", 1936800180)])
def test_murmur3_hash_is_that_of_the_official_clients(key: str, expected: int) -> None:
    """Values of the tests of Pulsar's clients in C++ and Java."""
    assert murmur3_hash(key) == expected


@given(st.text(max_size=30))
def test_no_hash_is_negative(key: str) -> None:
    assert all(0 <= hash_of(key) <= 0x7FFF_FFFF for hash_of in (java_string_hash, murmur3_hash, boost_hash))

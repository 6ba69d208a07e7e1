"""Topic sets: parsing, and whether two have a topic in common."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.declared.topic_set import TopicSet, parse_topic_set
from magnetar.errors import InvalidName
from magnetar.names import TopicName


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders-DLQ", TopicSet("acme/shop", "orders-DLQ")),
        ("orders-DLQ-partition-3", TopicSet("acme/shop", "orders-DLQ")),
        ("orders-*-DLQ", TopicSet("acme/shop", "orders-*-DLQ")),
        ("acme/other", TopicSet("acme/other", "*")),
        ("acme/other/x-?", TopicSet("acme/other", "x-?")),
        ("persistent://acme/other/x", TopicSet("acme/other", "x")),
    ],
)
def test_sp3_sources_are_topics_patterns_or_namespaces(text: str, expected: TopicSet) -> None:
    found = parse_topic_set(text, "acme/shop")
    assert found == expected
    assert parse_topic_set(str(found), "public/default") == found, "it is shown as it can be written"


@pytest.mark.parametrize("text", ["", "non-persistent://a/b/c", "a/b/c/d", "persistent://a/b", "a b/c", "a\nb"])
def test_what_names_no_topics_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        parse_topic_set(text, "acme/shop")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("x-DLQ", "x-DLQ", True),
        ("x-DLQ", "y-DLQ", False),
        ("x-DLQ", "*-DLQ", True),
        ("a/n", "a/n/x-DLQ", True),
        ("a/n", "a/m/x-DLQ", False),
        ("x-*-DLQ", "*-s-DLQ", True),
        ("x-*-DLQ", "y-*-DLQ", False),
        ("a?c", "ab?", True),
        ("a[1]", "a?1]", True),
        ("a[1]", "a1", False),
    ],
)
def test_sp3_overlaps(a: str, b: str, expected: bool) -> None:
    one, other = parse_topic_set(a, "p/d"), parse_topic_set(b, "p/d")
    assert one.overlaps(other) is expected
    assert other.overlaps(one) is expected


def test_a_partition_is_in_the_set_of_its_topic() -> None:
    found = parse_topic_set("x-*", "p/d")
    assert found.has(TopicName.parse("persistent://p/d/x-1-partition-7"))
    assert not found.has(TopicName.parse("persistent://p/other/x-1"))
    assert not found.has(TopicName.parse("non-persistent://p/d/x-1"))


_TEXTS = ["".join(letters) for size in range(6) for letters in product("ab", repeat=size)]
_patterns = st.text(alphabet="ab*?", max_size=4)


@given(_patterns, _patterns)
def test_overlaps_are_those_of_the_texts_that_match(a: str, b: str) -> None:
    common = any(fnmatchcase(text, a) and fnmatchcase(text, b) for text in _TEXTS)
    found = TopicSet("p/d", a).overlaps(TopicSet("p/d", b))
    if common:
        assert found
    elif len(a.replace("*", "")) + len(b.replace("*", "")) <= 5:  # a common text would be this short
        assert not found

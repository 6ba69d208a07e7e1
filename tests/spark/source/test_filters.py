"""Filters narrow ranges, and never exclude a row that Spark would keep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from magnetar.client.message import MessageId
from magnetar.spark.source.entry_range import EntryRange
from magnetar.spark.source.filters import CLOCKS_DIFFER_MS, RangeFilter, range_filter
from tests.spark.memory_topics import PUBLIC, MemoryTopics

A, B = PUBLIC + "a", PUBLIC + "b"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOPIC, ID, TIME = ("__topic",), ("__messageId",), ("__publishTime",)


@pytest.fixture(scope="module")
def topics() -> MemoryTopics:
    """Topic a has ten entries at seconds 0 to 9 after a first hour; b has one."""
    topics = MemoryTopics()
    topics.create("a")
    for second in range(10):
        topics.publish("a", time_ms=3_600_000 + second * CLOCKS_DIFFER_MS)
    topics.create("b")
    topics.publish("b")
    return topics


def minute(number: int) -> datetime:
    return EPOCH + timedelta(hours=1, milliseconds=number * CLOCKS_DIFFER_MS)


ALL = [EntryRange(A, MessageId(1, -1), MessageId(1, 9)), EntryRange(B, MessageId(2, -1), MessageId(2, 0))]


def narrowed(topics: MemoryTopics, *filters: Filter) -> list[EntryRange]:
    return range_filter(filters).ranges(topics, ALL)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ([EqualTo(TOPIC, A)], [A]),
        ([EqualNullSafe(TOPIC, B)], [B]),
        ([In(TOPIC, (A, "x"))], [A]),
        ([In(TOPIC, (A, B)), EqualTo(TOPIC, B)], [B]),
        ([In(TOPIC, (A,)), EqualTo(TOPIC, B)], []),
        ([EqualTo(TOPIC, "t")], []),
        ([In(TOPIC, (None,))], []),
        ([Not(EqualTo(TOPIC, A))], [A, B]),
        ([StringStartsWith(TOPIC, "x")], [A, B]),
        ([IsNotNull(TOPIC), EqualTo(("value",), b"x"), EqualTo(("a", "__topic"), A)], [A, B]),
    ],
)
def test_topics(topics: MemoryTopics, filters: list[Filter], names: list[str]) -> None:
    assert [each.topic for each in narrowed(topics, *filters)] == names


def test_an_id_selects_one_entry(topics: MemoryTopics) -> None:
    one, other = MessageId(1, 4, -1, 2, 10), MessageId(1, 6)

    assert narrowed(topics, EqualTo(ID, one.to_bytes())) == [EntryRange(A, MessageId(1, 3), MessageId(1, 4))]
    both = In(ID, (bytearray(one.to_bytes()), other.to_bytes(), b"nonsense", None))
    assert narrowed(topics, both) == [EntryRange(A, MessageId(1, 3), MessageId(1, 6))]
    assert narrowed(topics, EqualTo(ID, b"nonsense")) == []
    assert narrowed(topics, EqualTo(ID, MessageId(1, 10).to_bytes())) == []


def test_serialized_ids_have_no_order(topics: MemoryTopics) -> None:
    assert narrowed(topics, GreaterThan(ID, MessageId(1, 4).to_bytes())) == ALL


@pytest.mark.parametrize(
    ("filters", "start_minute", "end_minute"),
    [
        ([GreaterThanOrEqual(TIME, minute(5))], 5, None),
        ([LessThanOrEqual(TIME, minute(5))], None, 5),
        ([EqualTo(TIME, minute(5))], 5, 5),
        ([In(TIME, (minute(3), minute(5)))], 3, 5),
        ([GreaterThanOrEqual(TIME, minute(3)), LessThanOrEqual(TIME, minute(7)), IsNotNull(TIME)], 3, 7),
    ],
)
def test_times(topics: MemoryTopics, filters: list[Filter], start_minute: int | None, end_minute: int | None) -> None:
    found = narrowed(topics, *filters)

    ms = [None if each is None else 3_600_000 + each * CLOCKS_DIFFER_MS for each in (start_minute, end_minute)]
    assert (found[0].start_time_ms, found[0].end_time_ms) == tuple(ms)
    if start_minute is not None:
        assert found[0].start == MessageId(1, start_minute - 2), "a minute before, for clocks differ"
        assert len(found) == 1


def test_contradicting_times(topics: MemoryTopics) -> None:
    assert narrowed(topics, GreaterThan(TIME, minute(5)), LessThan(TIME, minute(5))) == []


def test_a_time_without_a_zone_narrows_nothing(topics: MemoryTopics) -> None:
    assert narrowed(topics, GreaterThan(TIME, datetime(2026, 1, 1))) == ALL


COMPARISONS = {
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
    EqualTo: lambda one, other: one == other,
}


@given(st.sampled_from(sorted(COMPARISONS, key=str)), st.integers(-5000, 5000), st.integers(-3, 3))
def test_no_time_is_excluded_that_a_filter_keeps(kind: type, time_us: int, published_ms: int) -> None:
    """Publish times are whole milliseconds; a filter may lie between two."""
    found = range_filter([kind(TIME, EPOCH + timedelta(microseconds=time_us))])

    kept = COMPARISONS[kind](published_ms * 1000, time_us)
    low = found.start_time_ms is None or published_ms >= found.start_time_ms
    high = found.end_time_ms is None or published_ms <= found.end_time_ms
    assert (low and high) == kept


def test_no_filter_narrows_nothing(topics: MemoryTopics) -> None:
    assert range_filter([]) == RangeFilter()
    assert RangeFilter().ranges(topics, ALL) == ALL

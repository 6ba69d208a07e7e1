"""Filters that Spark pushes down: their limits on topics, ids and publish times, applied to entry ranges.

Only narrows ranges: Spark still applies every filter. Unknown filters narrow nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, Protocol

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from magnetar.client.errors import InvalidArgument
from magnetar.client.message import MessageId
from magnetar.spark.source.entry_range import EntryRange
from magnetar.spark.source.offsets import sort_key, whole_entry

CLOCKS_DIFFER_MS = 60_000
"""Brokers search publish times as if they were ordered, but producers' clocks set them: search this much earlier."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimeLookup(Protocol):
    def position_at(self, topic: str, time_ms: int) -> MessageId: ...


@dataclass(frozen=True)
class RangeFilter:
    """Limits that all pushed filters imply; None means no limit, times are inclusive."""

    topics: frozenset[str] | None = None
    ids: frozenset[MessageId] | None = None
    start_time_ms: int | None = None
    end_time_ms: int | None = None

    def __and__(self, other: RangeFilter) -> RangeFilter:
        return RangeFilter(
            topics=_intersection(self.topics, other.topics),
            ids=_intersection(self.ids, other.ids),
            start_time_ms=_stricter(max, self.start_time_ms, other.start_time_ms),
            end_time_ms=_stricter(min, self.end_time_ms, other.end_time_ms),
        )

    def ranges(self, times: TimeLookup, ranges: Iterable[EntryRange]) -> list[EntryRange]:
        """The parts of the ranges that can contain matching rows."""
        found = [each for each in ranges if self.topics is None or each.topic in self.topics]
        if self.start_time_ms is not None and self.end_time_ms is not None and self.start_time_ms > self.end_time_ms:
            return []
        if self.ids is not None:
            found = [part for each in found if (part := _narrowed_to_ids(each, self.ids)) is not None]
        found = [
            replace(
                each,
                start_time_ms=_stricter(max, each.start_time_ms, self.start_time_ms),
                end_time_ms=_stricter(min, each.end_time_ms, self.end_time_ms),
            )
            for each in found
        ]
        return [part for each in found if (part := self._from_start_time(times, each)) is not None]

    def _from_start_time(self, times: TimeLookup, span: EntryRange) -> EntryRange | None:
        """Starts the range at the start time. It is not ended early: clocks differ, and later entries may be older."""
        if self.start_time_ms is None:
            return span
        start = whole_entry(times.position_at(span.topic, max(0, self.start_time_ms - CLOCKS_DIFFER_MS)))
        if sort_key(start) <= sort_key(span.start):
            return span
        return replace(span, start=start) if sort_key(start) < sort_key(span.end) else None


def range_filter(filters: Sequence[Filter]) -> RangeFilter:
    """Combines filters, all of which must hold."""
    return reduce(RangeFilter.__and__, map(_range_filter, filters), RangeFilter())


def _range_filter(each: Filter) -> RangeFilter:
    attribute = getattr(each, "attribute", None)
    read = _COLUMNS.get(attribute[0]) if isinstance(attribute, tuple) and len(attribute) == 1 else None
    return RangeFilter() if read is None else read(each)


def _of_topic(each: Filter) -> RangeFilter:
    values = _values(each)
    if values is None or not all(isinstance(value, str) for value in values):
        return RangeFilter()
    return RangeFilter(topics=frozenset(values))


def _of_id(each: Filter) -> RangeFilter:
    """Serialized ids have no meaningful order: only equality narrows."""
    values = _values(each)
    if values is None:
        return RangeFilter()
    ids = set()
    for value in values:
        try:
            ids.add(MessageId.from_bytes(bytes(value)))
        except (TypeError, ValueError, InvalidArgument):
            continue  # not an id: matches no message
    return RangeFilter(ids=frozenset(ids))


def _of_time(each: Filter) -> RangeFilter:
    values = _values(each)
    if values is not None:
        times = [_epoch_us(value) for value in values]
        if not times or None in times:
            return RangeFilter()
        known = [time for time in times if time is not None]
        return RangeFilter(start_time_ms=_ceil_ms(min(known)), end_time_ms=_floor_ms(max(known)))
    time = _epoch_us(getattr(each, "value", None))
    if time is None:
        return RangeFilter()
    if isinstance(each, GreaterThanOrEqual):
        return RangeFilter(start_time_ms=_ceil_ms(time))
    if isinstance(each, GreaterThan):
        return RangeFilter(start_time_ms=_floor_ms(time) + 1)
    if isinstance(each, LessThanOrEqual):
        return RangeFilter(end_time_ms=_floor_ms(time))
    if isinstance(each, LessThan):
        return RangeFilter(end_time_ms=_ceil_ms(time) - 1)
    return RangeFilter()


_COLUMNS: dict[str, Callable[[Filter], RangeFilter]] = {
    "__topic": _of_topic,
    "__messageId": _of_id,
    "__publishTime": _of_time,
}


def _values(each: Filter) -> tuple[Any, ...] | None:
    """The values that a column may equal; None if the filter is not an equality, or compares with null."""
    if isinstance(each, EqualTo | EqualNullSafe):
        return None if each.value is None else (each.value,)
    if isinstance(each, In):
        return tuple(value for value in each.value if value is not None)
    return None


def _epoch_us(value: object) -> int | None:
    """Microseconds since the epoch; None for a time without a zone."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)


def _ceil_ms(time_us: int) -> int:
    return -(-time_us // 1000)


def _floor_ms(time_us: int) -> int:
    return time_us // 1000


def _narrowed_to_ids(span: EntryRange, ids: frozenset[MessageId]) -> EntryRange | None:
    """From the first to the last entry of the ids, of any partition: an id may lack it."""
    positions = sorted(
        each.position
        for each in ids
        if span.start.position <= each.position <= span.end.position and each.entry_id >= 0
    )
    if not positions:
        return None
    (ledger_id, entry_id), last = positions[0], positions[-1]
    start = MessageId(ledger_id, entry_id - 1, span.end.partition)
    end = MessageId(*last, span.end.partition)
    return replace(
        span,
        start=start if sort_key(start) > sort_key(span.start) else span.start,
        end=end if sort_key(end) < sort_key(span.end) else span.end,
    )


def _intersection(one: frozenset[Any] | None, other: frozenset[Any] | None) -> frozenset[Any] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _stricter(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)

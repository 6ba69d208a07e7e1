"""Times in replies: ISO 8601 in UTC, with milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_time(time_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_time_or_none(time_ms: int) -> str | None:
    """For times set by producers, which may be any number; None beyond the year 9999."""
    try:
        return iso_time(time_ms)
    except OverflowError:
        return None

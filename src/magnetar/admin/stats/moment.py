"""Moments as stats show them."""

from __future__ import annotations

from datetime import UTC, datetime


def shown_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

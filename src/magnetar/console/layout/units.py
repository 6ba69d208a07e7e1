"""Numbers, sizes, rates and times as pages show them: always with a unit, times in the zone of the browser."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

NONE = "-"
_BINARY = ("KiB", "MiB", "GiB", "TiB", "PiB")
_ZONE_SIZE_MAX = 64


def count(number: int | None) -> str:
    return NONE if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """`1 message`, `1,204 messages`."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def size(number: float | None) -> str:
    if number is None or number < 0:
        return NONE
    if number < 1024:
        return f"{number:.0f} B"
    for unit in _BINARY:
        number /= 1024
        if number < 1024 or unit == _BINARY[-1]:
            break
    return f"{number:.1f} {unit}" if number < 100 else f"{number:,.0f} {unit}"


def rate(number: float | None) -> str:
    if number is None:
        return NONE
    return f"{_short(number)} msg/s"


def throughput(number: float | None) -> str:
    return NONE if number is None else f"{size(number)}/s"


def duration(seconds: float | None) -> str:
    """Its two largest units: `3 h 12 min`."""
    if seconds is None or seconds < 0:
        return NONE
    whole = int(seconds)
    if whole < 1:
        return f"{seconds * 1000:.0f} ms"
    parts = ((whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s"))
    first = next(index for index, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)


def _short(number: float) -> str:
    if number == 0 or number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 0.1 else "< 0.1"


def zone_of(name: str) -> tzinfo:
    """The time zone of a browser; UTC for a name that is none."""
    if not name or len(name) > _ZONE_SIZE_MAX:
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # of a name that is a path, or unknown
        return UTC


def moment(text: str | None, zone: str) -> str:
    """A time of the broker, ISO 8601, in a zone: `2026-11-20 14:03:21 CET`. Text that is no time stays as it is."""
    if not text:
        return NONE
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    if time.tzinfo is None:
        return text
    return f"{time.astimezone(zone_of(zone)):%Y-%m-%d %H:%M:%S %Z}"


def moment_of_ms(time_ms: int, zone: str) -> str:
    if time_ms <= 0:
        return NONE
    try:
        return moment(datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(), zone)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"

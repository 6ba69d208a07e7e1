"""Numbers with their units, and times in the zone of a browser."""

from __future__ import annotations

import pytest

from magnetar.console.layout import units


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (123 << 30, "123 GiB"), (-1, "-"),
     (None, "-"), (1 << 70, "1,048,576 PiB")],
)  # fmt: skip
def test_sizes(number: int | None, shown: str) -> None:
    assert units.size(number) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(0.0, "0 msg/s"), (0.01, "< 0.1 msg/s"), (2.25, "2.2 msg/s"), (18250.4, "18,250 msg/s")]
)
def test_rates(number: float, shown: str) -> None:
    assert units.rate(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.25, "250 ms"), (59, "59 s"), (3600, "1 h"), (11530, "3 h 12 min"), (93784, "1 d 2 h"), (None, "-")],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert units.duration(seconds) == shown


def test_counts_have_their_noun() -> None:
    assert [units.counted(number, "message") for number in (0, 1, 1204)] == [
        "0 messages",
        "1 message",
        "1,204 messages",
    ]
    assert units.counted(2, "policy") == "2 policies"


def test_times_are_in_the_zone_of_the_browser() -> None:
    time = "2026-11-20T13:03:21.5Z"
    assert units.moment(time, "Europe/Berlin") == "2026-11-20 14:03:21 CET"
    assert units.moment(time, "") == "2026-11-20 13:03:21 UTC"
    assert units.moment(time, "../../etc/passwd") == "2026-11-20 13:03:21 UTC"
    assert units.moment("<b>", "UTC") == "<b>"
    assert units.moment(None, "UTC") == "-"
    assert units.moment_of_ms(10**30, "UTC") == f"{10**30} ms"

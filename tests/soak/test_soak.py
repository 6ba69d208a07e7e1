"""The short form of `make soak`: messages are counted, nothing is timed; and the instruments notice what they must."""

from __future__ import annotations

from pathlib import Path

import pytest

from .entries import Entries
from .load import Size
from .report import Report, growth_mb
from .soak import faults_in, soak
from .tally import Latencies, Tally

SHORT = Size(connections=50, topics=200, messages_per_s=0, messages_per_entry=5, message_size=100, changes_per_s=10)
ENTRIES = 4000


@pytest.mark.timeout(600)
def test_fault_reconnect_storm_and_a_vandal_cost_no_message(tmp_path: Path) -> None:
    report = soak(tmp_path, SHORT, seed=1, vandal_per_s=200, entries=ENTRIES)
    assert report.broken() == [], str(report)
    assert report.messages == ENTRIES * SHORT.messages_per_entry
    assert report.changes > 0


# -- the instruments


def test_a_missing_entry_is_noticed() -> None:
    tally = Tally(2)
    for topic in (0, 1, 1):
        tally.confirmed(topic, tally.next(topic))
    assert tally.received(1, 0) and not tally.received(1, 0)
    assert tally.received(1, 1)
    assert tally.lost() == [(0, 0)] and not tally.is_complete
    assert tally.received(0, 0)
    assert tally.lost() == [] and tally.is_complete
    with pytest.raises(ValueError, match="was not sent"):
        tally.received(0, 1)


def test_changed_content_is_noticed() -> None:
    entries = Entries(3, 50)
    blob = entries.build(7, 8, 9)
    assert entries.open(blob) == (7, 8, 9)
    with pytest.raises(ValueError, match="checksum"):
        entries.open(blob[:-1] + b"?")
    with pytest.raises(ValueError, match="other content"):
        Entries(2, 50).open(blob)


def test_growing_memory_is_noticed() -> None:
    steps = range(100)
    filling = [(float(step), min(100.0 + step * 4, 300.0)) for step in steps]
    assert abs(growth_mb(filling)) < 1
    leaking = [(float(step), 100.0 + step) for step in steps]
    assert round(growth_mb(leaking)) == 49
    assert Report(vandal_frames=1, memory=filling).broken() == []
    assert "memory grew" in Report(vandal_frames=1, memory=leaking).broken()[0]


def test_every_broken_promise_is_named() -> None:
    report = Report(
        messages=10,
        seconds=10,
        wanted_per_s=100,
        lost=1,
        errors=["unexpected ERROR"],
        lost_connections=1,
        faults=["unexpected error in a timer"],
        reconnected_s=1000,
    )
    words = ("did not arrive", "disturbed", "ended by the broker", "faults", "vandal", "wanted 100", "reconnecting")
    assert len(report.broken()) == len(words)
    assert all(word in broken for word, broken in zip(words, report.broken(), strict=True))


def test_faults_are_read_from_the_log() -> None:
    lines = (
        '{"level": "info", "message": "serves"}',
        '{"level": "error", "event": "fault", "message": "unexpected error"}',
        '{"level": "warning", "message": "refused", "traceback": "…"}',
        "thread panicked",
    )
    assert faults_in("\n".join(lines)) == ["unexpected error", "refused", "thread panicked"]


def test_percentiles_are_those_of_the_latencies() -> None:
    latencies = Latencies()
    for ms in range(1, 1001):
        latencies.add(ms)
    assert 500 <= latencies.percentile_ms(0.5) <= 560
    assert 990 <= latencies.percentile_ms(0.99) <= 1000
    assert latencies.largest_ms == 1000

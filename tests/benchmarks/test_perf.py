"""Figures read from pulsar-perf's log and from a broker's counters."""

from __future__ import annotations

from pathlib import Path

import pytest
from measurement import Sample, rate_between
from perf import PerfFailed, parse

PRODUCED = """\
2026-01-02T10:00:00,000 INFO  org.apache.pulsar.testclient.PerformanceProducer - Created 1 producers
2026-01-02T10:00:10,000 INFO  org.apache.pulsar.testclient.PerformanceProducer - Throughput produced:  300000 msg --- \
30000.5 msg/s --- 234.4 Mbit/s  --- failure 0.0 msg/s --- Latency: mean: 20.1 ms - med: 19.0 - 95pct: 40.0
2026-01-02T10:00:20,000 INFO  org.apache.pulsar.testclient.PerformanceProducer - Throughput produced: 100,000 msg --- \
70,000.0 msg/s --- 546.9 Mbit/s  --- failure 0.0 msg/s --- Latency: mean: 10.1 ms - med: 9.0 - 95pct: 20.0
2026-01-02T10:00:30,000 INFO  org.apache.pulsar.testclient.PerformanceProducer - Throughput produced: 1900000 msg --- \
90000.0 msg/s --- 703.1 Mbit/s  --- failure 0.0 msg/s --- Latency: mean: 10.1 ms - med: 9.0 - 95pct: 20.0
2026-01-02T10:00:31,000 INFO  org.apache.pulsar.testclient.PerformanceProducer - Aggregated throughput stats --- \
1950000 records sent --- 62903.226 msg/s --- 491.432 Mbit/s
2026-01-02T10:00:31,000 INFO  org.apache.pulsar.testclient.PerformanceProducer - Aggregated latency stats --- \
Latency: mean:   2.100 ms - med:   1.700 - 95pct:   4.010 - 99pct:   7.250 - 99.9pct:  11.000 - Max:  14.000
"""

CONSUMED = """\
2026-01-02T10:00:10,000 INFO  org.apache.pulsar.testclient.PerformanceConsumer - Throughput received: 2124834 msg --- \
212480.665  msg/s --- 1660.005 Mbit/s  --- Latency: mean: 39271.281 ms - med: 39520 - 95pct: 43582 - 99pct: 44183
2026-01-02T10:00:15,000 INFO  org.apache.pulsar.testclient.PerformanceConsumer - Aggregated throughput stats --- \
2007438 records received --- 101385.612 msg/s --- 792.075 Mbit/s
"""


def log_with(folder: Path, text: str) -> Path:
    log = folder / "log"
    log.write_text(text)
    return log


def test_a_produce_log(tmp_path: Path) -> None:
    figures = parse(log_with(tmp_path, PRODUCED))
    assert figures.interval_rates == (30000.5, 70000.0, 90000.0)
    assert (figures.messages, figures.rate) == (1950000, 62903.226)
    assert (figures.latency_p50_ms, figures.latency_p99_ms) == (1.7, 7.25)


def test_the_first_interval_is_discarded(tmp_path: Path) -> None:
    assert parse(log_with(tmp_path, PRODUCED)).warm_rate == 80000.0


def test_a_consume_log(tmp_path: Path) -> None:
    figures = parse(log_with(tmp_path, CONSUMED))
    assert figures.interval_rates == (212480.665,)
    assert figures.messages == 2007438
    with pytest.raises(PerfFailed, match="reported 1 intervals, at least 2 are needed"):
        _ = figures.warm_rate


def test_a_log_without_a_summary_is_a_failure_with_the_end_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(PerfFailed, match="connection refused"):
        parse(log_with(tmp_path, "started\nconnection refused\n"))


def test_a_run_without_a_message_is_a_failure(tmp_path: Path) -> None:
    text = PRODUCED.replace("1950000 records sent", "0 records sent") + "handshake failed\n"
    with pytest.raises(PerfFailed, match=r"no message; .*\n[\s\S]*handshake failed"):
        parse(log_with(tmp_path, text))


def test_the_rate_ignores_the_first_quarter_of_the_backlog() -> None:
    slow_start = [Sample(0.0, 0), Sample(5.0, 200)]
    warm = [Sample(6.0 + number, 300 + 100 * number) for number in range(8)]
    assert rate_between(slow_start + warm, 1000) == pytest.approx(100.0)


@pytest.mark.parametrize("samples", [[], [Sample(1.0, 1000)], [Sample(float(at), 1000) for at in range(9)]])
def test_a_backlog_read_too_quickly_yields_no_rate(samples: list[Sample]) -> None:
    with pytest.raises(PerfFailed, match="before it was read"):
        rate_between(samples, 1000)

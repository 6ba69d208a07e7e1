"""Spark's figures, and the baselines named in the table."""

from __future__ import annotations

import pytest
import scale
from spark_rows import percentile
from table import SPARK, compare, render

MEASURED = {
    "spark-read-1kb": [150_000.0],
    "spark-read-1kb-client": [75_000.0],
    "spark-read-1kb-perf": [300_000.0],
    "spark-read-100b": [390_000.0],
    "spark-read-100b-client": [100_000.0],
}


@pytest.mark.parametrize(
    ("values", "percent", "wanted"),
    [
        ([7.0], 50, 7.0),
        ([7.0], 99, 7.0),
        ([3.0, 1.0, 2.0, 4.0], 50, 2.0),
        ([float(n) for n in range(1, 201)], 99, 198.0),
    ],
)
def test_a_percentile_is_one_of_the_values(values: list[float], percent: float, wanted: float) -> None:
    assert percentile(values, percent) == wanted


def test_one_figure_is_compared_with_two_named_baselines() -> None:
    of_1kb, of_100b, of_perf = compare({}, MEASURED)
    assert (of_1kb.apache, of_1kb.magnetar) == ("75,000 msg/s (Python client)", "150,000 msg/s")
    assert (of_1kb.ratio, of_1kb.ok) == ("2.00", True)
    assert (of_100b.ratio, of_100b.ok) == ("3.90", False)
    assert (of_perf.apache, of_perf.ratio, of_perf.ok) == ("300,000 msg/s (pulsar-perf)", "0.50", False)


def test_apache_pulsars_figures_are_no_baseline() -> None:
    (line,) = compare({"spark-write-made": [1.0]}, {"spark-write-made": [9.0]})
    assert "(" not in line.apache
    of_send, of_async = compare({"spark-write-send": [1.0]}, {"spark-write": [9.0], "spark-write-async": [10.0]})
    assert (of_send.apache, of_send.ok) == ("-", None)
    assert (of_async.ratio, of_async.ok) == ("0.90", None)


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("spark-latency-ours-p50", 60.0, 61.0),
        ("spark-idle-ours", 5.0, 5.1),
        ("spark-idle-spark", 5.0, 5.1),
    ],
)
def test_limits_of_a_running_query(key: str, good: float, bad: float) -> None:
    for value, ok in ((good, True), (bad, False)):
        (line,) = compare({}, {key: [value]})
        assert line.ok is ok


def test_a_metric_with_a_baseline_names_the_key_of_its_figure() -> None:
    assert [metric.key for metric in SPARK if metric.baseline and not metric.against] == []
    assert "(Python client)" in render(compare({}, MEASURED))


def test_short_runs_are_shorter() -> None:
    quick, full = scale.QUICK.spark, scale.FULL.spark
    assert all(getattr(quick, name) < getattr(full, name) for name in scale.SparkScale.__slots__)

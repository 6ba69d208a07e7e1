"""Verdicts and layout of the table."""

from __future__ import annotations

import pytest
from table import Line, as_data, as_page, compare, linear, render


def line_of(apache: dict[str, list[float]], magnetar: dict[str, list[float]]) -> Line:
    (line,) = compare(apache, magnetar)
    return line


def test_a_higher_rate_is_better() -> None:
    line = line_of({"consume": [100_000.0]}, {"consume": [250_000.0]})
    assert (line.apache, line.magnetar, line.ratio, line.ok) == ("100,000 msg/s", "250,000 msg/s", "2.50", True)


def test_a_lower_latency_is_better() -> None:
    line = line_of({"latency-p99": [4.0]}, {"latency-p99": [5.0]})
    assert (line.ratio, line.wanted, line.ok) == ("0.80", "not higher", False)


def test_the_median_of_all_rounds_counts() -> None:
    line = line_of({"publish-batched": [1.0, 10.0, 90.0]}, {"publish-batched": [5.0, 500.0, 20.0]})
    assert line.ratio == "2.00"


def test_the_verdict_uses_the_displayed_ratio() -> None:
    assert line_of({"consume": [1000.0]}, {"consume": [996.0]}).ok is True
    assert line_of({"consume": [1000.0]}, {"consume": [994.0]}).ok is False


@pytest.mark.parametrize(
    ("apache", "magnetar", "ok"),
    [([2000.0], 79.0, True), ([2000.0], 80.0, False), ([1000.0], 60.0, False), ([], 60.0, None), ([], 90.0, False)],
)
def test_idle_memory_has_a_limit_and_a_ratio(apache: list[float], magnetar: float, ok: bool | None) -> None:
    assert line_of({"memory": apache}, {"memory": [magnetar]}).ok is ok


def test_without_apache_pulsar_limits_count_and_ratios_do_not() -> None:
    start, consume = compare({}, {"start-binary": [0.6], "consume": [1.0]})
    assert (start.apache, start.ratio, start.ok) == ("-", "-", False)
    assert consume.ok is None


def test_a_row_that_failed_on_magnetar_has_no_verdict() -> None:
    line = line_of({"consume": [1.0]}, {})
    assert (line.magnetar, line.ok) == ("-", None)


def test_a_series_is_one_line_with_all_sizes() -> None:
    samples = {"topics-memory 10000": [14.3], "topics-memory 1000": [20.0, 21.0, 90.0], "topics-memory 5000": [15.1]}
    line = line_of({}, samples)
    assert line.metric == "memory per idle topic, 1,000 / 5,000 / 10,000 topics"
    assert (line.magnetar, line.ok) == ("21.0 / 15.1 / 14.3 KB", True)


def test_rising_memory_per_topic_is_not_linear() -> None:
    samples = {"topics-memory 1000": [10.0], "topics-memory 5000": [10.0], "topics-memory 10000": [15.0]}
    assert line_of({}, samples).ok is False


@pytest.mark.parametrize(("last", "ok"), [(0.30, True), (0.425, True), (0.50, True), (0.52, False)])
def test_the_start_time_must_not_get_steeper(last: float, ok: bool) -> None:
    samples = {"topics-start 1000": [0.2], "topics-start 5000": [0.3], "topics-start 10000": [last]}
    assert line_of({}, samples).ok is ok


def test_two_sizes_do_not_determine_a_slope() -> None:
    assert linear([(1, 1.0), (2, 9.0)], slack=0.0) is None


@pytest.mark.parametrize(("last", "ok"), [(168.0, True), (169.0, False)])
def test_memory_of_a_backlog_must_not_grow(last: float, ok: bool) -> None:
    line = line_of({}, {"backlog-memory 1000000": [144.0], "backlog-memory 10000000": [last]})
    assert line.metric == "memory with a backlog of 1M / 10M messages"
    assert line.ok is ok


def test_all_lines_have_the_same_width() -> None:
    lines = compare({"memory": [1500.0]}, {"memory": [50.0], "start-http": [0.3], "backlog-first": [1.25]})
    rows = render(lines).splitlines()
    assert len(rows) == 2 + 3
    assert len({len(row) for row in rows}) == 1
    assert rows[0].split("|")[1].strip() == "metric"
    assert set(rows[1]) == set("|-:")
    assert "| ok" in rows[3] and "30.00" in rows[3]


def test_the_page_has_the_table_the_command_and_the_setting() -> None:
    lines = compare({}, {"start-http": [0.3]})
    page = as_page(lines, {"machine": "2 cores"}, "make bench")
    assert page.startswith(render(lines))
    assert "`make bench`" in page and page.endswith("- machine: 2 cores\n")


def test_the_saved_table_has_every_column() -> None:
    (saved,) = as_data(compare({}, {"start-http": [0.25]}))
    assert saved["magnetar"] == "0.25 s"
    assert saved["ok"] is True

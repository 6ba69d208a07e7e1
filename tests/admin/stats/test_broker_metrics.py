"""Metrics of the broker as a whole: a valid text, and a row of the table for each."""

from __future__ import annotations

import re

import httpx
import pytest

from magnetar import testing
from magnetar.admin.stats import broker_metrics, replication_metrics
from magnetar.admin.stats.broker_metrics import METRICS
from magnetar.admin.stats.metrics import FAMILIES
from magnetar.health import Reading
from magnetar.latency import BUCKETS_S, Latencies
from tests.admin.driver import Admin
from tests.admin.stats.test_metrics import check_format, scrape

CLUSTER = 'cluster="standalone"'


def text(**readings: Reading) -> list[str]:
    return "".join(broker_metrics.lines(readings, CLUSTER)).splitlines()


def test_a_number_has_one_line() -> None:
    assert text(pulsar_active_connections=3) == [
        "# TYPE pulsar_active_connections gauge",
        f"pulsar_active_connections{{{CLUSTER}}} 3",
    ]


def test_labels_are_escaped_and_in_order() -> None:
    assert text(magnetar_refused_requests_total={("subscribe", 'a"b'): 2}) == [
        "# TYPE magnetar_refused_requests_total counter",
        f'magnetar_refused_requests_total{{{CLUSTER},request="subscribe",error="a\\"b"}} 2',
    ]
    assert text(magnetar_faults_total={}) == []


def test_a_histogram_is_cumulative() -> None:
    latencies = Latencies()
    for seconds in (0.0001, 0.02, 99.0):
        latencies.add(seconds)
    lines = text(magnetar_fsync_seconds=latencies)
    check_format(lines)
    assert lines[0] == "# TYPE magnetar_fsync_seconds histogram"
    assert lines[1] == f'magnetar_fsync_seconds_bucket{{{CLUSTER},le="0.001"}} 1'
    assert f'magnetar_fsync_seconds_bucket{{{CLUSTER},le="30"}} 2' in lines
    assert lines[-3:] == [
        f'magnetar_fsync_seconds_bucket{{{CLUSTER},le="+Inf"}} 3',
        f"magnetar_fsync_seconds_sum{{{CLUSTER}}} {latencies.sum_s}",
        f"magnetar_fsync_seconds_count{{{CLUSTER}}} 3",
    ]
    assert len(lines) == len(BUCKETS_S) + 4


def test_they_are_part_of_a_scrape(admin: Admin) -> None:
    admin.vitals.values = {"pulsar_active_connections": 7, "magnetar_loop_lag_seconds": Latencies()}
    lines = scrape(admin)
    check_format(lines)
    assert f"pulsar_active_connections{{{CLUSTER}}} 7" in lines


def test_names_and_kinds_fit_together() -> None:
    names = [metric.name for metric in METRICS]
    assert sorted(set(names)) == sorted(names)
    for metric in METRICS:
        assert metric.name.endswith("_total") <= (metric.kind == "counter")
        assert metric.meaning and not metric.meaning.endswith(".")


# Only in certain situations.
RARE = {
    "magnetar_faults_total",
    "pulsar_authentication_success_total",  # only where clients authenticate
    "pulsar_authentication_failures_total",
}


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of a real broker on a disk."""
    with testing.broker(tmp_path_factory.mktemp("data") / "data") as running:
        assert httpx.get(f"{running.http_url}/nowhere").status_code == 404
        httpx.put(f"{running.http_url}/admin/v2/persistent/public/default/t").raise_for_status()
        running.run(lambda: running.server.broker.refused_messages.update([9]))
        return httpx.get(f"{running.http_url}/metrics/", timeout=60).text.splitlines()


def test_every_metric_is_in_a_table_and_every_row_is_exposed(exposed: list[str]) -> None:
    check_format(exposed)
    found = {line.split()[2]: line.split()[3] for line in exposed if line.startswith("# TYPE ")}
    of_topics = {family.name for family in FAMILIES} | {family.broker_name for family in FAMILIES}
    counted = {"pulsar_version_info", "pulsar_topics_count", "pulsar_broker_topics_count"}
    table = {metric.name: metric.kind for metric in METRICS}
    assert found.keys() - of_topics - counted - set(replication_metrics.NAMES) == table.keys() - RARE
    assert {name: kind for name, kind in found.items() if name in table} == {
        name: kind for name, kind in table.items() if name not in RARE
    }


def test_values_of_a_real_broker(exposed: list[str]) -> None:
    values = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in exposed if not line.startswith("#")}
    by_name = {re.sub(r"\{.*", "", sample): value for sample, value in values.items()}
    assert by_name["pulsar_health"] == 1
    assert by_name["process_resident_memory_bytes"] > 10_000_000
    assert 3 < by_name["process_open_fds"] <= by_name["process_max_fds"]
    assert by_name["process_cpu_seconds_total"] > 0
    assert by_name["process_start_time_seconds"] > 1_700_000_000
    assert by_name["magnetar_storage_disk_free_bytes"] <= by_name["magnetar_storage_disk_total_bytes"]
    assert by_name["magnetar_storage_write_stopped"] == by_name["magnetar_storage_background_errors"] == 0
    assert by_name["magnetar_commit_seconds_count"] >= by_name["magnetar_fsync_seconds_count"] > 0
    assert values[f'magnetar_http_refused_total{{{CLUSTER},status="404"}}'] == 1
    assert values[f'magnetar_health_check{{{CLUSTER},check="timers"}}'] == 0
    assert values[f'magnetar_events_total{{{CLUSTER},event="topic_created"}}'] == 1
    assert values[f'magnetar_refused_requests_total{{{CLUSTER},request="send",error="ChecksumError"}}'] == 1

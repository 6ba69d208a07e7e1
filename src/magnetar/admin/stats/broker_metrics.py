"""Metrics of the broker as a whole: connections, refusals, faults, commits, disk and process. `METRICS` is the table.

The host measures the values (`Vitals.readings`); here are their names, kinds and meanings, in Pulsar's and Prometheus'
own words where they exist. A value that a host or a system does not have has no line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from magnetar.admin.stats.exposition import MetricKind, heading, histogram_lines, label
from magnetar.health import Reading
from magnetar.latency import Latencies


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()


METRICS: tuple[Metric, ...] = (
    # -- health
    Metric(
        "pulsar_health", "gauge", "1 if no check of health fails, 0 if one does; a scrape writes nothing to the disk"
    ),
    Metric("magnetar_health_check", "gauge", "one check: 0 is ok, 1 a warning, 2 a failure", ("check",)),
    Metric("magnetar_damaged", "gauge", "things that cannot be read", ("kind",)),
    Metric("magnetar_faults_total", "counter", "unexpected errors, by what the broker was doing", ("kind",)),
    Metric("magnetar_events_total", "counter", "events for the log, written or not ([log.md](log.md))", ("event",)),
    # -- clients
    Metric("pulsar_active_connections", "gauge", "open binary connections"),
    Metric("pulsar_connection_created_total_count", "counter", "binary connections that were opened"),
    Metric("pulsar_connection_closed_total_count", "counter", "binary connections that were closed"),
    Metric("pulsar_connection_create_fail_count", "counter", "connections refused: over a limit, or before CONNECTED"),
    Metric(
        "magnetar_connections_paused",
        "gauge",
        "connections not read: the disk is behind, or a rate is used up",
    ),
    Metric(
        "magnetar_refused_requests_total",
        "counter",
        "binary commands that failed, by their kind and error; `send` are messages",
        ("request", "error"),
    ),
    Metric(
        "pulsar_authentication_success_total",
        "counter",
        "clients and requests that proved who they are",
        ("provider_name", "auth_method"),
    ),
    Metric(
        "pulsar_authentication_failures_total",
        "counter",
        "clients and requests that did not, once for each provider that refused them",
        ("provider_name", "auth_method", "reason"),
    ),
    Metric("magnetar_http_refused_total", "counter", "HTTP responses from 400 on", ("status",)),
    # -- loop and disk
    Metric("magnetar_loop_lag_seconds", "histogram", "delay of the event loop, measured twice a second"),
    Metric("magnetar_timer_overdue_seconds", "gauge", "time since the next timer was due"),
    Metric("magnetar_commit_age_seconds", "gauge", "time since the last commit; an idle broker makes none"),
    Metric("magnetar_commit_seconds", "histogram", "time to write and sync the changes of one commit"),
    Metric("magnetar_fsync_seconds", "histogram", "time of the sync alone"),
    Metric("magnetar_commit_waiting_groups", "gauge", "groups of changes that wait for the disk"),
    Metric("magnetar_commit_waiting_bytes", "gauge", "published bytes that wait for the disk"),
    Metric("magnetar_commit_waiting_seconds", "gauge", "time that the disk has been working on the same groups"),
    Metric("magnetar_storage_write_stopped", "gauge", "1 while RocksDB takes no writes, until it has compacted"),
    Metric("magnetar_storage_delayed_write_rate", "gauge", "bytes a second that RocksDB takes; 0 is any number"),
    Metric("magnetar_storage_background_errors", "gauge", "failed flushes and compactions of RocksDB"),
    Metric("magnetar_storage_read_failures_total", "counter", "reads that failed: a bad block, or a disk that dies"),
    Metric("magnetar_storage_producers_held", "gauge", "1 while producers are held because the disk is nearly full"),
    Metric("magnetar_storage_disk_bytes", "gauge", "bytes that the data folder takes"),
    Metric("magnetar_storage_disk_free_bytes", "gauge", "bytes that its disk has left"),
    Metric("magnetar_storage_disk_total_bytes", "gauge", "bytes that its disk has in all"),
    Metric("magnetar_storage_deleted_bytes", "gauge", "deleted bytes that compaction has yet to free"),
    # -- the process, as Prometheus names it
    Metric("process_resident_memory_bytes", "gauge", "memory; without `/proc`, the largest so far"),
    Metric("process_open_fds", "gauge", "open descriptors"),
    Metric("process_max_fds", "gauge", "descriptors that may be open"),
    Metric("process_cpu_seconds_total", "counter", "CPU time of user and system"),
    Metric("process_start_time_seconds", "gauge", "start of the broker, in seconds since 1970"),
)


def lines(readings: Mapping[str, Reading], cluster: str) -> Iterator[str]:
    """`cluster` is the label that all lines have."""
    for metric in METRICS:
        value = readings.get(metric.name)
        if value is None:
            continue
        if isinstance(value, Latencies):
            yield heading(metric.name, metric.kind)
            yield from histogram_lines(metric.name, cluster, value)
        elif isinstance(value, Mapping):
            if value:
                yield heading(metric.name, metric.kind)
            for texts, number in value.items():
                own = ",".join(label(*pair) for pair in zip(metric.labels, texts, strict=True))
                yield f"{metric.name}{{{cluster},{own}}} {number}\n"
        else:
            yield f"{heading(metric.name, metric.kind)}{metric.name}{{{cluster}}} {value}\n"

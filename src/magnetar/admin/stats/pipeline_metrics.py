"""Metrics of declared pipelines for Prometheus: one line each. `METRICS` is the table. Knows no topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from magnetar.admin.stats.broker_metrics import Metric
from magnetar.admin.stats.exposition import heading, label
from magnetar.broker.broker import Broker
from magnetar.declared.model import PipelineStatus

LABELS = ("namespace", "pipeline", "verb")


@dataclass(frozen=True, slots=True)
class PipelineFamily:
    """`read` returns None for a pipeline without this value."""

    metric: Metric
    read: Callable[[PipelineStatus], float | None]


STATE = Metric("magnetar_pipeline_state", "gauge", "1, with the reported state of its last run", (*LABELS, "state"))

FAMILIES = (
    PipelineFamily(
        Metric("magnetar_pipeline_done", "gauge", "messages that the last run has done", LABELS),
        lambda one: one.progress.done,
    ),
    PipelineFamily(
        Metric("magnetar_pipeline_expected", "gauge", "messages that it has to do in all, where it knows", LABELS),
        lambda one: one.progress.total,
    ),
    PipelineFamily(
        Metric("magnetar_pipeline_rate", "gauge", "messages a second", LABELS),
        lambda one: one.rate,
    ),
    PipelineFamily(
        Metric("magnetar_pipeline_failed_runs_total", "counter", "runs that failed", LABELS),
        lambda one: one.failed_runs,
    ),
)

METRICS = (STATE, *(family.metric for family in FAMILIES))


def lines(broker: Broker, cluster: str) -> Iterator[str]:
    """`cluster` is the label that all lines have. A broker without pipelines has none."""
    statuses = broker.pipelines.statuses(broker.pipelines.all())
    if not statuses:
        return
    labels = [_labels(cluster, one) for one in statuses]
    yield heading(STATE.name, STATE.kind)
    for own, one in zip(labels, statuses, strict=True):
        yield f"{STATE.name}{{{own},{label('state', one.state.value)}}} 1\n"
    for family in FAMILIES:
        values = [(own, family.read(one)) for own, one in zip(labels, statuses, strict=True)]
        shown = [f"{family.metric.name}{{{own}}} {value}\n" for own, value in values if value is not None]
        if shown:
            yield heading(family.metric.name, family.metric.kind) + "".join(shown)


def _labels(cluster: str, one: PipelineStatus) -> str:
    own = zip(LABELS, (one.namespace, one.name, one.verb), strict=True)
    return ",".join((cluster, *(label(*pair) for pair in own)))

"""A verb for tests: counts rows that Spark makes, and keeps its position outside of the run, as a subscription does."""

from __future__ import annotations

import threading

from magnetar.client import Client
from magnetar.declared.model import Progress
from magnetar.declared.redrive import RedriveSpec
from magnetar.pipelines.run import RunContext, RunFailed

TOTAL = 20

position: dict[str, int] = {}
attempts: list[str] = []
asks_broker = threading.Event()
"""Set by a run that will ask the broker for something in a second."""


def run(context: RunContext, spec: RedriveSpec) -> None:
    name = spec.sources[0].rpartition("/")[2]
    attempts.append(name)
    if name == "broken-DLQ":
        raise RunFailed("it has no such column")
    if name == "away-DLQ":
        asks_broker.set()
        context.wait(1.0)
        with Client(context.endpoint.service_url, operation_timeout_s=1, connect_timeout_s=1) as client:
            client.partition_count(name)
    context.spark.range(TOTAL).createOrReplaceTempView("numbers")  # each run has views of its own
    expected = context.spark.sql("select count(*) from numbers").first()[0]  # type: ignore[index]
    while position.get(name, 0) < expected:
        if context.wait(0.02 if name != "slow-DLQ" else 0.3):
            return
        position[name] = position.get(name, 0) + 1
        context.report(Progress(position[name], expected, {"even": position[name] // 2}, "counting"))

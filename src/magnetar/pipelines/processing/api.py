"""`process`: a function, SQL or a transform over the messages of a topic, as a subscription.

process("orders", subscription="billing", into="invoices", retry=["10s", "1m", "10m"])(charge).run()
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.client import Security
from magnetar.clock import Clock
from magnetar.pipelines.processing.call.function import (
    KINDS,
    Function,
    InvalidProcess,
    Kind,
    ProcessFunction,
    checked,
    kind_of,
)
from magnetar.pipelines.processing.driver import Until
from magnetar.pipelines.processing.foreground import ForegroundRun, stopped_by_signals
from magnetar.pipelines.processing.plan import (
    BATCH_ROWS_DEFAULT,
    CONCURRENCY_DEFAULT,
    ROUND_MESSAGES,
    ProcessPlan,
    plan,
)
from magnetar.pipelines.run import Progress
from magnetar.replication.cluster import ClusterEndpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("magnetar.pipelines")

SERVICE_URL_DEFAULT = "pulsar://localhost:6650"
ADMIN_URL_DEFAULT = "http://localhost:8080"

Transform = Callable[["DataFrame"], "DataFrame"]


class Processor:
    """A process that can be run, again and again: each run goes on where the last one ended."""

    def __init__(self, chosen: ProcessPlan, endpoint: ClusterEndpoint, master: str | None, name: str) -> None:
        self._plan = chosen
        self._endpoint = endpoint
        self._master = master
        self._name = name
        self._kind: Kind | None = None
        self._transform: Transform | str | None = None
        self._run: ForegroundRun | None = None

    @property
    def plan(self) -> ProcessPlan:
        return self._plan

    def __call__(self, function: Function | str) -> Processor:
        """The function, or its name as `module:name`; also as a decorator."""
        if isinstance(function, str):
            found = ProcessFunction.named(function, self._kind)
        else:
            checked(function, getattr(function, "__qualname__", repr(function)))
            found = ProcessFunction(kind_of(function, self._kind), function=function)
        self._plan = replace(self._plan, function=found)
        return self

    def of_kind(self, kind: Kind | None) -> Processor:
        """How the function is called that is given next."""
        if kind is not None and kind not in KINDS:
            raise InvalidProcess(f"kind {kind!r} is not one of {', '.join(KINDS)}")
        self._kind = kind
        return self

    def sql(self, query: str) -> Processor:
        """A query over the view `messages`; its rows are published."""
        self._transform = query
        return self

    def transform(self, change: Transform) -> Processor:
        """The same as a function from the DataFrame of messages to that of what is published."""
        self._transform = change
        return self

    def run(
        self,
        until: Until = "stopped",
        *,
        earliest: bool = True,
        clock: Clock | None = None,
        show: Callable[[Progress], None] | None = None,
    ) -> Progress:
        """Runs until it is stopped by a signal or `stop`, or until everything that is due is processed.

        A new subscription begins with the first message, unless `earliest` is false. Raises `MagnetarError`.
        """
        import magnetar.spark
        from magnetar.pipelines.processing.run import check_runnable, run_plan

        check_runnable(self._plan, self._transform)
        spark = magnetar.spark.session(self._master, self._name)
        self._run = run = ForegroundRun(spark, self._endpoint, show or _log)
        try:
            with stopped_by_signals(run):
                return run_plan(run, self._plan, self._transform, until=until, earliest=earliest, clock=clock)
        finally:
            self._run = None

    @property
    def is_running(self) -> bool:
        return self._run is not None

    def stop(self) -> None:
        """Ends a run in another thread, cleanly."""
        if self._run is not None:
            self._run.stop()


def process(
    topic: str,
    *,
    subscription: str,
    into: str | None = None,
    retry: Iterable[str | float] = (),
    dead_letter_topic: str | None = None,
    retry_topic: str | None = None,
    no_retry: Iterable[type[BaseException] | str] = (),
    dead_letter_topics: Mapping[type[BaseException], str] | Mapping[str, str] | None = None,
    kind: Kind | None = None,
    timeout: str | float = "30s",
    concurrency: int = CONCURRENCY_DEFAULT,
    batch_rows: int = BATCH_ROWS_DEFAULT,
    round_messages: int = ROUND_MESSAGES,
    service_url: str = SERVICE_URL_DEFAULT,
    admin_url: str | None = ADMIN_URL_DEFAULT,
    security: Security | None = None,
    master: str | None = None,
    name: str | None = None,
) -> Processor:
    """A process over the messages of a topic; call it with a function, or use it as a decorator.

    `kind` is `row`, `async`, `arrow` or `pandas`: what the function takes. Without it, coroutine functions are async
    and all others are for rows. `timeout` is for one message, or for one call with a batch. Raises `InvalidProcess`.
    """
    chosen = plan(
        topic,
        subscription,
        into=into,
        retry=retry,
        retry_topic=retry_topic,
        dead_letter_topic=dead_letter_topic,
        no_retry=no_retry,
        dead_letter_topics=dead_letter_topics,
        timeout=timeout,
        concurrency=concurrency,
        batch_rows=batch_rows,
        round_messages=round_messages,
    )
    endpoint = ClusterEndpoint("cluster", service_url, admin_url, security)
    found = Processor(chosen, endpoint, master, name or f"magnetar process {topic}")
    found.of_kind(kind)
    return found


def _log(progress: Progress) -> None:
    counts = ", ".join(f"{name} {count:,}" for name, count in progress.counts.items())
    log.info("%s messages: %s%s", f"{progress.done:,}", counts, f"; {progress.note}" if progress.note else "")

"""The verb `replicate`, as the process runs it: copies the routes of one source to their remote clusters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from pyspark import SparkContext

from magnetar.pipelines.declared_sources import DeclaringBroker
from magnetar.pipelines.replicate.driver import Pipeline
from magnetar.pipelines.replicate.sources import DeclaringSource, ReplicationSource

log = logging.getLogger(__name__)


class Replicate:
    def __init__(
        self, open_source: Callable[[], ReplicationSource], retry_max_s: float, folder: Path | None = None
    ) -> None:
        self._open_source = open_source
        self._retry_max_s = retry_max_s
        self._folder = folder
        self._source: ReplicationSource | None = None
        self._pipeline: Pipeline | None = None

    @classmethod
    def declared_by(cls, broker: DeclaringBroker, retry_max_s: float, folder: Path | None = None) -> Replicate:
        return cls(lambda: DeclaringSource(broker), retry_max_s, folder)

    def open(self) -> None:
        self._source = self._open_source()
        self._pipeline = Pipeline(self._source, retry_max_s=self._retry_max_s, folder=self._folder)
        self._pipeline.prepare()

    def start(self, context: SparkContext) -> None:
        assert self._source is not None and self._pipeline is not None, "start comes after open"
        self._pipeline.start(context)
        endpoint = self._source.endpoint
        log.info("replicating from %s on %s", endpoint.admin_url or endpoint.service_url, context.master)

    def check(self) -> None:
        if self._pipeline is not None:
            self._pipeline.check()

    def stop(self) -> None:
        if self._pipeline is not None:
            self._pipeline.stop()
        elif self._source is not None:
            self._source.stop()

"""Our pipelines, run in the tests' Spark session. Does not know what they copy."""

from __future__ import annotations

import contextlib

from clusters import Cluster, Ours
from pyspark.sql import SparkSession

from magnetar.pipelines.declared_sources import DeclaringBroker
from magnetar.pipelines.replicate.driver import Pipeline
from magnetar.pipelines.replicate.sources import DeclaringSource, ListedSource, ReplicationSource, Selection
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import ClusterAddress

RETRY_MAX_S = 2.0


class Routes:
    def __init__(self, spark: SparkSession, stack: contextlib.ExitStack) -> None:
        self._spark = spark
        self._stack = stack
        self._declared: dict[str, Pipeline] = {}

    def declared_by(self, cluster: Ours) -> Pipeline:
        """Replicates the declarations of a broker of ours from now on."""
        if cluster.name not in self._declared:
            source = DeclaringSource(DeclaringBroker(cluster.http_url, cluster.service_url))
            self._declared[cluster.name] = self._started(source)
        return self._declared[cluster.name]

    def listed(self, source: Cluster, target: Cluster, *words: str) -> Pipeline:
        """Replicates topics, or a whole namespace, of a cluster without declarations."""
        address = ClusterAddress(service_url=target.http_url, broker_service_url=target.service_url)
        selection = Selection(words=words, remotes={target.name: address})
        return self._started(ListedSource(ClusterEndpoint(source.name, source.service_url, source.http_url), selection))

    def _started(self, source: ReplicationSource) -> Pipeline:
        pipeline = Pipeline(self._spark, source, lanes=2, retry_max_s=RETRY_MAX_S)
        self._stack.callback(pipeline.stop)
        pipeline.start()
        return pipeline

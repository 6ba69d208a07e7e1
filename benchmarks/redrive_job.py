"""The Spark job of `redrive.py`, in its own process: redrives the dead letters of topics, one topic after the other.

Prints a line of JSON for each topic: messages and seconds. The first ones are a warm-up, of which the caller ignores
the figures. Knows nothing about brokers.
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession
from redrive_loop import dead_letter_topic
from spark_job import report

import magnetar.spark
from magnetar.declared.redrive import RedriveSpec
from magnetar.pipelines.redrive.redrive import Redrive, RedriveOptions
from magnetar.pipelines.run import Progress
from magnetar.replication.cluster import ClusterEndpoint


class Context:
    """The surroundings of a run that nothing stops."""

    is_stopping = False

    def __init__(self, spark: SparkSession, endpoint: ClusterEndpoint) -> None:
        self.spark = spark
        self.endpoint = endpoint

    def report(self, progress: Progress) -> None:
        """Shown nowhere."""

    def wait(self, seconds: float) -> bool:
        return False


def main() -> None:
    url, admin_url, *origins = sys.argv[2:]
    with magnetar.spark.session() as spark:
        context = Context(spark, ClusterEndpoint("bench", url, admin_url))
        for origin in origins:
            began = time.perf_counter()
            spec = RedriveSpec(sources=[dead_letter_topic(origin)])
            with Redrive(context, spec, RedriveOptions()) as redrive:
                outcome = redrive.run()
            report(seconds=time.perf_counter() - began, messages=outcome.sent)


if __name__ == "__main__":
    main()

"""Driver program of test_cluster.py: writes to a topic and reads it back on the given cluster.

Runs in its own process, because Spark has one driver per process, and the tests have theirs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from pyspark.sql import SparkSession

import magnetar.spark

QUICK_START = "-XX:TieredStopAtLevel=1"


def where_magnetar_is(_: Iterator[int]) -> Iterator[str]:
    import magnetar.client

    yield str(magnetar.client.__file__)


def tasks_by_executor(spark: SparkSession) -> dict[str, int]:
    summaries = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    executors = (summaries.apply(index) for index in range(summaries.size()))
    return {executor.id(): executor.completedTasks() for executor in executors if executor.id() != "driver"}


def main(master: str, service_url: str, topic: str, count: int) -> None:
    settings = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": 1,
        "spark.scheduler.minRegisteredResourcesRatio": 1.0,  # no task before both executors are registered
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.executor.extraJavaOptions": QUICK_START,
    }
    spark = magnetar.spark.session(master, "cluster test", **settings)
    packages = set(spark.sparkContext.parallelize(range(2), 2).mapPartitions(where_magnetar_is).collect())
    options = {"service.url": service_url, "topic": topic}
    rows = spark.range(count, numPartitions=2).selectExpr("cast(cast(id as string) as binary) as value")
    rows.write.format("pulsar").options(**options).mode("append").save()
    written_by = tasks_by_executor(spark)
    values = [bytes(row.value).decode() for row in spark.read.format("pulsar").options(**options).load().collect()]
    read_by = tasks_by_executor(spark)
    spark.stop()
    print(json.dumps({"packages": sorted(packages), "values": values, "written_by": written_by, "read_by": read_by}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

"""Driver program of test_kills.py, which kills it: a stream that copies one topic to another.

A failed query is restarted from its checkpoint, as by an operator. A line on stdin requests the kill of a running task;
events are printed as lines. It exits at the end of its stdin.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import magnetar.spark

QUICK_START = "-XX:TieredStopAtLevel=1"
SUBSCRIPTION = "copy"
TASK_TRIES = 20  # repeatedly killed tasks must not fail the query
LOOK_AGAIN_S = 0.002
OPERATOR_S = 0.5


def report(text: str) -> None:
    print(text.replace("\n", " | "), flush=True)


def kill_a_task(spark: SparkSession) -> int:
    """The id of a task that has just ended."""
    context = spark.sparkContext._jsc.sc()
    while True:
        for task in list(context.taskScheduler().taskIdToTaskSetManager().keySet()):
            if context.killTaskAttempt(task, True, "the test wants it"):
                return int(task)
        time.sleep(LOOK_AGAIN_S)


def obey(spark: SparkSession) -> None:
    for _ in sys.stdin:
        report(f"killed task {kill_a_task(spark)}")
    # The test process has exited.
    for query in spark.streams.active:
        query.stop()
    spark.stop()


def copy(
    spark: SparkSession, service_url: str, admin_url: str, source: str, target: str, entries_max: str, checkpoint: str
) -> None:
    rows = spark.readStream.format("pulsar").options(
        **{
            "service.url": service_url,
            "topic": source,
            "startingOffsets": "earliest",
            "maxEntriesPerTrigger": entries_max,
            "predefinedSubscription": SUBSCRIPTION,
        }
    )
    written = (
        rows.load()
        .writeStream.format("pulsar")
        .options(
            **{
                "service.url": service_url,
                "admin.url": admin_url,
                "topic": target,
                "exactlyOnce": "required",
                "pulsar.producer.batchingMaxMessages": "3",  # slower writes are hit more often
                "checkpointLocation": checkpoint,
            }
        )
    )
    query = written.start()
    report(f"started {query.runId}")
    query.awaitTermination()


def main(arguments: list[str]) -> None:
    # In a folder that the test clears, for files that a killed JVM leaves.
    folder = tempfile.gettempdir()
    settings: dict[str, Any] = {
        "spark.driver.extraJavaOptions": f"{QUICK_START} -Djava.io.tmpdir={folder}",
        "spark.driver.memory": "1g",
        "spark.local.dir": folder,
    }
    spark = magnetar.spark.session(f"local[2,{TASK_TRIES}]", "kill test", **settings)
    obeying = threading.Thread(target=obey, args=(spark,), daemon=True)
    obeying.start()
    while obeying.is_alive():
        try:
            copy(spark, *arguments)
        except PySparkException as error:
            report(f"failed {error}")
            time.sleep(OPERATOR_S)


if __name__ == "__main__":
    main(sys.argv[1:])

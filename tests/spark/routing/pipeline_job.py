"""Driver program of test_pipeline_kills.py, which kills it: a pipeline from one read to every kind of target.

A pipeline that fails is started again from its checkpoint, as by an operator; failures are printed as lines. It exits
at the end of its stdin.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import magnetar.spark

SUBSCRIPTION = "etl"
DELAYS = ["200ms", "400ms"]
OPERATOR_S = 0.5

RULES = {
    "Never": "id % 10 = 0",
    "Later": "id % 7 = 0 and coalesce(int(try_element_at(__messageProperties, 'RECONSUMETIMES')), 0) < 2",
    "Chance": "rand() < 0.2",
}
"""Rows that stay bad, rows that are good at their last attempt, and rows that another attempt may decide otherwise."""


def rows_of(spark: SparkSession, service_url: str, topic: str) -> DataFrame:
    options = {
        "service.url": service_url,
        "topic": topic,
        "startingOffsets": "earliest",
        "onUnreadable": "row",
        "columns": "*,__payload,__messageIdText,__schemaVersion",
        "predefinedSubscription": SUBSCRIPTION,
        "pollTimeoutMs": "100",
        "maxEntriesPerTrigger": "50",
    }
    return spark.readStream.format("pulsar").options(**options).load()


def run(spark: SparkSession, admin_url: str, topic: str, checkpoint: str, archive: str) -> None:
    good, bad = magnetar.spark.split(rows_of(spark, admin_url, topic), RULES)
    query = (
        magnetar.spark.pipeline(spark, checkpoint=checkpoint)
        .to(f"{topic}-out", good.drop("__payload"), schema="json")
        .dead_letters(f"{topic}-{SUBSCRIPTION}-DLQ", bad, retry=DELAYS)
        .archive(archive)
        .start()
    )
    query.awaitTermination()


def main(arguments: list[str]) -> None:
    # In a folder that the test clears, for files that a killed JVM leaves.
    folder = tempfile.gettempdir()
    settings: dict[str, Any] = {
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={folder}",
        "spark.driver.memory": "1g",
        "spark.local.dir": folder,
    }
    spark = magnetar.spark.session("local[2]", "pipeline kill test", **settings)
    alive = threading.Thread(target=sys.stdin.read, daemon=True)
    alive.start()
    threading.Thread(target=run_again, args=(spark, arguments), daemon=True).start()
    alive.join()


def run_again(spark: SparkSession, arguments: list[str]) -> None:
    while True:
        try:
            run(spark, *arguments)
        except (PySparkException, magnetar.spark.errors.SparkSourceError) as error:
            print(f"failed {error}".replace("\n", " | "), flush=True)
            time.sleep(OPERATOR_S)


if __name__ == "__main__":
    main(sys.argv[1:])

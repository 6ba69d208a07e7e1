"""Spark jobs, each in its own process: a batch read, a batch write, a query from topic to topic.

Prints results as lines of JSON. Knows nothing about brokers or the baselines.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import magnetar.spark

FORMAT = "pulsar"
TASKS = 2
WARM_ROWS = 10_000
_POOL_SIZE = 1 << 18  # far above LZ4's window, so that storage cannot compress a repeated value
_STEP = 7919  # a prime: consecutive rows begin far apart


def read(options: argparse.Namespace) -> None:
    """Reads backlogs one after the other into all columns; the first is a warm-up and not reported."""
    with magnetar.spark.session() as spark:
        discard(backlog(spark, options.url, options.topics[0]))
        for topic in options.topics[1:]:
            began = time.perf_counter()
            discard(backlog(spark, options.url, topic))
            seconds = time.perf_counter() - began
            # Counted separately, on one column: counting in the plan would be measured too.
            report(seconds=seconds, messages=backlog(spark, options.url, topic, columns="__batchIndex").count())


def write(options: argparse.Namespace) -> None:
    """Writes rows into a topic and times their creation; a few go to another topic first, as a warm-up."""
    with magnetar.spark.session() as spark:
        discard(made(spark, WARM_ROWS, options.size))
        save(made(spark, WARM_ROWS, options.size), options.url, options.warm_topic)
        began = time.perf_counter()
        discard(made(spark, options.rows, options.size))
        made_at = time.perf_counter()
        save(made(spark, options.rows, options.size), options.url, options.topic)
        report(making_s=made_at - began, writing_s=time.perf_counter() - made_at)


SETTINGS = {"ours": True, "spark": False}  # with our settings or Spark's


def relay(options: argparse.Namespace) -> None:
    """Runs a query from topic to topic until stdin ends. Fails with the query."""
    with magnetar.spark.session(tuned=SETTINGS[options.settings]) as spark:
        source = spark.readStream.format(FORMAT).option("startingOffsets", "earliest")
        frame = source.options(**{"service.url": options.url, "topic": options.source}).load()
        sink = frame.writeStream.format(FORMAT).option("checkpointLocation", options.checkpoint)
        query = sink.options(**{"service.url": options.url, "topic": options.target}).start()

        def stop_at_the_end() -> None:
            sys.stdin.read()
            query.stop()

        threading.Thread(target=stop_at_the_end, daemon=True).start()
        report(running=True)
        query.awaitTermination()


def backlog(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    return spark.read.format(FORMAT).options(**{"service.url": url, "topic": topic}, **options).load()


def made(spark: SparkSession, rows: int, size: int) -> DataFrame:
    """Slices of an incompressible pool; a row costs one copy of its bytes."""
    pool = F.lit(random.Random(size).randbytes(_POOL_SIZE))
    start = (F.col("id") * _STEP % (_POOL_SIZE - size) + 1).cast("int")
    return spark.range(0, rows, 1, TASKS).select(F.substring(pool, start, F.lit(size)).alias("value"))


def discard(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def save(frame: DataFrame, url: str, topic: str) -> None:
    frame.write.format(FORMAT).mode("append").options(**{"service.url": url, "topic": topic}).save()


def report(**found: float) -> None:
    print(json.dumps(found), flush=True)


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="a Spark job")
    jobs = parser.add_subparsers(required=True)
    reading = jobs.add_parser("read", description=read.__doc__)
    reading.set_defaults(run=read)
    reading.add_argument("url")
    reading.add_argument("topics", nargs="+")
    writing = jobs.add_parser("write", description=write.__doc__)
    writing.set_defaults(run=write)
    for name in ("url", "topic", "warm_topic"):
        writing.add_argument(name)
    writing.add_argument("rows", type=int)
    writing.add_argument("size", type=int)
    relaying = jobs.add_parser("relay", description=relay.__doc__)
    relaying.set_defaults(run=relay)
    for name in ("url", "source", "target", "checkpoint"):
        relaying.add_argument(name)
    relaying.add_argument("--settings", choices=SETTINGS, default="ours")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = argument_parser().parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()

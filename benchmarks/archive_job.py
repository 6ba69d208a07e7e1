"""The Spark job of `archive.py`, in its own process: archives a topic, and writes the same rows from files.

Prints a line of JSON: seconds of the best attempt at both, and messages. Knows nothing about brokers.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from spark_job import made, report, save

import magnetar.spark
from magnetar.declared.topic_set import TopicSet, parse_topic_set
from magnetar.names import TopicName
from magnetar.pipelines.archive.archive import archive, own_session
from magnetar.pipelines.run import Progress
from magnetar.replication.cluster import ClusterEndpoint

SIZE = 1024
_WARM_ROWS = 10_000


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
    url, admin_url, warm, topic, rows, attempts, folder = sys.argv[2:]
    with magnetar.spark.session() as spark:
        context = Context(spark, ClusterEndpoint("bench", url, admin_url))
        save(made(spark, _WARM_ROWS, SIZE), url, warm)
        save(made(spark, int(rows), SIZE), url, topic)
        _once(context, warm, 0, Path(folder))
        found = [_once(context, topic, attempt, Path(folder)) for attempt in range(int(attempts))]
        archive_s, copy_s, messages = zip(*found, strict=True)
        report(archive_s=min(archive_s), copy_s=min(copy_s), messages=min(messages), messages_max=max(messages))


def _once(context: Context, topic: str, attempt: int, folder: Path) -> tuple[float, float, int]:
    """Seconds of archiving and of writing from files, and the messages."""
    source, target = folder / "archive", folder / "copy"
    seconds, messages = _archived(context, topic, str(attempt), source)
    copy_s = _copied(context.spark, source, target)
    for path in (source, target):
        shutil.rmtree(path)
    return seconds, copy_s, messages


def _archived(context: Context, topic: str, subscription: str, path: Path) -> tuple[float, int]:
    """Seconds and messages."""
    began = time.perf_counter()
    result = archive(context, [_topic_set(topic)], str(path), subscription=subscription)
    return time.perf_counter() - began, result.rows


def _topic_set(topic: str) -> TopicSet:
    return parse_topic_set(topic, TopicName.parse(topic).namespace_full)


def _copied(spark: SparkSession, source: Path, target: Path) -> float:
    """Seconds in which Spark writes the rows of an archive in the same way, from its files."""
    began = time.perf_counter()
    rows = own_session(spark).read.parquet(str(source))
    rows.write.partitionBy("topic", "date").parquet(str(target))
    return time.perf_counter() - began


if __name__ == "__main__":
    main()

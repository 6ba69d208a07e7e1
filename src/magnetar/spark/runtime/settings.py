"""The settings of a session, each with the reason for it; docs/spark.md has the figures.

Knows nothing of how a session starts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SparkSetting:
    name: str
    value: str
    why: str


# What every session of ours has.
REQUIRED = (
    SparkSetting("spark.ui.enabled", "false", "the session is a part of a program, and a web server is not"),
    SparkSetting("spark.ui.showConsoleProgress", "false", "the program's own output is not mixed with bars"),
    SparkSetting(
        "spark.sql.python.filterPushdown.enabled", "true", "a filter on topic, time or message id narrows what is read"
    ),
)

# What makes micro-batches small and quick. `session(tuned=False)` does without.
TUNED = (
    SparkSetting(
        "spark.python.daemon.module",
        "magnetar.spark.runtime.worker_daemon",
        "workers are forked with everything imported, and the garbage collector leaves that alone",
    ),
    SparkSetting("spark.python.worker.reuse", "true", "a worker keeps its connection to the broker from task to task"),
    SparkSetting("spark.python.unix.domain.socket.enabled", "true", "rows reach Python without TCP"),
    SparkSetting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "fewer calls of the file system for each file of a checkpoint",
    ),
    SparkSetting(
        "spark.sql.streaming.checkpoint.fileChecksum.enabled", "false", "half as many files for each micro-batch"
    ),
    SparkSetting(
        "spark.sql.adaptive.streaming.stateless.enabled", "false", "a micro-batch is planned once, not stage by stage"
    ),
    SparkSetting(
        "spark.sql.execution.arrow.maxRecordsPerBatch", "1000", "batches that fit the cache; larger ones were slower"
    ),
)

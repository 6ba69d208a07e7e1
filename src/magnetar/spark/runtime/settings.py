"""Settings of a session, each with its reason; docs/spark.md has the measurements.

Knows nothing of how a session starts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SparkSetting:
    name: str
    value: str
    why: str


# For every session.
REQUIRED = (
    SparkSetting(
        "spark.ui.enabled",
        "false",
        "the session is embedded in a program, which needs no web server; `session(ui=True)` starts it",
    ),
    SparkSetting("spark.ui.showConsoleProgress", "false", "keeps progress bars out of the program's output"),
)

# For fast micro-batches; omitted by `session(tuned=False)`.
TUNED = (
    SparkSetting(
        "spark.python.daemon.module",
        "magnetar.spark.runtime.worker_daemon",
        "workers are forked with everything imported, and the garbage collector skips it",
    ),
    SparkSetting("spark.python.worker.reuse", "true", "a worker keeps its broker connection between tasks"),
    SparkSetting("spark.python.unix.domain.socket.enabled", "true", "rows reach Python without TCP"),
    SparkSetting(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "fewer file system calls per checkpoint file",
    ),
    SparkSetting("spark.sql.streaming.checkpoint.fileChecksum.enabled", "false", "half as many files per micro-batch"),
    SparkSetting(
        "spark.sql.adaptive.streaming.stateless.enabled", "false", "a micro-batch is planned once, not stage by stage"
    ),
    SparkSetting(
        "spark.sql.execution.arrow.maxRecordsPerBatch", "1000", "batches fit the CPU cache; larger ones were slower"
    ),
)

# Flags of a JVM that runs small jobs in Python: the quick compiler alone, one thread of garbage collection, and a heap
# that starts small. The maximum of the heap is `spark.driver.memory`, as always.
SMALL_JVM = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    *("-Xms16m", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=20"),
)

"""The archive of a pipeline: the rows of each micro-batch once, as files of a folder or as a table of Delta Lake.

Files are written beside the archive first, and moved into it when all of them are complete, so a micro-batch that is
repeated has the files of its first attempt. Readers may see some of its files before the others, never one twice.

    {path}/_staging/{query}-{batch}/…          the files while they are written, hidden from readers
                                   /_stored    all of them are complete
    {path}/day=2026-11-19/{query}-{batch}-part-….parquet

Rows that are retried have numbers of their own: their batches are named {query}-retry-{attempt}-{batch}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import shortened
from magnetar.spark.routing.folder import CheckpointFiles

FILES, DELTA = ("parquet", "orc", "json"), "delta"
DAY, _TIME = "day", "__publishTime"

_STAGING: Final = "_staging"
_STORED: Final = "_stored"
_QUERY_SIZE = 8  # of its id, in the names of files


@dataclass(frozen=True)
class ArchiveTarget:
    """`columns` are those that its folders, or the partitions of the table, are named after."""

    path: str
    format: str
    columns: tuple[str, ...]

    @staticmethod
    def of(path: str, format: str, partition_by: str | Sequence[str] | None) -> ArchiveTarget:
        """Raises `InvalidOption`, which names the argument."""
        if not isinstance(path, str) or not path.strip():
            raise InvalidOption(f"the path of the archive is {shortened(path)}: it must be a folder or its address")
        if format not in (*FILES, DELTA):
            known = ", ".join((*FILES, DELTA))
            raise InvalidOption(f"the format of archive {path} is {shortened(format)}: it must be one of {known}")
        columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by or ())
        if len(set(columns)) < len(columns):
            raise InvalidOption(f"archive {path}: it is partitioned by a column twice: {', '.join(columns)}")
        return ArchiveTarget(path.rstrip("/"), format, columns)

    def check_columns(self, names: Sequence[str]) -> None:
        """Raises `InvalidOption` if rows with these columns cannot be partitioned."""
        known = [*names, DAY] if _TIME in names else names
        for column in self.columns:
            if column not in known:
                raise InvalidOption(
                    f"archive {self.path}: there is no column {column!r} to partition by, known are {', '.join(known)}"
                )
        if set(names) <= set(self.columns):
            raise InvalidOption(f"archive {self.path}: it is partitioned by all of its columns")

    def append(self, spark: SparkSession, rows: DataFrame, query: str, batch: int) -> None:
        """Adds the rows of a micro-batch, which the first attempt has decided; the others change nothing."""
        if DAY in self.columns and DAY not in rows.columns:
            rows = rows.withColumn(DAY, F.to_date(_TIME))
        writer = rows.write.format(self.format).partitionBy(*self.columns)
        if self.format == DELTA:
            writer.mode("append").options(txnAppId=query, txnVersion=str(batch)).save(self.path)
            return
        folder, name = CheckpointFiles(spark, self.path), _name(query, batch)
        staged = f"{_STAGING}/{name}"
        if not folder.has(f"{staged}/{_STORED}"):
            folder.delete(staged)
            writer.save(folder.path_of(staged))
            folder.write(f"{staged}/{_STORED}", "")
        _publish(folder, staged, name)

    def clean(self, spark: SparkSession, query: str, batch: int) -> None:
        """Removes what `append` has left, once it is known that it need not be repeated."""
        if self.format != DELTA:
            folder = CheckpointFiles(spark, self.path)
            folder.delete(f"{_STAGING}/{_name(query, batch)}")
            if not folder.names(_STAGING):
                folder.delete(_STAGING)


def _name(query: str, batch: int) -> str:
    """Of a batch in this archive; `query` is the name that its rows are written under."""
    own, _, retry = query.partition("/")
    return "-".join(filter(None, (own[:_QUERY_SIZE], retry, str(batch))))


def _publish(folder: CheckpointFiles, staged: str, prefix: str) -> None:
    """Moves the files that are not yet moved, under their own names: an attempt finds those of the one before."""
    for name in sorted(folder.files_below(staged)):
        where, _, file = name.rpartition("/")
        if not file.startswith(("_", ".")):
            folder.move(f"{staged}/{name}", f"{where}/{prefix}-{file}" if where else f"{prefix}-{file}")

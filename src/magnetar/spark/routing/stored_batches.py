"""Rows of a micro-batch as they were decided, stored in the checkpoint before any target is written.

Spark repeats a micro-batch that was interrupted. Rules may then decide otherwise: a lookup table has changed, or they
depend on the time. A row would be skipped by one target, which has later rows already, and missing in the other. So
the rows are decided once: the repeated micro-batch is written from what the first attempt has stored.

    {folder}/{batch}/{part}/…        Parquet files
                    /{part}.stored   their columns; written last, so that a part without it does not count
                    /{step}.done     a step that need not be repeated

Knows nothing of targets.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from magnetar.spark.errors import SparkSourceError
from magnetar.spark.routing.folder import CheckpointFiles

_STORED = "stored"


class StoredBatches:
    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = CheckpointFiles(spark, folder)

    def numbers(self) -> list[int]:
        """Of the micro-batches that something is stored of, in order."""
        return sorted(int(name) for name in self._folder.names() if name.isdecimal())

    def write_text(self, batch: int, name: str, text: str) -> None:
        self._folder.write(f"{batch}/{name}", text)

    def read_text(self, batch: int, name: str) -> str | None:
        return self._folder.read(f"{batch}/{name}") if self._folder.has(f"{batch}/{name}") else None

    def rows(self, batch: int, part: str, query: str, decide: Callable[[], DataFrame]) -> DataFrame:
        """The rows of a part as the first attempt has stored them; decides and stores them if there was none.

        What another query has stored does not count: its checkpoint was deleted in part.
        """
        name = f"{batch}/{part}"
        stored = self.read_text(batch, f"{part}.{_STORED}")
        found = {} if stored is None else json.loads(stored)
        if found.get("query") == query:
            return self._read(name, StructType.fromJson(found["columns"]))
        self._folder.delete(f"{name}.{_STORED}")
        self._folder.delete(name)
        rows = decide()
        rows.toDF(*_numbered(rows.schema).names).write.parquet(self._folder.path_of(name))
        self.write_text(batch, f"{part}.{_STORED}", json.dumps({"query": query, "columns": rows.schema.jsonValue()}))
        return self._read(name, rows.schema)

    def _read(self, name: str, columns: StructType) -> DataFrame:
        """Columns have numbers in the files: Parquet does not allow every name."""
        stored = self._spark.read.schema(_numbered(columns)).parquet(self._folder.path_of(name))
        return stored.toDF(*columns.names)

    def check_columns(self, batch: int, rows: DataFrame, columns: StructType) -> None:
        """Raises if the program was changed while this micro-batch was interrupted, and has other columns now."""
        stored, wanted = (
            [(field.name, field.dataType.simpleString()) for field in struct.fields]
            for struct in (rows.schema, columns)
        )
        if stored != wanted:
            differing = sorted({name for name, _ in set(stored) ^ set(wanted)}) or ["their order"]
            raise SparkSourceError(
                f"micro-batch {batch} was stored with other columns ({', '.join(differing)} differ) and is not yet"
                " written to all targets: run the program as it was until it has done so, and change it then"
            )

    def is_done(self, batch: int, step: str, query: str) -> bool:
        return self.read_text(batch, f"{step}.done") == query

    def set_done(self, batch: int, step: str, query: str) -> None:
        self.write_text(batch, f"{step}.done", query)

    def forget_before(self, batch: int) -> None:
        """Deletes the micro-batches that Spark has committed: those before the one that runs."""
        for number in self.numbers():
            if number < batch:
                self._folder.delete(str(number))


def _numbered(columns: StructType) -> StructType:
    return StructType([StructField(f"c{index}", field.dataType) for index, field in enumerate(columns.fields)])

"""The table of an archive in the format of Delta Lake, whose commit is the table's own.

A round of a topic is one append with the name of the topic and the number of the round, which Delta Lake ignores if the
table has it. So a round is planned before it is appended, and a run that continues appends the planned ranges again:

    killed before the append     the next run appends the planned ranges
    killed after the append      the next run appends them again, which changes nothing, and commits the manifest

Owns appends and the condition for the rows of committed rounds. Knows nothing of topics on a broker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Protocol
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from magnetar.client.message import Position
from magnetar.declared.archive import DELTA, TABLE_FORMATS
from magnetar.pipelines.archive.columns import ENTRY, ENTRY_ID, FILES, HASH, LEDGER, UNREADABLE
from magnetar.pipelines.archive.layout import DATE, TOPIC, topic_folder
from magnetar.pipelines.archive.manifest import ArchivedRange, ArchivedRound, DataFile, parse_position
from magnetar.pipelines.archive.store import Archive
from magnetar.pipelines.run import RunFailed

_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
_OTHER_SPARK = ("NoSuchMethodError", "NoClassDefFoundError", "ClassNotFoundException", "IncompatibleClassChangeError")


Span = tuple[str, int, date, int, int, int, int]
"""Topic, partition, date, and the first and the last position."""

_SPAN_FIRST, _SPAN_LAST = ("_firstLedger", "_firstEntry"), ("_lastLedger", "_lastEntry")
_SPAN_NAMES = ("_topic", "_partition", "_date", *_SPAN_FIRST, *_SPAN_LAST)
_SPAN_TYPES = ("string", "int", "date", *["bigint"] * 4)


class ArchiveTable(Protocol):
    """What an archive needs of a table; appends are atomic, and one of the same name and number changes nothing."""

    def append(self, rows: DataFrame, name: str, number: int) -> None: ...

    def rows(self) -> DataFrame: ...


class DeltaTable:
    """`check` raises `RunFailed`, which names what the user's Spark does not have; see `table_failures` for others."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._path = path

    @classmethod
    def check(cls, session: SparkSession, path: str) -> None:
        """Whether this Spark can read such tables, before there is one."""
        with table_failures(path):
            try:
                session.read.format(DELTA).load(path)
            except PySparkException as error:
                if not _is_missing(error):
                    raise

    def append(self, rows: DataFrame, name: str, number: int) -> None:
        writer = rows.write.format(DELTA).mode("append").partitionBy(TOPIC, DATE)
        writer.options(txnAppId=name, txnVersion=str(number)).save(self._path)

    def rows(self) -> DataFrame:
        return self._session.read.format(DELTA).load(self._path).select(*FILES.fieldNames())


def _is_missing(error: Exception) -> bool:
    return any(mark in str(error) for mark in ("PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"))


@contextmanager
def table_failures(path: str) -> Iterator[None]:
    """What is wrong with the Delta Lake of a Spark, in one sentence: none, one for another Spark, or its settings."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            raise RunFailed(
                f"this Spark has no data source {DELTA}: add Delta Lake to it, by spark.jars.packages such as"
                f" {_PACKAGE}"
            ) from error
        lines = [line.strip() for line in str(error).splitlines()]
        mark = next((line for line in lines for name in _OTHER_SPARK if name in line), None)
        if mark is not None:
            raise RunFailed(f"the Delta Lake of this Spark is for another version of Spark: {mark[:300]}") from error
        if "DELTA_" in lines[0]:
            raise RunFailed(f"the table {path} cannot be used: {' '.join(' '.join(lines).split())[:300]}") from error
        raise


def check_source(session: SparkSession, format: str, path: str) -> None:
    """Raises `RunFailed` if a table of this format cannot be written."""
    if format in TABLE_FORMATS:
        DeltaTable.check(session, path)


def table_of(session: SparkSession, archive: Archive) -> ArchiveTable | None:
    """None for an archive of files."""
    return DeltaTable(session, archive.folder.uri) if archive.info.format in TABLE_FORMATS else None


def append_round(table: ArchiveTable, archive: Archive, planned: ArchivedRound, rows: DataFrame) -> list[DataFile]:
    """Adds the rows of a planned round unless they are there: what the table has of it, by partition and date."""
    with table_failures(archive.folder.path):
        table.append(rows, f"magnetar.archive/{archive.info.id}/{planned.topic}", planned.number)
        return _parts(table.rows().where(_of_ranges(planned.topic, planned.ranges)), planned.topic)


def _parts(rows: DataFrame, topic: str) -> list[DataFile]:
    position = F.struct(LEDGER, ENTRY_ID)
    size = F.coalesce(F.octet_length("value"), F.octet_length(ENTRY), F.lit(0))
    found = rows.groupBy("__partition", DATE).agg(
        F.min(position).alias("first"),
        F.max(position).alias("last"),
        F.count("*").alias("rows"),
        F.sum(size.cast("long")).alias("bytes"),
        F.bit_xor(HASH).alias("hash"),
        F.count(UNREADABLE).alias("unreadable"),
    )
    parts = []
    for row in found.collect():
        partition, day = -1 if row["__partition"] is None else row["__partition"], row[DATE].isoformat()
        first, last = (f"{row[end][LEDGER]}:{row[end][ENTRY_ID]}" for end in ("first", "last"))
        counts = (row["rows"], row["bytes"], row["hash"], row["unreadable"])
        parts.append(DataFile(f"{topic_folder(topic)}/{DATE}={day}", "", partition, day, first, last, *counts))
    return sorted(parts, key=lambda part: (part.partition, part.date))


def rows_of(table: ArchiveTable, parts: Sequence[DataFile]) -> DataFrame:
    """The rows of committed rounds: what a round that is not committed has appended is not among them."""
    rows = table.rows()
    spans = _spans(parts)
    topics, dates = sorted({span[0] for span in spans}), sorted(span[2] for span in spans)
    rows = rows.where(F.col(TOPIC).isin(topics) & F.col(DATE).between(dates[0], dates[-1]))
    committed = _data_frame(rows.sparkSession, spans)
    position, first, last = (_position(*names) for names in ((LEDGER, ENTRY_ID), _SPAN_FIRST, _SPAN_LAST))
    within = (F.col(TOPIC) == F.col("_topic")) & (F.col(DATE) == F.col("_date"))
    within &= F.coalesce("__partition", F.lit(-1)) == F.col("_partition")
    return rows.join(F.broadcast(committed), within & position.between(first, last), "left_semi")


def _spans(parts: Sequence[DataFile]) -> list[Span]:
    """One for each topic, partition and date: in the parts that are given, as in the archive, positions ascend."""
    found: dict[tuple[str, int, date], tuple[Position, Position]] = {}
    for part in parts:
        topic = unquote(part.name.partition("/")[0].partition("=")[2])
        key = (topic, part.partition, date.fromisoformat(part.date))
        first, last = parse_position(part.first), parse_position(part.last)
        low, high = found.get(key, (first, last))
        found[key] = (min(low, first), max(high, last))
    return [(*key, *low, *high) for key, (low, high) in found.items()]


def _data_frame(session: SparkSession, spans: Sequence[Span]) -> DataFrame:
    """`createDataFrame` would make this session the active one, in which no other run could register its source."""
    fields = ",".join(f"{name}:{type_}" for name, type_ in zip(_SPAN_NAMES, _SPAN_TYPES, strict=True))
    text = json.dumps([dict(zip(_SPAN_NAMES, span, strict=True)) for span in spans], default=date.isoformat)
    found = F.from_json(F.lit(text), f"array<struct<{fields}>>", {"mode": "FAILFAST"})
    return session.range(1).select(F.inline(found))


def _position(ledger: str, entry: str) -> Column:
    return F.struct(F.col(ledger).alias(LEDGER), F.col(entry).alias(ENTRY_ID))


def _of_ranges(topic: str, ranges: Iterable[ArchivedRange]) -> Column:
    return (F.col(TOPIC) == topic) & _any(_of_range(part.partition, part.after, part.last) for part in ranges)


def _of_range(partition: int, after: str, last: str) -> Column:
    """Ledgers are compared alone too: files of other ledgers are skipped by their statistics."""
    low, high = parse_position(after), parse_position(last)
    place = F.col("__partition").isNull() if partition < 0 else F.col("__partition") == partition
    position = F.struct(LEDGER, ENTRY_ID)
    above, below = (
        F.struct(F.lit(one.ledger_id).cast("long").alias(LEDGER), F.lit(one.entry_id).cast("long").alias(ENTRY_ID))
        for one in (low, high)
    )
    return place & F.col(LEDGER).between(low.ledger_id, high.ledger_id) & (position > above) & (position <= below)


def _any(conditions: Iterable[Column]) -> Column:
    found = F.lit(False)
    for condition in conditions:
        found = found | condition
    return found

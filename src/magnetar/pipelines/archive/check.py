"""The check that an archive and its topics agree.

Files or the rows of a table are compared with the manifests, rows with their stored hashes, and the positions that
archive and topic both have with each other. What retention has deleted in the topic is in the archive only, which is no
difference. Only reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from magnetar.client.errors import NotFound
from magnetar.client.message import MessageId, Position
from magnetar.declared.topic_set import TopicSet
from magnetar.names import PARTITION_SUFFIX, PERSISTENT, TopicName
from magnetar.pipelines.archive.archive import own_session
from magnetar.pipelines.archive.clients import topics_of
from magnetar.pipelines.archive.columns import ENTRY_ID, HASH, LEDGER, row_hash
from magnetar.pipelines.archive.folder import Folder
from magnetar.pipelines.archive.layout import DATE, topic_folder
from magnetar.pipelines.archive.manifest import ArchivedRound, DataFile, parse_position
from magnetar.pipelines.archive.rows import TopicRows
from magnetar.pipelines.archive.selection import read_files, topics_in
from magnetar.pipelines.archive.store import Archive
from magnetar.pipelines.archive.table import table_failures, table_of
from magnetar.pipelines.run import Progress, RunContext
from magnetar.spark.source.entry_range import EntryRange, split_ranges
from magnetar.spark.source.offsets import whole_entry
from magnetar.spark.source.topics import ClientTopics

SHOWN_MAX = 20
"""Places that are named, of each kind and topic; all are counted."""

_CHANGED = "stored != actual"
_POSITION = ("__partition", LEDGER, ENTRY_ID, "__batchIndex")


@dataclass
class FoundPositions:
    """Differences of one kind: `missing file`, `unknown file`, `changed file`, `changed table`, `changed row`,
    `missing row`, `extra row` or `different row`.
    """

    count: int = 0
    places: list[str] = field(default_factory=list)

    def add(self, place: str, count: int = 1) -> None:
        self.count += count
        if len(self.places) < SHOWN_MAX:
            self.places.append(place)


@dataclass
class TopicCheck:
    """Counts are messages. `compared` are in both, `archived_only` are not stored by the topic any more."""

    topic: str
    files: int = 0
    rows: int = 0
    compared: int = 0
    archived_only: int = 0
    found: dict[str, FoundPositions] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        return not self.found

    def add(self, kind: str, place: str, count: int = 1) -> None:
        self.found.setdefault(kind, FoundPositions()).add(place, count)


def check(context: RunContext, path: str, sets: Sequence[TopicSet] = ()) -> list[TopicCheck]:
    """Raises `RunFailed` and errors of the client."""
    session = own_session(context.spark)
    archive = Archive.open(Folder(session, path))
    topics, is_table = topics_in(archive, sets), table_of(session, archive) is not None
    stored_rows, lookup = TopicRows(session, context.endpoint), topics_of(context.endpoint)
    checks: list[TopicCheck] = []
    try:
        for topic in topics:
            if context.is_stopping:
                break
            context.report(Progress(len(checks), len(topics), {}, topic))
            with table_failures(path) if is_table else nullcontext():
                checks.append(_TopicComparison(session, stored_rows, archive, topic, lookup).compare())
    finally:
        lookup.close()
    context.report(Progress(len(checks), len(topics), {}, "done"))
    return checks


class _TopicComparison:
    def __init__(
        self, session: SparkSession, stored_rows: TopicRows, archive: Archive, topic: str, lookup: ClientTopics
    ) -> None:
        self._session = session
        self._stored_rows = stored_rows
        self._archive = archive
        self._topic = topic
        self._lookup = lookup
        self._rounds: list[ArchivedRound] = archive.rounds(topic)
        self._is_table = table_of(session, archive) is not None
        self._result = TopicCheck(topic)

    def compare(self) -> TopicCheck:
        if self._is_table:
            files = [part for made in self._rounds for part in made.files]
            self._result.rows = self._check_table(files) if files else 0
        else:
            self._result.rows, files = self._check_rows(self._check_files())
        ranges = self._common_ranges()
        self._compare_rows(self._archived_rows(files) if files else None, ranges)
        self._result.archived_only = self._result.rows - self._result.compared - self._extra()
        return self._result

    def _extra(self) -> int:
        extra = self._result.found.get("extra row")
        different = self._result.found.get("different row")
        return (extra.count if extra else 0) + (different.count if different else 0)

    def _check_table(self, parts: list[DataFile]) -> int:
        """Compares the rows of the committed rounds with their hashes and numbers. The number of rows."""
        rows = self._archived_rows(parts)
        sums = (F.count("*").alias("rows"), F.count_if(F.expr(_CHANGED)).alias("changed"))
        partition = F.coalesce("__partition", F.lit(-1)).alias("partition")
        sums_by_date = rows.groupBy(partition, DATE).agg(*sums).collect()
        found = {(row["partition"], row[DATE].isoformat()): row for row in sums_by_date}
        committed: dict[tuple[int, str], int] = {}
        for part in parts:
            key = (part.partition, part.date)
            committed[key] = committed.get(key, 0) + part.rows
        for (number, date), count in committed.items():
            row = found.get((number, date))
            if (present := row["rows"] if row else 0) != count:
                where = "" if number < 0 else f" of partition {number}"
                self._result.add("changed table", f"{date}{where} has {present} messages, not {count}")
        if any(row["changed"] for row in found.values()):
            self._add_rows("changed row", rows.where(_CHANGED))
        return sum(row["rows"] for row in found.values())

    # -- files

    def _check_files(self) -> list[DataFile]:
        """The committed files that are there, with the size that they had."""
        committed = {file.name: file for made in self._rounds for file in made.files}
        present = {file.name: file.bytes for file in self._archive.folder.tree(topic_folder(self._topic))}
        self._result.files = len(committed)
        good = []
        for name, file in sorted(committed.items()):
            if name not in present:
                self._result.add("missing file", f"{name} with {file.rows} messages, {file.first} to {file.last}")
            elif present[name] != file.bytes:
                self._result.add("changed file", f"{name} has {present[name]} bytes, not {file.bytes}")
            else:
                good.append(file)
        for name in sorted(present.keys() - committed.keys()):
            if not name.rpartition("/")[2].startswith(("_", ".")):
                self._result.add("unknown file", name)
        return good

    def _archived_rows(self, files: list[DataFile]) -> DataFrame:
        rows = read_files(self._session, self._archive, files)
        name = F.lit("") if self._is_table else F.element_at(F.split("_metadata.file_path", "/"), -1)
        return rows.select(
            *_POSITION, "__messageIdText", F.col(DATE), F.col(HASH).alias("stored"), row_hash().alias("actual"),
            name.alias("file"),
        )  # fmt: skip

    def _check_rows(self, files: list[DataFile]) -> tuple[int, list[DataFile]]:
        """Compares rows with their hashes, files with their manifests. The number of rows, and the readable files."""
        found = self._sums(files)
        if found is None:
            found, readable = {}, []
            for file in files:
                alone = self._sums([file])
                if alone is None:
                    self._result.add("changed file", f"{file.name} cannot be read")
                else:
                    readable.append(file)
                    found |= alone
            files = readable
        for file in files:
            row = found.get(_key(file))
            if row is None or row["rows"] != file.rows:
                rows = row["rows"] if row else 0
                self._result.add("changed file", f"{file.name} has {rows} messages, not {file.rows}")
            elif row["hash"] != file.hash and not row["changed"]:
                self._result.add("changed file", f"{file.name} has other messages than were written")
        changed = [file for file in files if (row := found.get(_key(file))) is not None and row["changed"]]
        if changed:
            self._add_rows("changed row", self._archived_rows(changed).where(_CHANGED))
        return sum(row["rows"] for row in found.values()), files

    def _sums(self, files: list[DataFile]) -> dict[str, Row] | None:
        """Counts and hashes by file; None if one of them cannot be read."""
        if not files:
            return {}
        changed = F.count_if(F.expr(_CHANGED)).alias("changed")
        sums = (F.count("*").alias("rows"), F.bit_xor("actual").alias("hash"), changed)
        try:
            found = self._archived_rows(files).groupBy(DATE, "file").agg(*sums).collect()
        except (PySparkException, Py4JJavaError):
            return None
        return {f"{row[DATE].isoformat()}/{row['file']}": row for row in found}

    def _add_rows(self, kind: str, rows: DataFrame) -> None:
        count = rows.count()
        if not count:
            return
        places = rows.orderBy(*_POSITION).limit(SHOWN_MAX).collect()
        found = self._result.found.setdefault(kind, FoundPositions())
        found.count += count
        found.places += [row["__messageIdText"] for row in places][: SHOWN_MAX - len(found.places)]

    # -- topic

    def _common_ranges(self) -> list[EntryRange]:
        """The entries of each partition that the archive claims to have, and that the topic still stores."""
        firsts: dict[int, Position] = {}
        for made in self._rounds:
            for part in made.ranges:
                firsts.setdefault(part.partition, parse_position(part.after))
        found = []
        for partition, last in self._rounds[-1].ends.items():
            name = f"{PERSISTENT}://{self._topic}{'' if partition < 0 else f'{PARTITION_SUFFIX}{partition}'}"
            span = self._common_range(name, firsts.get(partition), parse_position(last))
            if span is not None:
                found.append(span)
        return found

    def _common_range(self, name: str, first: Position | None, last: Position) -> EntryRange | None:
        try:
            bounds = self._lookup.bounds(name)
        except NotFound:
            self._result.notes.append(f"{name} does not exist")
            return None
        if bounds.is_empty:
            self._result.notes.append(f"{name} stores no messages")
            return None
        index = TopicName.parse(name).partition
        start = bounds.before_first.position if first is None else max(first, bounds.before_first.position)
        stored = whole_entry(bounds.last).position
        if stored > last:
            self._result.notes.append(
                f"{name} has messages after {last.ledger_id}:{last.entry_id}, which are not archived yet"
            )
        end = min(last, stored)
        return EntryRange(name, MessageId(*start, index), MessageId(*end, index)) if end > start else None

    def _compare_rows(self, archived: DataFrame | None, ranges: list[EntryRange]) -> None:
        if not ranges:
            return
        tasks = self._session.sparkContext.defaultParallelism
        stored = self._stored_rows.of(split_ranges(ranges, tasks))
        stored = stored.select(*_POSITION, "__messageIdText", row_hash().alias("stored"))
        if archived is None:
            self._add_rows("missing row", stored)
            return
        both = archived.where(_in(ranges)).drop("stored")
        sums = (F.count("*").alias("rows"), F.bit_xor("hash").alias("hash"))
        in_topic = stored.select(F.col("stored").alias("hash")).agg(*sums).first()
        in_archive = both.select(F.col("actual").alias("hash")).agg(*sums).first()
        assert in_topic is not None
        if in_topic == in_archive:
            self._result.compared = in_topic["rows"]
            return
        self._join(stored, both)

    def _join(self, stored: DataFrame, both: DataFrame) -> None:
        topic = stored.alias("t")
        archive = both.alias("a")
        same = [F.col(f"t.{name}").eqNullSafe(F.col(f"a.{name}")) for name in _POSITION]
        joined = topic.join(archive, same, "full_outer").select(
            *(F.coalesce(F.col(f"t.{name}"), F.col(f"a.{name}")).alias(name) for name in _POSITION),
            F.coalesce(F.col("t.__messageIdText"), F.col("a.__messageIdText")).alias("__messageIdText"),
            "stored",
            "actual",
        )
        joined = joined.persist()
        try:
            self._add_rows("missing row", joined.where("actual is null"))
            self._add_rows("extra row", joined.where("stored is null"))
            self._add_rows("different row", joined.where("stored != actual"))
            self._result.compared = joined.where("stored = actual").count()
        finally:
            joined.unpersist()


def _key(file: DataFile) -> str:
    return f"{file.date}/{file.name.rpartition('/')[2]}"


def _in(ranges: list[EntryRange]) -> str:
    """A condition for the rows of these ranges."""
    return " or ".join(f"({_within(each)})" for each in ranges)


def _within(span: EntryRange) -> str:
    partition = span.start.partition
    where = "__partition is null" if partition < 0 else f"__partition = {partition}"
    position, start, end = f"struct({LEDGER}, {ENTRY_ID})", span.start, span.end
    low, high = (f"struct({one.ledger_id}L, {one.entry_id}L)" for one in (start, end))
    return f"{where} and {position} > {low} and {position} <= {high}"

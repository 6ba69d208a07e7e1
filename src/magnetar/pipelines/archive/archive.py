"""Archiving: topics become files by topic and date, round by round, exactly once.

The subscription is the checkpoint that keeps messages, the manifests say what is archived. Each round reads ranges of
entries, writes files to a staging folder, commits its manifests, renames the files into place and acknowledges:

    killed before the commit    nothing is archived; the next run deletes the staging folder and reads the range again
    killed after the commit     the next run renames the files that are left, and acknowledges

A table, see `table`, commits by itself: each topic of a round is planned, appended and committed after each other.

A round is committed per topic, so that a topic is archived by one run at a time and several runs may share an archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from magnetar.client.message import MessageId, Position
from magnetar.declared.archive import ROUND_BYTES_DEFAULT, SUBSCRIPTION_DEFAULT
from magnetar.declared.topic_set import TopicSet
from magnetar.names import TopicName
from magnetar.pipelines.archive import layout
from magnetar.pipelines.archive.columns import ENTRY_ID, FILES, HASH, LEDGER, UNREADABLE, hashed
from magnetar.pipelines.archive.folder import Folder
from magnetar.pipelines.archive.manifest import ArchivedRange, ArchivedRound, DataFile, parse_position
from magnetar.pipelines.archive.rows import TopicRows
from magnetar.pipelines.archive.source import SourceTopics
from magnetar.pipelines.archive.store import Archive
from magnetar.pipelines.archive.table import ArchiveTable, append_round, check_source, table_of
from magnetar.pipelines.run import Progress, RunContext, RunFailed
from magnetar.spark.source.entry_range import EntryRange, split_ranges

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": "64",  # a task with more dates than this sorts its rows by date
    "spark.sql.sources.partitionColumnTypeInference.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Of the session of a run, which is not the user's."""


@dataclass
class ArchiveResult:
    """What a run has archived: `topics` are the messages of each. It is not complete if it was stopped."""

    topics: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    unreadable: int = 0
    bytes: int = 0
    files: int = 0
    rounds: int = 0
    notes: list[str] = field(default_factory=list)
    is_complete: bool = True


def own_session(spark: SparkSession) -> SparkSession:
    """A session with the settings of archives, on the same Spark."""
    session = spark.newSession()
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    return session


def archive(
    context: RunContext,
    sets: Sequence[TopicSet],
    path: str,
    *,
    format: str = "parquet",
    subscription: str = SUBSCRIPTION_DEFAULT,
    round_bytes: int = ROUND_BYTES_DEFAULT,
) -> ArchiveResult:
    """Archives everything up to the messages that exist now. Raises `RunFailed` and errors of the client."""
    session = own_session(context.spark)
    check_source(session, format, path)
    store = Archive.open_or_create(Folder(session, path), format)
    with SourceTopics(context.endpoint, sets, subscription) as source:
        run = _Run(context, session, store, source, subscription)
        run.resume()
        run.archive_all(round_bytes)
        return run.result


class _Run:
    """One run: `_ends` and `_numbers` are those of the newest round of each topic, `_until` is where it ends."""

    def __init__(
        self, context: RunContext, session: SparkSession, store: Archive, source: SourceTopics, subscription: str
    ) -> None:
        self.result = ArchiveResult()
        self._context = context
        self._rows = TopicRows(session, context.endpoint)
        self._session = session
        self._store = store
        self._table = table_of(session, store)
        self._source = source
        self._subscription = subscription
        self._ends: dict[str, dict[int, str]] = {}
        self._numbers: dict[str, int] = {}
        self._until: dict[str, MessageId] = {}
        self._entries_total: int | None = None
        self._entries_done = 0
        if not source.topics:
            self.result.notes.append("no topic has one of these names")

    # -- resume

    def resume(self) -> None:
        """Finishes the round that a killed run has committed or planned, and deletes what it has not."""
        self._source.hold()
        rounds = [last for topic in self._source.topics if (last := self._store.last(topic)) is not None]
        planned = self._planned()
        for last in (*rounds, *planned):
            if last.subscription != self._subscription:
                raise RunFailed(
                    f"{last.topic} is archived in {self._store.folder.path} by subscription {last.subscription}, not"
                    f" {self._subscription}: another archive needs another path"
                )
            self._numbers[last.topic], self._ends[last.topic] = last.number, last.ends
        self._until = self._source.ends(self._archived())
        for last in rounds:
            self._store.put_in_place(last)
            self._acknowledge(last)
        self._store.clean(self._source.topics)
        if self._table is not None:
            for each in planned:
                self._append(self._table, each)

    def _planned(self) -> list[ArchivedRound]:
        """The rounds of a table that a killed run has planned, and maybe appended, but not committed."""
        topics = self._source.topics if self._table is not None else ()
        found = [plan for topic in topics if (plan := self._store.planned(topic)) is not None]
        committed = {plan.topic for plan in found if self._store.has(plan)}
        for topic in committed:
            self._store.end_plan(topic)
        return [plan for plan in found if plan.topic not in committed]

    def _acknowledge(self, made: ArchivedRound) -> None:
        partitions = self._source.topics[made.topic]
        for number, end in made.ends.items():
            if number in partitions:
                self._source.acknowledge(partitions[number], parse_position(end))

    # -- rounds

    def archive_all(self, round_bytes: int) -> None:
        ends = self._until
        self._report_skipped()
        counts = [
            end.entry_id - self._source.positions[name].entry_id
            for name, end in ends.items()
            if end.ledger_id == self._source.positions[name].ledger_id
        ]
        self._entries_total = max(0, sum(counts)) if len(counts) == len(ends) else None
        self._report("reading")
        while ranges := self._source.next_ranges(ends, round_bytes):
            if self._context.is_stopping:
                self.result.is_complete = False
                return
            self._round(ranges)

    def _archived(self) -> dict[str, Position]:
        return {
            self._source.topics[topic][number]: parse_position(end)
            for topic, ends in self._ends.items()
            for number, end in ends.items()
            if number in self._source.topics[topic]
        }

    def _report_skipped(self) -> None:
        """Messages that something else acknowledged are not archived: expired ones, or a cleared backlog."""
        for name, end in self._archived().items():
            position = self._source.positions[name]
            if position > end:
                self.result.notes.append(
                    f"{name} is archived up to {end.ledger_id}:{end.entry_id}, but subscription {self._subscription} is"
                    f" at {position.ledger_id}:{position.entry_id}: what is between was acknowledged by something else"
                )

    def _round(self, ranges: list[EntryRange]) -> None:
        topics = sorted({layout.short_name(TopicName.parse(each.topic)) for each in ranges})
        if self._table is None:
            self._write_round(topics, ranges)
        else:
            for topic in topics:
                planned = self._round_of(topic, "", ranges, [])
                self._store.plan(planned)
                self._append(self._table, planned)
        self.result.rounds += 1
        self._entries_done += sum(each.entries or 0 for each in ranges)
        self._report("reading")

    def _write_round(self, topics: list[str], ranges: list[EntryRange]) -> None:
        token = self._store.begin(topics)
        files = self._write(token, ranges)
        self._source.check_held(each.topic for each in ranges)
        rounds = [self._round_of(topic, token, ranges, files.get(topic, [])) for topic in topics]
        for made in rounds:
            self._store.commit(made)
            self._numbers[made.topic], self._ends[made.topic] = made.number, made.ends
        for made in rounds:
            self._store.put_in_place(made)
            self._acknowledge(made)
            self._count(made)
        self._store.end(token)

    def _append(self, table: ArchiveTable, planned: ArchivedRound) -> None:
        """Appends a planned round to the table unless it is there, and commits it."""
        ranges = self._ranges_of(planned)
        tasks = self._session.sparkContext.defaultParallelism
        rows = hashed(self._rows.of(split_ranges(ranges, tasks)))
        made = msgspec.structs.replace(planned, files=append_round(table, self._store, planned, rows))
        self._source.check_held(each.topic for each in ranges)
        self._store.commit(made)
        self._numbers[made.topic], self._ends[made.topic] = made.number, made.ends
        self._acknowledge(made)
        self._store.end_plan(made.topic)
        self._count(made)

    def _ranges_of(self, planned: ArchivedRound) -> list[EntryRange]:
        partitions = self._source.topics[planned.topic]
        for part in planned.ranges:
            if part.partition not in partitions:
                raise RunFailed(f"{planned.topic} has no partition {part.partition}, of which a round is planned")
        return [
            EntryRange(
                partitions[part.partition],
                MessageId(*parse_position(part.after), part.partition),
                MessageId(*parse_position(part.last), part.partition),
            )
            for part in planned.ranges
        ]

    def _round_of(self, topic: str, token: str, ranges: list[EntryRange], files: list[DataFile]) -> ArchivedRound:
        parts = [
            ArchivedRange(name.partition, _text(each.start.position), _text(each.end.position))
            for each in ranges
            if layout.short_name(name := TopicName.parse(each.topic)) == topic
        ]
        ends = {**self._ends.get(topic, {}), **{part.partition: part.last for part in parts}}
        return ArchivedRound(topic, self._numbers.get(topic, 0) + 1, self._subscription, token, parts, files, ends)

    def _count(self, made: ArchivedRound) -> None:
        result = self.result
        result.topics[made.topic] = result.topics.get(made.topic, 0) + made.rows
        result.rows += made.rows
        result.unreadable += sum(file.unreadable for file in made.files)
        result.bytes += made.bytes
        result.files += sum(file.is_file for file in made.files)

    def _report(self, note: str) -> None:
        result = self.result
        total = self._entries_total
        if total is not None and self._entries_done:
            total = max(result.rows, round(result.rows * total / self._entries_done))  # entries are batches
        counts = {"bytes": result.bytes, "files": result.files, "unreadable": result.unreadable}
        self._context.report(Progress(result.rows, total, counts, note))

    # -- files

    def _write(self, token: str, ranges: list[EntryRange]) -> dict[str, list[DataFile]]:
        """Writes the rows of the ranges to the staging folder: the files by topic."""
        tasks = self._session.sparkContext.defaultParallelism
        rows = hashed(self._rows.of(split_ranges(ranges, tasks)))
        folder = self._store.folder.full(layout.staging(token))
        format = self._store.info.format
        try:
            rows.write.partitionBy(layout.TOPIC, layout.DATE).format(format).save(folder)
            return self._files(token, self._session.read.schema(FILES).format(format).load(folder))
        except Exception as error:
            reason = write_failure(error)
            if reason is None:
                raise
            raise RunFailed(f"{self._store.folder.path} cannot be written: {reason}") from error

    def _files(self, token: str, rows: DataFrame) -> dict[str, list[DataFile]]:
        position = F.struct(LEDGER, ENTRY_ID)
        found = rows.groupBy("_metadata.file_path", "_metadata.file_size", layout.TOPIC, layout.DATE).agg(
            F.count("*").alias("rows"),
            F.min(position).alias("first"),
            F.max(position).alias("last"),
            F.max("__partition").alias("partition"),
            F.bit_xor(HASH).alias("hash"),
            F.count(UNREADABLE).alias("unreadable"),
        )
        files: dict[str, list[DataFile]] = {}
        for row in found.collect():
            topic, date = row[layout.TOPIC], row[layout.DATE].isoformat()
            first, last = (f"{row[end][LEDGER]}:{row[end][ENTRY_ID]}" for end in ("first", "last"))
            partition = -1 if row["partition"] is None else row["partition"]
            staged_folder = f"{layout.staging(token)}/{layout.topic_folder(topic)}/{layout.DATE}={date}"
            staged = f"{staged_folder}/{row['file_path'].rpartition('/')[2]}"
            files.setdefault(topic, []).append(
                DataFile(
                    layout.data_file(topic, date, partition, first, last, self._store.info.format),
                    staged,
                    partition,
                    date,
                    first,
                    last,
                    row["rows"],
                    row["file_size"],
                    row["hash"],
                    row["unreadable"],
                )
            )
        return {topic: sorted(each, key=lambda file: (file.partition, file.name)) for topic, each in files.items()}


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def write_failure(error: Exception) -> str | None:
    """The reason, if Spark could not write files; None for an error of something else."""
    text = str(error)
    for mark in ("Mkdirs failed", "Permission denied", "No space left on device", "AccessControlException"):
        if mark in text:
            return next(line.strip() for line in text.splitlines() if mark in line)[:300]
    return None

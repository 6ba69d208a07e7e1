"""A selection of an archive: files of some topics and of a time range, their rows, and a condition in SQL.

Reads committed files only, by the manifests, so that a file that is missing is an error. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from magnetar.declared.topic_set import TopicSet
from magnetar.errors import InvalidSetting
from magnetar.names import TopicName
from magnetar.pipelines.archive.columns import FILES
from magnetar.pipelines.archive.manifest import DataFile
from magnetar.pipelines.archive.store import Archive
from magnetar.pipelines.archive.table import rows_of, table_of
from magnetar.pipelines.run import RunFailed

_DAY_MS = 86_400_000


class TimeRange(NamedTuple):
    """Publish times in milliseconds, from `since_ms` to before `until_ms`."""

    since_ms: int | None = None
    until_ms: int | None = None

    def check(self) -> None:
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise InvalidSetting(f"since {time_text(self.since_ms)} is not before until {time_text(self.until_ms)}")

    def has_date(self, date: str) -> bool:
        """Whether a message of this date can be in the range."""
        start_ms = int(datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp() * 1000)
        is_late = self.until_ms is not None and start_ms >= self.until_ms
        return not is_late and (self.since_ms is None or start_ms + _DAY_MS > self.since_ms)

    def of(self, rows: DataFrame) -> DataFrame:
        time_ms = F.unix_millis("__publishTime")
        if self.since_ms is not None:
            rows = rows.where(time_ms >= self.since_ms)
        return rows if self.until_ms is None else rows.where(time_ms < self.until_ms)


def time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat().replace("+00:00", "Z")


def topics_in(archive: Archive, sets: Sequence[TopicSet]) -> list[str]:
    """The archived topics that are selected; without sets, all. A topic that is not archived is an error."""
    present = archive.topics()
    if not sets:
        return present
    names = {topic: TopicName.parse(topic) for topic in present}
    for one in sets:
        if one.is_topic and not any(one.has(name) for name in names.values()):
            raise RunFailed(
                f"{one} is not in the archive {archive.folder.path}, which has {', '.join(present[:10]) or 'no topic'}"
            )
    return [topic for topic, name in names.items() if any(one.has(name) for one in sets)]


def files_in(archive: Archive, topics: Iterable[str], times: TimeRange) -> list[tuple[str, DataFile]]:
    """Files with their topics, in an order in which the positions of each partition ascend."""
    times.check()
    return [
        (topic, file)
        for topic in topics
        for made in archive.rounds(topic)
        for file in sorted(made.files, key=_order)
        if times.has_date(file.date)
    ]


def _order(file: DataFile) -> tuple[int, ...]:
    ledger_id, _, entry_id = file.first.partition(":")
    return file.partition, int(ledger_id), int(entry_id)


def read_files(session: SparkSession, archive: Archive, files: Sequence[DataFile]) -> DataFrame:
    """Their rows, with the topic and the date."""
    table = table_of(session, archive)
    if table is not None:
        return rows_of(table, files)
    reader = session.read.schema(FILES).option("basePath", archive.folder.uri).format(archive.info.format)
    try:
        return reader.load([archive.folder.full(file.name) for file in files])
    except AnalysisException as error:
        missing = [file.name for file in files if not archive.folder.exists(file.name)]
        if not missing:
            raise
        raise RunFailed(
            f"{len(missing)} files of the archive {archive.folder.path} are missing, the first is {missing[0]}"
        ) from error


def matching(rows: DataFrame, where: str | None) -> DataFrame:
    """The rows that match a condition; raises `InvalidSetting` for a wrong one."""
    if where is None:
        return rows
    if not where.strip():
        raise InvalidSetting("where is empty")
    try:
        return rows.where(where)
    except (AnalysisException, ParseException) as error:
        reason = " ".join(str(error).split("\n\n")[0].split())
        raise InvalidSetting(f"where {where[:100]!r} is wrong: {reason[:300]}") from None

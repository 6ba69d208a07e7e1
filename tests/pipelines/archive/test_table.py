"""Archives that are a table: planned rounds are there once, whatever is killed. A table of Parquet files stands for
Delta Lake, which is not installed here; `compat/run spark42` runs the same with Delta Lake itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from magnetar.pipelines.archive import table as tables
from magnetar.pipelines.archive.archive import ArchiveResult
from magnetar.pipelines.archive.check import TopicCheck, check
from magnetar.pipelines.archive.columns import FILES
from magnetar.pipelines.archive.folder import Folder
from magnetar.pipelines.archive.replay import ReplaySpec, preview, replay
from magnetar.pipelines.archive.source import SourceTopics
from magnetar.pipelines.archive.store import Archive
from magnetar.pipelines.run import RunFailed
from magnetar.testing import TestBroker
from tests.pipelines.archive.conftest import DAY_MS, Site
from tests.pipelines.archive.test_archive import Killed, dies


class ParquetTable:
    """A folder for each append, which appears whole; an append whose folder is there changes nothing."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._folder = Path(path.removeprefix("file:")) / "_appends"

    @classmethod
    def check(cls, session: SparkSession, path: str) -> None:
        pass

    def append(self, rows: DataFrame, name: str, number: int) -> None:
        written, appended = (self._folder / f"{kind}{quote(name, safe='')}-{number}" for kind in (".", ""))
        if not appended.exists():
            rows.write.mode("overwrite").parquet(f"file:{written}")
            written.rename(appended)

    def rows(self) -> DataFrame:
        return self._session.read.schema(FILES).parquet(*(f"file:{each}" for each in self._folder.glob("[!.]*")))


@pytest.fixture
def site(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(tables, "DeltaTable", ParquetTable)
    return site


def archive(site: Site, *topics: str, **options: Any) -> ArchiveResult:
    return site.archive(*topics, format="delta", **options)


def rows(site: Site) -> list[tuple[str, str]]:
    found = ParquetTable(site.spark, site.path).rows().orderBy("topic", "__partition", "__ledgerId", "__entryId")
    return [(row["topic"].rpartition("/")[2], bytes(row["value"]).decode()) for row in found.collect()]


def compare(site: Site) -> TopicCheck:
    [found] = check(site.context(), site.path)
    return found


def kinds(found: TopicCheck) -> dict[str, int]:
    return {kind: each.count for kind, each in found.found.items()}


def _second() -> Callable[..., bool]:
    calls: list[int] = []
    return lambda *_: calls.append(1) or len(calls) == 2


def _plan_moves() -> Callable[..., bool]:
    return lambda name, to: "_magnetar/planned" in to


STEPS: dict[str, tuple[type, str, Callable[[], Callable[..., bool]]]] = {
    "before-planning": (Archive, "plan", lambda: lambda *_: True),
    "plan-half-written": (Folder, "move", _plan_moves),
    "planned": (ParquetTable, "append", lambda: lambda *_: True),
    "one-topic-planned": (ParquetTable, "append", _second),
    "appended": (ParquetTable, "rows", lambda: lambda *_: True),
    "counted": (Archive, "commit", lambda: lambda *_: True),
    "one-topic-committed": (Archive, "commit", _second),
    "committed": (SourceTopics, "acknowledge", lambda: lambda *_: True),
    "one-partition-acknowledged": (SourceTopics, "acknowledge", _second),
    "acknowledged": (Archive, "end_plan", lambda: lambda *_: True),
}


@pytest.mark.parametrize("step", STEPS)
def test_sp5_a_table_has_each_message_once_whatever_step_is_killed(
    site: Site, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, several = site.topic(), site.topic(partitions=2)
    expected: list[tuple[str, str]] = []

    def publish(text: str) -> None:
        for topic, name in ((one, one), (several, f"{several}-partition-0"), (several, f"{several}-partition-1")):
            site.publish(f"persistent://public/default/{name}", f"{text}-{name}")
            expected.append((topic, f"{text}-{name}"))

    publish("a")
    archive(site, one, several)
    publish("b")
    owner, name, when = STEPS[step]
    with monkeypatch.context() as patch:
        dies(patch, owner, name, when())
        with pytest.raises(Killed):
            archive(site, one, several)
    publish("c")
    archive(site, one, several)
    assert sorted(rows(site)) == sorted(expected)
    assert site.backlog(one) == 0
    assert list(Path(site.path, "_magnetar/planned").glob("*.json")) == []
    store = Archive.open(Folder(site.spark, site.path))
    committed = {topic: sum(made.rows for made in store.rounds(topic)) for topic in store.topics()}
    assert committed == {f"public/default/{one}": 3, f"public/default/{several}": 6}


def test_sp5_a_planned_round_is_finished_with_its_own_ranges(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed after the append does not append what has arrived meanwhile as that round."""
    topic = site.topic()
    site.publish(topic, "a")
    with monkeypatch.context() as patch:
        dies(patch, Archive, "commit")
        with pytest.raises(Killed):
            archive(site, topic)
    site.publish(topic, "b", "c")
    result = archive(site, topic)
    assert (result.rows, result.files, result.bytes) == (3, 0, 3)
    made = Archive.open(Folder(site.spark, site.path)).rounds(f"public/default/{topic}")
    assert [(each.number, each.rows) for each in made] == [(1, 1), (2, 2)]
    assert made[0].ends[-1] == made[1].ranges[0].after


def test_sp5_what_is_appended_and_not_committed_is_not_replayed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, target = site.topic(), site.topic()
    site.keep(topic)
    site.publish(topic, "a")
    archive(site, topic)
    site.publish(topic, "b")
    dies(monkeypatch, Archive, "commit")
    with pytest.raises(Killed):
        archive(site, topic)
    assert rows(site) == [(topic, "a"), (topic, "b")]
    assert replay(site.context(), ReplaySpec(path=site.path, to=target)).sent == 1
    found = compare(site)
    assert found.agrees and found.rows == 1


def test_sp5_a_table_is_replayed_in_order_and_by_time(site: Site) -> None:
    topic, target, later = site.topic(partitions=2), site.topic(partitions=2), site.topic()
    for number in range(8):
        name = f"persistent://public/default/{topic}-partition-{number % 2}"
        site.publish_entry(name, b"%d" % number, publish_time=number * DAY_MS)
        if number == 3:
            archive(site, topic)
    archive(site, topic)
    assert replay(site.context(), ReplaySpec(path=site.path, to=target)).sent == 8
    for partition in range(2):
        found = site.read(f"persistent://public/default/{target}-partition-{partition}")
        assert [int(message.value) for message in found] == list(range(partition, 8, 2))
    spec = ReplaySpec(path=site.path, to=later, where="__partition = 1", rate=100.0)
    assert preview(site.context(), spec).selected == 4
    assert replay(site.context(), spec).sent == 4


def test_sp5_what_a_table_has_lost_or_changed_is_found(site: Site) -> None:
    topic = site.topic()
    site.keep(topic)
    site.publish(topic, "a", "b")
    archive(site, topic)
    site.publish(topic, "c", "d")
    archive(site, topic)
    found = compare(site)
    assert kinds(found) == {} and (found.files, found.rows, found.compared) == (0, 4, 4)
    _, second = sorted(Path(site.path, "_appends").iterdir())
    table = site.spark.read.schema(FILES).parquet(str(second))
    changed = table.where("value = cast('c' as binary)").withColumn("value", F.lit(b"?")).persist()
    assert changed.count() == 1
    other = second.with_name(".other")
    changed.write.parquet(str(other))
    changed.unpersist()
    shutil.rmtree(second)
    other.rename(second)
    found = compare(site)
    assert kinds(found) == {"changed table": 1, "changed row": 1, "different row": 1, "missing row": 1}
    assert "has 3 messages, not 4" in found.found["changed table"].places[0]


def test_sp5_a_table_of_another_subscription_is_refused_before_its_round_is_finished(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = site.topic()
    site.publish(topic, "a")
    with monkeypatch.context() as patch:
        dies(patch, ParquetTable, "append")
        with pytest.raises(Killed):
            archive(site, topic)
    with pytest.raises(RunFailed, match=r"by subscription magnetar\.archive, not other"):
        archive(site, topic, subscription="other")


# -- Delta Lake itself


def test_sp5_without_delta_lake_nothing_is_made(running: TestBroker, spark: SparkSession, tmp_path: Path) -> None:
    site = Site(running, spark, tmp_path)
    topic = site.topic()
    with pytest.raises(RunFailed, match=r"no data source delta: add Delta Lake to it, by spark\.jars\.packages such"):
        archive(site, topic)
    assert not Path(site.path).exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x\njava.lang.NoSuchMethodError: 'void f()'", "is for another version of Spark: .*NoSuchMethodError"),
        ("[DELTA_CONFIGURE_SPARK] it\n\nneeds", r"the table .* cannot be used: \[DELTA_CONFIGURE_SPARK\] it needs$"),
    ],
)
def test_sp5_what_is_wrong_with_delta_lake_is_one_sentence(
    site: Site, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    def fails(*_: Any) -> None:
        raise AnalysisException(text)

    topic = site.topic()
    site.publish(topic, "a")
    with monkeypatch.context() as patch:
        patch.setattr(ParquetTable, "append", fails)
        with pytest.raises(RunFailed, match=reason):
            archive(site, topic)
    archive(site, topic)
    assert rows(site) == [(topic, "a")]
    monkeypatch.setattr(ParquetTable, "rows", fails)
    with pytest.raises(RunFailed, match=reason):
        compare(site)

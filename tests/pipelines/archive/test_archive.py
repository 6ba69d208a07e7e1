"""Archives of topics on a real broker: what is in the files, and exactly once whatever is killed (SP5)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from pulsar.schema import JsonSchema, Record, String

from magnetar.client import Client
from magnetar.declared.archive import ArchiveSpec
from magnetar.errors import InvalidSetting
from magnetar.pipelines.archive import archive as archiving
from magnetar.pipelines.archive.archive import archive
from magnetar.pipelines.archive.folder import Folder
from magnetar.pipelines.archive.layout import escaped
from magnetar.pipelines.archive.run import run
from magnetar.pipelines.archive.source import SourceTopics
from magnetar.pipelines.archive.store import Archive
from magnetar.pipelines.run import RunFailed
from tests.pipelines.archive.conftest import DAY_MS, Site, sets_of

MIDNIGHT_MS = int(datetime(2026, 1, 31, tzinfo=UTC).timestamp() * 1000)


def values(site: Site) -> list[str]:
    return [bytes(row["value"]).decode() for row in site.rows()]


def test_sp5_runs_append_what_has_arrived_and_clear_the_backlog(site: Site) -> None:
    topic = site.topic()
    site.publish(topic, "a", "b")
    first = site.archive(topic)
    assert (first.rows, first.rounds, first.topics) == (2, 1, {f"public/default/{topic}": 2})
    assert site.backlog(topic) == 0
    assert site.archive(topic).rounds == 0
    site.publish(topic, "c")
    assert site.archive(topic).rows == 1
    assert values(site) == ["a", "b", "c"]
    rounds = Archive.open(Folder(site.spark, site.path)).rounds(f"public/default/{topic}")
    assert [(made.number, made.ranges[0].after, made.ranges[0].last) for made in rounds] == [
        (1, rounds[0].ranges[0].after, rounds[0].ends[-1]),
        (2, rounds[0].ends[-1], rounds[1].ends[-1]),
    ]


def test_sp5_topics_partitions_patterns_and_namespaces(site: Site) -> None:
    one, several = site.topic(), site.topic(partitions=3)
    site.publish(one, "x")
    for number in range(12):
        site.publish(f"persistent://public/default/{several}-partition-{number % 3}", f"{number}")
    result = site.archive(f"{one}*", several)
    assert result.topics == {f"public/default/{one}": 1, f"public/default/{several}": 12}
    rows = [row for row in site.rows() if row["topic"] == f"public/default/{several}"]
    assert Counter(row["__partition"] for row in rows) == {0: 4, 1: 4, 2: 4}
    assert [bytes(row["value"]).decode() for row in rows if row["__partition"] == 1] == ["1", "4", "7", "10"]
    files = sorted(path.name for path in Path(site.path).glob(f"topic={escaped(rows[0]['topic'])}/*/*.parquet"))
    assert [name.split("-")[1] for name in files] == ["00000", "00001", "00002"]
    assert (
        site.archive("public/default", path=f"{site.path}-2", subscription="all").topics.keys() >= result.topics.keys()
    )
    assert site.archive("no-*", path=f"{site.path}-3").notes == ["no topic has one of these names"]


def test_sp5_dates_are_those_of_publishing_in_utc(site: Site) -> None:
    topic = site.topic()
    for time_ms in (MIDNIGHT_MS - 1, MIDNIGHT_MS, MIDNIGHT_MS + DAY_MS - 1, MIDNIGHT_MS + DAY_MS):
        site.publish_entry(topic, b"%d" % time_ms, publish_time=time_ms)
    assert site.archive(topic).files == 3
    rows = site.rows()
    assert [row["date"] for row in rows] == [date(2026, 1, 30), *[date(2026, 1, 31)] * 2, date(2026, 2, 1)]
    times = site.spark.read.parquet(site.path).selectExpr("unix_micros(__publishTime) as us").collect()
    assert sorted(row["us"] for row in times)[:2] == [(MIDNIGHT_MS - 1) * 1000, MIDNIGHT_MS * 1000]


class Order(Record):  # type: ignore[misc]
    state = String()


def test_sp5_every_kind_of_message_is_kept(site: Site) -> None:
    topic = site.topic()
    client = pulsar.Client(site.running.service_url)
    batched = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=1000, compression_type=pulsar.CompressionType.LZ4
    )
    for number in range(20):
        batched.send_async(b"b%d" % number, None, partition_key=f"k{number % 3}", properties={"n": str(number)})
    batched.flush()
    plain = client.create_producer(topic, batching_enabled=False)
    plain.send(b"with", event_timestamp=1234, ordering_key="o", properties={"a": "", "b": "ü"})
    plain.send(b"")
    client.close()
    site.publish_entry(topic, b"", null_value=True, partition_key="gone")
    site.publish_entry(topic, b"sealed payload", encryption_keys="key")
    result = site.archive(topic)
    assert (result.rows, result.unreadable) == (24, 1)
    rows = site.rows()
    batch = sorted(rows[:20], key=lambda row: row["__batchIndex"])
    assert [bytes(row["value"]) for row in batch] == [b"b%d" % number for number in range(20)]
    assert [row["__messageProperties"]["n"] for row in batch] == [str(number) for number in range(20)]
    assert batch[7]["__messageIdText"].endswith(":-1:7") and bytes(batch[7]["__key"]) == b"k1"
    full, empty, tombstone, sealed = rows[20:]
    assert (full["__messageProperties"], bytes(full["__orderingKey"])) == ({"a": "", "b": "ü"}, b"o")
    assert full["__eventTime"].timestamp() == 1.234
    assert (empty["value"], tombstone["value"]) == (b"", None)
    assert bytes(tombstone["__key"]) == b"gone" and tombstone["__error"] is None
    assert sealed["value"] is None and "encrypted" in sealed["__error"]
    assert bytes(sealed["__entry"]).endswith(b"sealed payload") and all(row["__entry"] is None for row in rows[:23])


def test_sp5_chunked_messages_are_one_row(site: Site) -> None:
    topic, payload = site.topic(), bytes(range(256)) * 24_000
    client = pulsar.Client(site.running.service_url)
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    producer.send(payload)
    client.close()
    assert site.archive(topic).rows == 1
    assert [bytes(row["value"]) for row in site.rows()] == [payload]


def test_sp5_schema_versions_are_kept(site: Site) -> None:
    topic = site.topic()
    client = pulsar.Client(site.running.service_url)
    client.create_producer(topic, schema=JsonSchema(Order)).send(Order(state="paid"))
    client.close()
    site.archive(topic)
    [row] = site.rows()
    assert (row["__schemaVersion"], json.loads(row["value"])) == (0, {"state": "paid"})


def test_sp5_rounds_have_a_bounded_size(site: Site) -> None:
    topic = site.topic()
    site.publish(topic, *["x" * 1000] * 40)
    result = site.archive(topic, round_bytes=10_000)
    assert result.rounds >= 4 and result.rows == 40
    assert len({row["__messageIdText"] for row in site.rows()}) == 40


def test_sp5_orc(site: Site) -> None:
    topic = site.topic()
    site.publish(topic, "a")
    site.archive(topic, format="orc")
    assert [bytes(row["value"]) for row in site.spark.read.orc(site.path).collect()] == [b"a"]


# -- kills


class Killed(BaseException):
    """As if the process had ended here."""


def dies(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, when: Callable[..., bool] = lambda *_: True) -> None:
    original = getattr(owner, name)

    def call(self: Any, *arguments: Any) -> Any:
        if when(*arguments):
            raise Killed
        return original(self, *arguments)

    monkeypatch.setattr(owner, name, call)


def _is_second() -> Callable[..., bool]:
    calls: list[int] = []
    return lambda *_: calls.append(1) or len(calls) == 2


STEPS: dict[str, tuple[type, str, Callable[[], Callable[..., bool]]]] = {
    "before-writing": (archiving._Run, "_write", lambda: lambda *_: True),
    "written": (Archive, "commit", lambda: lambda *_: True),
    "manifest-half-written": (Folder, "move", lambda: lambda name, to: "_magnetar/topics" in to),
    "one-topic-committed": (Archive, "commit", _is_second),
    "committed": (Archive, "put_in_place", lambda: lambda *_: True),
    "one-file-in-place": (Folder, "move", lambda: _data_moves(2)),
    "in-place": (SourceTopics, "acknowledge", lambda: lambda *_: True),
    "one-partition-acknowledged": (SourceTopics, "acknowledge", _is_second),
    "acknowledged": (Archive, "end", lambda: lambda *_: True),
}


def _data_moves(number: int) -> Callable[..., bool]:
    moves: list[str] = []
    return lambda name, to: "part-" in to and (moves.append(to) or len(moves) == number)


@pytest.mark.parametrize("step", STEPS)
def test_sp5_exactly_once_whatever_step_is_killed(site: Site, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, several = site.topic(), site.topic(partitions=2)
    expected: list[tuple[str, str]] = []

    def publish(text: str) -> None:
        for partition, topic in enumerate((one, f"{several}-partition-0", f"{several}-partition-1")):
            site.publish(f"persistent://public/default/{topic}", f"{text}{partition}")
            expected.append((one if topic == one else several, f"{text}{partition}"))

    publish("a")
    site.archive(one, several)
    publish("b")
    publish("c")
    owner, name, when = STEPS[step]
    with monkeypatch.context() as patch:
        dies(patch, owner, name, when())
        with pytest.raises(Killed):
            site.archive(one, several)
    assert len(values(site)) == len(set(values(site)))  # a plain reader sees nothing twice in between
    publish("d")
    site.archive(one, several)
    found = [(row["topic"].rpartition("/")[2], bytes(row["value"]).decode()) for row in site.rows()]
    assert sorted(found) == sorted(expected)
    staging = Path(site.path, "_magnetar/staging")
    assert [path for path in staging.rglob("*") if not path.name.endswith(".crc")] == []
    assert list(Path(site.path).rglob("*.writing")) == []
    assert site.backlog(one) == 0


def test_sp5_a_run_does_not_touch_what_runs_of_other_topics_have_staged(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = site.topic(), site.topic()
    site.publish(one, "a")
    site.publish(other, "b")
    with monkeypatch.context() as patch:
        dies(patch, Archive, "commit")
        with pytest.raises(Killed):
            site.archive(one)
    site.archive(other)
    staged = list(Path(site.path, "_magnetar/staging").rglob("part-*.parquet"))
    assert len(staged) == 1 and escaped(f"public/default/{one}") in str(staged[0])
    site.archive(one, other)
    assert sorted(values(site)) == ["a", "b"]


def test_sp5_a_stopped_run_ends_after_a_round_and_continues(site: Site) -> None:
    topic = site.topic()
    site.publish(topic, *["x" * 1000] * 30)
    result = archive(site.context(reports_max=2), sets_of(topic), site.path, round_bytes=10_000)
    assert not result.is_complete and 0 < result.rows < 30
    assert site.archive(topic).rows == 30 - result.rows


def test_sp5_declared_archives_run_again_at_their_interval(site: Site) -> None:
    topic = site.topic()
    site.publish(topic, "a")
    context = site.context()
    run(context, ArchiveSpec(topics=[topic], path=site.path, every_s=60))
    assert context.waited == [60, 60] and values(site) == ["a"]
    once = site.context()
    run(once, ArchiveSpec(topics=[topic], path=site.path))
    assert once.waited == []


# -- bad input


def test_sp5_one_run_at_a_time_archives_a_topic(site: Site) -> None:
    topic = site.topic()
    with Client(site.running.service_url) as client, client.cursor(topic, "magnetar.archive") as cursor:
        cursor.position()
        with pytest.raises(RunFailed, match="one run at a time archives a topic"):
            site.archive(topic)


def test_sp5_another_subscription_needs_another_archive(site: Site) -> None:
    topic = site.topic()
    site.publish(topic, "a")
    site.archive(topic)
    with pytest.raises(RunFailed, match=r"by subscription magnetar\.archive, not other: another archive needs"):
        site.archive(topic, subscription="other")


def test_sp5_what_others_acknowledged_is_named(site: Site) -> None:
    topic = site.topic()
    site.publish(topic, "a")
    site.archive(topic)
    site.publish(topic, "b")
    path = f"{site.running.http_url}/admin/v2/persistent/public/default/{topic}/subscription/magnetar.archive/skip_all"
    httpx.post(path).raise_for_status()
    site.publish(topic, "c")
    [note] = site.archive(topic).notes
    assert "what is between was acknowledged by something else" in note
    assert values(site) == ["a", "c"]


def test_sp5_paths_that_cannot_be_used(site: Site, tmp_path: Path) -> None:
    topic = site.topic()
    site.publish(topic, "a")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFailed, match=r"file/archive cannot be \w+: .*([Nn]ot a directory|Mkdirs failed)"):
        site.archive(topic, path=str(tmp_path / "file" / "archive"))
    with pytest.raises(RunFailed, match="is not an archive, and it is not empty: it has file"):
        site.archive(topic, path=str(tmp_path))
    with pytest.raises(RunFailed, match=r"cannot be opened: No FileSystem for scheme \"nosuch\""):
        site.archive(topic, path="nosuch://bucket/archive")
    with pytest.raises(RunFailed, match="the path of the archive is empty"):
        site.archive(topic, path=" ")
    with pytest.raises(RunFailed, match=r"is not an archive: there is no file _magnetar/archive\.json"):
        Archive.open(Folder(site.spark, str(tmp_path)))
    with pytest.raises(InvalidSetting, match="format 'iceberg' is not one of parquet, orc, delta"):
        site.archive(topic, format="iceberg")
    path_of = f"{site.running.http_url}/admin/v2/persistent/public/default/{topic}/subscriptions"
    assert httpx.get(path_of).raise_for_status().json() == []  # nothing is kept for an archive that is not one


def test_sp5_a_damaged_manifest_is_named(site: Site) -> None:
    topic = site.topic()
    site.publish(topic, "a")
    site.archive(topic)
    [manifest] = Path(site.path, "_magnetar/topics").rglob("0*.json")
    manifest.write_text("{")
    manifest.with_name(f".{manifest.name}.crc").unlink(missing_ok=True)
    with pytest.raises(RunFailed, match=r"0000000001\.json is damaged"):
        site.archive(topic)


def test_sp5_unknown_topics_and_namespaces(site: Site) -> None:
    with pytest.raises(RunFailed, match="topic persistent://public/default/nowhere does not exist"):
        site.archive("nowhere")
    assert site.archive("no/where").notes == ["no topic has one of these names"]


def test_sp5_an_archive_of_another_topic_of_the_same_name(site: Site) -> None:
    topic = site.topic()
    site.publish(topic, "a")
    site.archive(topic)
    [manifest] = Path(site.path, "_magnetar/topics").rglob("0*.json")
    made = json.loads(manifest.read_bytes())
    made["ends"]["-1"] = "999999:0"
    manifest.write_text(json.dumps(made))
    manifest.with_name(f".{manifest.name}.crc").unlink(missing_ok=True)
    site.publish(topic, "b")
    with pytest.raises(RunFailed, match=r"ends at \d+:1, but it is archived up to 999999:0"):
        site.archive(topic)
